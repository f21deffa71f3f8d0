"""What is searched for before the model is asked: messages and conversations, and what becomes of them."""

from __future__ import annotations

import re
from typing import Any

import orjson
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from proxy.answering import query_plan
from proxy.answering.query_plan import LONGEST_REWRITTEN, MOST_URLS, Plan, plan, question, rewriting, rewritten
from tools.provenance import normalise
from tools.web_search import MAX_QUERY


def conversation(*texts: Any) -> list[dict[str, Any]]:
    """The user and the assistant in turn; the user begins."""
    return [{"role": ("user", "assistant")[place % 2], "content": text} for place, text in enumerate(texts)]


def planned(*texts: Any, forced: bool = False) -> Plan:
    return plan(conversation(*texts), forced=forced)


def holds(query: str, word: str) -> bool:
    """As a word; in scripts without blanks anywhere."""
    return (
        bool(re.search(rf"(?<!\w){re.escape(word)}(?!\w)", query, re.IGNORECASE)) if word.isascii() else word in query
    )


def check_query(made: Plan, wanted: str, unwanted: str) -> None:
    assert made.reason == ""
    assert [word for word in wanted.split() if not holds(made.query, word)] == [], f"missing in {made.query!r}"
    assert [word for word in unwanted.split() if holds(made.query, word)] == [], f"too much in {made.query!r}"


# Message => words that must be in the query => words that must not
SEARCHED = """
What is the capital of Australia? => capital Australia => ?
Hi, could you please tell me who won the 2022 World Cup? => who won 2022 World Cup => Hi could please tell me
Hello! I was wondering if you know when the Eiffel Tower was built. Thanks! => Eiffel Tower built => Hello wondering
please search the web for the best pizza in Naples => best pizza Naples => search web please
Can you look up the population of Peru? => population Peru => look up
Tell me about the history of Lisbon => history Lisbon => Tell me
What do you know about quantum dots? => quantum dots => know
I'd like to know how vaccines work => how vaccines work => like
Who is the mayor of London? Answer in one sentence. => mayor London => Answer sentence
Who is the mayor of London? In German please. => mayor London => German please
Who is the mayor of London, in German please => mayor London => German
Explain photosynthesis in simple terms => photosynthesis => simple terms
How do I renew a passport in France, step by step? => renew passport France => step
Compare Rust and Go as a table => Rust Go => table
List the moons of Jupiter in bullet points, please => moons Jupiter => bullet please
What causes tides? Keep it short. Cite your sources. => causes tides => short Cite sources
You are a helpful travel agent. What should I see in Porto? => see Porto => helpful agent
What is the word for dog in German? => word dog German
Summarise the history of Rome => history Rome
Search engine market share => Search engine market share
Google stock price => Google stock price
Well water safety => Well water safety
What is 9/11? => 9/11
24/7 pharmacies in Berlin => 24/7 pharmacies Berlin
What happened in 1989? => happened 1989
Who translated the Iliad? => translated Iliad
Translate jobs in Berlin => Translate jobs Berlin
How are you supposed to cook rice? => cook rice
node.js release schedule => node.js release schedule
What does `asyncio.gather()` do? => asyncio.gather => `
Is this the latest version of FastAPI? ```fastapi==0.95.0``` => latest version FastAPI => 0.95.0
Write a Python function that reverses a string => Python function reverses string
What does https://example.org/pricing say about discounts? => discounts => example.org https
Summarise this book: War and Peace => War Peace
Correct me if I'm wrong, but is Pluto a planet? => Pluto planet
improve my English => improve English
the conversation 1974 film cast => conversation 1974 film cast
Hey, weather in Oslo? => weather Oslo => Hey
thanks, and who directed Alien? => who directed Alien => thanks
Is there life on Mars? => life Mars
I have a question about income tax in Portugal => income tax Portugal => question
Translate today's headlines of Le Monde into English => headlines Le Monde
list sources of vitamin C => sources vitamin C
Dr. No release year => Dr. No release year
The U.S. economy in 2024 => U.S. economy 2024
Kannst du mir bitte sagen, wer der Bundeskanzler ist? => wer Bundeskanzler ist => Kannst bitte sagen mir
Wie hoch ist der Eiffelturm? Antworte in einem Satz. => hoch Eiffelturm => Antworte Satz
Wer gewann die WM 2014? Auf Deutsch bitte. => Wer gewann WM 2014 => Deutsch bitte
Pouvez-vous me dire qui a peint la Joconde, s'il vous plaît ? => qui peint Joconde => Pouvez dire plaît
Quelle est la capitale du Pérou ? Réponds en une phrase. => capitale Pérou => Réponds phrase
Hola, ¿puedes decirme cuál es la capital de Perú? Gracias => capital Perú => Hola puedes Gracias
请问法国的首都是哪里？ => 法国的首都是哪里 => 请问
你好，请告诉我最新的诺贝尔奖得主是谁？请用中文回答。 => 诺贝尔奖得主 => 你好 告诉我 回答
東京の人口を教えてください => 東京の人口 => 教えて
フランスの首都はどこですか？日本語で答えてください。 => フランスの首都 => 答えて
Кто написал «Войну и мир»? => Кто написал => ?
대한민국의 수도는 어디인가요? => 수도는
ما هي عاصمة مصر؟ => عاصمة مصر
ประเทศไทยมีกี่จังหวัด => ประเทศไทย
2024-2025 => 2024-2025
Give me three examples of mammals that lay eggs. => mammals lay eggs => Give
hey can u tell me how to get a visa for Japan pls => how visa Japan => hey u pls
Explain to me like I'm five how a black hole forms => how black hole forms => five Explain
What's new in Python 3.14? Please answer in Spanish, and use bullet points. => new Python 3.14 => answer Spanish bullet
How do I set the timeout in nginx? ```server { listen 80; }``` => timeout nginx => listen
There will be blood cast => There will be blood cast
Should I buy an iPhone 15 or wait? => buy iPhone 15
What is 5 km in miles? => 5 km miles
AAPL => AAPL
¿Cuál es el mejor restaurante de Lima? Responde en inglés. => mejor restaurante Lima => Responde inglés
东京现在的天气怎么样？ => 东京现在的天气
オバマ大統領について詳しく教えて => オバマ大統領 => 教えて
Какая погода в Москве? => погода Москве
"""


