"""What docs/deploy.md hands to operators works: nginx and Caddy run with the very files, over TLS, in front of a real
Groundwire; the other files fit the server that they start, and one another.
"""

from __future__ import annotations

import configparser
import os
import re
import shlex
import shutil
import signal
import ssl
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest
import yaml

from proxy.cli.parser import parser
from proxy.config.settings import Config, ConfigError, load
from tests.fakes.front_server import FrontServer
from tests.fakes.gated_model import Gate
from tests.fakes.groundwire import SCRIPT, Groundwire
from tests.fakes.model import ModelServer, text
from tests.fakes.pages import make_certificate
from tests.fakes.redis_server import free_port

ROOT = Path(__file__).resolve().parents[2]
FILES = ROOT / "docs" / "deploy"
PAGE = (ROOT / "docs" / "deploy.md").read_text(encoding="utf-8")
NAME = "groundwire.example.org"
KEY = "gw-behind-a-front"
PROGRAMS = {"nginx": shutil.which("nginx", path="/usr/sbin:/usr/bin"), "caddy": shutil.which("caddy")}


def behind_settings() -> dict[str, Any]:
    """The config that the page shows for a Groundwire behind a proxy."""
    section = PAGE.partition("## Behind nginx or Caddy")[2].partition("\n## ")[0]
    (shown,) = re.findall(r"```yaml\n(.*?)```", section, re.S)
    settings: dict[str, Any] = yaml.safe_load(shown.replace("${TEAM_KEY}", KEY))
    assert settings["server"]["allowed_hosts"] == [NAME]
    return settings


@pytest.fixture(scope="module")
def behind(config: dict[str, Any]) -> Iterator[Groundwire]:
    with Groundwire({**config, **behind_settings()}) as running:
        yield running


def nginx(folder: Path, address: str, port: int) -> list[str]:
    """The file as it is, but for the ports and where the certificate lies; around it what /etc/nginx/nginx.conf has.
    Our own header against buffering is ignored, so that it is the file's setting that counts."""
    site = (FILES / "nginx.conf").read_text()
    for said, here in (
        ("server 127.0.0.1:8080;", f"server {address};"),
        ("listen 443 ssl;", f"listen 127.0.0.1:{port} ssl;"),
        ("/etc/ssl/groundwire/fullchain.pem", str(folder / "certificate.pem")),
        ("/etc/ssl/groundwire/privkey.pem", str(folder / "key.pem")),
    ):
        assert said in site
        site = site.replace(said, here)
    (folder / "site.conf").write_text(site)
    temporary = "".join(
        f"{kind}_temp_path {folder}/{kind};" for kind in ("client_body", "proxy", "fastcgi", "uwsgi", "scgi")
    )
    user = "user root;" if os.geteuid() == 0 else ""
    (folder / "nginx.conf").write_text(
        f"daemon off; {user} pid {folder}/pid; error_log stderr; events {{}}\n"
        f"http {{ access_log off; gzip on; proxy_ignore_headers X-Accel-Buffering;\n"
        f"{temporary} include {folder}/site.conf; }}\n"
    )
    return [str(PROGRAMS["nginx"]), "-p", str(folder), "-c", str(folder / "nginx.conf"), "-e", "stderr"]


def caddy(folder: Path, address: str, port: int) -> list[str]:
    """The file as it is, but for the ports and the certificate, which nobody signs for a name on loopback."""
    site = (FILES / "Caddyfile").read_text()
    assert f"\n{NAME} {{\n" in site
    assert "reverse_proxy 127.0.0.1:8080 {" in site
    site = site.replace(
        f"\n{NAME} {{\n", f"\nhttps://{NAME}:{port} {{\n\ttls {folder}/certificate.pem {folder}/key.pem\n"
    )
    site = site.replace("127.0.0.1:8080", address)
    (folder / "Caddyfile").write_text("{\n\tadmin off\n\tauto_https disable_redirects\n}\n" + site)
    return [str(PROGRAMS["caddy"]), "run", "--config", str(folder / "Caddyfile"), "--adapter", "caddyfile"]


FRONTS: dict[str, Callable[[Path, str, int], list[str]]] = {"nginx": nginx, "caddy": caddy}


@pytest.fixture(scope="module", params=FRONTS)
def front(request: pytest.FixtureRequest, behind: Groundwire, tmp_path_factory: Any) -> Iterator[httpx.Client]:
    """A client that trusts the certificate, reaches the front server under its name, and holds the key."""
    if PROGRAMS[request.param] is None:
        pytest.skip(f"{request.param} is not installed; .ci/run installs Debian's")
    folder = tmp_path_factory.mktemp(request.param)
    trusted: ssl.SSLContext = make_certificate(folder, [NAME]).client
    port = free_port()
    command = FRONTS[request.param](folder, behind.root.removeprefix("http://"), port)
    headers = {"Host": NAME, "Authorization": f"Bearer {KEY}"}
    with (
        FrontServer(command, folder, port),
        httpx.Client(base_url=f"https://127.0.0.1:{port}", verify=trusted, headers=headers, timeout=20) as client,
    ):
        yield client


