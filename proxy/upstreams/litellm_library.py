"""LiteLLM itself, the library: imported on first use, kept offline and silent. Handed the arguments of a call; hands on
what it answers. Nothing it does by itself is printed or sent.
"""

from __future__ import annotations

import asyncio
import importlib
import importlib.util
import logging
import os
import ssl
import sys
import threading
from contextlib import suppress
from typing import Any

from providers.web.certificates import new_context

_OFFLINE = {
    "LITELLM_MODE": "PRODUCTION",  # else it reads a .env file
    "LITELLM_LOCAL_MODEL_COST_MAP": "True",  # else it fetches each of these from the web
    "LITELLM_LOCAL_ANTHROPIC_BETA_HEADERS": "True",
    "LITELLM_LOCAL_BLOG_POSTS": "True",
    "LITELLM_LOCAL_POLICY_TEMPLATES": "True",
    "LITELLM_LOCAL_AUTOROUTER_PRESETS": "True",
}
_SILENT: dict[str, Any] = {
    "telemetry": False,
    "suppress_debug_info": True,
    "set_verbose": False,
    "disable_streaming_logging": True,
    "turn_off_message_logging": True,
    "log_raw_request_response": False,
    "cache": None,
    "num_retries": None,
    "model_fallbacks": None,
    "drop_params": False,  # a dropped `tools` or `response_format` would be a silent lie
    "modify_params": False,
    "use_litellm_proxy": False,
    "aiohttp_trust_env": False,  # proxies are our business: see `litellm_session.py`
    "disable_aiohttp_trust_env": True,
    "disable_hf_tokenizer_download": True,  # else it fetches tokenizers to count with, while everybody waits
    "REPEATED_STREAMING_CHUNK_LIMIT": sys.maxsize,  # it takes a long row of equal pieces for a broken model
}
_CALLBACKS = ("callbacks", "input_callback", "success_callback", "failure_callback", "service_callback")
_ASYNC_CALLBACKS = ("_async_input_callback", "_async_success_callback", "_async_failure_callback")

_loading = threading.Lock()
_loaded: Any = None


def load() -> Any:
    """LiteLLM, imported once and made to keep still: nothing it does by itself is printed or sent."""
    global _loaded
    with _loading:
        if _loaded is None:
            os.environ.update(_OFFLINE)
            litellm = importlib.import_module("litellm")
            for name, value in _SILENT.items():
                setattr(litellm, name, value)
            for name in (*_CALLBACKS, *_ASYNC_CALLBACKS):
                getattr(litellm, name, []).clear()
            for name in ("LiteLLM", "LiteLLM Router", "LiteLLM Proxy"):
                logger = logging.getLogger(name)
                logger.handlers.clear()
                logger.propagate = False
                logger.setLevel(logging.CRITICAL + 1)
            _loaded = litellm
    return _loaded


def believe(ca_file: str) -> ssl.SSLContext:
    """The authorities for a client of LiteLLM. Where it makes its own (for OpenAI and Azure) it has one context for
    all of them, with certifi's: ours are added to it."""
    own = importlib.import_module("litellm.llms.custom_httpx.http_handler").get_ssl_configuration()
    if isinstance(own, ssl.SSLContext):  # it checks nothing where the variable SSL_VERIFY says so
        own.load_default_certs()
        if ca_file:
            own.load_verify_locations(ca_file)
    return new_context(ca_file)


async def loaded() -> Any:
    """The same from a coroutine: importing it takes seconds."""
    return _loaded or await asyncio.to_thread(load)


async def ask(litellm: Any, arguments: dict[str, Any]) -> Any:
    """The call itself, marked as internal: then LiteLLM writes no books about it."""
    marker: Any = None
    with suppress(ImportError, AttributeError):
        marker = importlib.import_module("litellm._internal_context").is_internal_call
    token = marker.set(True) if marker else None
    try:
        return await litellm.acompletion(**arguments)
    finally:
        if marker:
            marker.reset(token)
