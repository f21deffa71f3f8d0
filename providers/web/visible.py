"""What a reader of the page cannot see: handed the body of a page, says which elements are not to be read.

Instructions to a model hide where people do not look, so whatever is not shown is not read. Two things are spared:
a panel that a control of the page opens (tabs, accordions), and the page itself where scripts would unveil it first.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator
from typing import TYPE_CHECKING, cast

if TYPE_CHECKING:
    from lxml.etree import _Element as Element

# Never text for a reader, whatever the page says about them.
_UNREAD = (
    "applet area audio base canvas datalist dialog embed frame frameset head iframe input link map math meta meter "
    "object option param picture progress script select source style svg template textarea title track video"
)
UNREAD_TAGS = frozenset(_UNREAD.split())

_HIDING_STYLE = re.compile(
    r"display\s*:\s*none|visibility\s*:\s*(?:hidden|collapse)|opacity\s*:\s*0*\.?0*(?:[;%!\s]|$)"
    r"|font-size\s*:\s*0*\.?[01]?(?:px|pt|em|rem|%)?\s*(?:[;!]|$)|(?<![-\w])color\s*:\s*transparent"
    r"|(?:left|right|top|bottom|text-indent|margin-(?:left|top))\s*:\s*-\d{3,}"
    r"|translate[xy]?\s*\(\s*-\d{4,}|clip\s*:\s*rect\(\s*[01](?:px)?[\s,]+[01](?:px)?[\s,]+[01](?:px)?[\s,]+[01]"
    r"|clip-path\s*:\s*inset\(\s*(?:50|100)%|transform\s*:\s*scale\(\s*0\s*\)",
    re.IGNORECASE,
)
_NO_ROOM = re.compile(r"(?:^|[;\s])(?:max-)?(?:width|height)\s*:\s*[01](?:px)?\s*(?:[;!]|$)", re.IGNORECASE)
_CLIPPED = re.compile(r"overflow(?:-[xy])?\s*:\s*hidden", re.IGNORECASE)
_INK = re.compile(r"(?:^|[;\s])color\s*:\s*([^;!]+)", re.IGNORECASE)
_PAPER = re.compile(r"background(?:-color)?\s*:\s*([^;!]+)", re.IGNORECASE)
_WHITE = frozenset({"white", "#fff", "#ffffff", "rgb(255,255,255)", "rgba(255,255,255,1)"})

# Names that every style sheet gives to text for screen readers only, and a wiki's editing links.
_UNSEEN_NAMES = re.compile(
    r"(?:^|\s)(?:sr-only|visually-?hidden|screen-reader-text|mw-editsection|headerlink)(?:\s|$)",
    re.IGNORECASE,
)
_UNSEEN_NAME_PARTS = ("hidden", "sr-only", "screen-reader", "editsection", "headerlink")
_MAYBE_UNSEEN = f".//*[{' or '.join(f'contains(@class, {part!r})' for part in _UNSEEN_NAME_PARTS)}]"
# A rule of the page's own style sheet for one name, outside any @media: `.name{…display:none…}`.
_HIDING_RULE = re.compile(r"(?:^|[},;])\s*([.#][\w-]+)\s*\{[^{}]*(?:display\s*:\s*none|visibility\s*:\s*hidden)")
_AT_RULE = re.compile(r"@[^{};]*(?:;|\{(?:[^{}]|\{[^{}]*\})*\})")
_SHOWING_RULE = re.compile(r"([.#][\w-]+)[^{}.#]*\{[^{}]*(?:display\s*:\s*(?!none)|visibility\s*:\s*visible)")
_NAMED = re.compile(r"[.#][\w-]+")

_VEIL = re.compile(r"opacity|visibility", re.IGNORECASE)
_STREAMED = re.compile(r"S:[0-9a-f]+$")  # where React puts what it has rendered until a script moves it into place
_VEILED_WORDS = 150


def unseen(body: Element) -> set[Element]:
    """The elements to pass over, with all they hold."""
    hidden = {*_hidden(body), *body.iter("noscript")}
    hidden |= _hidden_by_sheet(body, hidden)
    opened = _opened_by_controls(body)
    hidden = {element for element in hidden if not _is_panel(element, opened)}
    page = _veiled_page(body, hidden)
    if page is not None:
        hidden -= {page, *page.iterancestors()}
    return hidden


def find_all(top: Element, path: str) -> list[Element]:
    return cast("list[Element]", top.xpath(path))


def find_values(top: Element, path: str) -> list[str]:
    return cast("list[str]", top.xpath(path))


def _hidden(body: Element) -> Iterator[Element]:
    for element in find_all(body, ".//*[@hidden or @aria-hidden='true' or @style]"):
        style = element.get("style") or ""
        if (
            element.get("hidden", "until-found") != "until-found"
            or element.get("aria-hidden") == "true"
            or _hides(style)
            or _is_white_on_white(element, style)
        ):
            yield element
    for element in find_all(body, _MAYBE_UNSEEN):
        if _UNSEEN_NAMES.search(element.get("class", "")):
            yield element


def _hides(style: str) -> bool:
    if _HIDING_STYLE.search(style) or (_CLIPPED.search(style) and _NO_ROOM.search(style)):
        return True
    ink = _INK.search(style)
    if ink is None:
        return False
    paper = _PAPER.search(style)
    return paper is not None and _colour(ink[1]) == _colour(paper[1])


def _is_white_on_white(element: Element, style: str) -> bool:
    """White text where nothing around it could have another background: no style, no class, no attribute for one."""
    ink = _INK.search(style)
    if ink is None or _colour(ink[1]) != _colour("white"):
        return False
    around = (element, *element.iterancestors())
    return not any(one.get("class") or one.get("bgcolor") or _PAPER.search(one.get("style") or "") for one in around)


def _colour(value: str) -> str:
    compact = "".join(value.lower().split())
    return "white" if compact in _WHITE else compact


def _hidden_by_sheet(body: Element, hidden: set[Element]) -> set[Element]:
    """What the page's own style sheet hides for good: by a name that no other rule speaks of or shows."""
    sheet = "}".join(style.text or "" for style in body.getroottree().iter("style"))
    hiding = set(_HIDING_RULE.findall(_AT_RULE.sub("", sheet)))
    if not hiding:
        return set()
    mentions = Counter(_NAMED.findall(sheet))
    hiding = {name for name in hiding if mentions[name] == 1}
    showing = set(_SHOWING_RULE.findall(sheet))
    found = {element for element in find_all(body, ".//*[@class or @id]") if _is_under(element, hiding, showing)}
    shown = _count_words(body, hidden | found)
    return found if shown > _count_words(body, hidden) - shown else set()  # else it is the page, and scripts show it


