"""What a reader of the page cannot see: handed the body of a page, says which elements are not to be read.

Instructions to a model hide where people do not look, so whatever is not shown is not read. Two things are spared:
a panel that a control of the page opens (tabs, accordions), and the page itself where scripts would unveil it first.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from lxml.html import HtmlElement

# Never text for a reader, whatever the page says about them.
UNREAD_TAGS = frozenset(
    "applet area audio base canvas datalist dialog embed frame frameset head iframe input link map math meta meter "
    "noscript object option param picture progress script select source style svg template textarea title track "
    "video".split()
)

_HIDING_STYLE = re.compile(
    r"display\s*:\s*none|visibility\s*:\s*(?:hidden|collapse)|opacity\s*:\s*0*\.?0*(?:[;%!\s]|$)"
    r"|font-size\s*:\s*0*\.?[01]?(?:px|pt|em|rem|%)?\s*(?:[;!]|$)|color\s*:\s*transparent"
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
    r"(?:^|\s)(?:sr-only|visually-?hidden|screen-reader-text|screenreader|mw-editsection|headerlink)(?:\s|$)", re.IGNORECASE
)
# A simple rule of the page's own style sheet, outside any @media: `.name{…display:none…}`.
_HIDING_RULE = re.compile(r"(?:^|[}\s,])([.#][\w-]+)\s*\{[^{}]*?(?:display\s*:\s*none|visibility\s*:\s*hidden)[^{}]*\}")
_AT_BLOCK = re.compile(r"@[^{};]*\{(?:[^{}]*\{[^{}]*\})*[^{}]*\}")

_VEIL = re.compile(r"opacity|visibility", re.IGNORECASE)
_STREAMED = re.compile(r"S:[0-9a-f]+$")  # where React puts what it has rendered until a script moves it into place
_VEILED_WORDS = 150


def unseen(body: HtmlElement) -> set[HtmlElement]:
    """The elements to pass over, with all they hold."""
    opened = _opened_by_controls(body)
    hidden = {element for element in _hidden(body) if not _is_panel(element, opened)}
    hidden.update(body.iter("noscript"))
    page = _veiled_page(body, hidden)
    if page is not None:
        hidden -= {page, *page.iterancestors()}
    return hidden


def _hidden(body: HtmlElement) -> Iterator[HtmlElement]:
    rules = _hiding_rules(body)
    for element in body.xpath(".//*[@hidden or @aria-hidden or @style or @class or @id]"):
        get = element.get
        style = get("style")
        if (
            (get("hidden") is not None and get("hidden") != "until-found")
            or get("aria-hidden") == "true"
            or (style and (_hides(style) or _is_white_on_white(element, style)))
            or _UNSEEN_NAMES.search(get("class") or "")
            or (rules and _follows(rules, get("class") or "", get("id")))
        ):
            yield element


def _hides(style: str) -> bool:
    if _HIDING_STYLE.search(style) or (_CLIPPED.search(style) and _NO_ROOM.search(style)):
        return True
    ink = _INK.search(style)
    if ink is None:
        return False
    paper = _PAPER.search(style)
    return paper is not None and _colour(ink[1]) == _colour(paper[1])


def _is_white_on_white(element: HtmlElement, style: str) -> bool:
    """White text where nothing around it could have another background: no style, no class, no attribute for one."""
    ink = _INK.search(style)
    if ink is None or _colour(ink[1]) != _colour("white"):
        return False
    around = (element, *element.iterancestors())
    return not any(one.get("class") or one.get("bgcolor") or _PAPER.search(one.get("style") or "") for one in around)


def _colour(value: str) -> str:
    compact = "".join(value.lower().split())
    return "white" if compact in _WHITE else compact


def _hiding_rules(body: HtmlElement) -> frozenset[str]:
    sheets = (sheet.text or "" for sheet in body.getroottree().iter("style"))
    return frozenset(name for sheet in sheets for name in _HIDING_RULE.findall(_AT_BLOCK.sub("", sheet)))


def _follows(rules: frozenset[str], names: str, identity: str | None) -> bool:
    return any(f".{name}" in rules for name in names.split()) or (identity is not None and f"#{identity}" in rules)


def _opened_by_controls(body: HtmlElement) -> set[str]:
    """The ids of what the reader can open by clicking on something."""
    opened: set[str] = set()
    for value in body.xpath(".//@aria-controls"):
        opened.update(value.split())
    for value in body.xpath(".//@href | .//@data-target | .//@data-bs-target"):
        if value[:1] == "#":
            opened.add(value[1:])
    return opened


def _is_panel(element: HtmlElement, opened: set[str]) -> bool:
    return element.get("role") == "tabpanel" or element.get("id") in opened


def _veiled_page(body: HtmlElement, hidden: set[HtmlElement]) -> HtmlElement | None:
    """The one hidden element that is the page: it fades in, waits for scripts, or is all there is without them."""
    veils = [element for element in hidden if _is_veil(element)]
    if not veils:
        return None
    shown = _count_words(body, hidden)
    sizes = {veil: _count_words(veil, hidden - {veil}) for veil in veils}
    largest = max(veils, key=lambda veil: sizes[veil])
    return largest if sizes[largest] >= max(_VEILED_WORDS, shown) else None


def _is_veil(element: HtmlElement) -> bool:
    return (
        element.tag in ("noscript", "main")
        or bool(_STREAMED.match(element.get("id") or ""))
        or bool(_VEIL.search(element.get("style") or ""))
    )


def _count_words(top: HtmlElement, hidden: set[HtmlElement]) -> int:
    count, rest = len((top.text or "").split()), list(top)
    while rest:
        element = rest.pop()
        count += len((element.tail or "").split())
        if element not in hidden and (element.tag not in UNREAD_TAGS or element.tag == "noscript"):
            count += len((element.text or "").split())
            rest.extend(element)
    return count
