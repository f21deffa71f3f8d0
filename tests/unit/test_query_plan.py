"""What is searched for before the model is asked: by itself a short question, by the model's word a few keywords, and
never what was pasted.
"""

from __future__ import annotations

import re
from collections import Counter
from typing import Any

import orjson
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from proxy.answering import query_plan
from proxy.answering.query_plan import LONGEST_QUERY, MOST_KEYWORDS, Plan, Planner, deciding, question
from proxy.answering.short_question import MOST_URLS, MOST_WORDS, Message, count_words
from tests.fakes.first_searches import Row, rows
from tools.provenance import normalise

ROWS = rows()


def conversation(*texts: Any) -> list[dict[str, Any]]:
    """The user and the assistant in turn; the user begins."""
    return [{"role": ("user", "assistant")[place % 2], "content": text} for place, text in enumerate(texts)]


def alone(*texts: Any, forced: bool = False) -> Plan:
    return Planner(conversation(*texts), forced=forced).alone()


def decided(answer: str, *texts: Any, forced: bool = False) -> Plan:
    return Planner(conversation(*texts), forced=forced).decided(answer)


# The table


def test_the_table_is_large_enough() -> None:
    assert len(ROWS) >= 150
    assert len({row.language for row in ROWS} - {"Programs", "Afterwards", "Hostile"}) >= 8
    assert all(isinstance(row.text, str) for row in ROWS)


@pytest.mark.parametrize("row", [row for row in ROWS if row.wanted == "private"], ids=lambda row: row.text[:40])
def test_what_is_private_is_not_searched(row: Row) -> None:
    assert alone(row.text).query == ""


@pytest.mark.parametrize("row", [row for row in ROWS if row.wanted != "private"], ids=lambda row: row.text[:40])
def test_no_more_leaves_than_the_question(row: Row) -> None:
    query = alone(row.text).query
    assert count_words(query) <= MOST_WORDS
    assert [word for word in row.secret if word in query] == []
    assert not query or [word for word in row.keep if word not in query] == []


def test_most_that_is_needed_is_searched_and_little_that_is_not() -> None:
    searched = Counter(row.wanted for row in ROWS if alone(row.text).query)
    assert searched["private"] == 0
    assert searched["search"] >= 79, "of 99"
    assert searched["needless"] <= 7, "of 51"


def echoes(text: str) -> list[str]:
    """What a model may say that only repeats the message: one to six words of it, wherever they stand."""
    words = text.split()
    return [" ".join(words[at : at + many]) for many in range(1, 7) for at in range(len(words) - many + 1)]


@pytest.mark.parametrize("row", [row for row in ROWS if row.secret], ids=lambda row: row.text[:40])
def test_a_model_that_repeats_the_message_gives_no_secret_away(row: Row) -> None:
    planner = Planner(conversation(row.text))
    searched = [planner.decided(answer).query for answer in echoes(row.text)]
    hostile = [f"{secret} {word}" for secret in row.secret for word in ("news", "meaning of it", "https://a.org")]
    searched += [planner.decided(answer).query for answer in hostile]
    assert [query for query in searched for word in row.secret if word.casefold() in query.casefold()] == []


# Questions of the table's private messages that say nothing of what they are asked about.
BARE = {"welche namen kommen vor", "qui a raison", "quién tiene razón", "кто прав", "я и", "is the text about health"}


@pytest.mark.parametrize("row", [row for row in ROWS if row.wanted == "private"], ids=lambda row: row.text[:40])
def test_a_model_that_repeats_what_is_private_is_not_listened_to(row: Row) -> None:
    planner = Planner(conversation(row.text))
    searched = {planner.decided(answer).query.casefold().strip("¿") for answer in echoes(row.text)} - {""}
    if not row.secret:
        assert [query for query in searched if not any(query in bare for bare in BARE)] == []


def test_what_was_pasted_earlier_does_not_leave_either() -> None:
    pasted = "Summarise this mail\n\nDear Omar Said, Kestrel fires you"
    said = conversation(pasted, "Omar Said was fired by Kestrel.", "Who is the mayor of London?")
    for answer in ("Omar Said Kestrel", "mayor London Omar", "Kestrel-Omar London", "London Kestrel.com"):
        assert Planner(said).decided(answer).query == "Who is the mayor of London"
    assert Planner(said).decided("London mayor").query == "London mayor"
    found = [{"role": "tool", "content": "Omar Said owes Kestrel 900"}, *conversation("What is the capital of Peru?")]
    assert Planner(found).decided("Kestrel Omar").query == "What is the capital of Peru"


def test_a_question_may_be_understood_by_those_before_it() -> None:
    said = conversation("Who won the World Cup in 2018?", "France.", "And who won it in 2022?")
    assert Planner(said).decided("World Cup 2022 winner").query == "World Cup 2022 winner"


