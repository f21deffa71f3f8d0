"""The text that `groundwire init` writes: whatever a folder or a model is called, it is read back as it was."""

from __future__ import annotations

from pathlib import Path

import yaml
from hypothesis import given
from hypothesis import strategies as st

from proxy.cli.config_text import Choices, ChosenEngine, ChosenUpstream, config_text
from proxy.config.settings import load

LETTERS = st.text(st.characters(codec="utf-8") | st.sampled_from("${}#:'\"\\ \t\n\x85\u2028"), min_size=1)


@given(folder=LETTERS, model=LETTERS)
def test_what_is_written_is_read_as_it_was(tmp_path_factory: object, folder: str, model: str) -> None:
    path = Path(tmp_path_factory.mktemp("written"), "config.yaml")  # type: ignore[attr-defined]
    engines = [ChosenEngine("duckduckgo"), ChosenEngine("tavily", silent="no", kept=False)]
    upstream = ChosenUpstream("up", "http://127.0.0.1:9/v1", models=(model,))
    path.write_text(config_text(Choices("2026-11-17", upstream, [upstream], engines, folder)), encoding="utf-8")
    config = load(path, {})
    assert config.providers[0].options == {"path": folder}
    assert config.upstreams[0].models == [model]
    assert len(config.upstreams) == 1
    assert config.tools.search == ["documents", "duckduckgo"]
    assert [entry.name for entry in config.providers] == ["documents", "duckduckgo", "reader"]


def test_references_stay_references() -> None:
    upstream = ChosenUpstream("up", "http://x/v1", address="OPENAI_BASE_URL", api_key="OPENAI_API_KEY")
    written = yaml.safe_load(config_text(Choices("2026-11-17", upstream, engines=[ChosenEngine("exa", "EXA_API_KEY")])))
    assert written["upstreams"][0]["base_url"] == "${OPENAI_BASE_URL}"
    assert written["upstreams"][0]["api_key"] == "${OPENAI_API_KEY}"
    assert written["providers"][0] == {"name": "exa", "type": "exa", "api_key": "${EXA_API_KEY}"}
