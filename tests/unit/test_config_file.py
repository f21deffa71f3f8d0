"""Reading a config file: references to the environment, YAML of every kind, and errors that point at the line."""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path

import pytest
import yaml
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from proxy.config.settings import Config, ConfigError, from_environment, load
from tests.fakes.config import config, refusal

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "configuration.md").read_text(encoding="utf-8")


class TestEnvironmentReferences:
    UPSTREAM = "upstreams:\n  - name: a\n    type: demo\n    api_key: {}\n"

    def key(self, file: Path, written: str, environ: Mapping[str, str]) -> str:
        return config(file, self.UPSTREAM.format(written), environ).upstreams[0].api_key.get_secret_value()

    @pytest.mark.parametrize(
        ("written", "value"),
        [
            ("${A}", "one"),
            ("x${A}-${B:-two}y", "xone-twoy"),
            ("${A:-default}", "one"),
            ("${EMPTY:-default}", "default"),
            ("${EMPTY}", ""),
            ("${NONE:-}", ""),
            ("'${NONE:-http://h:1/v1}'", "http://h:1/v1"),
            ("$$A $${A} $A 5$", "$A ${A} $A 5$"),
            ("$$${A}", "$one"),
            ("${YAML}", "]\nserver: {port: 1}"),
            ("${NESTED}", "${A}"),
        ],
    )
    def test_values(self, file: Path, written: str, value: str) -> None:
        environ = {"A": "one", "EMPTY": "", "YAML": "]\nserver: {port: 1}", "NESTED": "${A}"}
        assert self.key(file, written, environ) == value

    def test_a_reference_becomes_a_number_or_a_switch(self, file: Path) -> None:
        text = "server: {port: '${P}'}\ncitations: {footer: '${F:-on}'}"
        filled = config(file, text, {"P": "9000"})
        assert filled.server.port == 9000
        assert filled.citations.footer is True

    def test_an_unset_variable_names_itself_its_key_and_its_line(self, file: Path) -> None:
        problems = refusal(file, self.UPSTREAM.format("${MISSING}") + "server:\n  port: ${ALSO}\n")
        assert "line 4, upstreams[0].api_key: the variable MISSING is not set" in problems
        assert "line 6, server.port: the variable ALSO is not set" in problems

    @pytest.mark.parametrize("written", ["${}", "${A", "${1A}", "${A-b}", "${A B}"])
    def test_a_broken_reference(self, file: Path, written: str) -> None:
        problems = refusal(file, self.UPSTREAM.format(written), {"A": "canary"})
        assert "line 4, upstreams[0].api_key: a reference is written ${NAME}" in problems

    def test_a_reference_is_shown_as_typed_not_as_filled_in(self, file: Path) -> None:
        problems = refusal(file, "tools: {max_rounds: '${A}'}", {"A": "canary"})
        assert "tools.max_rounds: must be a whole number (given: '${A}')" in problems
        assert "canary" not in problems