POLITE = {
    "Can you tell me who the mayor of Oslo is?": "mayor Oslo",
    "What visa do I need for Japan?": "Japan visa requirements",
    "What are good restaurants near me in Oslo?": "Oslo restaurants",
    "Kto jest prezydentem Polski?": "prezydent Polski",
    "서울의 인구는 얼마인가요?": "서울 인구",
    "Pourrais-tu me dire qui est le maire de Marseille ?": "maire Marseille",
    "Who won the election in Norway? Answer briefly.": "Norway election",
    "How do I fix a leaking tap?": "fix leaking tap",
}


@pytest.mark.parametrize("message", POLITE)
def test_what_is_asked_politely_is_a_question_all_the_same(message: str) -> None:
    assert decided(POLITE[message], message).query == POLITE[message]


# What the model says

PERU = "What is the capital of Peru and how old is it?"
KEYWORDS = {
    "Lima foundation year": "Lima foundation year",
    '"Lima foundation year"\n': "Lima foundation year",
    "Keywords: Lima, foundation, year": "Lima foundation year",
    "**Search query:** `Lima foundation year`": "Lima foundation year",
    "- Lima foundation year\n- Peru": "Lima foundation year",
    "Here are the keywords:\n\nLima foundation year": "Lima foundation year",
    "<think>They ask\nabout Peru.</think>\n\nLima foundation": "Lima foundation",
    "They ask about Peru.</think>Lima   foundation": "Lima foundation",
    "查询 秘鲁首都": "查询 秘鲁首都",
    "秘鲁首都历史": "秘鲁首都历史",
    "peru\x00\u200b capital\u2028Lima": "peru capital",
}


@pytest.mark.parametrize("answer", KEYWORDS)
def test_the_models_keywords_are_searched(answer: str) -> None:
    assert decided(answer, PERU) == Plan(KEYWORDS[answer])


@pytest.mark.parametrize("answer", ["NONE", "None.", "none", "**NONE**", "<think>hm</think>NONE", "Answer: NONE"])
def test_the_model_may_say_that_nothing_is_needed(answer: str) -> None:
    assert decided(answer, PERU) == Plan(reason="no_need")
    read = "What does https://a.org/x say about tea?"
    assert decided(answer, read) == Plan("", ("https://a.org/x",)), "pages are named, not looked for"


NO_KEYWORDS = {
    "nothing": "",
    "marks": "???",
    "half a thought": "<think>Lima foundation year",
    "one word": "Lima",
    "none in a sentence": "The answer is NONE.",
    "a sentence": "I'm sorry, but I cannot search the web for that.",
    "seven words": "Lima Peru capital city foundation year history",
    "a call": '<tool_call>{"name": "web_search"}</tool_call>',
    "a mail address": "Lima anna@example.org",
    "a number of an account": "Lima DE89 3704 0044 0532 0130 00",
    "a key": "Lima sk-live-51H8xYzAbCdEfGhIjKlMnOpQrStUvWx",
    "a page": "Lima https://a.org/?q=1",
    "too long": " ".join(["x" * 29] * 5),
    "no words": "Sure! I can do that for you, here is a long explanation of what I found.",
}


@pytest.mark.parametrize("answer", NO_KEYWORDS.values(), ids=NO_KEYWORDS)
def test_what_is_no_keywords_leaves_the_question(answer: str) -> None:
    assert decided(answer, PERU) == alone(PERU) == Plan("What is the capital of Peru and how old is it")
    assert decided(answer, "hello") == Plan(reason="no_question")


LEAKS = [
    ("Extract names as JSON from: Alice met Bob at the Siemens office", "Alice Bob Siemens office"),
    ("Extract names as JSON from: Alice met Bob at the Siemens office", "names Siemens"),
    ("Summarize this review\n\nThe hotel Aurora was awful, room 412 smelled", "hotel Aurora review"),
    ("Is this phishing? 'Dear Peter Huber, pay at once'", "Peter Huber phishing"),
    ("```\nrehberg_token = 1\n``` what is wrong?", "rehberg_token wrong"),
    ("> Clara resigned on Monday\n\nWho is the new head of marketing?", "Clara resigned"),
    ("Please proofread the following. The merger of Norvik and Castell is secret.", "Norvik Castell merger"),
    ("把下面的话翻译成英文：王小明先生，您的账户已被冻结。", "王小明 账户"),
    ("write me an email to my boss saying I am sick", "email boss sick"),
    ("Schreib meinem Chef eine Mail, dass ich krank bin.", "Mail Chef krank"),
    ("帮我给老板写一封请假邮件，说我生病了", "请假邮件 老板"),
]


