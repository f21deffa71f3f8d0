"""Addresses in an answer, as far as every renderer reads them alike. Handed a piece of text; says which host it leads
to where that is beyond doubt, and how an address is shown that must not be a link.

Only the plainest spelling counts. Whatever is escaped, encoded, has a user in it or slashes the wrong way is nobody's
address here: there are too many readers behind us, and each undoes other tricks.
"""

from __future__ import annotations

import re

from providers.text.patterns import pattern
from providers.urls import ascii_host, ipv6_host

MOST_HOST = 300  # characters of a host, with what stands around it
MOST_URL = 2000

_HOST = r"\[[0-9A-Fa-f:.]{2,45}\]|[^\W_](?:[\w.-]*[^\W_])?"
_PORT = r"(?::[0-9]{1,5})?"
# `\` and `&` are undone by Markdown, `%` by browsers, and what stands before an `@` is no host.
# Behind a host stands what no host holds, or punctuation alone: `https://a.org).b.org` leads to b.org.
_AUTHORITY = pattern(rf"({_HOST}){_PORT}(?P<junk>_*[^\w@%&\\\[\]^|:]*(?:[\[\]^|:][^@%&\\]*)?)")
_PLAIN = pattern(rf"https?://({_HOST}){_PORT}(?=[/?#]|\Z)")
_SITE = pattern(rf"https?://(?:{_HOST}){_PORT}(?=[/?#])")
_RELATIVE = pattern(r"(?i:(?!.*(?://|www\.)))[\w.~/%+=,#?-]*(?:\?[\w.~/%+=,#?&-]*)?")
_TIDY = pattern(r"https?://(?:\[[0-9A-Fa-f:.]+\])?[A-Za-z0-9/._~%?#=&:@+$,;'!*-]*")
_SHOWN = pattern(r"[A-Za-z0-9][A-Za-z0-9.-]{0,79}(?!\w)")
_WWW = pattern(r"(?:www\.)+")  # where backticks go astray it would be a link
_ORDINARY = pattern(r"(?!//|/\\|[`~])[^:\\&<>]*")

_MAPPED_IN_2003 = "ßς"  # to other letters; joiners, the other two of their kind, are in no host here

OPENING = pattern(r"(?:(?:https?|ftp)\\?:(?:\\?[/\\])+|www\\?\.(?=[\w-])|//(?=[\w-]+\.|\[|localhost))", re.IGNORECASE)
HALF_OPENING = pattern(r"(?:https?|ftp)\\?:(?:\\?[/\\])*\\?|www\\?\.|//[\w-]*", re.IGNORECASE)
AUTHORITY_END = pattern(r"[/?#\s<>]")
REST = pattern(r"[A-Za-z0-9/._~%?#=&:@+$-]*")  # of an address in running text
GONE = pattern(r"[^\s<>()\[\]`|\"']*")  # the same of one that is taken out
SENTENCE_END = pattern(r"[.,;:!?]{1,3}\Z")  # behind it
_TOUCHED = pattern(r"(?:://|//|www\.|@)[^\s<]*\Z", re.IGNORECASE)
AUTOLINK = pattern(rf"<https?://({_HOST}){_PORT}(?:[/?#][^\s<>`\\]*)?>")
ANCHOR = pattern(rf'<a href="(https?://({_HOST}){_PORT}(?:[/?#][^\s<>`\\"&]*)?)">')


def host_in(url: str) -> str:
    """The host of an address in its plainest form, else nothing."""
    found = _PLAIN.match(url)
    return as_ascii(found[1]) if found else ""


def site_of(url: str) -> str:
    """What of an address says where it leads, if that is over and plain."""
    found = _SITE.match(url)
    return found[0] if found else ""


def host_of_text(opening: str, authority: str) -> tuple[str, int]:
    """The host of an address in running text, and how far that goes in `authority`; no host where it is not plain."""
    plain = opening.lower() in ("http://", "https://", "www.")
    found = _AUTHORITY.fullmatch(authority) if plain else None
    if found is None:
        return "", 0
    host = f"www.{found[1]}" if opening[0] in "wW" else found[1]
    return as_ascii(host), found.start("junk")


def reaches_to_the_end(text: str) -> bool:
    """May what comes next still belong to an address that is a link already? Many let one go on to the next blank."""
    return _TOUCHED.search(text) is not None or not re.search(r"[\s<]", text)


def is_tidy(url: str) -> bool:
    """Does it hold nothing that means something to Markdown?"""
    return _TIDY.fullmatch(url) is not None


def is_relative(url: str) -> bool:
    """Does it lead nowhere but to where the answer is shown?"""
    return _RELATIVE.fullmatch(url) is not None


def is_ordinary(word: str) -> bool:
    """A word, where an address might stand."""
    return _ORDINARY.fullmatch(word) is not None


def shown(text: str) -> str:
    """What stands in place of an address: its host as code, which no renderer makes a link of."""
    host = _SHOWN.match(text)
    if host is None or "@" in text or text[host.end() : host.end() + 1] in ("%", "&", "\\"):
        return "`…`"
    return f"`{_WWW.sub('', host[0].lower().strip('.-')) or '…'}`"


def as_ascii(host: str) -> str:
    """The host as resolvers see it. One that is not in its own normal form has none, nor has one that old readers map
    otherwise: what follows a link is not known here."""
    if host[:1] == "[":
        return ipv6_host(host[1:-1])
    name = ascii_host(host)
    if host.isascii() or not name:
        return name
    import idna  # loaded by now

    lower = host.lower()
    normal = idna.uts46_remap(lower, std3_rules=False) == lower
    return name if normal and not any(map(lower.__contains__, _MAPPED_IN_2003)) else ""
