"""LangChain's wrapper of SearXNG, unmodified but for the address, which is where its key stands too. Started with the
address of a Groundwire; prints what the wrapper got.
"""

from __future__ import annotations

import asyncio
import json
import sys
import warnings

warnings.simplefilter("ignore")

from langchain_community.utilities import SearxSearchWrapper  # noqa: E402

WITH_KEY, WITH_WRONG_KEY = sys.argv[1:]


def refused() -> str:
    try:
        SearxSearchWrapper(searx_host=WITH_WRONG_KEY).run("sky")
    except ValueError as error:
        return str(error)
    return ""


def main() -> None:
    searx = SearxSearchWrapper(searx_host=WITH_KEY, k=2)
    seen = {
        "run": searx.run("sky blue", categories=["general"]),
        "results": searx.results("sky blue", num_results=2, language="en", time_range="year"),
        "async": asyncio.run(searx.aresults("sky blue", num_results=1)),
        "none": searx.results("sky site", num_results=2, pageno=3),
        "refused": refused(),
    }
    print(json.dumps(seen))


main()
