"""From a config entry to a provider: the table, plugins, and errors that say what to do."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any, cast

import pytest
from pydantic import BaseModel, ValidationError

from providers import registry
from providers.base import SearchQuery
from providers.chain import SearchChain
from providers.registry import NamedProvider, ProviderConfigError, ProviderEntry
from tests.fakes.config import config, refusal

ROLES = ("search", "read")
ROOT = Path(__file__).parents[2]
SECRET = "sk-very-secret-0123456789"

PLUGIN = '''
class Mapping:
    """Gets the plain dict."""
    def __init__(self, settings):
        self.settings = settings
    async def search(self, query):
        return {"results": [{"title": query.text, "url": "https://plugin.example/1"}], "answer": "hello"}

class Broken:
    def __init__(self, settings):
        raise RuntimeError(settings["api_key"])

class Browser:
    uses_open_web = True
    private = True
    def __init__(self, settings, fetcher):
        self.fetcher = fetcher
    async def read(self, url):
        return {"url": url, "title": "t", "text": "x"}

from pydantic import BaseModel, SecretStr

class Keyed:
    class Settings(BaseModel, extra="forbid"):
        api_key: SecretStr
        search_depth: int = 1
        base_url: str = "https://keyed.example"
    def __init__(self, settings):
        self.settings = settings
        self.closed = False
    async def search(self, query):
        return []
    async def aclose(self):
        self.closed = True
        raise RuntimeError("too late")
'''


@pytest.fixture
def plugins(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A distribution on the path, as pip would have put it there."""
    (tmp_path / "groundwire_sample_plugin.py").write_text(PLUGIN)
    info = tmp_path / "groundwire_sample_plugin-1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: groundwire-sample-plugin\nVersion: 1.0\n")
    lines = [f"{name.lower()} = groundwire_sample_plugin:{name}" for name in ("Mapping", "Broken", "Browser", "Keyed")]
    lines += ["absent = groundwire_sample_plugin:Absent", "local = groundwire_sample_plugin:Mapping"]
    (info / "entry_points.txt").write_text("[groundwire.providers]\n" + "\n".join(lines) + "\n")
    monkeypatch.syspath_prepend(str(tmp_path))


def build(*entries: ProviderEntry, fetcher: object = None) -> dict[str, NamedProvider]:
    return registry.build(entries, cast(Any, fetcher))


def error_of(**entry: Any) -> str:
    with pytest.raises(ProviderConfigError) as caught:
        build(ProviderEntry(**entry))
    assert SECRET not in str(caught.value)
    return str(caught.value)


@pytest.mark.parametrize("kind", sorted(registry.SERVICES))
def test_every_row_of_the_table_is_true(kind: str) -> None:
    row, service = registry.SERVICES[kind], registry.load(kind)
    assert row.roles == tuple(role for role in ROLES if callable(getattr(service, role, None))) != ()
    assert issubclass(service.Settings, BaseModel)
    settings = service.Settings.model_fields
    assert not row.variable or row.sets in settings
    assert not row.keyless or not settings[row.sets].is_required()
    for advice in row.advice.values():
        assert "'web'" in advice.format(name="'web'")


def test_variables_bring_their_services_in_this_order() -> None:
    kinds = [kind for kind, row in registry.SERVICES.items() if row.variable]
    assert kinds == ["tavily", "exa", "brave", "searxng", "perplexity", "serper", "jina", "firecrawl"]
    assert [kind for kind in kinds if registry.SERVICES[kind].sets == "base_url"] == ["searxng"]


def test_importing_the_registry_imports_no_service() -> None:
    assert _modules_after("import providers.registry, providers.chain", "providers.services.", "ddgs") == []


def test_a_service_is_imported_without_its_heavy_library() -> None:
    loaded = _modules_after(
        "import providers.registry as r; r.load('duckduckgo')", "providers.services.", "ddgs", "primp"
    )
    assert loaded == ["providers.services.duckduckgo"]


def test_one_instance_serves_both_roles(tmp_path: Path) -> None:
    named = build(ProviderEntry(name="docs", type="local", options={"path": str(tmp_path)}))["docs"]
    assert (named.name, named.type, named.can_search, named.can_read) == ("docs", "local", True, True)


def test_order_and_names_are_kept() -> None:
    made = build(
        ProviderEntry(name="b", type="duckduckgo"),
        ProviderEntry(name="a", type="searxng", base_url="http://127.0.0.1:8888"),
    )
    assert list(made) == ["b", "a"]
    assert made["b"].can_search
    assert not made["b"].can_read