@pytest.mark.parametrize(("message", "answer"), LEAKS)
def test_a_model_that_copies_pasted_words_is_not_listened_to(message: str, answer: str) -> None:
    assert decided(answer, message) == alone(message)
    assert alone(message).query in ("", "what is wrong", "Who is the new head of marketing")


NO_LEAKS = [
    ("Hi,\nwhat is the latest Python version?", "latest Python version"),
    ("Who won the election in Norway?\nAnswer briefly.", "Norway election winner"),
    ("I would like to know which trains go from Vienna to Venice at night", "night train Vienna Venice"),
    ("Tell me about the history of Lisbon.", "Lisbon history"),
    ("weather in Oslo tomorrow", "Oslo weather forecast"),
    ("Which phone is best for my mother?", "senior mobiles"),
    ("Explain: photosynthesis", "photosynthesis explanation"),
]


@pytest.mark.parametrize(("message", "answer"), NO_LEAKS[:-1])
def test_words_of_the_user_may_leave(message: str, answer: str) -> None:
    assert decided(answer, message).query == answer


def test_what_stands_behind_a_colon_may_not() -> None:
    assert decided("photosynthesis explanation", "Explain: photosynthesis").query == ""


@given(st.text(max_size=80), st.sampled_from(ROWS))
def test_any_answer_about_any_message(answer: str, row: Row) -> None:
    made = decided(answer, row.text)
    assert len(made.query) <= max(LONGEST_QUERY, len(alone(row.text).query))
    assert count_words(made.query) <= max(MOST_WORDS, MOST_KEYWORDS * 2)
    assert [word for word in row.secret if word in made.query] == []


@given(st.lists(st.text(alphabet="abcdefgh", min_size=3, max_size=8), min_size=2, max_size=6, unique=True), st.data())
def test_no_word_leaves_that_only_the_pasted_text_holds(words: list[str], data: st.DataObject) -> None:
    kept = data.draw(st.lists(st.sampled_from(words), min_size=2, max_size=6))
    shape = data.draw(
        st.sampled_from(["Sort the names in: {}", "Sort the names\n\n{}.", "Sort ```{}```", "> {}\n\nSort."])
    )
    assert decided(" ".join(kept), shape.format(" ".join(words).upper())) == Plan(reason="no_question")


def test_the_deciding_call_is_short_and_carries_nothing_else() -> None:
    body = {
        "model": "m",
        "stream": True,
        "tools": [1],
        "response_format": {"type": "json_object"},
        "messages": [
            {"role": "system", "content": "secret"},
            *conversation("Who wrote Dune?", "Frank.", "And\n" + "x " * 999),
        ],
    }
    made = deciding(body, "2026-11-16")
    assert made.keys() == {"model", "messages", "stream", "max_tokens", "temperature"}
    assert (made["model"], made["stream"]) == ("m", False)
    (message,) = made["messages"]
    assert message["role"] == "user"
    assert message["content"].startswith("User: Who wrote Dune?\nAssistant: Frank.\nUser: And x x")
    assert "Today is 2026-11-16." in message["content"]
    assert len(message["content"]) < 2000
    assert "max_completion_tokens" in deciding({**body, "max_completion_tokens": 9}, "")
    orjson.dumps(deciding({}, ""))


# Who is asked, and when a client demands it


def test_there_may_be_no_user_at_all() -> None:
    for messages in ([], [{"role": "system", "content": "x"}, 7]):
        assert Planner(messages).alone() == Plan(reason="no_question")
        assert not Planner(messages).has_words
    assert question([]) == ""


def test_only_the_last_user_message_is_the_question() -> None:
    messages = [
        *conversation("a", "b", [{"type": "text", "text": "c"}, {"type": "text", "text": "d"}]),
        {"role": "tool"},
    ]
    assert question(messages) == "c\nd"


FORCED = {
    "hi": "hi",
    "2+2": "2+2",
    "Translate to German: Good day": "Translate to German",
    "```\nlet x\n```": "",
    "yes": "yes",
    "Summarise https://example.org/a": "Summarise",
    "a b c d e f g h i j k l m n o": "a b c d e f g h i j k l",
}


@pytest.mark.parametrize("message", FORCED)
def test_a_client_that_demands_a_search_gets_one_without_what_was_pasted(message: str) -> None:
    assert alone(message, forced=True).query == FORCED[message]
    assert decided("NONE", message, forced=True).query == FORCED[message]


def test_even_then_there_must_be_words() -> None:
    assert alone("?!", forced=True).reason == "no_question"
    assert alone("https://example.org/a", forced=True) == Plan("", ("https://example.org/a",))


# Pages

