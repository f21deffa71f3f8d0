"""Texts that made a pattern look for an end through every way of reading them: for seconds, minutes or for ever. Nobody
measures time here. A pattern that does so again never gets to the end of its test.
"""

from __future__ import annotations

import pytest

from proxy.answering.fenced_reading import without_reading
from proxy.answering.foreign_links import ForeignLinks
from proxy.answering.short_question import Message
from proxy.serving.forward_route import _wanted
from proxy.values.events import TextDelta


@pytest.mark.parametrize(
    "piece", ["‘", "“", "何", "`", "a-", "1 ", "¿", '"', ">", "www.", "https://a", ": ", "か", "ني"]
)
def test_messages_of_marks_alone(piece: str) -> None:
    """They are read up to 12,000 characters."""
    assert Message(piece * 12_000).question == ""
    assert Message(f"What is {piece * 12_000}?").question == ""


def test_bullets_of_nothing_in_an_answer() -> None:
    links = ForeignLinks(lambda host: False, lambda url, host: False)
    text = "a\n" + "-  " * 66 + "x<b>hi</b>"
    events = [*links.feed([TextDelta(text)]), *links.flush()]
    assert "".join(event.text for event in events if isinstance(event, TextDelta)) == text


def test_a_form_of_names_alone() -> None:
    assert _wanted(b'name="model"\r\n' * 70_000) == ("", False)
    whole = b'--b\r\nContent-Disposition: form-data; name="model"\r\nContent-Type: text/plain\r\n\r\nm\r\n--b--\r\n'
    assert _wanted(whole) == ("m", False)


def test_fences_that_are_not_closed() -> None:
    opened = "<<<web-0123456789abcdef\n"
    assert without_reading(opened * 20_000) == opened * 20_000
    read = f"{opened}a page that names https://x.example/\nweb-0123456789abcdef>>>"
    assert without_reading(f"before {read} between {read} after") == "before  between  after"
    assert without_reading(opened + "words") == opened + "words"