def test_duplicate_name() -> None:
    with pytest.raises(ProviderConfigError, match="'web' is used twice"):
        build(ProviderEntry(name="web", type="duckduckgo"), ProviderEntry(name="web", type="duckduckgo"))


def test_unknown_type_names_the_nearest() -> None:
    text = error_of(name="web", type="duckduckgoo")
    assert "provider 'web'" in text
    assert "did you mean 'duckduckgo'?" in text
    assert "searxng" in text


def test_unknown_option_names_the_nearest() -> None:
    text = error_of(name="sx", type="searxng", base_url="http://sx", options={"categorys": ["it"]})
    assert "provider 'sx' (searxng): there is no setting `categorys`, did you mean 'categories'?" in text


def test_a_key_for_a_service_without_one() -> None:
    text = error_of(name="ddg", type="duckduckgo", api_key=SECRET)
    assert "there is no setting `api_key`" in text
    assert "region" in text


def test_missing_setting_says_where_to_set_it() -> None:
    assert "`base_url` is missing; set `base_url: …` under provider 'sx'" in error_of(name="sx", type="searxng")
    assert "`path` is missing; set `path: …` under `options:` of provider 'docs'" in error_of(name="docs", type="local")


@pytest.mark.usefixtures("plugins")
@pytest.mark.parametrize("given", [{}, {"api_key": ""}])
def test_missing_key_names_the_variable(given: dict[str, str]) -> None:
    text = error_of(name="k", type="keyed", **given)
    assert "`api_key` is missing; set `api_key: ${KEYED_API_KEY}` under provider 'k'" in text


@pytest.mark.parametrize(
    "address", ["searx.example.org", "ftp://searx.example.org", "http://", "http://[bad", "http://a:99999999"]
)
def test_a_base_url_that_is_none(address: str) -> None:
    assert "`base_url` is not valid" in error_of(name="sx", type="searxng", base_url=address)


def test_an_invalid_value_is_not_quoted() -> None:
    text = error_of(name="ddg", type="duckduckgo", options={"rate": SECRET})
    assert "`rate` is not valid" in text
    assert "under `options:` of provider 'ddg'" in text


def test_all_mistakes_are_named_at_once() -> None:
    text = error_of(name="sx", type="searxng", timeout=-1)
    assert "`base_url` is missing" in text
    assert "`timeout` is not valid" in text


def test_a_folder_that_is_not_there(tmp_path: Path) -> None:
    assert "`path` is not valid" in error_of(name="docs", type="local", options={"path": str(tmp_path / "absent")})


def test_entries_are_strict_and_hide_the_key() -> None:
    with pytest.raises(ValidationError):
        ProviderEntry.model_validate({"name": "a", "type": "b", "apikey": "c"})
    entry = ProviderEntry.model_validate({"name": "a", "type": "b", "api_key": SECRET})
    assert SECRET not in repr(entry)


@pytest.mark.parametrize(
    ("address", "private"),
    [
        ("https://searx.example.org", False),
        ("https://8.8.8.8:8443", False),
        ("https://[2606:4700::1111]/", False),
        ("http://localhost:8888", True),
        ("http://searxng:8080", True),
        ("http://127.0.0.1", True),
        ("http://10.1.2.3", True),
        ("http://192.168.0.5:8080/sx", True),
        ("http://100.64.0.1", True),
        ("http://[::1]:8888", True),
        ("http://[::ffff:10.0.0.1]", True),
        ("http://[fd00::1]", True),
        ("http://search.internal", True),
        ("http://search.office.local.", True),
        ("http://nas.home.arpa", True),
    ],
)
def test_private_by_default_where_the_address_is_not_public(address: str, private: bool) -> None:
    assert build(ProviderEntry(name="sx", type="searxng", base_url=address))["sx"].private is private
    flipped = ProviderEntry(name="sx", type="searxng", base_url=address, private=not private)
    assert build(flipped)["sx"].private is not private


def test_local_is_private_even_with_a_public_address(tmp_path: Path) -> None:
    entry = ProviderEntry(name="d", type="local", base_url="https://docs.example.org", options={"path": str(tmp_path)})
    assert build(entry)["d"].private


def test_duckduckgo_is_public() -> None:
    assert not build(ProviderEntry(name="ddg", type="duckduckgo"))["ddg"].private