def _is_under(element: Element, hiding: set[str], showing: set[str]) -> bool:
    names = {f".{name}" for name in (element.get("class") or "").split()} | {f"#{element.get('id')}"}
    return not names.isdisjoint(hiding) and names.isdisjoint(showing)


def _opened_by_controls(body: Element) -> set[str]:
    """The ids of what the reader can open by clicking on something."""
    opened: set[str] = set()
    for value in find_values(body, ".//@aria-controls"):
        opened.update(value.split())
    for value in find_values(body, ".//@href | .//@data-target | .//@data-bs-target"):
        if value[:1] == "#":
            opened.add(value[1:])
    return opened


def _is_panel(element: Element, opened: set[str]) -> bool:
    return element.get("role") == "tabpanel" or element.get("id") in opened


def _veiled_page(body: Element, hidden: set[Element]) -> Element | None:
    """The one hidden element that is the page: it fades in, waits for scripts, or is all there is without them."""
    veils = [element for element in hidden if _is_veil(element)]
    if not veils:
        return None
    shown = _count_words(body, hidden)
    sizes = {veil: _count_words(veil, hidden - {veil}) for veil in veils}
    largest = max(veils, key=lambda veil: sizes[veil])
    return largest if sizes[largest] >= max(_VEILED_WORDS, shown) else None


def _is_veil(element: Element) -> bool:
    return (
        element.tag in ("noscript", "main")
        or bool(_STREAMED.match(element.get("id") or ""))
        or bool(_VEIL.search(element.get("style") or ""))
    )


def _count_words(top: Element, hidden: set[Element]) -> int:
    count, rest = len((top.text or "").split()), list(top)
    while rest:
        element = rest.pop()
        count += len((element.tail or "").split())
        if element not in hidden and element.tag not in UNREAD_TAGS:
            count += len((element.text or "").split())
            rest.extend(element)
    return count