@pytest.mark.parametrize("row", SEARCHED.strip().split("\n"))
def test_a_message_is_searched(row: str) -> None:
    message, wanted, *unwanted = row.split(" => ")
    check_query(planned(message), wanted, " ".join(unwanted))


MATERIAL = {
    "code, but something current": ("Is this code outdated?\n```python\nimport imp\n```", "code outdated", "imp"),
    "quoted lines": ("Which of these is newest?\n> iPhone 12\n> iPhone 15", "newest", "iPhone"),
    "a mail": ("> On Monday Bob wrote:\n> No!\n\nWhen was broccoli first grown?", "broccoli first grown", "Monday"),
    "Markdown": ("# Question\n\n* How tall is K2?", "How tall K2", "# *"),
    "a long quotation": (
        "“" + "This is a long quotation of a text that somebody pasted. " * 3 + "”\n\nIs that true of Tesla batteries?",
        "true Tesla batteries",
        "quotation pasted",
    ),
    "a long story": (
        "My neighbour keeps bees and has done so for many years, and every summer the garden is full of them. We get "
        "along well. We talked about it for a long time over tea. Does honey ever spoil? I like the taste.",
        "honey spoil",
        "neighbour tea taste",
    ),
    "a long story that the question leans on": (
        "I moved to Finland with my wife three years ago and we both love the sauna and the long summer days. We now "
        "plan a holiday with the two dogs. I drive a Volvo XC60 and the kids sleep a lot. What does it weigh?",
        "weigh Volvo XC60",
        "sauna dogs",
    ),
    "a long story without a question": ("My topic is Mars. " + "I think a lot about it. " * 20, "topic Mars", ""),
    "parts": ([{"text": "Who painted"}, {"type": "image_url"}, {"text": "Guernica?"}], "Who painted Guernica", ""),
}


@pytest.mark.parametrize("case", MATERIAL)
def test_what_a_message_brings_along_is_left_out(case: str) -> None:
    message, wanted, unwanted = MATERIAL[case]
    check_query(planned(message), wanted, unwanted)


