"""What speaks for a block of text being what the reader came for, and what against: one weight per clue, added up.

Handed the blocks of a page, hands on those worth reading. The vocabulary was written by hand; the weights were fitted
on blocks of real pages (logistic regression, rounded), none of them a page of the bench: see bench/extraction.md.
"""

from __future__ import annotations

import re
from bisect import bisect_right
from collections.abc import Iterable, Sequence
from functools import lru_cache
from math import fsum
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from .blocks import Block, Span

# Elements, and the roles that stand for them, which say what they hold.
HOLDERS = {
    "nav": "in nav", "navigation": "in nav", "menu": "in nav", "menubar": "in nav", "listbox": "in nav",
    "header": "in header", "banner": "in header",
    "footer": "in footer", "contentinfo": "in footer",
    "aside": "in aside", "complementary": "in aside",
    "form": "in form", "search": "in form",
    "dialog": "in dialog", "alert": "in dialog", "alertdialog": "in dialog",
    "blockquote": "in quote", "details": "in details", "dl": "in dl", "figure": "in figure",
    "pre": "in pre", "table": "in table", "ul": "in ul",
}  # fmt: skip

# Words that people use in class and id attributes, and what they are worth.
NAMES = {
    "consent": (-2.4, "cookie cookies consent onetrust gdpr ccpa"),
    "legal": (-2.2, "legal disclaimer disclaimers disclosure policy policies terms privacy"),
    "related": (
        -1.7,
        "related recommended recommendations recommendation trending popular suggested similar "
        "upsell recirc crosssell readmore taboola outbrain recently",
    ),
    "signup": (-1.4, "newsletter subscribe subscription signup optin register registration email mailing trial"),
    "login": (-1.4, "login signin sign account guest password"),
    "comment": (-1.2, "comment comments commentlist commentform respond disqus bypostauthor byuser"),
    "cart": (-1.2, "cart basket checkout bag wishlist quantity qty buy shopping totals"),
    "review": (-1.1, "review reviews rating ratings stars star feedback"),
    "footer": (-0.9, "footer colophon copyright foot subfooter footercontent sitefooter prefooter footnote"),
    "promo": (-0.7, "promo promotion promotions banner offer offers deals"),
    "media": (-0.7, "gallery slider slide slides slick swiper carousel video player"),
    "popup": (-0.6, "popup popover modal overlay lightbox dialog backdrop mfp toast tray"),
    "button": (-0.6, "button buttons btn btns ctas cta controls actions"),
    "nav": (
        -0.5,
        "nav navbar navigation menu menus submenu megamenu mega mainmenu subnav topnav gnav "
        "globalnav menuitem dropdown hamburger burger offcanvas drawer flyout sitemap sidenav",
    ),
    "share": (
        -0.5,
        "share shared sharing social socials follow facebook twitter instagram pinterest reactions addtoany likes",
    ),
    "user": (-0.5, "user profile avatar signature member userinfo poster postprofile rank"),
    "pager": (-0.5, "pagination pager paging arrows loadmore"),
    "filter": (-0.5, "filter filters facet facets refine sort checkbox settings"),
    "forum": (
        -0.5,
        "thread topic message messages postbody cooked answercell postcell discussion bbcode crawler answers",
    ),
    "header": (-0.4, "header head hdr"),
    "hidden": (-0.4, "visually invisible hidden tooltip close alert notice notices hide"),
    "author": (-0.4, "author byline bio vcard authors"),
    "meta": (-0.4, "meta date time posted published timestamp views votes vote stats flair badge"),
    "language": (-0.4, "lang language languages locale country translate version versions localization"),
    "card": (-0.3, "card cards tile tiles teaser"),
    "detail": (
        0.2,
        "description desc descr details detail overview summary specifications spec specs "
        "features feature benefits highlights introduction intro pros cons",
    ),
    "content": (0.3, "content contents maincontent main body copy"),
    "text": (0.3, "text rte richtext rich prose wysiwyg markdown paragraph formatted blurb typography editor cms"),
    "quote": (1.4, "quote blockquote testimonial testimonials"),
}
COMMENTS = "comment section"
_WEIGHTS = {name: weight for name, (weight, _) in NAMES.items()} | {
    COMMENTS: -7.4,  # a rule, not a fit: what readers wrote below an article is not the article
    "in footer": -1.9, "in dialog": -1.4, "in aside": -1.2, "in figure": -0.9, "in form": -0.5, "in header": -0.4,
    "in nav": -0.4, "in table": 0.3, "in ul": 0.3, "in pre": 0.4, "in quote": 0.5, "in details": 0.6, "in dl": 0.9,
}  # fmt: skip
_TAGS = {
    "dd": -1.4, "figcaption": -0.8, "table": -0.7, "dt": 0.1, "h6": 0.3, "div": 0.4, "blockquote": 0.8, "h1": 0.8,
    "h5": 0.8, "h4": 1.1, "li": 1.1, "td": 1.2, "p": 1.3, "h3": 1.4, "h2": 1.8,
}  # fmt: skip
_BIAS = -0.6

