"""The configuration room: every value it takes, every way it refuses, and that page and shipped file tell the truth."""

from __future__ import annotations

import ipaddress
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import get_args, get_origin

import pytest
import yaml
from pydantic import BaseModel, ByteSize, SecretStr, ValidationError

from providers.registry import SERVICES
from providers.registry import load as service
from proxy.config.file import EXAMPLE
from proxy.config.keys import ClientKey, KeyPolicy
from proxy.config.settings import Config, ConfigError, from_environment, load
from tests.fakes.config import config, filled_in, refusal

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "configuration.md").read_text(encoding="utf-8")
# Not those whose YAML is for other programs too, and not that of the providers, which has a test of its own.
WITH_EXAMPLES = [ROOT / "README.md", *(ROOT / "docs").glob("*.md")]
EXAMPLES = [
    block
    for page in sorted(WITH_EXAMPLES)
    if page.name not in ("clients.md", "observing.md", "providers.md")
    for block in re.findall(r"```yaml\n(.*?)```", page.read_text(encoding="utf-8"), re.S)
]


class TestWhatShips:
    def test_the_shipped_file_needs_no_variable(self) -> None:
        shipped = load(ROOT / "config.yaml", {})
        assert shipped.upstreams[0].base_url == "http://127.0.0.1:11434/v1"
        assert [entry.type for entry in shipped.providers] == ["duckduckgo", "direct"]
        assert shipped.tools.progress == "off"

    def test_the_shipped_file_only_says_defaults(self) -> None:
        shipped = load(ROOT / "config.yaml", {})
        named = {"search": shipped.tools.search, "read": shipped.tools.read}
        assert shipped.server == from_environment({}).server
        assert shipped.tools == from_environment({}).tools.model_copy(update=named)
        assert shipped.citations == from_environment({}).citations

    def test_the_shipped_file_takes_the_usual_variables(self) -> None:
        shipped = load(ROOT / "config.yaml", {"OPENAI_BASE_URL": "https://models.example/v1", "OPENAI_API_KEY": "k"})
        assert shipped.upstreams[0].base_url == "https://models.example/v1"
        assert shipped.upstreams[0].api_key.get_secret_value() == "k"

    def test_the_example_of_every_error_loads(self, file: Path) -> None:
        assert config(file, EXAMPLE).tools.search == ["ddg"]

    @pytest.mark.parametrize("example", EXAMPLES)
    def test_every_example_of_the_pages_loads(self, file: Path, example: str) -> None:
        text, environ = filled_in(example)
        assert set(yaml.safe_load(example)) <= config(file, text, environ).model_fields_set

    @pytest.mark.parametrize("example", [example for example in EXAMPLES if "keys:" in example])
    def test_no_example_has_a_key_that_opens_anything(self, file: Path, example: str) -> None:
        """As it stands it is refused, and the refusal names the command that makes a key."""
        assert "`groundwire key new`" in refusal(file, example)

    def test_the_page_has_every_key_with_its_default_and_no_other(self) -> None:
        rows = dict(re.findall(r"^\| `([a-z_.*\[\]]+)` \| [^|]+ \| (?:`(.*?)`|\w+) \|", PAGE, re.M))
        assert {key: default for key, default in rows.items() if key not in SERVICES} == dict(documented_keys(Config))

    def test_the_tables_are_written_from_the_models(self) -> None:
        command = [sys.executable, str(ROOT / "docs" / "tables.py"), "--check"]
        checked = subprocess.run(command, capture_output=True, text=True, timeout=60)
        assert checked.returncode == 0, checked.stderr

    @pytest.mark.parametrize("kind", sorted(SERVICES))
    def test_the_page_has_every_option_of_a_service(self, kind: str) -> None:
        settings = set(service(kind).Settings.model_fields) - {"api_key", "timeout"}
        rows = set(re.findall(rf"^\| `{kind}` \| `(\w+)` \|", PAGE, re.M))
        assert rows == settings - ({"base_url"} if kind != "local" else set())

    def test_the_page_says_once_what_groups_and_keys_share(self) -> None:
        shared, *_ = [f"server.keys[].{name}" for name in KeyPolicy.model_fields]
        rows = re.findall(r"^\| `(server\.keys\[\]\.[a-z_.]+)`", PAGE, re.M)
        own, others = rows[: rows.index(shared)], rows[rows.index(shared) :]
        assert {name.split(".")[2] for name in others} == set(KeyPolicy.model_fields)
        assert {name.split(".")[2] for name in own} == set(ClientKey.model_fields) - set(KeyPolicy.model_fields)
        assert "the same keys as `server.keys[]` from `models` on" in PAGE


