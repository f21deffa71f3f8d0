"""What a server loads before it answers: nothing that its config does not ask for. What is loaded needlessly makes
every start later and every server larger, and nobody notices; so the names are written here."""

import json
import os
import re
import signal
import subprocess
import sys
from pathlib import Path

import httpx
import pytest

SERVE = """
import os, signal, sys
signal.signal(signal.SIGUSR1, lambda *_: (print(*sys.modules, flush=True), os._exit(0)))
from proxy.cli.main import main
main(["serve", "--config", sys.argv[1], "--port", "0"])
"""
OF_OTHERS = (
    "aiohttp charset_normalizer ddgs h11 h2 httpcore httpx litellm lxml markdown_it mcp opentelemetry pygments "
    "pypdfium2 redis rich tavily"
)
OURS = (
    "providers.documents.index providers.documents.office providers.documents.reading providers.services.chromium "
    "providers.services.duckduckgo providers.services.tavily providers.web.browser providers.web.extract "
    "providers.web.page_wire providers.web.proxied proxy.cli.chat "
    "proxy.dialects.alpha_search proxy.dialects.openwebui proxy.dialects.search_engines proxy.dialects.searxng "
    "proxy.dialects.tavily proxy.serving.api_shapes proxy.serving.mcp_server proxy.serving.openapi_route "
    "proxy.serving.requests_route proxy.serving.tool_routes proxy.serving.usage_route proxy.store.redis_client "
    "proxy.upstreams.demo proxy.upstreams.litellm_transport proxy.watching.span_export"
)
WARM = "proxy.dialects.chat proxy.dialects.messages.dialect proxy.dialects.responses.dialect proxy.answering.loop"


@pytest.mark.parametrize("mode", ["auto", "off"])
def test_a_plain_server_loads_what_it_needs_and_little_else(tmp_path: Path, mode: str) -> None:
    config = {
        "upstreams": [{"name": "fake", "type": "openai", "base_url": "http://127.0.0.1:9/v1", "models": ["*"]}],
        "providers": [{"name": "fake", "type": "searxng", "base_url": "http://127.0.0.1:9"}],
        "tools": {"search": ["fake"], "mode": mode},
    }
    file = tmp_path / "config.yaml"
    file.write_text(json.dumps(config))
    environ = {name: value for name, value in os.environ.items() if not name.startswith("GROUNDWIRE_")}
    with subprocess.Popen(
        [sys.executable, "-c", SERVE, str(file)], env=environ, stdout=subprocess.PIPE, text=True
    ) as server:
        try:
            assert server.stdout
            found = re.search(r"http://\S+", server.stdout.readline())
            assert found
            assert httpx.get(found[0] + "/healthz", trust_env=False).status_code == 200
            server.send_signal(signal.SIGUSR1)
            loaded = set(server.stdout.read().split())
        finally:
            server.kill()
    assert not loaded & {*OF_OTHERS.split(), *OURS.split()}
    assert loaded >= set(WARM.split()), "the first question to a model waits for no import"
