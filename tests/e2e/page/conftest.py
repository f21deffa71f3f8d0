"""What the tests of the page share: one browser for a module, which may ask nobody but the server."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest_asyncio

from tests.fakes.page_tab import Page


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def page() -> AsyncIterator[Page]:
    async with Page() as tab:
        yield tab


@pytest_asyncio.fixture(loop_scope="module", autouse=True)
async def _without_problems(page: Page) -> AsyncIterator[None]:
    yield
    assert await page.problems() == []
    assert await page.strangers() == []
