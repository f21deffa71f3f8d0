"""Pages that do not say their charset: texts in many languages, in the charsets that such pages were written in."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from providers.web.charsets import SAMPLE
from providers.web.decode import decode, sniff

TEXTS = {
    "ja": (
        "港のそばに小さな時計屋がある。店主は毎朝、雨の日も雪の日も、七時に店を開ける。カタカナのメニューも置いてある。",
        ["cp932", "euc_jp", "iso2022_jp"],
    ),
    "ko": ("항구 옆에 작은 시계 가게가 있다. 주인은 비가 오나 눈이 오나 매일 아침 일곱 시에 문을 연다.", ["cp949"]),
    "zh": ("港口旁边有一家小钟表店。店主每天早上七点开门，下雨下雪也不例外。他的父亲也是钟表匠。", ["gb18030"]),
    "zh-TW": ("港口旁邊有一家小鐘錶店。店主每天早上七點開門，下雨下雪也不例外。他的父親也是鐘錶匠。", ["big5hkscs"]),
    "ru": (
        "У гавани есть маленькая часовая мастерская. Хозяин открывает её каждое утро в семь часов, даже в снег.",
        ["cp1251", "koi8_r", "iso8859_5"],
    ),
    "uk": ("Біля гавані є маленька годинникова майстерня. Її господар щоранку о сьомій відчиняє двері.", ["cp1251"]),
    "el": ("Δίπλα στο λιμάνι υπάρχει ένα μικρό ωρολογοποιείο. Ο ιδιοκτήτης ανοίγει κάθε πρωί στις επτά.", ["cp1253"]),
    "he": ("ליד הנמל יש חנות שעונים קטנה. בעל החנות פותח אותה בכל בוקר בשבע, גם כשיורד גשם או שלג.", ["cp1255"]),
    "ar": (
        "بجانب الميناء يوجد متجر صغير للساعات. يفتح صاحبه الباب كل صباح في الساعة السابعة، حتى في "
        "المطر.",
        ["cp1256"],
    ),
    "th": ("ข้างท่าเรือมีร้านนาฬิกาเล็กๆ เจ้าของร้านเปิดร้านทุกเช้าเวลาเจ็ดโมง แม้ในวันที่ฝนตก", ["cp874"]),
    "pl": (
        "Obok portu jest mały zakład zegarmistrza. Właściciel otwiera go każdego ranka o siódmej, nawet "
        "gdy pada śnieg.",
        ["cp1250", "iso8859_2"],
    ),
    "cs": (
        "Vedle přístavu je malé hodinářství. Majitel ho otevírá každé ráno v sedm hodin, i když sněží "
        "nebo prší.",
        ["cp1250", "iso8859_2"],
    ),
    "hu": (
        "A kikötő mellett van egy kis órásműhely. A tulajdonos minden reggel hétkor nyit, esőben és "
        "hóban is, és örül a vevőknek.",
        ["cp1250"],
    ),
    "tr": (
        "Limanın yanında küçük bir saatçi dükkanı vardır. Sahibi her sabah yedide açar, yağmurda ve "
        "karda bile şaşmaz.",
        ["cp1254"],
    ),
    "lt": (
        "Šalia uosto yra maža laikrodžių dirbtuvė. Šeimininkas ją atidaro kiekvieną rytą septintą "
        "valandą, net ir sningant.",
        ["cp1257"],
    ),
    "de": (
        "Neben dem Hafen gibt es eine kleine Uhrmacherei. Der Besitzer öffnet sie früh um sieben – auch "
        "„bei Schnee“.",
        ["cp1252"],
    ),
    "fr": (
        "À côté du port, il y a une petite horlogerie. Le propriétaire l’ouvre à sept heures, « même "
        "l’été », où qu’il soit.",
        ["cp1252"],
    ),
    "es": (
        "Junto al puerto hay una pequeña relojería. ¿Quién la abre? El dueño, cada mañana, aunque "
        "llueva según él.",
        ["cp1252"],
    ),
    "it": ("C’è una bottega: è lì, più giù. Perché no?", ["cp1252"]),
    "en": ("The café’s owner said: “Naïve”. It costs £5 – or €6.", ["cp1252"]),
}  # fmt: skip
CASES = [(language, charset) for language, (_, charsets) in TEXTS.items() for charset in charsets]
PAGE = (
    "<!doctype html><html><head><title>Page</title><style>a { color: red }</style><script>var a = 1;</script></head>"
    '<body class="x"><nav><a href="/a">Home</a> About us</nav><p>{}</p><footer>All rights</footer></body></html>'
)


@pytest.mark.parametrize(("language", "charset"), CASES)
def test_a_text_that_names_no_charset(language: str, charset: str) -> None:
    text = TEXTS[language][0]
    assert decode(text.encode(charset), "") == text
    assert decode(PAGE.replace("{}", text).encode(charset), "") == PAGE.replace("{}", text)


@pytest.mark.parametrize(("language", "charset"), CASES)
def test_what_is_declared_counts_more(language: str, charset: str) -> None:
    text = TEXTS[language][0]
    assert decode(text.encode(charset), charset) == text


@pytest.mark.parametrize(("language", "charset"), CASES)
def test_a_label_that_says_utf_8_wrongly(language: str, charset: str) -> None:
    text = TEXTS[language][0]
    assert decode(text.encode(charset), "utf-8") == text


@pytest.mark.parametrize("shift", range(4))
def test_a_long_text_may_be_cut_within_a_character_to_tell(shift: int) -> None:
    text = "x" * shift + TEXTS["zh"][0].replace("。", "") * SAMPLE
    assert decode(text[:SAMPLE].encode("gb18030"), "") == text[:SAMPLE]


@given(st.binary(max_size=300))
def test_any_bytes_are_some_text(body: bytes) -> None:
    assert isinstance(decode(body, ""), str)


@pytest.mark.parametrize("label", ["gb\0", "mac\udcff", "utf-8\0", "x" * 100_000, "rot13", "idna"], ids=ascii)
def test_whatever_a_label_says(label: str) -> None:
    assert decode("<p>Привет</p>".encode(), label) == "<p>Привет</p>"


@pytest.mark.parametrize("charset", ["utf-16-le", "utf-16-be"])
@pytest.mark.parametrize("text", ["Hello world. " * 9, "\n\n  <html><p>Привет</p></html>", "<p>Привет</p>"])
def test_utf_16_without_a_mark(charset: str, text: str) -> None:
    body = text.encode(charset)
    assert decode(body, "") == text
    assert sniff(body, "text/plain") != "binary"


def test_scripts_that_never_end() -> None:
    """Quadratic work would not come to an end here before the test is stopped."""
    assert decode(b"<script>\xff" * 120_000, "").startswith("<script>")
