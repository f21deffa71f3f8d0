"""Which passages of a long text are chosen for a query: in every script, in every layout, within the room there is."""

from __future__ import annotations

import re
from itertools import pairwise

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from providers.documents.passages import split_passages
from providers.text.cuts import cut_place
from providers.text.folding import folded
from providers.text.layout import lay_out
from providers.text.passages import GAP, _Searched, best_passages, joined, passage_spans
from providers.text.seeking import Query
from providers.text.words import pieces, terms, words

FILLER = (
    "The committee met on a Tuesday and spoke about the budget of the year before, which nobody had read to its end.",
    "A bridge was painted green, then blue, and in the end nobody could say which of the two colours had been wanted.",
    "Rain fell on the market square while the brass band played, and those who had brought umbrellas shared them.",
)


def filler(paragraphs: int) -> list[str]:
    return [" ".join(FILLER[(at + turn) % 3] for turn in range(4)) for at in range(paragraphs)]


def page(*said: str, around: int = 12) -> str:
    """What is said, each in a paragraph of its own, among much else."""
    return "\n\n".join([*filler(around), *(part for one in said for part in (one, *filler(around)))])


def best_window(text: str, query: str, most: int) -> str:
    """What is weighed before all else: one piece of the text, word for word."""
    searched = _Searched(text, Query(query), most)
    best = min(filter(searched.speaks, searched.windows()), default=None)
    return searched.shown(best.first, best.last).strip() if best else ""


# Every script. The question never holds a word of the answer in the very form in which the text has it.

QUESTIONS = {
    "en": ("Who was exploring the caves of Lascaux?", "Four boys explored the cave at Lascaux in 1940.", "1940"),
    "de": ("Wie hoch sind die Kirchtürme von Ulm?", "Der Kirchturm des Ulmer Münsters misst 161 Meter.", "161"),
    "es": ("¿Cuándo nacieron los escritores colombianos?", "El escritor colombiano nació en Aracataca, 1927.", "1927"),
    "ro": ("Care sunt munții cei mai înalți?", "Muntele cel mai înalt, Moldoveanu, are 2544 de metri.", "2544"),
    "ru": ("Какой длины река Волга с притоками?", "Длина реки Волги без притоков составляет 3530 км.", "3530"),
    "el": ("Πόσα νησιά έχουν οι Κυκλάδες;", "Το σύμπλεγμα των Κυκλάδων και τα νησιά του είναι 33.", "33"),
    "tr": ("Boğaz köprüsünün uzunluğu nedir?", "Boğaz'daki köprünün uzunluğunu 1560 metre ölçtüler.", "1560"),
    "vi": ("Dân số của Hà Nội là bao nhiêu?", "Thành phố Hà Nội có dân số khoảng 8435000 người.", "8435000"),
    "ar": ("كم عدد المكتبات في القاهرة؟", "افتتحت للمكتبة بالقاهرة فروع، وبلغ عددها 74 فرعا.", "74"),
    "hi": ("दिल्ली की किताबों की दुकानें कब खुलीं?", "किताब की यह दुकान दिल्ली में 1951 में खुली थी।", "1951"),
    "th": ("สะพานข้ามแม่น้ำแควสร้างเสร็จเมื่อใด", "การสร้างสะพานแม่น้ำแควแล้วเสร็จในปี2486และยังใช้อยู่", "2486"),
    "zh": ("黄河大桥什么时候建成?", "这座横跨黄河的大桥于1909年建成通车。", "1909"),
    "ja": ("富士山の高さはどのくらいですか", "日本で一番高い山である富士山は3776メートルの高さがある。", "3776"),
    "ko": ("서울타워의 높이는 얼마입니까?", "남산 위에 있는 서울타워는 높이가 236미터이다.", "236"),
    "km": ("ប្រាសាទអង្គរវត្តសាងសង់នៅពេលណា", "ការសាងសង់ប្រាសាទអង្គរវត្តបានចាប់ផ្ដើមនៅឆ្នាំ1122។", "1122"),
    "my": ("ရွှေတိဂုံစေတီ၏ အမြင့်", "ရန်ကုန်မြို့ရှိရွှေတိဂုံစေတီသည်ပေ326မြင့်သည်။", "326"),
    "he": ("מתי נבנתה הספרייה בירושלים?", "בניית הספרייה הלאומית שבירושלים נמשכה עד 2023.", "2023"),
    "ta": ("சென்னையில் நூலகங்கள் எப்போது திறக்கப்பட்டன?", "சென்னை நூலகம் 1896 இல் திறக்கப்பட்டது.", "1896"),
}


