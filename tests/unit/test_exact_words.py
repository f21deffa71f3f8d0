"""Numbers, dates and quotations of a sentence that stand nowhere in a source."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from proxy.answering.exact_words import MOST_LISTED, ExactWords

SOURCE = ExactWords(
    [
        "In 2020, 1,234 people (35.0 %) earned $1.2 million on March 3, 2021. CO2: 417 ppm, 3 500 km away.",
        "He said: “We *will* never go there again, never”. On 5 May it rained. Preis: 12.345,67 Euro. 2026年11月16日",
    ]
)
FOUND = [
    *("2020 417", "417, 2020 and 1,234"),
    *("In 2020 it was so.", "1234 people", "1.234 Menschen", "1 234 personnes", "35% of them", "35,0 Prozent"),
    *(
        "1,200,000 dollars",
        "1.2 million",
        "$1.2M",
        "on 3 March 2021",
        "2021-03-03",
        "the 3rd of March 2021",
        "3.3.2021",
    ),
    *("03/03/2021", "on 5 May 2020", "5 May", "417 ppm", "3,500 km", "3.500 km", "12,345.67 euros", "16 November 2026"),
    *(
        '"we will never go"',
        "«never go there again»",
        "“We will … there again”",
        "“We will [...] again.”",
        "2026-11-16",
    ),
]
MISSING = {
    "In 2019 it was so.": ("2019",),
    "1235 people, 36 %": ("1235", "36"),
    "on 4 March 2021": ("4 March 2021",),
    "on 2021-04-03": ("2021-04-03",),
    "on March 3, 2022": ("March 3, 2022",),
    "about 1.3 million": ("1.3 million",),
    'He said "we shall never go".': ("we shall never go",),
    "「我们再也不会去那里了」": ("我们再也不会去那里了",),
    "the 418 ppm of 2018 and the 418": ("418", "2018"),
    "417.5 ppm": ("417.5",),
    "2,234 and 9,001,234 people": ("2,234", "9,001,234"),
}
SILENT = [
    *(
        "three, 3 or 12 of them",
        "GPT-4 and H1N1, B12",
        'the so-called "big one"',
        "no number at all",
        "x_17 and #42",
        "",
    ),
    *("It's 5 o'clock", 'don\'t "do that"'),
]


@pytest.mark.parametrize("sentence", [*FOUND, *SILENT])
def test_what_stands_there_is_not_listed(sentence: str) -> None:
    assert SOURCE.missing(sentence) == ()


@pytest.mark.parametrize("sentence", MISSING)
def test_what_stands_nowhere_is_listed_as_it_was_written(sentence: str) -> None:
    assert SOURCE.missing(sentence) == MISSING[sentence]


@pytest.mark.parametrize(
    ("source", "sentence"),
    [
        ("۲٬۷۵۵٬۳۰۹ نفر", "2,755,309 people"),
        ("عدد السكان ٢٧٥٥٣٠٩", "2755309 residents"),
        ("the 3.5 of them", "وهو ٣٫٥"),
        ("人口は2,755,309", "２７５５３０９人"),
        ("2,755,309 residents", "27,55,309 residents"),
        ("2.5 crore", "25,000,000"),
        ("2750000 people", "有275万人"),
        ("275万人", "2.75 million"),
        ("320,000,000", "3億2000万"),
    ],
)
def test_numbers_are_the_same_in_all_scripts(source: str, sentence: str) -> None:
    assert ExactWords([source]).missing(sentence) == ()


@pytest.mark.parametrize(("sentence", "listed"), [("有٩٩", "٩٩"), ("人口是275万人", "275万"), ("人口は41人", "41")])
def test_what_is_listed_keeps_its_script(sentence: str, listed: str) -> None:
    assert ExactWords(["2 people"]).missing(sentence) == (listed,)


@pytest.mark.parametrize(
    ("source", "sentence"),
    [
        ("On 1 Auguſt 1790 it began.", "on 1 August 1790"),
        ("3 APRİL 2021", "April 3, 2021"),
        ("Auguſt 2, 1790", "2 August 1790"),
        ("It cost 5 mıllion.", "5,000,000"),
        ("It cost 5 MİLLİON.", "5 million"),
        ("5\u212a people", "5,000 people"),  # the sign of the kelvin
    ],
)
def test_letters_that_only_patterns_take_for_others_are_read(source: str, sentence: str) -> None:
    assert ExactWords([source]).missing(sentence) == ()
    assert ExactWords([sentence]).missing(source) == ()


_WORDS = ("1 ", "31 ", "2021 ", "august ", "MARCH ", "april, ", "million ", "k", "of ", "5", "٣", "²", "2021-03-03 ")


@given(st.lists(st.sampled_from(_WORDS), max_size=12), st.sampled_from(["", "ſ", "ı", "İ", "\u212a", "ẞ", "ǅ", "ﬁ"]))
def test_no_letter_of_a_source_or_a_sentence_raises(words: list[str], odd: str) -> None:
    """With each letter of the words replaced by others that patterns or `upper()` take for it."""
    text = "".join(words)
    texts = [text, text.upper(), *(text.replace(plain, odd) for plain in ("s", "i", "I", "k", "S"))]
    for source in texts:
        words_of = ExactWords([source])
        words_of.read()
        for sentence in texts:
            assert all(listed in sentence for listed in words_of.missing(sentence))


def test_a_number_of_thousands_of_digits_is_compared_too() -> None:
    assert ExactWords(["few"]).missing("9" * 5000) == ("9" * 5000,)


def test_pages_that_were_made_to_be_slow_are_not() -> None:
    """Each of these took minutes when every place was looked at from every other."""
    links = ExactWords(["](" * 50_000 + "the very end of it"])
    assert links.missing("“the very end of it”") == ()
    assert ExactWords(["1 de" + " " * 100_000]).missing("on 1 May 2020") == ("1 May 2020",)
    assert ExactWords(["see [it](https://a.org/b_(c)_d) and go"]).missing("“see it and go”") == ()


@given(st.text(max_size=200))
def test_a_text_holds_all_of_itself(text: str) -> None:
    assert ExactWords([text]).missing(text) == ()


@given(st.text(alphabet="0123456789.,' \u202f年月日/-\"“”… aM", max_size=80), st.text(max_size=40))
def test_what_is_listed_stands_in_the_sentence(sentence: str, source: str) -> None:
    missing = ExactWords([source]).missing(sentence)
    assert len(missing) <= MOST_LISTED
    assert all(words in sentence for words in missing)
