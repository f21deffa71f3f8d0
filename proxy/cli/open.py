"""`groundwire open`: one open_page, as the model would get it. Handed the parsed arguments; prints the pages, as the
text that a model reads or as JSON.
"""

from __future__ import annotations

import argparse
import json

from tools.ledger import Ledger
from tools.options import SessionOptions
from tools.render import open_json

from ..config.settings import Config
from .indexing import await_indexes, owners_of
from .running import none_configured, opened, run_with_config


def run(given: argparse.Namespace) -> int:
    return run_with_config(open_pages, given)


async def open_pages(config: Config, given: argparse.Namespace) -> int:
    async with opened(config) as house:
        if house.read is None:
            return none_configured("read")
        await await_indexes(owners_of(house, given.url))
        session = house.toolbox.session(SessionOptions(Ledger(), alone=True))
        parts = await session.open_once({"urls": given.url, "start": given.start, "query": given.query})
        if given.json:
            pages = [open_json(part) for part in parts]
            print(json.dumps(pages if len(given.url) > 1 else pages[0], ensure_ascii=False, indent=2))
        else:
            print(session.text(parts))
        return 1 if any(part.error for part in parts) else 0