@pytest.mark.usefixtures("plugins")
async def test_a_plugin_gets_a_plain_dict_and_may_answer_with_mappings() -> None:
    entry = ProviderEntry.model_validate(
        {"name": "p", "type": "mapping", "api_key": SECRET, "timeout": 3, "options": {"depth": 2}}
    )
    named = build(entry)["p"]
    assert cast(Any, named.provider).settings == {"api_key": SECRET, "timeout": 3.0, "depth": 2}
    assert SECRET not in repr(named)
    found = await SearchChain([named]).search(SearchQuery("hi"))
    assert found.results.answer == "hello"
    assert found.results.results[0].title == "hi"


@pytest.mark.usefixtures("plugins")
def test_a_plugin_with_settings_of_its_own() -> None:
    entry = ProviderEntry.model_validate({"name": "k", "type": "keyed", "api_key": SECRET})
    settings = cast(Any, build(entry)["k"].provider).settings
    assert settings.api_key.get_secret_value() == SECRET
    assert SECRET not in repr(settings)


@pytest.mark.usefixtures("plugins")
def test_only_who_asks_for_the_open_web_gets_the_fetcher() -> None:
    fetcher = object()
    named = build(ProviderEntry(name="b", type="browser"), fetcher=fetcher)["b"]
    assert cast(Any, named.provider).fetcher is fetcher
    assert named.private


@pytest.mark.usefixtures("plugins")
def test_a_broken_plugin_is_named_without_its_words() -> None:
    text = error_of(name="x", type="broken", api_key=SECRET)
    assert text == "provider 'x': the type 'broken' cannot be set up (RuntimeError)"
    assert "(AttributeError)" in error_of(name="y", type="absent")


@pytest.mark.usefixtures("plugins")
def test_a_plugin_cannot_take_a_name_of_ours() -> None:
    assert registry.load("local").__module__ == "providers.services.local"


@pytest.mark.usefixtures("plugins")
def test_plugins_are_among_the_known_types() -> None:
    assert "did you mean 'keyed'?" in error_of(name="k", type="keyd")


@pytest.mark.usefixtures("plugins")
def test_what_a_type_can_do_is_known_without_making_one() -> None:
    can = {
        kind: registry.roles_of(kind) for kind in ("brave", "direct", "exa", "mapping", "browser", "keyed", "broken")
    }
    assert can == {
        "brave": ("search",),
        "direct": ("read",),
        "exa": ("search", "read"),
        "mapping": ("search",),
        "browser": ("read",),
        "keyed": ("search",),
        "broken": (),
    }


@pytest.mark.usefixtures("plugins")
def test_a_plugin_is_used_for_what_its_class_has(tmp_path: Path) -> None:
    file, providers = (
        tmp_path / "config.yaml",
        "providers:\n  - {name: a, type: mapping}\n  - {name: b, type: browser}\n",
    )
    tools = config(file, providers).tools
    assert (tools.search, tools.read) == (["a"], ["b"])
    problems = refusal(file, providers + "tools:\n  search: [a]\n  read: [a]\n")
    assert "line 6, tools.read[0]: must be the name of a provider that can read (b) (given: 'a')" in problems
    assert "'browser' cannot search; valid here: a, " in refusal(file, providers, {"WEB_SEARCH_PROVIDER": "browser"})


@pytest.mark.usefixtures("plugins")
def test_a_plugin_that_cannot_be_loaded_is_no_matter_of_the_config(tmp_path: Path) -> None:
    text = "providers: [{name: y, type: absent}]\ntools: {search: [y], read: [y]}"
    entries = config(tmp_path / "config.yaml", text).providers
    with pytest.raises(ProviderConfigError, match=r"'absent' cannot be set up \(AttributeError\)"):
        build(*entries)


@pytest.mark.usefixtures("plugins")
async def test_closing_reaches_everyone() -> None:
    made = build(
        ProviderEntry.model_validate({"name": "k1", "type": "keyed", "api_key": "a"}),
        ProviderEntry(name="ddg", type="duckduckgo"),
        ProviderEntry.model_validate({"name": "k2", "type": "keyed", "api_key": "b"}),
        ProviderEntry(name="plain", type="mapping"),
    )
    await registry.close(made.values())
    assert cast(Any, made["k1"].provider).closed
    assert cast(Any, made["k2"].provider).closed


def _modules_after(statement: str, *prefixes: str) -> list[str]:
    """What a fresh interpreter has loaded after a statement, of the modules that begin with one of `prefixes`."""
    script = f"import sys\n{statement}\nprint(*(name for name in sys.modules if name.startswith({prefixes!r})))"
    done = subprocess.run([sys.executable, "-c", script], cwd=ROOT, capture_output=True, text=True, check=True)
    return sorted(done.stdout.split())
