"""What a reader of the page cannot see: handed the body of a page, says which elements are not to be read.

Instructions to a model hide where people do not look, so whatever is not shown is not read. Two things are spared:
a panel that a control of the page opens (tabs, accordions), and the page itself where scripts would unveil it first.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterator
from itertools import product
from typing import TYPE_CHECKING, cast

if TYPE_CHECKING:
    from lxml.etree import _Element as Element

# Never text for a reader, whatever the page says about them.
_UNREAD = (
    "applet area audio base canvas datalist dialog embed frame frameset head iframe input link map math meta meter "
    "noembed noframes object option param picture progress script select source style svg template textarea title "
    "track video"
)
UNREAD_TAGS = frozenset(_UNREAD.split())

_NOTHING = r"(?:0+\.?0*|\.0+)"
_FAINT = r"(?:0*\.0\d*|0+\.?|\d(?:\.\d*)?%)"  # below a tenth
# One declaration by which text is not to be seen.
_HIDING = re.compile(
    rf"display\s*:\s*none|visibility\s*:\s*(?:hidden|collapse)|opacity\s*:\s*{_FAINT}\s*(?:!|$)"
    rf"|font-size\s*:\s*(?:{_NOTHING}|0?\.\d+(?=p)|1(?=p))(?:px|pt|em|rem|%|vw)?\s*(?:!|$)"
    rf"|font\s*:[^;]{{0,60}}?(?<![\w./#-])(?:{_NOTHING}(?:px|pt|em|rem|%)?|(?:1|0?\.\d+)p[xt])(?:\s*/|\s+[a-z'\"])"
    rf"|(?<![-\w])color\s*:\s*(?:transparent|#[0-9a-f]{{3}}0\b|#[0-9a-f]{{6}}00\b"
    rf"|(?:rgb|hsl)a?\((?:(?:[^),/]{{0,20}},){{3}}|[^)/]{{0,60}}/)\s*{_FAINT}\s*\))"
    r"|(?<![-\w])(?:left|right|top|bottom|text-indent)\s*:\s*-\d{3,}|margin-(?:left|top)\s*:\s*-(?:\d{4,}|[5-9]\d\d)(?![\d%])"
    r"|translate(?:[xy]|3d)?\s*\(\s*-\d{4,}|clip\s*:\s*rect\(\s*[01](?:px)?[\s,]+[01](?:px)?[\s,]+[01](?:px)?[\s,]+[01]"
    rf"|clip-path\s*:\s*(?:inset\(\s*(?:50|100)%|(?:circle|ellipse)\(\s*{_NOTHING}(?:px|%|em)?[\s)])"
    rf"|scale(?:[xy]|3d)?\s*\(\s*{_NOTHING}\s*[,)]|(?<![-\w])scale\s*:\s*{_NOTHING}\s*(?:!|$)",
    re.IGNORECASE,
)
_CSS_COMMENT = re.compile(r"/\*.*?(?:\*/|\Z)", re.DOTALL)
_PAINTED = re.compile(r"background-clip\s*:\s*text", re.IGNORECASE)
_NO_ROOM = re.compile(r"(?:^|[;\s])(?:max-)?(?:width|height)\s*:\s*[01](?:px)?\s*(?:[;!]|$)", re.IGNORECASE)
_CLIPPED = re.compile(r"overflow(?:-[xy])?\s*:\s*(?:hidden|clip)", re.IGNORECASE)
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
# The page's own style sheet: rules, those in an @media and the like, and selectors by one name (`.name`, `p.name`).
_AT_RULE = re.compile(r"@[^{};@]*(?:;|\{(?:[^{}]|\{[^{}]*\})*\})")
_BY_NAME = re.compile(r"([a-z][a-z0-9]*|)\*?([.#][\w-]+)", re.IGNORECASE)
_NAME = re.compile(r"[.#][\w-]+")
_COMBINATOR = re.compile(r"[\s>+~]")
_ANIMATED = re.compile(r"animation(?:-name)?\s*:(?!\s*none)", re.IGNORECASE)

_FOLDED = {"display"}
_CONTROLS = (
    ".//*[@aria-controls or starts-with(@href, '#') or starts-with(@data-target, '#') "
    "or starts-with(@data-bs-target, '#') or @role='tab']"
)
_VEIL = re.compile(r"opacity|visibility", re.IGNORECASE)
_STREAMED = re.compile(r"S:[0-9a-f]+$")  # where React puts what it has rendered until a script moves it into place
_VEILED_WORDS = 150

# For a tag and a name: the properties that hide it, each with the place of the last rule that does so.
_Hiding = dict[tuple[str, str], dict[str, int]]
# For a name and a property: the place up to which a rule that hides by it does not count.
_Showing = dict[tuple[str, str], float]


def unseen(body: Element) -> set[Element]:
    """The elements to pass over, with all they hold."""
    folded, concealed = set(_folded(body)), {*_concealed(body), *body.iter("noscript")}
    for element, ways in _hidden_by_sheet(body, folded | concealed).items():
        (folded if ways == _FOLDED else concealed).add(element)
    hidden = folded | concealed
    for _ in range(2):  # a panel may hold the controls of others
        opened = _opened_by_controls(body, hidden)
        hidden -= {element for element in folded - concealed if _is_panel(element, opened)}
    page = _veiled_page(body, hidden)
    if page is not None:
        hidden -= {page, *page.iterancestors()}
    return hidden


def find_all(top: Element, path: str) -> list[Element]:
    return cast("list[Element]", top.xpath(path))


def find_values(top: Element, path: str) -> list[str]:
    return cast("list[str]", top.xpath(path))


def _folded(body: Element) -> Iterator[Element]:
    """What is hidden the way tabs and accordions hide what is not open."""
    for element in find_all(body, ".//*[@hidden or @aria-hidden='true' or @style]"):
        if (
            element.get("hidden", "until-found") != "until-found"
            or element.get("aria-hidden") == "true"
            or "display" in _ways_to_hide(element.get("style") or "")
        ):
            yield element


def _concealed(body: Element) -> Iterator[Element]:
    """What is hidden in ways that no control undoes: too small, too faint, out of the picture."""
    for element in find_all(body, ".//*[@style or @popover or (self::font and @color)]"):
        style = element.get("style") or ""
        if element.get("popover") is not None or _ways_to_hide(style) - _FOLDED or _is_white_on_white(element, style):
            yield element
    for element in find_all(body, _MAYBE_UNSEEN):
        if _UNSEEN_NAMES.search(element.get("class", "")):
            yield element


def _ways_to_hide(style: str) -> set[str]:
    """The properties by which these declarations hide what they are for."""
    style = _CSS_COMMENT.sub("", style)
    ways = {_property(part) for part in style.split(";") if _HIDING.search(part)}
    if "gradient(" in style and _PAINTED.search(style):  # the letters are holes through which it shows
        ways.discard("color")
    if (room := _NO_ROOM.search(style)) and _CLIPPED.search(style):
        ways.add(_property(room[0].lstrip(";")))
    if _is_one_colour(style):
        ways.add("color")
    return ways


def _is_one_colour(style: str) -> bool:
    ink, paper = _INK.search(style), _PAPER.search(style)
    return ink is not None and paper is not None and _colour(ink[1]) == _colour(paper[1])


def _property(declaration: str) -> str:
    return declaration.partition(":")[0].strip().lower()


def _is_white_on_white(element: Element, style: str) -> bool:
    """White text where nothing around it could have another background: no style, no class, no attribute for one."""
    found = _INK.search(style)
    ink = found[1] if found else element.get("color", "") if element.tag == "font" else ""
    if _colour(ink) != _colour("white"):
        return False
    return not any(map(_may_have_paper, (element, *element.iterancestors())))


def _may_have_paper(element: Element) -> bool:
    named = any(element.get(attribute) for attribute in ("class", "bgcolor", "background"))
    return named or _PAPER.search(element.get("style") or "") is not None


def _colour(value: str) -> str:
    compact = "".join(value.lower().split())
    return "white" if compact in _WHITE else compact


def _hidden_by_sheet(body: Element, hidden: set[Element]) -> dict[Element, set[str]]:
    """What the page's own style sheet hides for good, and by which properties."""
    sheet = _CSS_COMMENT.sub("", "}".join(style.text or "" for style in body.getroottree().iter("style")))
    hiding = _hiding_rules(sheet)
    if not hiding:
        return {}
    showing = _showing_rules(sheet)
    named = find_all(body, ".//*[@class or @id]")
    found = {element: ways for element in named if (ways := _ways_of_sheet(element, hiding, showing))}
    shown = _count_words(body, hidden | found.keys())
    return found if shown > _count_words(body, hidden) - shown else {}  # else it is the page, and scripts show it