# The user | the assistant | the user … => words that must be in the query => words that must not
LEANING = """
Who is the president of France? | Emmanuel Macron. | and in Germany? => president France Germany => Macron
Who is the president of France? | Macron. | and in Germany? | Steinmeier. | And Italy? => president Germany Italy
Largest country in South America? | Brazil is the largest. | what about its capital? => Brazil capital => its
Who is the CEO of AMD? | Lisa Su is the CEO of AMD since 2014. | How old is she? => CEO AMD Lisa Su old => she
Who wrote Dune? | **Frank Herbert** wrote it [1]. | who is he? => Dune Frank Herbert => he [1]
Why is the sky blue? | Rayleigh scattering. | why? => sky blue why
Tell me about Mount Etna | It is a volcano. | Tell me more => Mount Etna => Tell
Tell me about Mount Etna | It is a volcano. | When did it last erupt? => Mount Etna erupt => it
Hi | Hello! | What is the capital of Chad? => capital Chad => Hi
Who wrote Dune? | Frank Herbert. | What is the population of Berlin? => population Berlin => Dune Herbert
Who wrote Dune? | Frank Herbert. | How long does it take to fly to Mars? => fly Mars => Dune
Who wrote Dune? | Frank Herbert. | Is there a train from Paris to Rome? => train Paris Rome => Dune
Who wrote Dune? | Frank Herbert. | Why do cats purr when they are happy? => cats purr => Dune
Who wrote Dune? | Frank Herbert. | What is the longest river that flows north? => longest river flows north => Dune
Who wrote Dune? | Frank Herbert. | How did Albert Einstein publish his theory? => Einstein theory => Dune
Who wrote Dune? | Frank Herbert. | Inflation => Inflation => Dune
Who wrote Dune? | Frank Herbert. | What other books did he write? => Dune Frank Herbert books
Best hotels in Vienna | Hotel Sacher. | how much? => hotels Vienna much
Best hotels in Vienna | Hotel Sacher. | How many people live there? => Vienna people live
What is the James Webb telescope? | A space telescope. | is it expensive? => James Webb telescope expensive
What is the James Webb telescope? | A space telescope. | What does that mean? => James Webb telescope
Wer ist der Präsident von Frankreich? | Emmanuel Macron. | und in Deutschland? => Präsident Frankreich Deutschland
Qui a écrit Les Misérables ? | Victor Hugo. | Quel âge avait-il ? => Misérables Victor Hugo âge
¿Quién escribió Don Quijote? | Miguel de Cervantes. | ¿y Hamlet? => Don Quijote Hamlet
法国的总统是谁？ | 马克龙。 | 那德国呢？ => 法国的总统 德国 => 呢
谁写了三体？ | 刘慈欣。 | 他多大了？ => 三体 多大 => 他
日本の首都は？ | 東京です。 | その人口は？ => 日本の首都 人口 => その
Who is the president of France? | Macron. | thanks | You're welcome! | and of Italy? => president France Italy => thanks
Give me a recipe for ramen | Sure. | Great, now what is the capital of Peru? => capital Peru => Great ramen
Who won the 2018 World Cup? | France. | And who was the top scorer in Serie A? => top scorer Serie A
Who won Wimbledon in 2023? | Carlos Alcaraz. | Where was he born? => Carlos Alcaraz born
Who won Wimbledon in 2023? | Carlos Alcaraz. | and the women's title? => Wimbledon 2023 women's title
Tell me about the Model Y | It is a car. | How does it compare to the Ioniq 5? => Model Y compare Ioniq 5 => it
best laptops 2025 | MacBook Air. | cheaper ones? => laptops 2025 cheaper => ones
best laptops 2025 | MacBook Air. | Can you give me sources? => laptops 2025 sources
best laptops 2025 | MacBook Air. | yes please => best laptops 2025 => yes please
Who is Angela Merkel? | A politician. | Wann wurde sie geboren? => Angela Merkel geboren => sie
Who was Napoleon? | An emperor. | Where is the Louvre? => Louvre => Napoleon
What's the GDP of Japan? | 4 trillion. | in 2010? => GDP Japan 2010
What's the GDP of Japan? | 4 trillion. | 2010 => GDP Japan 2010
"""


@pytest.mark.parametrize("row", LEANING.strip().split("\n"))
def test_a_message_that_leans_on_what_came_before(row: str) -> None:
    talk, wanted, *unwanted = row.split(" => ")
    check_query(planned(*talk.split(" | ")), wanted, " ".join(unwanted))


