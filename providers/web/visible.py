"""What a reader of the page cannot see: handed the body of a page, says which elements are not to be read.

Instructions to a model hide where people do not look, so whatever is not shown is not read. Two things are spared:
a panel that a control of the page opens (tabs, accordions), and the page itself where scripts would unveil it first.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import TYPE_CHECKING, cast

from .colours import WHITE, Colour, are_alike, colour_of
from .hiding import ink_of, paper_of, plain_style, ways_to_hide
from .style_sheet import StyleSheet

if TYPE_CHECKING:
    from lxml.etree import _Element as Element

# Never text for a reader, whatever the page says about them.
_UNREAD = (
    "applet area audio base canvas datalist dialog embed frame frameset head iframe input link map math meta meter "
    "noembed noframes object option param picture progress script select source style svg template textarea title "
    "track video"
)
UNREAD_TAGS = frozenset(_UNREAD.split())

# Names that every style sheet gives to text for screen readers only, and a wiki's editing links.
_UNSEEN_NAMES = re.compile(
    r"(?:^|\s)(?:sr-only|visually-?hidden|screen-reader-text|mw-editsection|headerlink)(?:\s|$)",
    re.IGNORECASE,
)
_UNSEEN_NAME_PARTS = ("hidden", "sr-only", "screen-reader", "editsection", "headerlink")
_MAYBE_UNSEEN = f".//*[{' or '.join(f'contains(@class, {part!r})' for part in _UNSEEN_NAME_PARTS)}]"

_FOLDED = {"display"}
_CONTROLS = (
    ".//*[@aria-controls or starts-with(@href, '#') or starts-with(@data-target, '#') "
    "or starts-with(@data-bs-target, '#') or @role='tab']"
)
_VEIL = re.compile(r"opacity|visibility", re.IGNORECASE)
_STREAMED = re.compile(r"S:[0-9a-f]+$")  # where React puts what it has rendered until a script moves it into place
_VEILED_WORDS = 150


def unseen(body: Element) -> set[Element]:
    """The elements to pass over, with all they hold."""
    sheet = StyleSheet("}".join(style.text or "" for style in body.getroottree().iter("style")))
    papers = _Papers(body, sheet)
    folded, concealed = set(_folded(body)), {*_concealed(body, papers), *body.iter("noscript")}
    for element, ways in _hidden_by_sheet(body, sheet, papers, folded | concealed).items():
        (folded if ways == _FOLDED else concealed).add(element)
    hidden = folded | concealed
    hidden |= {details for details in body.iter("details") if _stays_closed(details, hidden)}
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
            or "display" in ways_to_hide(_style(element))
        ):
            yield element


def _concealed(body: Element, papers: _Papers) -> Iterator[Element]:
    """What is hidden in ways that no control undoes: too small, too faint, out of the picture."""
    for element in find_all(body, ".//*[@style or @popover or (self::font and @color)]"):
        hides = ways_to_hide(_style(element)) - _FOLDED
        if element.get("popover") is not None or hides or papers.swallow(element):
            yield element
    for element in find_all(body, _MAYBE_UNSEEN):
        if _UNSEEN_NAMES.search(element.get("class", "")):
            yield element


def _style(element: Element) -> str:
    return plain_style(element.get("style") or "")


class _Papers:
    """What letters stand on. Where nothing says otherwise that is white; where a class may say it, or a sheet that we
    do not have, nobody knows."""

    def __init__(self, body: Element, sheet: StyleSheet) -> None:
        linked = find_all(body, "/*//link[contains(@rel, 'stylesheet')]")
        self._painted = sheet.paints
        self._classes_paint = sheet.paints or bool(linked)

    def swallow(self, element: Element) -> bool:
        """Are its letters of the colour that they stand on?"""
        ink = colour_of(ink_of(_style(element)) or (element.get("color", "") if element.tag == "font" else ""))
        paper = self.under(element) if ink else None
        return ink is not None and paper is not None and are_alike(ink, paper)

    def is_white(self, element: Element) -> bool:
        return self.under(element) == WHITE

    def under(self, element: Element) -> Colour | None:
        for one in (element, *element.iterancestors()):
            declared = paper_of(_style(one)) or one.get("bgcolor") or ""
            if declared:
                return colour_of(declared)
            if one.get("background") or (self._classes_paint and one.get("class")):
                return None
        return None if self._painted else WHITE


def _hidden_by_sheet(
    body: Element, sheet: StyleSheet, papers: _Papers, hidden: set[Element]
) -> dict[Element, set[str]]:
    """What the page's own style sheet hides for good, and by which properties."""
    if not sheet:
        return {}
    found: dict[Element, set[str]] = {}
    for element in sheet.candidates(body):
        if ways := sheet.ways(element, papers.is_white):
            found[element] = ways
    shown = _count_words(body, hidden | found.keys())
    return found if shown > _count_words(body, hidden) - shown else {}  # else it is the page, and scripts show it


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


def _stays_closed(details: Element, hidden: set[Element]) -> bool:
    """There is nothing to click on that would open it."""
    summary = details.find("summary")
    return details.get("open") is None and summary is not None and not _is_seen(summary, hidden)


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
