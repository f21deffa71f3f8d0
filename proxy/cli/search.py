"""`groundwire search`: one web_search, as the model would get it. Handed the parsed arguments; prints what was found,
as the text that a model reads or as JSON.
"""

from __future__ import annotations

import argparse
import json
import sys

from tools.ledger import Ledger
from tools.options import SessionOptions
from tools.render import search_json

from ..config.settings import Config
from .indexing import await_indexes
from .running import none_configured, opened, run_with_config


def run(given: argparse.Namespace) -> int:
    return run_with_config(search, given)


async def search(config: Config, given: argparse.Namespace) -> int:
    async with opened(config) as house:
        toolbox = house.toolbox_with(given.provider or "")
        if toolbox.search is None:
            return none_configured("search")
        named = house.providers.get(given.provider or "")
        await await_indexes([named] if named else house.searchers)
        session = toolbox.session(SessionOptions(Ledger(), alone=True))
        arguments = {"query": given.query, "provider": given.provider or "", "limit": given.limit}
        answer = await session.search_once(arguments)
        print(json.dumps(search_json(answer), ensure_ascii=False, indent=2) if given.json else session.text(answer))
        if answer.advice:
            print(answer.advice, file=sys.stderr)
        return 0 if answer.ok else 1