SKIPPED = {
    "greeting": """hi / Hello! / Hey there 👋 / Good morning! / Hello, how are you today? / Hi Bob / what's up?
        Who are you? / Guten Morgen! / Hallo, wie geht's? / Bonjour / Salut, ça va ? / ¡Hola! ¿Qué tal? / Buenos días
        你好 / 您好！ / こんにちは / おはようございます！ / Привет! / 안녕하세요""",
    "thanks": """thanks / Thank you so much! / ok, thanks a lot / Great, that's perfect! / ok / bye / got it, thx
        Hi, thanks! / Vielen Dank! / Merci beaucoup / Muchas gracias / 谢谢 / ありがとうございます / спасибо""",
    "translation": """Translate to German: The latest version is out today. / Translate 'good morning' into Japanese
        translate hello to french / Übersetze ins Englische: Guten Tag / Übersetze 'Hund' ins Französische
        Traduis en anglais : Bonjour le monde / Traduce al inglés: buenos días / 把下面的句子翻译成英文：我爱你
        How do you say goodbye in Spanish?""",
    "rewriting": """Rewrite this more formally: hey dude, gimme the report / Proofread: I has a apple
        Correct the grammar: "he go to school" / fix the grammar: me likes it / Korrigiere: Ich habe gegeht""",
    "arithmetic": """2+2 / What is 17 * 23? / calculate 10-4 / what's 15% of 80? / square root of 144 / 12 plus 30
        (3 + 4) * 5 = / Was ist 7 mal 8? / 3乘以4等于多少？""",
    "conversation": """summarise our conversation / What did I just say? / What was my first question? / say that again
        Fasse unser Gespräch zusammen / 我刚才说了什么？""",
    "no_question": "??? / 👍 / yes / ...",
    "url": """Summarise https://example.org/a / https://example.org/a / What is this page? www.example.org
        Translate this page into French: https://example.org/a""",
}
IN_LINES = [
    ("code", "Fix this:\n```python\ndef f(:\n```"),
    ("code", "```js\nlet x = 1\n```"),
    ("code", "Explain this code\n```\nx = [i for i in y]\n```"),
    ("code", "Why does this crash?\n\ndef f(x):\n    y = x / 0\n    return y"),
    ("code", "Refactor:\n#include <stdio.h>\nint main() {\n  return 0;\n}"),
    ("code", "Add tests for ~~~py\nprint(1)\n~~~"),
    ("code", "What is wrong with `for (int i = 0; i <= n; i++) { a[i] = 0; }`?"),
    ("code", "Was macht dieser Code?\n```c\nint main(){}\n```"),
    ("code", "解释这段代码\n```py\nprint(1)\n```"),
    ("translation", "Could you please translate the following text into French?\n\nThe cat sat on the mat."),
    ("translation", "The cat sat on the mat.\n\nPlease translate this into French."),
    ("translation", "次の文を英語に翻訳してください：\n猫が好きです"),
    ("rewriting", "Summarize the following text:\n\nThe quick brown fox jumps over the lazy dog again and again."),
    ("rewriting", "Please paraphrase this sentence:\n> It was the best of times"),
    ("rewriting", "总结下面的文字：\n" + "这是一个很长的故事。" * 10),
    ("no_question", ""),
    ("no_question", [{"type": "image_url", "image_url": {"url": "data:,"}}]),
    ("no_question", None),
]
AFTERWARDS = {
    "make it shorter": "conversation",
    "Summarise that in one sentence": "conversation",
    "Translate that into French": "translation",
    "Thanks!": "thanks",
}
SHORT = [(reason, text.strip()) for reason, rows in SKIPPED.items() for text in re.split(r" / |\n", rows)]


@pytest.mark.parametrize(("reason", "message"), [*SHORT, *IN_LINES])
def test_a_message_that_needs_no_search(reason: str, message: Any) -> None:
    made = planned(message)
    assert (made.query, made.reason) == ("", reason)


@pytest.mark.parametrize("message", AFTERWARDS)
def test_a_message_about_the_answer_before(message: str) -> None:
    made = planned("What is gravity?", "A force.", message)
    assert (made.query, made.reason) == ("", AFTERWARDS[message])


def test_there_may_be_no_user_at_all() -> None:
    assert plan([]) == plan([{"role": "system", "content": "x"}, 7]) == Plan(reason="no_question")
    assert question([]) == ""


def test_only_the_last_user_message_is_the_question() -> None:
    messages = [
        *conversation("a", "b", [{"type": "text", "text": "c"}, {"type": "text", "text": "d"}]),
        {"role": "tool"},
    ]
    assert question(messages) == "c\nd"


# Forced


FORCED = {
    "hi": "hi",
    "2+2": "2+2",
    "Translate to German: Good day": "Translate to German: Good day",
    "```\nlet x\n```": "let x",
    "yes": "yes",
    "Summarise https://example.org/a": "Summarise",
}