def documented_keys(model: type[BaseModel], prefix: str = "") -> Iterator[tuple[str, str]]:
    """Each key as the page writes it, with its default as YAML writes it; a required one, or one of none, has ''."""
    for name, about in model.model_fields.items():
        inner = next((t for t in (about.annotation, *get_args(about.annotation)) if _is_model(t)), None)
        by_name = get_origin(about.annotation) is dict
        if inner is None or by_name or name in ("keys", "overrides"):
            yield prefix + name, _default(about.default)
        if inner is not None and inner is not KeyPolicy:  # what groups say is the same as what keys do
            within = "." if inner is about.annotation else ".*." if by_name else "[]."
            yield from documented_keys(inner, prefix + name + within)


def _is_model(kind: object) -> bool:
    return isinstance(kind, type) and issubclass(kind, BaseModel)


def _default(value: object) -> str:
    match value:
        case bool():
            return str(value).lower()
        case ByteSize():
            return value.human_readable().replace(".0", "")
        case SecretStr() | "":
            return '""'
        case list():
            return "[" + ", ".join(f'"{item}"' for item in value) + "]"
        case float():
            return f"{value:g}"
        case str() | int() | dict():
            return str(value)
    return ""


class TestWhichFile:
    def test_config_option_then_variable_then_folder_then_environment(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.chdir(tmp_path)
        for port, name in ((1001, "option.yaml"), (1002, "variable.yaml"), (1003, "config.yaml")):
            (tmp_path / name).write_text(f"server: {{port: {port}}}")
        environ = {"GROUNDWIRE_CONFIG": "variable.yaml"}
        assert load(Path("option.yaml"), environ).server.port == 1001
        assert load(None, environ).server.port == 1002
        assert load(None, {}).server.port == 1003
        (tmp_path / "config.yaml").unlink()
        assert load(None, {}) == from_environment({})

    @pytest.mark.parametrize("by_option", [True, False])
    def test_a_named_file_that_is_missing_says_where_it_looked(self, tmp_path: Path, by_option: bool) -> None:
        missing = tmp_path / "nowhere.yaml"
        with pytest.raises(ConfigError, match=re.escape(f"there is no file {missing}")) as caught:
            load(missing if by_option else None, {"GROUNDWIRE_CONFIG": str(missing)})
        assert "--config" in str(caught.value)
        assert EXAMPLE.splitlines()[0] in str(caught.value)

    def test_a_folder_is_not_a_file(self, tmp_path: Path) -> None:
        with pytest.raises(ConfigError, match="cannot be read: Is a directory"):
            load(tmp_path, {})

    def test_an_empty_file_is_no_file(self, file: Path) -> None:
        environ = {"OPENAI_API_KEY": "k", "SEARXNG_URL": "http://127.0.0.1:8888"}
        assert config(file, "# nothing yet\n", environ) == from_environment(environ)


class TestServer:
    def test_keys_are_strings_numbers_or_mappings_and_the_variable_adds_more(self, file: Path) -> None:
        text = "server: {keys: [canary, 2024, 0012, {key: two, name: bob}]}"
        server = config(file, text, {"GROUNDWIRE_KEYS": " three, ,four"}).server
        assert [(client.key.get_secret_value(), client.name) for client in server.keys] == [
            ("canary", ""),
            ("2024", ""),
            ("0012", ""),
            ("two", "bob"),
            ("three", ""),
            ("four", ""),
        ]
        assert "canary" not in repr(server)

    def test_two_keys_of_one_name(self, file: Path) -> None:
        keys = "    - {key: a, name: bob}\n    - {key: b, name: alice}\n    - {key: c, name: bob}\n"
        problems = refusal(file, f"server:\n  keys:\n{keys}")
        assert "\n  line 5, server.keys[2].name: must not be the name of another key, unless one replaces" in problems

    def test_a_key_that_replaces_another_has_its_name(self, file: Path) -> None:
        old, new = "{key: a, name: bob, expires: 2099-12-31%s}", "{key: b, name: bob%s}"
        for more in ("", ", admin: true", ", requests_per_minute: 5"):
            pair = f"server: {{keys: [{old % more}, {new % more}]}}"
            assert config(file, pair).server.key_names == ["bob", "bob"]
        for first, second in ((", admin: true", ""), ("", ", models: [m]"), ("", ", requests_per_minute: 5")):
            pair = f"server: {{keys: [{old % first}, {new % second}]}}"
            assert "server.keys[1].name: must not be the name" in refusal(file, pair)
        three = f"server: {{keys: [{new % ''}, {old % ''}, {{key: c, name: bob}}]}}"
        assert "server.keys[2].name: must not be the name" in refusal(file, three)

    def test_a_name_that_another_key_has_by_its_place(self, file: Path) -> None:
        problems = refusal(file, "server: {keys: [{key: one, name: key2}, two]}")
        assert "line 1, server.keys[0].name: must not be the name of another key" in problems
        problems = refusal(file, "server: {keys: [{key: one, name: key2}]}", {"GROUNDWIRE_KEYS": "two"})
        assert "server.keys[0].name: must not be the name of another key" in problems
        assert len(config(file, "server: {keys: [{key: one, name: key1}, two, {key: 3, name: key3}]}").server.keys) == 3

    @pytest.mark.parametrize("key", ["''", "two words", "naïve", "true", "[a]"])
    def test_a_key_that_cannot_be_sent_is_refused_unseen(self, file: Path, key: str) -> None:
        problems = refusal(file, f"server:\n  keys:\n    - fine\n    - {key}\n")
        assert "line 4, server.keys[1]" in problems
        assert "given" not in problems or key == "[a]"

    def test_a_bad_key_in_the_variable(self, file: Path) -> None:
        problems = refusal(file, "", {"GROUNDWIRE_KEYS": "good,canary key"})
        assert "GROUNDWIRE_KEYS" in problems
        assert "canary" not in problems

    @pytest.mark.parametrize("host", ["0.0.0.0", "::", "192.168.1.5", "gateway.example", "127.1"])
    def test_others_may_connect_only_with_keys(self, file: Path, host: str) -> None:
        problems = refusal(file, f"server:\n  host: '{host}'\n")
        assert "line 2, server.host: must be 127.0.0.1 while there are no client keys" in problems
        assert "GROUNDWIRE_KEYS" in problems
        assert config(file, f"server:\n  host: '{host}'\n", {"GROUNDWIRE_KEYS": "k" * 16}).server.host == host

    @pytest.mark.parametrize("host", ["127.0.0.1", "127.0.0.2", "::1", "[::1]", "::ffff:127.0.0.1", "localhost"])
    def test_loopback_needs_no_key(self, file: Path, host: str) -> None:
        assert config(file, f"server: {{host: '{host}'}}").server.host == host.strip("[]")

    def test_the_command_line_wins_and_is_checked_too(self, file: Path) -> None:
        overridden = config(file, "server: {host: 127.0.0.2, port: 1}", host="127.0.0.3", port=0).server
        assert (overridden.host, overridden.port) == ("127.0.0.3", 0)
        assert "--host, server.host: must be" in refusal(file, "server: {host: 127.0.0.2}", host="0.0.0.0")
        assert "Groundwire itself" in refusal(file, "", port=11434)

    @pytest.mark.parametrize(("text", "size"), [("4MiB", 4 << 20), ("4096", 4096), ("2 MB", 2_000_000)])
    def test_sizes(self, file: Path, text: str, size: int) -> None:
        assert config(file, f"server: {{max_body: {text}}}").server.max_body == size

    def test_allowed_hosts_are_bare_names(self, file: Path) -> None:
        assert config(file, "server: {allowed_hosts: [Gw.Example.org.]}").server.allowed_hosts == ["gw.example.org"]
        for host in ("https://a.example", "a.example:8080", "a/b", "*"):
            assert "server.allowed_hosts[0]: must be a bare host" in refusal(
                file, f"server: {{allowed_hosts: ['{host}']}}"
            )


class TestTools:
    @pytest.mark.parametrize("written", ["off", "Off", "false", "'off'", "no", "${MODE:-off}", "${MODE:-false}"])
    def test_off_is_off_however_yaml_reads_it(self, file: Path, written: str) -> None:
        tools = config(file, f"tools:\n  mode: {written}\n  progress: {written}\n").tools
        assert (tools.mode, tools.progress) == ("off", "off")

    @pytest.mark.parametrize("written", ["on", "true", "yes", "1"])
    def test_on_is_no_mode(self, file: Path, written: str) -> None:
        problems = refusal(file, f"tools:\n  mode: {written}\n")
        assert f"line 2, tools.mode: must be 'auto', 'on_request' or 'off' (given: '{written}')" in problems

    def test_names_left_out_are_all_that_can_in_order(self, file: Path) -> None:
        providers = "providers: [{name: c, type: direct}, {name: b, type: jina}, {name: a, type: duckduckgo}]\n"
        assert config(file, providers).tools.search == ["b", "a"]
        assert config(file, providers).tools.read == ["c", "b"]
        assert config(file, providers + "tools: {search: [], read: [b]}").tools.search == []

    @pytest.mark.parametrize("name", ["dgd", "reader"])
    def test_a_name_that_cannot_search_lists_those_that_can(self, file: Path, name: str) -> None:
        providers = "providers:\n  - {name: ddg, type: duckduckgo}\n  - {name: reader, type: direct}\n"
        problems = refusal(file, f"{providers}tools:\n  search:\n    - ddg\n    - {name}\n")
        expected = f"line 7, tools.search[1]: must be the name of a provider that can search (ddg) (given: '{name}')"
        assert expected in problems

    def test_a_name_that_cannot_read_lists_those_that_can(self, file: Path) -> None:
        providers = "providers:\n  - {name: ddg, type: duckduckgo}\n"
        problems = refusal(file, providers + "tools:\n  read: [ddg]\n")
        expected = "line 4, tools.read[0]: must be the name of a provider that can read (none is configured)"
        assert expected + " (given: 'ddg')" in problems

    def test_the_line_is_right_behind_a_first_provider_from_the_environment(self, file: Path) -> None:
        text = "providers:\n  - {name: ddg, type: duckduckgo}\ntools:\n  search:\n    - dgd\n    - ddg\n"
        problems = refusal(file, text, {"WEB_SEARCH_PROVIDER": "tavily"})
        assert (
            "line 5, tools.search[0]: must be the name of a provider that can search (ddg, tavily) (given:" in problems
        )

    def test_a_type_that_is_not_known_is_the_one_problem(self, file: Path) -> None:
        problems = refusal(file, "providers: [{name: web, type: altavista}]\ntools: {search: [web], read: [web]}")
        assert problems.count("\n") == 1

    def test_an_unknown_provider_type_lists_the_valid_ones(self, file: Path) -> None:
        problems = refusal(file, "providers:\n  - {name: web, type: altavista}\n")
        assert "line 2, providers[0].type: must be a provider of this version (brave, chromium, crawl4ai, " in problems

    def test_two_providers_of_one_name(self, file: Path) -> None:
        problems = refusal(file, "providers: [{name: a, type: direct}, {name: a, type: direct}]")
        assert "providers[1].name: must not be the name of another entry" in problems

    def test_networks_and_domains(self, file: Path) -> None:
        text = "tools: {allow_networks: [10.0.0.0/8, 'fd00::/8', 192.168.1.7], blocked_domains: [Ads.Example]}"
        tools = config(file, text).tools
        assert tools.allow_networks == [ipaddress.ip_network(n) for n in ("10.0.0.0/8", "fd00::/8", "192.168.1.7/32")]
        assert tools.blocked_domains == ["ads.example"]

    @pytest.mark.parametrize(
        ("key", "value", "expected"),
        [
            ("max_rounds", "many", "must be a whole number (given: 'many')"),
            ("max_rounds", "2.5", "must be a whole number (given: '2.5')"),
            ("max_rounds", "0", "must be greater than or equal to 1 (given: '0')"),
            ("max_rounds", "true", "must be a number (given: 'true')"),
            ("max_rounds", "[1]", "must be a whole number (given: a list)"),
            ("max_results", "51", "must be less than or equal to 50 (given: '51')"),
            ("max_page_length", "10", "must be greater than or equal to 200 (given: '10')"),
            ("open_timeout", ".nan", "must be a number (given: '.nan')"),
            ("open_timeout", "nan", "must be greater than 0 (given: 'nan')"),
            ("open_timeout", "inf", "must be less than or equal to 86400 (given: 'inf')"),
            ("open_timeout", "-1", "must be greater than 0 (given: '-1')"),
            ("public_fallback", "maybe", "must be true or false (given: 'maybe')"),
            ("search", "ddg", "must be a list (given: 'ddg')"),
            ("search", "{a: b}", "must be a list (given: a mapping)"),
            ("provenance", "lax", "must be 'strict', 'context' or 'open' (given: 'lax')"),
        ],
    )
    def test_wrong_values(self, file: Path, key: str, value: str, expected: str) -> None:
        assert f"line 3, tools.{key}: {expected}" in refusal(file, f"tools:\n  mode: auto\n  {key}: {value}\n")

    @pytest.mark.parametrize("key", ["allow_networks", "allowed_domains", "blocked_domains"])
    @pytest.mark.parametrize("value", ["https://example.org", "10.0.0.1/8/9", "'*.example.org'", "''"])
    def test_wrong_networks_and_domains(self, file: Path, key: str, value: str) -> None:
        assert f"line 1, tools.{key}[0]: must be a " in refusal(file, f"tools: {{{key}: [{value}]}}")


def test_a_config_is_frozen() -> None:
    with pytest.raises(ValidationError, match="frozen"):
        from_environment({}).tools.max_rounds = 1