# By how many words a block has (rows) and how much of it is links (columns).
_LENGTHS = (2, 4, 8, 16, 32, 64)
_LINKED = (0.01, 0.4, 0.9)
_SIZES = (
    (-1.2, 0.1, -0.3, -1.4),
    (-0.3, -0.6, -1.0, -0.8),
    (0.1, 0.0, -0.5, -0.4),
    (0.4, 0.3, -0.6, -0.4),
    (0.7, 0.4, -0.1, 0.2),
    (1.2, 1.0, 0.0, 0.2),
    (1.2, 1.3, -0.1, 0.3),
)
# By how much of the page stands before it, and by how much of the whole page is links.
_PLACES = (0.03, 0.1, 0.3, 0.7, 0.9, 0.97)
_PLACED = (0.0, 0.3, 0.6, 0.6, -0.2, -0.9, -0.9)
_PAGE_LINKED = (0.2, 0.4, 0.6)
_PAGES = (0.0, -0.3, -0.3, 0.2)
_BEFORE_TITLE = -1.4
# A <main> or <article> counts if it holds at least this share of the page's prose: its weight inside, and outside.
_SPANS = {"main": (0.3, 0.2, -0.8), "article": (0.4, 0.7, -1.1)}

_LEAST, _MEAN_SHARE, _BELOW_MEAN = -0.5, 0.5, 0.8
_SMALL_PAGE, _LEAST_OF_SMALL = 100, -1.2  # with so few words there is little to hide among
_LAST_RESORT = -2.5

_NAME_OF = {word: name for name, (_, words) in NAMES.items() for word in words.split()}
_WORD = re.compile(r"[A-Z]?[a-z]+|[A-Z]+(?![a-z])")
_COMMENTS = re.compile(
    r"(?:^|[\s_-])comments?(?:$|[\s_-]|list|area|section|form|thread)|disqus|\brespond\b", re.IGNORECASE
)
_ALL_COMMENTS = 0.97


@lru_cache(maxsize=4096)
def clues_of_names(names: str) -> frozenset[str]:
    """What the words of a class and an id tell."""
    clues = {_NAME_OF[word] for part in _WORD.findall(names) if (word := part.lower()) in _NAME_OF}
    return frozenset(clues | {COMMENTS} if _COMMENTS.search(names) else clues)


def choose(blocks: Sequence[Block], spans: Sequence[Span], *, forum: bool) -> list[Block]:
    """The blocks worth reading. The surer the page is of its best text, the more is asked of the rest."""
    scored = list(zip(_score(blocks, spans, forum), blocks, strict=True))
    small = sum(block.words for block in blocks) < _SMALL_PAGE
    least = _LEAST_OF_SMALL if small else max(_LEAST, _MEAN_SHARE * _mean_of_sure(scored) - _BELOW_MEAN)
    chosen = [block for score, block in scored if score > least]
    return chosen or [block for score, block in scored if score > _LAST_RESORT]


def _mean_of_sure(scored: list[tuple[float, Block]]) -> float:
    """Over the words of all blocks that have more for them than against them."""
    sure = [(score * block.words, block.words) for score, block in scored if score > 0]
    return sum(weight for weight, _ in sure) / sum(words for _, words in sure) if sure else 0.0


def _score(blocks: Sequence[Block], spans: Sequence[Span], forum: bool) -> list[float]:
    total = sum(block.words for block in blocks) or 1
    page = _BIAS + _PAGES[bisect_right(_PAGE_LINKED, sum(block.words * block.linked for block in blocks) / total)]
    title = next((place for place, block in enumerate(blocks) if block.tag == "h1"), 0)
    mute = _idle_clues(blocks, total, forum)
    scores, before = [], 0
    for place, block in enumerate(blocks):
        score = page + _PLACED[bisect_right(_PLACES, before / total)] + _TAGS.get(block.tag, 0.0)
        score += _SIZES[bisect_right(_LENGTHS, block.words)][bisect_right(_LINKED, block.linked)]
        score += fsum(_WEIGHTS[clue] for clue in block.clues - mute)  # the same in whatever order they come
        scores.append(score + _BEFORE_TITLE if place < title else score)
        before += block.words
    _weigh_spans(scores, blocks, spans)
    return scores


def _idle_clues(blocks: Sequence[Block], total: int, forum: bool) -> frozenset[str]:
    """Where people come for what others wrote, being a comment says nothing."""
    comments = sum(block.words for block in blocks if COMMENTS in block.clues)
    return frozenset({COMMENTS, "comment"}) if forum or comments > _ALL_COMMENTS * total else frozenset()


def _weigh_spans(scores: list[float], blocks: Sequence[Block], spans: Sequence[Span]) -> None:
    prose = [block.words * (1 - block.linked) * (1.0 if block.words > 8 else 0.2) for block in blocks]
    for kind, (share, inside, outside) in _SPANS.items():
        least = share * sum(prose)
        within = _places([span for span in spans if span.kind == kind], prose, least)
        if within:
            for place in range(len(scores)):
                scores[place] += inside if place in within else outside


def _places(spans: Iterable[Span], prose: Sequence[float], least: float) -> set[int]:
    """Those of the blocks that a span with more than so much prose holds."""
    large = [span for span in spans if sum(prose[span.first : span.last]) > least]
    return {place for span in large for place in range(span.first, span.last)}
