"""What an operator may say about traces."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from proxy.config.secrets import secrets_of
from tests.fakes.config import config, refusal

ROOT = Path(__file__).parents[2]


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return tmp_path / "config.yaml"


@pytest.mark.parametrize(
    ("said", "meant"),
    [
        ("http://127.0.0.1:4318", "http://127.0.0.1:4318/v1/traces"),
        ("http://collector:4318/", "http://collector:4318/v1/traces"),
        ("https://otlp.example/base", "https://otlp.example/base/v1/traces"),
        ("https://otlp.example/v1/traces", "https://otlp.example/v1/traces"),
        ("", ""),
    ],
)
def test_the_collector(file: Path, said: str, meant: str) -> None:
    assert config(file, f'traces: {{endpoint: "{said}"}}').traces.endpoint == meant


def test_the_environment_counts_where_the_section_names_nobody(file: Path) -> None:
    env = {"OTEL_EXPORTER_OTLP_ENDPOINT": "http://one:4318"}
    both = {**env, "OTEL_EXPORTER_OTLP_TRACES_ENDPOINT": "http://two:4318/spans"}
    assert config(file, "traces: {sample: 0.5}", env).traces.endpoint == "http://one:4318/v1/traces"
    assert config(file, "traces: {}", both).traces.endpoint == "http://two:4318/spans"
    assert (
        config(file, "traces: {endpoint: 'http://three:4318'}", both).traces.endpoint == "http://three:4318/v1/traces"
    )
    assert config(file, "log: {level: info}", both).traces.endpoint == ""
    assert config(file, "traces:", both).traces.endpoint == ""


@pytest.mark.parametrize(
    "said", ["collector:4318", "grpc://collector:4317", "http://", "http://a b", "http://x:0", "http://a/?q"]
)
def test_what_is_no_collector(file: Path, said: str) -> None:
    problem = refusal(file, f'traces: {{endpoint: "{said}"}}')
    assert "line 1, traces.endpoint: must be the URL of a collector" in problem
    assert "OTEL_EXPORTER_OTLP_ENDPOINT" in refusal(file, "traces: {}", {"OTEL_EXPORTER_OTLP_ENDPOINT": said})


@pytest.mark.parametrize("said", ["sample: 1.5", "sample: -1", "sample: on", 'headers: {"a b": x}', "rate: 1"])
def test_other_mistakes(file: Path, said: str) -> None:
    assert "line 1, traces." in refusal(file, f"traces: {{{said}}}")


def test_no_socks(file: Path) -> None:
    way = "network: {proxy: 'socks5://127.0.0.1:1080', no_proxy: [inside.example]}\n"
    assert "traces.endpoint" in refusal(file, way + "traces: {endpoint: 'http://collector:4318'}")
    assert config(file, way + "traces: {endpoint: 'http://inside.example:4318'}")
    assert config(file, way + "traces: {endpoint: 'http://127.0.0.1:4318'}")


def test_its_keys_are_secrets(file: Path) -> None:
    said = "traces: {endpoint: 'http://me:pass-5f2c9d1e@c:4318', headers: {Authorization: 'Bearer key-7a81c2d3e4'}}"
    loaded = config(file, said)
    assert {"pass-5f2c9d1e", "key-7a81c2d3e4"} <= set(secrets_of(loaded))
    assert "pass-5f2c9d1e" not in repr(loaded)
    assert "key-7a81c2d3e4" not in repr(loaded)


def test_without_the_extra_it_says_what_to_install(file: Path) -> None:
    code = """
import sys
sys.modules["opentelemetry"] = None  # as if it were not installed
from pathlib import Path
from proxy.config.settings import ConfigError, load
try:
    load(Path(sys.argv[1]), {})
except ConfigError as error:
    print(error)
"""
    file.write_text("traces: {endpoint: 'http://127.0.0.1:4318'}")
    command = [sys.executable, "-c", code, str(file)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, cwd=ROOT)
    assert "traces.endpoint: needs OpenTelemetry's packages: pip install 'groundwire[otel]'" in done.stdout, done.stderr


def test_without_the_section_nothing_of_it_is_loaded(file: Path) -> None:
    code = """
import json, sys
from pathlib import Path
from proxy.config.settings import load
from proxy.serving.app import build
build(load(Path(sys.argv[1]), {"OTEL_EXPORTER_OTLP_ENDPOINT": "http://127.0.0.1:4318"}))
ours = ("opentelemetry.sdk", "opentelemetry.exporter", "proxy.watching.traces", "proxy.watching.span_export")
print(json.dumps([name for name in sys.modules if name.startswith(ours)]))
"""
    file.write_text("upstreams: [{name: demo, type: demo}]")
    command = [sys.executable, "-c", code, str(file)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, cwd=ROOT)
    assert json.loads(done.stdout) == [], done.stderr