def others(language: str) -> list[str]:
    """Sentences in the same script that speak of something else: any of them would do if letters alone counted."""
    return {
        "th": ["ตลาดน้ำเปิดทุกวันเสาร์และขายผลไม้ตามฤดูกาล", "ครูสอนเด็กเล็กให้อ่านหนังสือและวาดภาพสัตว์"],
        "hi": ["सभा में बजट पर लंबी चर्चा हुई और सब लोग थक गए।", "बारिश के कारण मेला अगले सप्ताह तक टल गया।"],
        "zh": ["委员会在星期二开会讨论去年的预算。", "市场上的水果在下雨天卖得很便宜。"],
        "ar": ["اجتمعت اللجنة يوم الثلاثاء لمناقشة الميزانية.", "هطل المطر على السوق وتفرق الناس سريعا."],
        "ru": ["Комитет собрался во вторник и обсудил бюджет.", "Дождь шёл над рынком, и люди разошлись."],
    }.get(language, [])


@pytest.mark.parametrize("language", QUESTIONS)
def test_the_answer_is_found_in_every_script(language: str) -> None:
    question, sentence, answer = QUESTIONS[language]
    around = [" ".join(others(language) * 6)] * 8 if others(language) else []
    text = "\n\n".join([*around, page(sentence), *around])
    assert answer in best_passages(text, question, 400)
    assert answer in best_window(text, question, 200)


@pytest.mark.parametrize("language", QUESTIONS)
def test_the_answer_is_found_where_nothing_parts_the_text(language: str) -> None:
    question, sentence, answer = QUESTIONS[language]
    around = "".join(others(language)) * 20 or " ".join(filler(9))
    assert answer in best_passages(f"{around} {sentence} {around}", question, 600)


def test_words_of_indic_scripts_stay_whole() -> None:
    assert words("हिन्दी किताबें, தமிழ் நூல்।") == ["हिन्दी", "किताबें", "தமிழ்", "நூல்"]


def test_scripts_without_blanks_are_compared_by_pieces() -> None:
    assert words("黄河大桥") == ["黄河", "河大", "大桥"]
    assert words("แม่น้ำ") == ["แม่น", "ม่น้", "่น้ำ"]
    assert pieces("서울타워") == ["서울", "울타", "타워"]
    assert words("서울타워는 높이가") == ["서울타워는", "높이가"]


def test_particles_of_korean_words_do_not_hide_them() -> None:
    text = page("서울은 인구가 9411000명이다.")
    assert "9411000" in best_passages(text, "서울 인구", 300)
    assert "9411000" in best_passages(text, "서울에서", 300)


def test_common_words_tell_nothing_and_endings_go() -> None:
    assert terms("What is the checking of it?") == ["check"]
    assert terms("What is it?") == ["what", "is", "it"], "where all words are common, all count"


@pytest.mark.parametrize(
    ("query", "text"),
    [
        ("pho bo ha noi", "Phở bò Hà Nội"),
        ("cancion espanola", "Canción española"),
        ("ΑΘΗΝΑ", "Αθήνα"),
        ("ανθρωπος", "ΆΝΘΡΩΠΟΣ"),
        ("İSTANBUL", "istanbul"),
        ("DIYARBAKIR", "Diyarbakır"),
        ("елка", "Ёлка"),
        ("الى احمد", "إلى أحمد"),
    ],
)
def test_letters_that_are_the_same_to_whoever_asks(query: str, text: str) -> None:
    assert folded(query, query) == folded(text, query)


def test_accents_count_where_the_query_has_some() -> None:
    assert folded("má", "mà") != folded("mà", "mà")


@given(st.text(), st.text(max_size=20))
@example("İİß ΐ ﬃ Ǆ", "x")
def test_folding_keeps_every_place(text: str, query: str) -> None:
    assert len(folded(text, query)) == len(text)