def _ways_of_sheet(element: Element, hiding: _Hiding, showing: _Showing) -> set[str]:
    """The properties by which rules hide this element, without those that a later rule undoes."""
    names = [f".{name}" for name in (element.get("class") or "").split()] + [f"#{element.get('id')}"]
    places: dict[str, int] = {}
    for name, tag in product(names, ("", str(element.tag))):
        for way, place in hiding.get((tag, name), {}).items():
            places[way] = max(place, places.get(way, -1))
    return {way for way in places if all(showing.get((name, way), -1) <= places[way] for name in names)}


def _rules(sheet: str) -> Iterator[tuple[int, str, str]]:
    """Where a rule ends, what it is for, what it says."""
    end = 0
    for piece in sheet.split("}"):
        end += len(piece) + 1
        before, brace, style = piece.rpartition("{")
        if brace:
            yield end, before.rpartition("{")[2], style


def _hiding_rules(sheet: str) -> _Hiding:
    hiding: _Hiding = {}
    moving = "@keyframes" in sheet
    for at, selectors, style in _rules(_AT_RULE.sub(lambda at: " " * len(at[0]), sheet)):
        ways = set() if moving and _ANIMATED.search(style) else _ways_to_hide(style)
        for selector in selectors.split(",") if ways else ():
            if by_name := _BY_NAME.fullmatch(selector.strip()):
                places = hiding.setdefault((by_name[1].lower(), by_name[2]), {})
                places.update(dict.fromkeys(ways, at))
    return hiding


