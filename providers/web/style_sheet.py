"""The page's own style sheet, as far as it hides: handed its text, says by which properties an element is hidden for
good. What it shows again in some state (`.tab.open`) is not; and sheets in files of their own are not fetched.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, cast

from ..records import dataclass
from .colours import WHITE, are_alike, colour_of
from .hiding import ink_of, paper_of, plain_style, property_of, ways_to_hide

if TYPE_CHECKING:
    from lxml.etree import _Element as Element

# At-rules whose content holds on every screen, and all others, which may or may not.
_ALWAYS = re.compile(
    r"@(?:media\s+(?:only\s+)?(?:screen|all)\s*|layer(?:\s+[\w.-]+)?\s*|supports[^{};]*)\{((?:[^{}]|\{[^{}]*\})*)\}"
)
_AT_RULE = re.compile(r"@[^{};@]*(?:;|\{(?:[^{}]|\{[^{}]*\})*\})")
_SIMPLE = re.compile(r"(\*|[a-zA-Z][a-zA-Z0-9-]*)?((?:[.#][\w-]+|\[[a-zA-Z_][a-zA-Z0-9_-]*\])*)")
_PART = re.compile(r"[.#][\w-]+|\[[^\]]+\]")
_BY_NAME = re.compile(r"(?:[a-z][a-z0-9]*|)\*?[.#][\w-]+", re.IGNORECASE)
_STEP = re.compile(r"\s*>\s*|\s+")
_NAME = re.compile(r"[.#][\w-]+")
_COMBINATOR = re.compile(r"[\s>+~]")
_ANIMATED = re.compile(r"animation(?:-name)?\s*:(?!\s*none)", re.IGNORECASE)
_NO_PAPER = frozenset({"", "none", "transparent", "inherit", "initial", "unset"})
_MOST_STEPS = 6
_MOST_RULES = 30  # for one name: what a page with more of them hides is not worth the time
_WHITE_INK = "white"  # not by a property as such: only where it stands on white


@dataclass(frozen=True, slots=True)
class _Compound:
    """What one element must be: of a tag, with names (`.class`, `#id`) and attributes (`[name]`)."""

    tag: str
    names: frozenset[str]
    attributes: frozenset[str]

    def fits(self, element: Element, names: frozenset[str] | None = None) -> bool:
        if self.tag and element.tag != self.tag:
            return False
        if self.names and not self.names <= (names_of(element) if names is None else names):
            return False
        return all(element.get(name) is not None for name in self.attributes)


@dataclass(frozen=True, slots=True)
class _Rule:
    steps: tuple[_Compound, ...]  # the element's own last; those before it stand somewhere around it
    ways: dict[str, int]  # each with the place of the last such rule

    def hides(self, element: Element, names: frozenset[str]) -> bool:
        *around, own = self.steps
        if not own.fits(element, names):
            return False
        if not around:
            return True
        ancestors = element.iterancestors()
        return all(any(compound.fits(one) for one in ancestors) for compound in reversed(around))


class StyleSheet:
    """`paints` says that something on the page may have another background than white."""

    def __init__(self, text: str) -> None:
        text = _ALWAYS.sub(r"\1", plain_style(text))
        rules = _hiding_rules(text)
        self.paints = any("background" in style and not _is_white(paper_of(style)) for _, _, style in _rules(text))
        self._showing = _showing_rules(text) if rules else {}
        self._by_key: dict[str, list[_Rule]] = {}
        for rule in rules:
            under_one_key = self._by_key.setdefault(_key_of(rule.steps[-1]), [])
            if len(under_one_key) < _MOST_RULES:
                under_one_key.append(rule)
        self._attributes = [key[1:-1] for key in self._by_key if key[0] == "["]

    def ways(self, element: Element, on_white: Callable[[Element], bool]) -> set[str]:
        """The properties by which rules hide this element, without those that a later rule undoes. `on_white` says
        whether white letters are none there."""
        names = names_of(element)
        places: dict[str, int] = {}
        for rule in self._rules_for(element, names):
            if rule.hides(element, names):
                places |= {way: max(at, places.get(way, -1)) for way, at in rule.ways.items()}
        if not places:
            return set()
        if (white := places.pop(_WHITE_INK, None)) is not None and on_white(element):
            places["color"] = white
        showing = self._showing
        return {way for way, at in places.items() if all(showing.get((name, way), -1) <= at for name in names)}

    def __bool__(self) -> bool:
        return bool(self._by_key)

    def candidates(self, body: Element) -> Iterator[Element]:
        """All that it may hide; some of it twice."""
        attributes = set(self._attributes)
        if any(key[0] in ".#" for key in self._by_key):
            attributes |= {"class", "id"}
        if attributes:
            path = f".//*[{' or '.join(f'@{name}' for name in sorted(attributes))}]"
            yield from cast("list[Element]", body.xpath(path))
        if tags := [key for key in self._by_key if key[0] not in ".#["]:
            yield from body.iter(*tags)

    def _rules_for(self, element: Element, names: frozenset[str]) -> Iterator[_Rule]:
        known = self._by_key
        for name in names:
            yield from known.get(name, ())
        yield from known.get(str(element.tag), ())
        for name in self._attributes:
            if element.get(name) is not None:
                yield from known[f"[{name}]"]


def names_of(element: Element) -> frozenset[str]:
    names = {f".{name}" for name in (element.get("class") or "").split()}
    if identity := element.get("id"):
        names.add(f"#{identity}")
    return frozenset(names)


def _is_white(paper: str) -> bool:
    if paper.lower() in _NO_PAPER:
        return True
    colour = colour_of(paper)
    return colour is not None and are_alike(colour, WHITE)


def _key_of(compound: _Compound) -> str:
    """What the element is looked up by."""
    if compound.names:
        return min(compound.names)
    return f"[{min(compound.attributes)}]" if compound.attributes else compound.tag


def _rules(sheet: str) -> Iterator[tuple[int, str, str]]:
    """Where a rule ends, what it is for, what it says."""
    end = 0
    for piece in sheet.split("}"):
        end += len(piece) + 1
        before, brace, style = piece.rpartition("{")
        if brace:
            yield end, before.rpartition("{")[2], style


def _hiding_rules(sheet: str) -> list[_Rule]:
    """One for each selector."""
    moving = "@keyframes" in sheet
    found: dict[tuple[_Compound, ...], _Rule] = {}
    for at, selectors, style in _rules(_AT_RULE.sub(lambda at: " " * len(at[0]), sheet)):
        if moving and _ANIMATED.search(style):
            continue
        ways = set(ways_to_hide(style))
        ink = colour_of(ink_of(style)) if "color" in style else None
        if ink and are_alike(ink, WHITE) and not paper_of(style):
            ways.add(_WHITE_INK)
        for selector in selectors.split(",") if ways else ():
            if steps := _steps(selector.strip()):
                found.setdefault(steps, _Rule(steps, {})).ways.update(dict.fromkeys(ways, at))
    return list(found.values())


def _steps(selector: str) -> tuple[_Compound, ...]:
    """The selector, if it is one that we know; states (`:hover`) and siblings are not."""
    parts = _STEP.split(selector)
    if not selector or len(parts) > _MOST_STEPS:
        return ()
    compounds = []
    for part in parts:
        found = _SIMPLE.fullmatch(part)
        if found is None or not part:
            return ()
        simple = _PART.findall(found[2])
        tag = (found[1] or "").lower().replace("*", "")
        names = frozenset(name for name in simple if name[0] != "[")
        compounds.append(_Compound(tag, names, frozenset(name[1:-1] for name in simple if name[0] == "[")))
    own = compounds[-1]
    return tuple(compounds) if own.tag or own.names or own.attributes else ()


def _showing_rules(sheet: str) -> dict[tuple[str, str], float]:
    """For a name and a property: the place up to which a rule that hides by it does not count. A rule for the
    name alone undoes those before it, one for the name in some state (`.tab.open`) undoes all."""
    showing: dict[tuple[str, str], float] = {}
    for at, selectors, style in _rules(sheet):
        shown = {property_of(part) for part in style.split(";")} - ways_to_hide(style)
        for selector in map(str.strip, selectors.split(",")):
            last = _COMBINATOR.split(selector)[-1]
            place = at if _BY_NAME.fullmatch(selector) else math.inf
            for name in set(_NAME.findall(last)):
                showing.update({(name, way): max(place, showing.get((name, way), -1)) for way in shown})
    return showing