# Where it is cut


def test_passages_keep_the_order_of_the_page_and_gaps_are_marked() -> None:
    first, second = "Green tea is grown in the hills of Uji.", "Much later: tea from Uji is green and rather dear."
    shown = best_passages(page(first, second), "green tea Uji", 600)
    assert shown.index(first) < shown.index(second)
    assert shown.startswith(f"{GAP}\n\n{first}")
    assert re.search(rf"\n\n{re.escape(GAP)}\n\n{second}", shown)
    assert shown.endswith(f"\n\n{GAP}")


def test_nothing_is_shown_where_nothing_speaks_of_the_query() -> None:
    assert best_passages(page("Green tea."), "zebra", 500) == ""
    assert best_window(page("Green tea."), "zebra", 500) == ""
    assert best_passages(page("Green tea."), "???", 500) == ""
    assert best_passages("", "tea", 500) == ""


@pytest.mark.parametrize("query", ["What is the zebra?", "¿Qué es la cebra?", "7 of 9"])
def test_common_words_alone_do_not_speak_of_a_query(query: str) -> None:
    said = "This is what it was like in the hills: la casa es de todos, 17 of 19 said so to me."
    assert best_passages(page(said), query, 500) == ""


def test_a_query_of_common_words_is_looked_for_all_the_same() -> None:
    assert "The Who" in best_passages(page("The Who are a band from London."), "The Who", 500)


def test_a_piece_of_a_word_alone_is_chance() -> None:
    assert best_passages(page("A nation of shopkeepers."), "desalination", 500) == ""


def test_an_oversized_paragraph_is_cut_around_the_match() -> None:
    paragraph = " ".join([*filler(9), "The lighthouse of Genoa is 77 metres tall.", *filler(9)])
    shown = best_passages(paragraph, "How tall is the lighthouse in Genoa?", 400)
    assert "The lighthouse of Genoa is 77 metres tall." in shown
    assert shown.startswith(GAP)
    assert shown.endswith(GAP)


def test_the_nearest_heading_comes_with_a_passage() -> None:
    text = page(
        "# Lights", "## Lighthouses of Italy", *filler(3), "The tower of Genoa is 77 metres tall.", "## Harbours"
    )
    shown = best_passages(text, "tower of Genoa", 900)
    assert f"## Lighthouses of Italy\n\n{GAP}\n\n" in shown
    assert "# Lights\n" not in shown
    assert "## Harbours" not in shown


def test_a_passage_does_not_go_on_under_another_heading() -> None:
    text = page(
        "## Lamps\n\nOil was burned.\n\n## Towers\n\n### Genoa\n\nIt is 77 metres tall.\n\n## Oil\n\nIt was dear."
    )
    assert "## Towers\n\n### Genoa\n\nIt is 77 metres tall." in best_window(text, "towers Genoa oil", 700)
    assert "Oil was burned" not in best_window(text, "towers Genoa oil", 700)
    assert "It was dear" not in best_window(text, "towers Genoa oil", 700)


def test_an_underlined_heading_is_one() -> None:
    text = page("Lighthouses of Italy\n--------------------", *filler(3), "The tower of Genoa is 77 metres tall.")
    assert f"Lighthouses of Italy\n--------------------\n\n{GAP}" in best_passages(text, "tower of Genoa", 900)


def test_a_heading_right_above_stands_together_with_its_text() -> None:
    text = page("## Lamps", "## Towers\n\nThe one in Genoa is 77 metres tall.")
    assert "## Lamps" not in best_passages(text, "tall Genoa towers", 400)
    assert "## Towers\n\nThe one in Genoa is 77 metres tall." in best_passages(text, "tall Genoa", 400)


CODE = "```sh\napt install groundwire\n\ngroundwire serve --port 80\n```"
LIST = "- flour and water\n- salt\n\n- a day of patience"


@pytest.mark.parametrize("announced", [CODE, LIST, "| a | b |\n|---|---|\n| 1 | 2 |"])
@pytest.mark.parametrize("colon", [":", "："])
def test_what_a_colon_announces_is_kept(announced: str, colon: str) -> None:
    text = page(f"Zymurgists begin like this{colon}\n\n{announced}")
    assert f"like this{colon}\n\n{announced}" in best_passages(text, "how do zymurgists begin", 500)