def _showing_rules(sheet: str) -> _Showing:
    """A rule for the name alone undoes those before it, one for the name in some state (`.tab.open`) undoes all."""
    showing: _Showing = {}
    for at, selectors, style in _rules(sheet):
        shown = {_property(part) for part in style.split(";")} - _ways_to_hide(style)
        for selector in map(str.strip, selectors.split(",")):
            place = at if _BY_NAME.fullmatch(selector) else math.inf
            for name in set(_NAME.findall(_COMBINATOR.split(selector)[-1])):
                showing.update({(name, way): max(place, showing.get((name, way), -1)) for way in shown})
    return showing


def _opened_by_controls(body: Element, hidden: set[Element]) -> set[str]:
    """The ids of what the reader can open by clicking on words that are there to be seen, and of tabs themselves."""
    opened: set[str] = set()
    for control in find_all(body, _CONTROLS):
        if not _is_seen(control, hidden):
            continue
        opened.update((control.get("aria-controls") or "").split())
        for attribute in ("href", "data-target", "data-bs-target"):
            value = control.get(attribute) or ""
            if value[:1] == "#":
                opened.add(value[1:])
        if control.get("role") == "tab":
            opened.add(control.get("id") or "")
    return opened - {""}


def _is_seen(control: Element, hidden: set[Element]) -> bool:
    """Does it hold words, and can they be seen?"""
    if any(_is_unread(one, hidden) for one in control.iterancestors()):
        return False
    rest = [control]
    while rest:
        element = rest.pop()
        if _is_unread(element, hidden):
            continue
        if _has_words(element):
            return True
        rest.extend(element)
    return False


def _is_unread(element: Element, hidden: set[Element]) -> bool:
    return element in hidden or element.tag in UNREAD_TAGS


def _has_words(element: Element) -> bool:
    """Of its own, between what else it holds."""
    return any((text or "").strip() for text in (element.text, *(child.tail for child in element)))


def _is_panel(element: Element, opened: set[str]) -> bool:
    tab = element.get("aria-labelledby") if element.get("role") == "tabpanel" else None
    return element.get("id") in opened or tab in opened


def _veiled_page(body: Element, hidden: set[Element]) -> Element | None:
    """The one hidden element that is the page: it fades in, waits for scripts, or is all there is without them."""
    veils = [element for element in hidden if _is_veil(element)]
    if not veils:
        return None
    shown = _count_words(body, hidden)
    sizes = {veil: _count_words(veil, hidden) for veil in veils}
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