PAGES = {
    "See https://a.org/x.": ("https://a.org/x",),
    "Is (https://a.org/x_(y)) right about tea?": ("https://a.org/x_(y)",),
    "[this](https://a.org/b) and <http://b.org/c?d=1#e>, which is better?": ("https://a.org/b", "http://b.org/c?d=1#e"),
    "Compare www.a.org/b with node.js": ("https://www.a.org/b",),
    "https://a.org https://a.org https://b.org https://c.org https://d.org": (
        "https://a.org",
        "https://b.org",
        "https://c.org",
    ),
    "读一下https://a.org/中文，好吗": ("https://a.org/中文",),
    "Summarise this: https://a.org/b": ("https://a.org/b",),
    "Summarise this:\nhttps://a.org/b": ("https://a.org/b",),
    "ftp://a.org file:///etc/passwd https://user:key@a.org https:// http://": (),
    "Proofread: the page https://a.org are good": (),
    "Translate this mail\n\nClick https://a.org/leave?id=7 to leave": (),
    "What does this print? ```fetch('https://a.org')```": (),
}


@pytest.mark.parametrize("message", PAGES)
def test_pages_that_the_message_names(message: str) -> None:
    made = alone(message)
    assert made.urls == PAGES[message]
    assert not (made.urls and made.query)


# The sources


def test_sources_stand_in_front_of_the_question() -> None:
    image = {"type": "image_url", "image_url": {"url": "data:,"}}
    messages = [*conversation("a", "b", "Who?"), {"role": "tool", "content": "t"}]
    made = query_plan.with_sources(messages, "[1] S")
    assert made[2] == {"role": "user", "content": "[1] S\n\nWho?"}
    assert messages[2]["content"] == "Who?"
    assert all(made[place] is messages[place] for place in (0, 1, 3))
    (made_parts,) = query_plan.with_sources([{"role": "user", "content": [image], "name": "n"}], "[1] S")
    assert made_parts == {"role": "user", "content": [{"type": "text", "text": "[1] S\n\n"}, image], "name": "n"}
    assert query_plan.with_sources([{"role": "user", "content": None}], "S") == [{"role": "user", "content": "S"}]
    assert query_plan.with_sources([{"role": "system"}], "S") == [{"role": "system"}, {"role": "user", "content": "S"}]
    assert all(new is old for new, old in zip(query_plan.with_sources(messages, ""), messages, strict=True))


# Anything

PIECES = (
    "hi what is the capital of France and it she why? more ``` > \" “ ” ' translate: summarise this 2+2 please def"
    " f(x): } https://a.org/b( http://[ www. www.x.org 那 呢？ 他 翻译 \n \n\n \x00 \u2028 \u200b 👩‍👩‍👧 İ"
    " in German, Answer. <b> …"
)
WORDS = st.sampled_from(PIECES.split(" "))
TEXT = st.lists(WORDS | st.text(max_size=8), max_size=40).map(" ".join) | st.text(max_size=900)
PARTS = st.lists(st.fixed_dictionaries({"type": st.just("text"), "text": TEXT}) | st.none(), max_size=2)
ROLES = st.sampled_from(["user", "assistant", "system", 3])
MESSAGE = st.fixed_dictionaries({"role": ROLES, "content": TEXT | st.none() | PARTS}) | st.none()


@settings(max_examples=200)
@given(st.lists(MESSAGE, max_size=6), st.booleans(), TEXT)
def test_any_conversation(messages: list[Any], forced: bool, answer: str) -> None:
    planner = Planner(messages, forced=forced)
    for made in (planner.alone(), planner.decided(answer)):
        assert made.query == " ".join(made.query.split())
        assert len(made.query.split()) <= MOST_WORDS
        assert not re.search(r"[\x00-\x1f\x7f-\x9f\u2028\u2029]", made.query)
        assert len(made.urls) <= MOST_URLS
        assert all(normalise(url).startswith("http") for url in made.urls)
        assert made.reason in ("", "no_question", "no_need")
        assert bool(made.reason) != bool(made.query or made.urls)
    assert len(query_plan.with_sources(messages, "S")) - len(messages) in (0, 1)
    orjson.dumps(deciding({"model": "m", "messages": messages}, ""))


@given(TEXT)
def test_any_message(text: str) -> None:
    """A short question is one line of the message, and no longer than it may be."""
    asked = Message(text).question
    assert count_words(asked) <= MOST_WORDS
    assert "\n" not in asked


def test_a_question_about_the_user_is_searched_where_no_query_leaves_the_machine() -> None:
    asked = conversation("How many days of paid leave do I have?")
    assert Planner(asked).alone().reason == "no_question"
    at_home = Planner(asked, inside=True)
    assert at_home.alone().query == "How many days of paid leave do I have"
    assert at_home.decided("paid leave days").query == "paid leave days"
    assert at_home.decided("NONE").reason == "no_need"
    assert Planner(conversation("Translate this: my dog is ill"), inside=True).alone().query == ""
