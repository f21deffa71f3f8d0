"""What is said about a certificate that is refused: what is wrong with it, and what its operator can do. Python 3.13
verifies private authorities strictly, the older ones do not, and Groundwire does as its Python does.
"""

from __future__ import annotations

import re
import shutil
import socket
import ssl
import subprocess
import sys
from pathlib import Path
from typing import Any

import httpx
import pytest

from providers.web.certificate_errors import certificate_trouble
from tests.fakes.egress import CA_EXTENSIONS, SERVER_EXTENSIONS, Authority, TlsFront
from tests.fakes.groundwire import Groundwire, config_file, groundwire
from tests.fakes.model import ModelServer, text

ROOT = Path(__file__).resolve().parents[2]
IS_STRICT = sys.version_info >= (3, 13)


def port_of(model: ModelServer) -> int:
    return int(model.url.split(":")[2].partition("/")[0])


def upstream(front: TlsFront, kind: str, host: str = "127.0.0.1") -> dict[str, Any]:
    name = "m" if kind == "openai" else "openai/m"
    return {"name": "up", "type": kind, "base_url": f"https://{host}:{front.port}/v1", "models": [name], "api_key": "k"}


def asked(config: dict[str, Any]) -> httpx.Response:
    body = {"model": config["upstreams"][0]["models"][0], "messages": [{"role": "user", "content": "Why?"}]}
    with Groundwire(config) as proxy:
        return httpx.post(f"{proxy.url}/chat/completions", json=body, timeout=90)  # LiteLLM takes long to import


@pytest.mark.parametrize("kind", ["openai", "litellm"])
def test_an_unknown_authority_and_how_to_name_it(tmp_path: Path, model: ModelServer, kind: str) -> None:
    with TlsFront(Authority.make(tmp_path).server("127.0.0.1"), port_of(model)) as front:
        answer = asked({"upstreams": [upstream(front, kind)]})
    error = answer.json()["error"]
    assert (answer.status_code, error["code"]) == (502, "upstream_tls")
    assert error["message"] == (
        "The certificate of upstream 'up' is not valid: no authority that is trusted here has signed it. Let "
        "`network.ca_file` name a PEM file with the certificate of the authority that signed it."
    )


def test_a_certificate_for_another_host_does_not_name_the_host(tmp_path: Path, model: ModelServer) -> None:
    authority = Authority.make(tmp_path)
    with TlsFront(authority.server("models.example"), port_of(model)) as front:
        answer = asked({"upstreams": [upstream(front, "openai")], "network": {"ca_file": str(authority.file)}})
    message = answer.json()["error"]["message"]
    assert "it is for another host. Correct the address" in message
    assert "127.0.0.1" not in message


def test_check_says_what_to_do_about_it(tmp_path: Path, model: ModelServer) -> None:
    with TlsFront(Authority.make(tmp_path).server("127.0.0.1"), port_of(model)) as front:
        searx = {"name": "searx", "type": "searxng", "base_url": f"https://127.0.0.1:{front.port}"}
        path = config_file(tmp_path, {"upstreams": [upstream(front, "openai")], "providers": [searx]})
        said = " ".join(groundwire(tmp_path, "check", "--config", path, code=1).stdout.split())
    assert "The certificate of upstream 'up' is not valid: no authority that is trusted here has signed it" in said
    assert "SearXNG has a certificate that is not valid: no authority that is trusted here has signed it" in said
    assert said.count("let `network.ca_file` name a PEM file with the certificate of the authority") == 2


LACKING = {
    "CA cert does not include key usage extension": (["basicConstraints=critical,CA:TRUE"], SERVER_EXTENSIONS),
    "Missing Authority Key Identifier": (CA_EXTENSIONS, ["authorityKeyIdentifier=none"]),
    "Basic Constraints of CA cert not marked critical": (
        ["basicConstraints=CA:TRUE", *CA_EXTENSIONS[1:]],
        SERVER_EXTENSIONS,
    ),
}


@pytest.mark.parametrize("kind", ["openai", "litellm"])
def test_an_authority_that_was_made_by_hand_is_judged_as_this_python_does(
    tmp_path: Path, model: ModelServer, kind: str
) -> None:
    (missing, (extensions, of_server)) = next(iter(LACKING.items()))
    authority = Authority.make(tmp_path, extensions, of_server)
    model.script(text("Because."))
    with TlsFront(authority.server("127.0.0.1"), port_of(model)) as front:
        answer = asked({"upstreams": [upstream(front, kind)], "network": {"ca_file": str(authority.file)}})
    if not IS_STRICT:
        assert answer.json()["choices"][0]["message"]["content"] == "Because."
        return
    message = answer.json()["error"]["message"]
    assert f"The certificate of upstream 'up' is not valid: {missing}. Have the authority" in message
    assert "keyUsage (critical, keyCertSign)" in message


def strict(ca_file: Path) -> ssl.SSLContext:
    """As Python 3.13 makes it, on every Python."""
    context = ssl.create_default_context(cafile=str(ca_file))
    context.verify_flags |= ssl.VERIFY_X509_STRICT | ssl.VERIFY_X509_PARTIAL_CHAIN
    return context


def shake_hands(context: ssl.SSLContext, port: int, name: str) -> None:
    with socket.create_connection(("127.0.0.1", port)) as connection:
        context.wrap_socket(connection, server_hostname=name).close()


@pytest.mark.parametrize("missing", LACKING)
def test_what_a_strict_python_misses_is_named(tmp_path: Path, model: ModelServer, missing: str) -> None:
    authority = Authority.make(tmp_path, *LACKING[missing])
    server = authority.server("127.0.0.1")
    with TlsFront(server, port_of(model)) as front, pytest.raises(ssl.SSLCertVerificationError) as refused:
        shake_hands(strict(authority.file), front.port, "127.0.0.1")
    trouble = certificate_trouble(refused.value)
    assert trouble is not None
    assert trouble.problem == missing
    assert "docs/configuration.md" in trouble.advice
    assert "### A private certificate authority\n" in (ROOT / "docs/configuration.md").read_text()


def test_the_documented_commands_make_what_a_strict_python_accepts(tmp_path: Path, model: ModelServer) -> None:
    if not shutil.which("openssl"):
        pytest.skip("needs the openssl command to make certificates")
    section = (ROOT / "docs/configuration.md").read_text().split("### A private certificate authority\n")[1]
    (commands,) = re.findall(r"```sh\n(.*?)```", section.split("\n### ")[0], re.S)
    subprocess.run(["bash", "-e", "-c", commands], cwd=tmp_path, check=True, capture_output=True, timeout=60)
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    context.load_cert_chain(tmp_path / "server.pem", tmp_path / "server.key")
    with TlsFront(context, port_of(model)) as front:
        shake_hands(strict(tmp_path / "ca.pem"), front.port, "models.corp.example")
