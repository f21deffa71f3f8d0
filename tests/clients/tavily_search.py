"""Tavily's own client and LangChain's tools for it, unmodified but for the address. Started with the root of a
Groundwire, a key and a page to extract; prints what each of them got.
"""

from __future__ import annotations

import asyncio
import json
import sys
from collections.abc import Callable
from typing import Any

from langchain_tavily import TavilyExtract, TavilySearch
from langchain_tavily.tavily_extract import TavilyExtractAPIWrapper
from tavily import AsyncTavilyClient, TavilyClient

ROOT, KEY, PAGE = sys.argv[1:]
FILTERS: dict[str, Any] = {
    "search_depth": "advanced",
    "topic": "general",
    "time_range": "year",
    "days": 3,
    "include_domains": ["library.example"],
    "exclude_domains": ["sea.example"],
    "include_answer": True,
    "country": "switzerland",
}


def failing(call: Callable[..., Any], *arguments: Any, **named: Any) -> list[str]:
    try:
        call(*arguments, **named)
    except Exception as error:
        return [type(error).__name__, str(error)]
    return ["nothing"]


async def with_asyncio() -> dict[str, Any]:
    client = AsyncTavilyClient(KEY, api_base_url=ROOT)
    found = await client.search("sky blue", max_results=1, include_raw_content="markdown")
    tool = TavilySearch(tavily_api_key=KEY, api_base_url=ROOT, max_results=2)
    return {
        "async search": found,
        "async extract": await client.extract([PAGE]),
        "langchain async": await tool.ainvoke({"query": "sky blue"}),
    }


def main() -> None:
    client = TavilyClient(KEY, api_base_url=ROOT)
    tool = TavilySearch(tavily_api_key=KEY, api_base_url=ROOT, max_results=2, include_raw_content=True)
    extract = TavilyExtract(apiwrapper=TavilyExtractAPIWrapper(tavily_api_key=KEY, api_base_url=ROOT))
    seen = {
        "search": client.search("sky blue", max_results=2),
        "filters": client.search("sky blue", **FILTERS),
        "extract": client.extract([PAGE, "http://127.0.0.1:1/x"], extract_depth="advanced", format="markdown"),
        "one page": client.extract(PAGE),
        "question": client.qna_search("sky blue"),
        "langchain": tool.invoke({"query": "sky blue"}),
        "langchain extract": extract.invoke({"urls": [PAGE]}),
        "wrong key": failing(TavilyClient("wrong-key-0123", api_base_url=ROOT).search, "sky"),
        "no query": failing(client.search, " "),
        "bad domain": failing(client.search, "sky", include_domains=["not a domain"]),
        "langchain wrong key": TavilySearch(tavily_api_key="wrong-key-0123", api_base_url=ROOT).invoke(
            {"query": "sky"}
        ),
        **asyncio.run(with_asyncio()),
    }
    print(json.dumps(seen, default=repr))


main()