@pytest.mark.parametrize("message", FORCED)
def test_a_client_that_demands_a_search_gets_one(message: str) -> None:
    made = planned(message, forced=True)
    assert (made.query, made.reason) == (FORCED[message], "")


def test_even_then_there_must_be_words() -> None:
    assert planned("?!", forced=True) == Plan(reason="no_question")
    assert planned("https://example.org/a", forced=True) == Plan("", ("https://example.org/a",), "url")


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
    "ftp://a.org file:///etc/passwd https://user:key@a.org https:// http://": (),
    "Proofread: the page https://a.org are good": (),
    "What does this print? ```fetch('https://a.org')```": (),
}


@pytest.mark.parametrize("message", PAGES)
def test_pages_that_the_message_names(message: str) -> None:
    made = planned(message)
    assert made.urls == PAGES[message]
    assert "://" not in made.query or not made.urls


# The rewriter


def test_the_rewriting_call_is_short_and_carries_nothing_else() -> None:
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
    made = rewriting(body)
    assert made.keys() == {"model", "messages", "stream", "max_tokens"}
    assert (made["model"], made["stream"]) == ("m", False)
    (message,) = made["messages"]
    assert message["role"] == "user"
    assert message["content"].startswith("User: Who wrote Dune?\nAssistant: Frank.\nUser: And x x")
    assert len(message["content"]) < 1500
    assert "max_completion_tokens" in rewriting({**body, "max_completion_tokens": 9})
    orjson.dumps(rewriting({}))


ANSWERS = {
    "capital of Peru": "capital of Peru",
    '"capital of Peru"\n': "capital of Peru",
    "Query: capital of Peru": "capital of Peru",
    "**Search query:** `capital of Peru`": "capital of Peru",
    "- capital of Peru\n- Lima": "capital of Peru",
    "Here is the query:\n\ncapital of Peru": "capital of Peru",
    "<think>They ask\nabout Peru.</think>\n\ncapital of Peru": "capital of Peru",
    "They ask about Peru.</think>capital   of Peru": "capital of Peru",
    "查询：秘鲁首都": "秘鲁首都",
    "peru\x00\u200b capital\u2028Lima": "peru capital",
    "<think>capital of Peru": None,
    "": None,
    "???": None,
    "I'm sorry, I cannot help with that.": None,
    "None": None,
    "Sure! I can do that for you": None,
    "<tool_call>{}</tool_call>": None,
    "word " * 60: None,
}


@pytest.mark.parametrize("answer", ANSWERS)
def test_the_rewritten_query_is_checked(answer: str) -> None:
    before = Plan("Peru", ("https://a.org",))
    assert rewritten(answer, before) == Plan(ANSWERS[answer] or "Peru", before.urls)
    skipped = Plan(reason="greeting")
    assert rewritten(answer, skipped) is skipped


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
@given(st.lists(MESSAGE, max_size=6), st.booleans())
def test_any_conversation(messages: list[Any], forced: bool) -> None:
    made = plan(messages, forced=forced)
    assert made == plan(messages, forced=forced)
    assert len(made.query) <= MAX_QUERY
    assert made.query == " ".join(made.query.split())
    assert not re.search(r"[\x00-\x1f\x7f-\x9f\u2028\u2029]", made.query)
    assert len(made.urls) <= MOST_URLS
    assert all(normalise(url).startswith("http") for url in made.urls)
    assert re.fullmatch("[a-z_]*", made.reason)
    assert bool(made.query) != bool(made.reason)
    if forced and not made.query:
        assert not any(c.isalnum() for c in re.sub(r"(?i)(?:https?://|\bwww\.)\S+", "", question(messages)))
    assert len(query_plan.with_sources(messages, "S")) - len(messages) in (0, 1)
    orjson.dumps(rewriting({"model": "m", "messages": messages}))


@given(TEXT)
def test_any_answer_of_the_rewriter(answer: str) -> None:
    query = rewritten(answer, Plan("q")).query
    assert 0 < len(query) <= LONGEST_REWRITTEN
    assert query == " ".join(query.split())


def test_a_long_query_is_cut_between_two_words() -> None:
    made = planned("Please find " + "Lorem " * 300 + "?")
    assert 380 < len(made.query) <= MAX_QUERY
    assert set(made.query.split()) == {"Lorem"}
    assert len(planned("法" * 5000).query) == MAX_QUERY
    assert len(planned("word " * 200_000).query) <= MAX_QUERY
