"""Ten questions to a folder of ten documents, PDF and DOCX among them: is the right one in front?"""

from __future__ import annotations

from pathlib import Path

from providers.errors import NoResults
from tests.contract.test_local import hits, local
from tests.fakes.island import ANSWERS, QUESTIONS, make_island


async def test_the_right_document_is_among_the_first_three_and_its_snippet_answers(tmp_path: Path) -> None:
    make_island(tmp_path / "island")
    among, first, answered = 0, 0, 0
    async with local(tmp_path / "island", label="island") as service:
        report = await service.indexed()
        for question, name in QUESTIONS.items():
            try:
                found = (await hits(service, question, limit=3)) or ()
            except NoResults:
                found = ()
            urls = [hit.url for hit in found]
            among += f"local:island/{name}" in urls
            first += urls[:1] == [f"local:island/{name}"]
            answered += any(ANSWERS[name] in " ".join(hit.snippet.split()) for hit in found)
    print(f"among the first 3: {among}/10, first: {first}/10, answer in a snippet: {answered}/10")
    assert (report.documents, report.skipped) == (10, [])
    assert among >= 9
    assert first >= 8
    assert answered >= 9
