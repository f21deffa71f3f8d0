"""How a citation is written. Handed a source, its number and a style; hands on the marker, or the source's line in the
footer. Decoration takes out of echoes what is written here.
"""

from __future__ import annotations

import re

from tools.ledger import Source

from ..values.request import CitationStyle

FOOTER_HEAD = "\n\nSources:\n"
# Stands before each marker that the model did not write, so that such a marker is known again when the answer comes
# back, and goes as a whole: the model reads what it wrote. Texts do have hair spaces (`5 m\u200a(16 ft)`): behind one
# alone only a link of ours is such a marker, all other forms stand behind two.
AUTO_LEAD = "\u200a"
SURE_LEAD = AUTO_LEAD * 2


def marker_text(number: int, source: Source, style: CitationStyle) -> str:
    if style == "none":
        return ""
    if style == "openai":
        return f"([{source.host}]({source.url}))" if source.linkable else f"({source.title})"
    return f"[[{number}]]({source.url})" if style == "link" and source.linkable else f"[{number}]"


def footer_line(number: int, source: Source) -> str:
    title = re.sub(r"([\[\]\\])", r"\\\1", source.title)
    return f"[{number}] [{title}]({source.url})" if source.linkable else f"[{number}] {title}"