class TestYaml:
    def test_an_unknown_key_has_its_line_the_nearest_key_and_all_valid_ones(self, file: Path) -> None:
        problems = refusal(file, "server:\n  port: 1\n  hosst: x\ncitation: {}\n")
        assert "line 3, server.hosst: unknown key; did you mean host? valid here: host, port, keys, " in problems
        assert "line 4, citation: unknown key; did you mean citations? valid here: server, upstreams, " in problems

    def test_an_unknown_key_of_an_entry(self, file: Path) -> None:
        problems = refusal(file, "providers:\n  - name: a\n    type: direct\n    apikey: canary\n")
        assert "line 4, providers[0].apikey: unknown key; did you mean api_key? valid here: name, type, " in problems
        assert "canary" not in problems

    def test_all_problems_are_named_at_once_up_to_ten(self, file: Path) -> None:
        problems = refusal(file, "\n".join(f"key{n}: 1" for n in range(14)))
        assert problems.count("unknown key") == 10
        assert "… and 4 more" in problems

    @pytest.mark.parametrize(
        ("text", "place", "source", "caret"),
        [
            ("server:\n  port: [1\ntools: {}\n", "line 3, column 6", "tools: {}", 5),
            ("server: {port: 8080\n", "line 1, column 9", "server: {port: 8080", 8),
            ("server:\n\tport: 1\n", "line 2, column 1", " port: 1", 0),
            ("server:\n  port: 1\n host: x\n", "line 3, column 2", " host: *", 1),
            ("server: 'open\n", "line 1, column 9", "server: 'open", 8),
        ],
    )
    def test_a_syntax_error_shows_line_column_source_and_caret(
        self, file: Path, text: str, place: str, source: str, caret: int
    ) -> None:
        problems = refusal(file, text)
        assert place in problems
        assert f"\n    {source}\n    {' ' * caret}^" in problems

    def test_a_reference_without_quotes_in_braces_is_explained(self, file: Path) -> None:
        assert "a ${NAME} needs quotes" in refusal(file, "upstreams:\n  - {name: a, api_key: ${KEY}}\n")

    @pytest.mark.parametrize(
        ("text", "expected"),
        [
            ("- a\n- b\n", "the file must be a mapping"),
            ("just text", "the file must be a mapping"),
            (b"server:\n  host: \xff\n", "line 2: not UTF-8 text"),
            ("server: {port: 1}\x07", "line 1, column 18: a control character"),
            ("server: {}\nserver: {}\n", "line 2, server: the same key stands here twice"),
            ("tools:\n  mode: off\n  mode: auto\n", "line 3, tools.mode: the same key stands here twice"),
            ("a: 1\n---\nb: 2\n", "expected a single document"),
            ("? [a]\n: b\n", "line 1, top level: a key must be a word"),
            ("store: !!python/name:os.system x", "line 1, store: YAML tags"),
            ("store: !mine x", "line 1, store: YAML tags"),
            ("<<: {store: memory}", "line 1, top level: merge keys (<<)"),
            ("[" * 3000, "nested too deeply"),
            ("{a: " * 3000, "nested too deeply"),
            ("tools: &t [*t]", "line 1, tools: too many values, or an alias that holds itself"),
            ("x" * (1 << 20) + "y", "larger than 1 MiB"),
        ],
    )
    def test_refusals(self, file: Path, text: str | bytes, expected: str) -> None:
        assert expected in refusal(file, text)

    def test_an_alias_bomb_is_refused(self, file: Path) -> None:
        layers = [f"a{n}: &a{n} [{', '.join([f'*a{n - 1}'] * 10)}]" for n in range(1, 12)]
        assert "too many values" in refusal(file, "\n".join(["a0: &a0 [x]", *layers]))

    def test_anchors_and_aliases_work(self, file: Path) -> None:
        shared = config(file, "tools: {allowed_domains: &d [a.example], blocked_domains: *d}").tools
        assert shared.allowed_domains == shared.blocked_domains == ["a.example"]

    def test_a_byte_order_mark_is_no_part_of_the_first_key(self, file: Path) -> None:
        file.write_bytes(b"\xef\xbb\xbfserver: {port: 81}\r\n")
        assert load(file, {}).server.port == 81

    def test_a_key_with_nothing_behind_it_is_left_out(self, file: Path) -> None:
        assert config(file, "upstreams:\nserver:\n  keys:\n  port: ~\ntools:\n") == from_environment({})

    def test_options_keep_their_types(self, file: Path) -> None:
        options = "{a: 1, b: 1.5, c: true, d: 'true', e: off, f: 007, g: [x, 2], h: {i: 2024-01-02}}"
        [entry] = config(file, f"providers: [{{name: a, type: direct, options: {options}}}]").providers
        expected = {"a": 1, "b": 1.5, "c": True, "d": "true", "e": "off", "f": "007", "g": ["x", 2]}
        assert entry.options == expected | {"h": {"i": "2024-01-02"}}


CANARY = "canary7Q"

