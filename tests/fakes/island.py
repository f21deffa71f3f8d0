"""A folder about an island that does not exist: ten documents of all kinds with invented facts, and ten questions, each
with the one document that holds its answer, and words of it. Nobody can know an answer from elsewhere."""

from __future__ import annotations

from pathlib import Path

from tests.fakes.office import docx, epub, pptx, slide, text_pdf

_MINUTES = "\n\n".join(
    f"## Item {number}\n\nThe council spoke about the budget of the harbour, the school and the road for the "
    f"{number}th time, heard the treasurer, and put the matter off until the next meeting of the council."
    for number in range(1, 60)
)

QUESTIONS = {
    "Who repaired the clock of Skarholm lighthouse?": "clock.pdf",
    "How much does a ferry ticket to Skarholm cost for a child?": "ferry.docx",
    "What does the island's bakery put into its Sunday bread?": "bakery.md",
    "When was the church bell of Skarholm cast, and where?": "church.html",
    "How deep is the old copper mine?": "mine.pdf",
    "Which bird nests on the northern cliffs in May?": "birds.pptx",
    "What did the council decide about the wind turbine?": "minutes.md",
    "Who wrote the island's song and for which instrument?": "songs.epub",
    "What is the emergency number of the island's doctor?": "doctor.txt",
    "How long must seaweed be dried before it is sold?": "seaweed.docx",
}

ANSWERS = {
    "clock.pdf": "Ada Lindqvist", "ferry.docx": "30 crowns", "bakery.md": "rowan berries", "church.html": "1742",
    "mine.pdf": "212 metres", "birds.pptx": "little auk", "minutes.md": "refused", "songs.epub": "nyckelharpa",
    "doctor.txt": "0498-77 31 02", "seaweed.docx": "seventeen days",
}  # fmt: skip


def make_island(folder: Path) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    for name, body in documents().items():
        (folder / name).write_bytes(body)


def documents() -> dict[str, bytes]:
    menu = "".join(f'<li><a href="/page{number}.html">Skarholm page {number}</a></li>' for number in range(30))
    bell = "The bell was cast in 1742 in Norrby from two cannons, weighs eleven hundredweight and sounds a low G."
    return {
        "clock.pdf": text_pdf(
            [
                "The lighthouse of Skarholm",
                "The tower was built in 1871 of grey granite.",
                "It is nineteen metres high.",
            ],
            [
                "The clock",
                "The clock stood still for eleven years. It was repaired in 1987",
                "by Ada Lindqvist, a watchmaker from Visby.",
            ],
        ),
        "ferry.docx": docx(
            "The ferry",
            "The ferry to Skarholm sails on Tuesdays at 9:40.",
            "A ticket costs 85 crowns, for a child 30 crowns.",
        ),
        "bakery.md": b"# The bakery\n\nOn Sundays the bakery has a bread with rowan berries and rye. It opens at 6.\n",
        "church.html": f"<html><head><title>The church of Skarholm</title></head><body><nav><ul>{menu}</ul></nav><main>"
        f"<h1>The church</h1><p>{bell}</p><p>The organ has nine stops.</p></main></body></html>".encode(),
        "mine.pdf": text_pdf(
            ["The copper mine", "Copper was dug on the island from 1690 to 1804."],
            ["The shaft", "The shaft of the mine is 212 metres deep and stands under water today."],
        ),
        "birds.pptx": pptx(
            slide("Birds of the island", "A talk for the summer school"),
            slide("Northern cliffs", "In May the little auk nests there, some 400 pairs", "Please keep away from them"),
            slide("Marsh", "Snipe and reed warbler"),
        ),
        "minutes.md": f"# Minutes of the council\n\n{_MINUTES}\n\n## Item 60\n\nThe council refused the wind turbine "
        f"on the western hill with five to four votes.\n\n{_MINUTES}".encode(),
        "songs.epub": epub(
            "Songs of the island",
            "<h1>Preface</h1><p>These songs were collected between 1950 and 1962.</p>",
            "<h1>The island's song</h1><p>Elof Strand wrote it in 1911 for the nyckelharpa. It has six verses.</p>",
        ),
        "doctor.txt": b"The doctor\n\nThe doctor comes on Mondays. In an emergency call 0498-77 31 02 at any hour.\n",
        "seaweed.docx": docx(
            "Seaweed",
            "Seaweed is cut in April.",
            "Before it may be sold it has to dry for seventeen days on wooden racks.",
        ),
    }
