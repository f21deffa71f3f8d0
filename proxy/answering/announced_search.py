"""Answers that end in the promise of a search instead of a call for it, as weak models give them. Handed a text; says
whether it is one.
"""

from __future__ import annotations

import re

from providers.text.patterns import pattern

_LONGEST = 1500
_MARKER = pattern(r"\[\d{1,3}\]")
_SENTENCE_END = pattern(r"[.!?…。！？]+\s+|\n+|。")
_ANNOUNCED = pattern(
    r"(?:[^,]{0,60}, )?(?:"
    r"(?:i['’]ll|i will|let me|let['’]s|i(?: am|['’]m) going to|i need to|allow me to) "
    r"(?:now |first |quickly |just |do a |perform a |run a |use the \w+(?: tool)? to )*(?:web )?"
    r"(?:search|look (?:(?:it|this|that|them) )?up|look (?:for|into)|check (?:the web|online|that|this|for)|browse"
    r"|google|find (?:out|that|this|the))\b"
    r"|(?:i(?: am|['’]m) )?(?:now )?(?:searching (?:the web|online|for)|looking (?:it|this|that) up|checking the web)\b"
    r"|ich (?:werde|suche|schaue)\b.{0,60}\b(?:suchen|nach|nachsehen|nachschlagen)\b"
    r"|je vais (?:chercher|rechercher|vérifier)\b|voy a buscar\b|我(?:来|先|将|会)?(?:搜索|查一下|查询)"
    r")",
    re.IGNORECASE,
)


def announces_search(text: str) -> bool:
    """Does an answer end in the promise of a search? A long one, or one with findings in it, is an answer."""
    if len(text) >= _LONGEST or _MARKER.search(text):
        return False
    last = _SENTENCE_END.split(text.strip().rstrip(".!?…:。 "))[-1]
    return bool(_ANNOUNCED.match(last))