def asked(**more: object) -> dict[str, Any]:
    """A question; the name for TLS is that of the certificate, whatever address is dialled."""
    body = {"model": "m", "messages": [{"role": "user", "content": "Why is the sky blue?"}], **more}
    return {"json": body, "extensions": {"sni_hostname": NAME}}


class TestInFront:
    def test_each_piece_of_a_stream_arrives_before_the_next_is_made(
        self, front: httpx.Client, model: ModelServer
    ) -> None:
        gate = Gate()
        model.script(gate.turn(["First"], [" and last."]))
        seen = ""
        with front.stream("POST", "/v1/chat/completions", **asked(stream=True)) as answer:
            assert answer.status_code == 200
            assert "content-encoding" not in answer.headers
            for piece in answer.iter_text():
                seen += piece
                if "First" in seen:  # the model has said no more than this, and will not before the gate is open
                    gate.open()
        assert seen.index("First") < seen.index(" and last.")
        assert seen.endswith("data: [DONE]\n\n")

    def test_an_answer_in_one_piece(self, front: httpx.Client, model: ModelServer) -> None:
        model.script(text("Blue."))
        answer = front.post("/v1/chat/completions", **asked())
        assert answer.json()["choices"][0]["message"]["content"] == "Blue."

    def test_who_has_no_key_is_refused(self, front: httpx.Client) -> None:
        answer = front.post("/v1/chat/completions", **asked(), headers={"Authorization": "Bearer another"})
        assert answer.status_code == 401

    def test_what_is_too_large_is_said_by_groundwire_itself(self, front: httpx.Client) -> None:
        """In JSON, as clients expect it; a front server's own refusal is a page."""
        answer = front.post("/v1/chat/completions", **asked(padding="x" * (10 << 20)))
        assert answer.status_code == 413
        assert answer.json()["error"]["code"]

    def test_a_probe_reaches_it(self, front: httpx.Client) -> None:
        answer = front.get("/readyz", headers={"Authorization": ""}, extensions={"sni_hostname": NAME})
        assert answer.status_code == 200


def test_the_limits_of_the_fronts_are_above_those_of_groundwire() -> None:
    server = Config.model_validate({"upstreams": [{"name": "d", "type": "demo"}], "providers": []}).server
    site = (FILES / "nginx.conf").read_text()
    (timeout,) = re.findall(r"proxy_read_timeout (\d+)s;", site)
    (body,) = re.findall(r"client_max_body_size (\d+)m;", site)
    assert int(timeout) > server.request_timeout
    assert int(body) << 20 > server.max_body
    (body,) = re.findall(r"max_size (\d+)MB", (FILES / "Caddyfile").read_text())
    assert int(body) * 1000**2 > server.max_body
    assert server.keep_alive_timeout > 60, "nginx keeps idle connections for that long"


# systemd


def unit() -> configparser.ConfigParser:
    read = configparser.ConfigParser(interpolation=None, strict=False)
    read.optionxform = str  # type: ignore[assignment, method-assign]
    read.read(FILES / "groundwire.service")
    return read


def test_systemd_understands_the_unit(tmp_path: Path) -> None:
    program = shutil.which("systemd-analyze")
    if program is None:
        pytest.skip("systemd-analyze is not installed")
    shown = (FILES / "groundwire.service").read_text()
    started = shown.replace("/opt/groundwire/bin/groundwire", str(SCRIPT)).replace("User=groundwire", "User=root")
    (tmp_path / "groundwire.service").write_text(started)
    command = [program, "verify", "--man=no", str(tmp_path / "groundwire.service")]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60)
    assert "groundwire.service" not in done.stderr, done.stderr


def test_what_systemd_starts_is_a_server_that_reloads_and_ends(tmp_path: Path) -> None:
    service = unit()["Service"]
    program, *arguments = shlex.split(service["ExecStart"])
    assert program == "/opt/groundwire/bin/groundwire"
    assert parser().parse_args(arguments).config == Path("/etc/groundwire/config.yaml")
    config = tmp_path / "config.yaml"
    config.write_text("upstreams: [{name: d, type: demo}]\nproviders: []\nserver: {port: 0}\n")
    command = [str(SCRIPT), *(str(config) if word.endswith("config.yaml") else word for word in arguments)]
    env = {"PATH": os.environ["PATH"], "XDG_CACHE_HOME": str(tmp_path), "PYTHONUNBUFFERED": "1"}
    log = tmp_path / "log"
    with log.open("w") as errors:
        process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=errors, text=True, env=env, cwd=tmp_path)
    assert process.stdout is not None
    with process.stdout:
        assert any("listening on" in line for line in process.stdout)
        assert service["ExecReload"].split() == ["/bin/kill", "-HUP", "$MAINPID"]
        process.send_signal(signal.SIGHUP)
        process.send_signal(signal.SIGTERM)
        assert process.wait(30) == 0, log.read_text()


def test_systemd_waits_for_the_drain() -> None:
    server = Config.model_validate({"upstreams": [{"name": "d", "type": "demo"}], "providers": []}).server
    assert int(unit()["Service"]["TimeoutStopSec"]) > server.drain_timeout + (server.lame_duck or 1) + 2