def test_what_a_colon_announces_is_kept_though_the_passage_is_long() -> None:
    lines = "\n".join(f"step_{number}()" for number in range(40))
    text = page(" ".join([*filler(1), f"So a zymurgist begins:\n\n```\n{lines}\n```"]))
    shown = best_passages(text, "how does a zymurgist begin", 2000)
    assert f"So a zymurgist begins:\n\n```\n{lines}\n```" in shown


def test_the_whole_of_what_a_colon_announces_is_kept_if_there_is_room() -> None:
    items = "\n\n".join(f"- {number}. take what is there and put it where it was not before" for number in range(18))
    text = page(f"So a zymurgist begins:\n\n{items}")
    assert items in best_passages(text, "how does a zymurgist begin", 2000)


def test_blocks_of_code_are_not_torn() -> None:
    text = page(CODE)
    assert CODE in best_passages(text, "groundwire serve", 300)


def test_names_are_not_torn_at_their_points() -> None:
    said = "In the year 1889 it was Dr. J. Watson who came home from the war with a wound that never really healed."
    starts = lay_out(said, 700).starts
    assert starts == [0]


# Whatever the text

MOST = st.integers(1, 900)
QUERIES = st.text(max_size=40) | st.sampled_from([question for question, _, _ in QUESTIONS.values()])
SOME = st.sampled_from(
    [
        *(sentence for _, sentence, _ in QUESTIONS.values()),
        *FILLER,
        "# Heading\n",
        "Title\n===",
        "\n\n",
        "\n \t\n",
        "```\n",
        "~~~~",
        "- item\n",
        "So:\n\n",
        "x" * 700,
        "👩‍👩‍👧",
        "กำ" * 300,
        "\n" * 50,
        " ",
    ]
)
TEXTS = st.text(max_size=300) | st.lists(SOME | st.text(max_size=30), max_size=40).map("".join)


@given(TEXTS, QUERIES, MOST)
def test_passages_are_of_the_text_in_its_order_and_within_the_room(text: str, query: str, most: int) -> None:
    spans = passage_spans(text, query, most)
    assert all(0 <= start < end <= len(text) for start, end in spans)
    assert all(one.end <= other.start for one, other in pairwise(spans))
    shown = joined(text, spans)
    assert len(shown) <= most
    assert shown == best_passages(text, query, most), "the same every time"
    left = shown
    for start, end in spans:
        before, found, left = left.partition(text[start:end])
        assert found
        assert before.strip() in ("", GAP)
    assert left.strip() in ("", GAP)


@given(TEXTS, QUERIES, MOST)
def test_the_best_window_is_one_piece_of_the_text(text: str, query: str, most: int) -> None:
    shown = best_window(text, query, most)
    assert len(shown) <= most
    assert shown in text


@given(TEXTS, st.integers(1, 700))
def test_a_layout_leaves_out_nothing_but_white_space(text: str, longest: int) -> None:
    layout = lay_out(text, longest)
    places = list(zip(layout.starts, layout.ends, strict=True))
    assert all(0 < end - start <= longest for start, end in places)
    between = [0, *(place for span in places for place in span), len(text)]
    assert between == sorted(between)
    assert all(not text[end:start].strip() for end, start in zip(between[::2], between[1::2], strict=True))


def test_what_is_longer_than_any_emoji_is_cut_all_the_same() -> None:
    """Otherwise each cut would go back to where the last one was, letter by letter."""
    joiners = "\u200d" * 100_000
    assert cut_place(joiners, 50_000) == 50_000
    assert len(list(split_passages(joiners * 10))) < 3000
    family = "👩\u200d👩\u200d👧"
    assert cut_place(f"{'x' * 100}{family}", 103) == 100


@pytest.mark.parametrize("unit", ["tea:\n\n", "\n", "茶", "# tea\n", "```\n", ".", "\u0301", "\u200d"], ids=ascii)
def test_a_megabyte_of_anything_is_looked_through(unit: str) -> None:
    """Quadratic work would not come to an end here before the test is stopped."""
    text = unit * (1_000_000 // len(unit))
    assert len(best_passages(text, f"tea 茶 {unit}", 2000)) <= 2000
