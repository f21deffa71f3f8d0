"""What is measured side by side: the upstream itself, nginx and a bare relay as floors, Groundwire twice, and LiteLLM's
proxy. Handed the upstream's port and the scripts; writes each one's config to bench/out/, hands on how to start it.
"""

import json
import secrets
import shutil
import socket
import sys
from dataclasses import dataclass, field
from pathlib import Path

from measure import HERE, SCENARIOS, Scenario

OUT = HERE / "out"
DIRECT, NGINX, RELAY, FORWARDED, OURS = "direct", "nginx", "relay", "forwarded", "groundwire"
LITELLM, LITELLM_SEARCH = "litellm", "litellm-search"
KEY = "sk-" + secrets.token_hex(32)  # every proxy checks a key, as it would in use; LiteLLM does not start without
SEARCHED = [name for name, scenario in SCENARIOS.items() if scenario.searched]
PLAIN = [name for name in SCENARIOS if name not in SEARCHED]

# A proxy as one would set it up before a model: nothing held back, connections to the upstream kept.
_NGINX = """\
daemon off; worker_processes 1; pid {out}/nginx.pid; error_log {out}/nginx.error.log;
events {{ worker_connections 8192; }}
http {{
  access_log off; keepalive_requests 1000000;
  client_body_temp_path {out}/nginx; proxy_temp_path {out}/nginx;
  fastcgi_temp_path {out}/nginx; uwsgi_temp_path {out}/nginx; scgi_temp_path {out}/nginx;
  upstream model {{ server 127.0.0.1:{upstream}; keepalive 4096; keepalive_requests 1000000; }}
  server {{
    listen 127.0.0.1:{port} backlog=4096;
    location = /healthz {{ return 200 "ok"; }}
    location / {{
      proxy_pass http://model; proxy_http_version 1.1; proxy_set_header Connection "";
      proxy_buffering off; proxy_read_timeout 300;
    }}
  }}
}}
"""


@dataclass(frozen=True)
class Target:
    """Something that answers chat completions; without a command it is the upstream itself."""

    name: str
    port: int
    command: list[str] = field(default_factory=list)
    health: str = ""
    scenarios: list[str] = field(default_factory=lambda: list(SCENARIOS))
    tool_body: str = ""

    def body(self, scenario: Scenario) -> Path:
        prefix = self.tool_body if scenario.searched else ""
        if prefix:
            return HERE / "bodies" / (f"{prefix}_stream.json" if scenario.streamed else f"{prefix}.json")
        return HERE / "bodies" / ("stream.json" if scenario.streamed else "plain.json")


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


def direct(upstream: int) -> Target:
    return Target(DIRECT, upstream)


def floors(upstream: int) -> list[Target]:
    """What passes bytes and knows nothing of them: in C, and in Python."""
    targets = [relay(upstream)]
    if program := shutil.which("nginx"):
        targets.insert(0, nginx(program, upstream))
    else:
        print("nginx is not installed here, and is left out")
    return targets


def nginx(program: str, upstream: int) -> Target:
    port = free_port()
    (OUT / "nginx").mkdir(parents=True, exist_ok=True)
    config = OUT / "nginx.conf"
    config.write_text(_NGINX.format(out=OUT, upstream=upstream, port=port))
    return Target(NGINX, port, [program, "-p", str(OUT), "-c", str(config)], "/healthz", PLAIN)


def relay(upstream: int) -> Target:
    port = free_port()
    command = [sys.executable, str(HERE / "relay.py"), f"http://127.0.0.1:{upstream}", str(port)]
    return Target(RELAY, port, command, "/healthz", PLAIN)


def groundwire(script: str, upstream: int) -> list[Target]:
    """As it is, with its tools offered and every chunk read; and with `mode: off`, where bytes are forwarded."""
    address = f"http://127.0.0.1:{upstream}"
    targets = []
    for name, mode, scenarios in ((FORWARDED, "off", PLAIN), (OURS, "auto", list(SCENARIOS))):
        settings = {
            "upstreams": [{"name": "fake", "type": "openai", "base_url": f"{address}/v1", "models": ["*"]}],
            "providers": [{"name": "fake", "type": "searxng", "base_url": address}],
            "tools": {"search": ["fake"], "mode": mode},
        }
        port = free_port()
        command = [script, "serve", "--config", _write(f"{name}.yaml", settings), "--port", str(port)]
        targets.append(Target(name, port, command, "/healthz", scenarios))
    return targets


def litellm(script: str, upstream: int) -> list[Target]:
    """Twice: as a plain proxy, and with its own search interception, which makes every request dearer."""
    address = f"http://127.0.0.1:{upstream}"
    parameters = {"model": "openai/fake-model", "api_base": f"{address}/v1", "api_key": "sk-fake"}
    plain = {
        "model_list": [{"model_name": "fake-model", "litellm_params": parameters}],
        "litellm_settings": {"telemetry": False, "num_retries": 0},
    }
    search = {"search_provider": "searxng", "api_base": address}
    searching = {
        **plain,
        "search_tools": [{"search_tool_name": "fake", "litellm_params": search}],
        "litellm_settings": {
            **plain["litellm_settings"],  # type: ignore[dict-item]
            "callbacks": ["websearch_interception"],
            "websearch_interception_params": {"enabled_providers": ["openai"], "search_tool_name": "fake"},
        },
    }
    targets = []
    for name, settings, scenarios in ((LITELLM, plain, PLAIN), (LITELLM_SEARCH, searching, SEARCHED)):
        port = free_port()
        command = [script, "--config", _write(f"{name}.yaml", settings), "--port", str(port), "--host", "127.0.0.1"]
        targets.append(Target(name, port, command, "/health/liveliness", scenarios, "litellm_tool"))
    return targets


def _write(name: str, settings: object) -> str:
    """JSON is YAML too."""
    path = OUT / name
    path.write_text(json.dumps(settings, indent=2))
    return str(path)