WORDS = st.sampled_from(
    [
        *("server", "port", "keys", "upstreams", "name", "type", "api_key", "base_url", "tools", "mode", "search"),
        *("providers", "headers", "options", "store", "demo", "openai", "direct", "a", "off", "true", "~", "1", "1.5"),
        *("${X}", "${X:-y}", "${NONE}", "${", "$$", "http://127.0.0.1:8080", "0x_", "2024-99-99", "12:30", "=", "<<"),
    ]
)
PUNCTUATION = st.sampled_from([*":-[]{},&*!|>'\"#%@`\t\n", ": ", "\n  ", "\n- "])
VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | WORDS | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(WORDS | st.text(max_size=5), inner, max_size=4),
    max_leaves=12,
)
YAMLS = st.one_of(
    st.dictionaries(WORDS, VALUES, max_size=5).map(lambda value: yaml.safe_dump(value, allow_unicode=True).encode()),
    st.lists(WORDS | PUNCTUATION, max_size=40).map(lambda pieces: "".join(pieces).encode()),
    st.binary(max_size=60),
)


def test_text_where_a_section_should_stand_is_not_quoted(file: Path) -> None:
    assert "canary" not in refusal(file, "server:\n  keys [canary-secret,")
    assert "canary" not in refusal(file, "server:\n  keys: canary-secret")
    assert "canary" not in refusal(file, "providers: api_key canary-secret")


class TestAnything:
    @settings(max_examples=200, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
    @given(text=YAMLS)
    def test_any_yaml_is_a_config_or_one_readable_error(self, file: Path, text: bytes) -> None:
        file.write_bytes(text)
        outcome = self.outcome(file)
        if isinstance(outcome, Config):
            assert outcome.upstreams
        else:
            assert re.match(r".+ cannot be used:\n  \S", outcome)
            assert outcome.endswith("    read: [reader]")

    def outcome(self, file: Path) -> Config | str:
        try:
            return load(file, {"X": "y"})
        except ConfigError as error:
            return str(error)

    SECRETS = f"""
server:
  keys: [{CANARY}a, {{key: {CANARY}b, name: bob}}]
upstreams:
  - name: a
    base_url: http://user:{CANARY}@models.example/v1
    api_key: "{CANARY}c"
    headers: {{Authorization: Bearer {CANARY}d}}
providers:
  - {{name: p, type: searxng, api_key: {CANARY}e, base_url: "http://u:{CANARY}@h", options: {{token: {CANARY}f}}}}
store: redis://:{CANARY}@cache:6379
"""

    @settings(max_examples=200, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
    @given(data=st.data())
    def test_no_secret_is_ever_in_an_error_however_the_file_is_damaged(self, file: Path, data: st.DataObject) -> None:
        text = self.SECRETS
        for _ in range(data.draw(st.integers(0, 3))):
            start = data.draw(st.integers(0, len(text)))
            # Damage takes or adds punctuation and space, never cuts a secret in two: half a word is not the secret.
            piece = data.draw(st.sampled_from(["", ":", "- ", "[", "{", "}", '"', "'", "\n", "  ", "&", "*", "!", "#"]))
            taken = data.draw(st.integers(0, 1)) if start < len(text) and not text[start].isalnum() else 0
            text = text[:start] + piece + text[start + taken :]
        file.write_text(text)
        outcome = self.outcome(file)
        assert isinstance(outcome, Config) or "canary" not in outcome

    @pytest.mark.parametrize(
        "text",
        [
            f"upstreams: [{{name: a, api_key:{CANARY}}}]",
            f"upstreams:\n  - name: a\n    api_key {CANARY}\n    type: demo\n",
            f"upstreams:\n  - name: a\n    api_key: *{CANARY}\n",
            f"upstreams:\n  - name: a\n    api_key: !{CANARY}\n",
            f"upstreams:\n  - name: a\n    api_key: !{CANARY}!x y\n",
            f"upstreams:\n  - name: a\n    api_key: {{{CANARY}: x}}\n",
            f"upstreams:\n  - name: a\n    api_key: '{CANARY}\n",
            f"server:\n  keys:\n    - {CANARY}: alice\n",
            f"server:\n  keys:\n    {CANARY}: alice\n    {CANARY}: bob\n",
            f"server:\n  keys: {CANARY}\n",
            f"server: {{keys: ['{CANARY} {CANARY}']}}",
        ],
    )
    def test_likely_slips_with_a_key_do_not_show_it(self, file: Path, text: str) -> None:
        assert CANARY not in refusal(file, text)