# Kubernetes


def manifests() -> dict[str, dict[str, Any]]:
    with (FILES / "kubernetes.yaml").open() as file:
        return {part["kind"]: part for part in yaml.safe_load_all(file)}


def mounted_config(folder: Path) -> Config:
    """The config of the ConfigMap, in the environment of the Secret."""
    parts = manifests()
    file = folder / "config.yaml"
    file.write_text(parts["ConfigMap"]["data"]["config.yaml"])
    with pytest.raises(ConfigError, match=r"server.keys\[0\].key: .*not empty; `groundwire key new` makes one"):
        load(file, parts["Secret"]["stringData"], host="0.0.0.0")  # as it stands it has no key
    return load(file, {**parts["Secret"]["stringData"], "TEAM_KEY": KEY}, host="0.0.0.0")


def pod() -> dict[str, Any]:
    found: dict[str, Any] = manifests()["Deployment"]["spec"]["template"]["spec"]
    return found


def test_the_replicas_share_a_store_and_drain_in_time(tmp_path: Path) -> None:
    config = mounted_config(tmp_path)
    assert manifests()["Deployment"]["spec"]["replicas"] > 1
    assert config.store.startswith("redis://")
    assert config.server.lame_duck is not None
    assert pod()["terminationGracePeriodSeconds"] > config.server.lame_duck + config.server.drain_timeout + 2


def test_the_names_and_ports_fit_together(tmp_path: Path) -> None:
    parts, (container,) = manifests(), pod()["containers"]
    labels = parts["Deployment"]["spec"]["template"]["metadata"]["labels"]
    ports = {port["name"]: port["containerPort"] for port in container["ports"]}
    assert ports == {"http": 8080}, "the image's own: see the Dockerfile"
    assert parts["Service"]["spec"]["selector"].items() <= labels.items()
    assert {port["targetPort"] for port in parts["Service"]["spec"]["ports"]} <= set(ports)
    assert parts["PodDisruptionBudget"]["spec"]["minAvailable"] < parts["Deployment"]["spec"]["replicas"]
    (rule,) = parts["Ingress"]["spec"]["rules"]
    assert [rule["host"]] == mounted_config(tmp_path).server.allowed_hosts
    assert container["envFrom"] == [{"secretRef": {"name": parts["Secret"]["metadata"]["name"]}}]
    mounts = {mount["name"]: mount["mountPath"] for mount in container["volumeMounts"]}
    assert mounts == {"config": "/app/config.yaml", "tmp": "/tmp"}
    assert {volume["name"] for volume in pod()["volumes"]} == set(mounts)


def test_every_probe_is_answered_by_a_server_with_that_config(config: dict[str, Any]) -> None:
    """As a kubelet sends it: to the pod's address, which is no name that the server knows."""
    said = yaml.safe_load(manifests()["ConfigMap"]["data"]["config.yaml"])
    (container,) = pod()["containers"]
    server = {**said["server"], "host": "0.0.0.0", "keys": [KEY], "lame_duck": 0}
    with Groundwire({**config, "server": server}) as running:
        port = running.root.rpartition(":")[2]
        for name in ("startupProbe", "readinessProbe", "livenessProbe"):
            probe = container[name]["httpGet"]
            headers = {header["name"]: header["value"] for header in probe["httpHeaders"]}
            answer = httpx.get(f"http://127.0.0.1:{port}{probe['path']}", headers=headers)
            assert (probe["port"], answer.status_code) == ("http", 200), name
        unnamed = httpx.get(f"http://127.0.0.1:{port}/healthz", headers={"Host": "10.1.2.3:8080"})
        assert unnamed.status_code == 403, "the page says why the probes name the host"


# Compose


def test_compose_starts_groundwire_with_search_and_a_store(tmp_path: Path) -> None:
    compose = yaml.safe_load((ROOT / "compose.yaml").read_text())
    ours = compose["services"]["groundwire"]
    assert ours["configs"] == [{"source": "groundwire", "target": "/app/config.yaml"}]
    file = tmp_path / "config.yaml"
    file.write_text(compose["configs"]["groundwire"]["content"])
    given = {name: re.sub(r"\$\{\w+:-(.*?)\}", r"\1", value) for name, value in ours["environment"].items()}
    config = load(file, {**given, "OPENAI_BASE_URL": "http://ollama:11434/v1"})
    assert [entry.type for entry in config.providers][:1] == ["searxng"]
    hosts = {config.store, str(config.providers[0].base_url), config.upstreams[0].base_url}
    named = {re.sub(r"^\w+://([\w.]+):.*", r"\1", address) for address in hosts}
    assert named == set(compose["services"]) - {"groundwire"}
    assert set(ours["depends_on"]) == {"searxng", "redis"}, "ollama has a profile of its own"
    rows = re.findall(r"^\| `(\w+)` \| .+? \| .+? \|$", PAGE.partition("## Compose")[2].partition("\n## ")[0], re.M)
    assert rows == list(compose["services"])
