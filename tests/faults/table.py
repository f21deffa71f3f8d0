"""The faults that a gateway meets, by number: what goes wrong, and what Groundwire promises then. Handed to tests as
`@fault(number, …)`; `page.py` makes docs/faults.md of the rows and of the tests that carry their numbers.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import pytest

SEARCHED, FORWARDED = "searched", "forwarded"  # our tools are offered; bytes pass both ways
BOTH = (SEARCHED, FORWARDED)

Test = Callable[..., Any]


class Row(NamedTuple):
    number: int
    fault: str
    promise: str


def fault(number: int, *roads: str, part: str = "") -> Callable[[Test], Test]:
    """Says which row a test shows. With `roads` it is handed `road` and runs once on each; `part` says what of the row
    does not hold, and why."""
    assert number in ROWS

    def mark(test: Test) -> Test:
        test = pytest.mark.fault(number, roads, part)(test)
        return pytest.mark.parametrize("road", roads)(test) if roads else test

    return mark


SECTIONS: dict[str, tuple[Row, ...]] = {
    "The model's server, before its first byte": (
        Row(1, "Nothing listens there", "tried again, then 502 `upstream_unreachable`"),
        Row(2, "It accepts and never answers", "504 `upstream_timeout` at the first-byte limit"),
        Row(3, "Connecting hangs", "504 at the connect limit"),
        Row(4, "500, 502, 503 or 504, once", "asked again; the client sees 200"),
        Row(5, "503 for ever", "503 with its `Retry-After`, and `x-should-retry: false`"),
        Row(6, "429 with a short `Retry-After`", "waited out, never asked early"),
        Row(7, "429 with a long `Retry-After`", "passed on at once"),
        Row(8, "400, 404 or 422", "never asked again; its words are kept, without our key"),
        Row(9, "It refuses our key", "502 `upstream_auth`, not 401: the client's key is not at fault"),
        Row(10, "An HTML page with status 200, half a body, or nothing", "502 `upstream_bad_response`; no HTML leaves"),
        Row(11, "JSON where a stream was asked for", "the client gets a stream"),
        Row(12, "A stream where JSON was asked for", "the client gets JSON; 502 where none can be made of it"),
        Row(13, "An error as the first event of a 200", "the error's own status; counted as a failure"),
        Row(14, "2 MB of headers", "502; memory stays flat"),
        Row(15, "A redirect to another host", "not followed; 502; no key goes there"),
        Row(16, "A certificate that is not valid", "502 `upstream_tls`; not asked again, nor in the clear"),
        Row(17, "Its name does not resolve", "tried again, then 502; nobody else waits"),
    ),
    "The model's server, in the middle of an answer": (
        Row(18, "The connection is reset", "an error event; nothing is asked again once text was sent"),
        Row(19, "It ends without an end", "an error event `upstream_truncated`, never a silent short answer"),
        Row(20, "It ends without `[DONE]`, but finished", "a whole answer; `[DONE]` is added"),
        Row(21, "It stalls between tokens", "pings, then an error event at the idle limit"),
        Row(22, "One byte now and then, for ever", "ended by the limit of the whole request"),
        Row(23, "Cut inside a character", "the same answer"),
        Row(24, "Cut inside a line, between CR and LF, inside JSON", "the same answer"),
        Row(25, "Cut inside a citation marker", "the same answer; no half marker leaves"),
        Row(26, "An event that is not JSON", "an error event; the broken line never leaves"),
        Row(27, "CRLF, CR, BOM, comments, several data lines, other fields", "read as the standard says"),
        Row(28, "`data:` without a space, no blank line at the end", "read all the same"),
        Row(29, "One line of 50 MB", "an error at the limit; memory stays flat"),
        Row(30, "Bytes that are not UTF-8", "replaced; the stream goes on"),
        Row(31, "Data after `[DONE]`", "nothing leaves after `[DONE]`"),
        Row(32, "Two finishes, usage without choices", "tolerated; one finish, or the upstream's own bytes"),
        Row(33, "An error event after some tokens", "an error event; counted as a failure"),
        Row(34, "Tool calls in any pieces", "put together exactly"),
        Row(35, "Arguments that are not JSON", "the model is told, and may try again"),
        Row(36, "Unknown tools, ours and the client's in one turn", "the client gets its own, ours run"),
        Row(37, "200 tool calls in one turn", "as many pages are opened as may be; the rest get an error"),
        Row(38, "Tool calls without end", "stopped at the limit of rounds, with an answer"),
        Row(39, "It dies in the second round", "asked again if nothing was said; no search is paid twice"),
    ),
    "Search providers": (
        Row(40, "It is down", "the next one, else the model is told; the answer comes"),
        Row(41, "429 to everything", "left alone for as long as it says, then tried once"),
        Row(42, "It is slow", "given up at its limit"),
        Row(43, "HTML, nothing, another schema, nulls", "what cannot be read is left out; else the next one is asked"),
        Row(44, "`javascript:` and private addresses among the results", "dropped: neither cited nor opened"),
        Row(45, "10,000 results, megabytes, a gzip bomb", "100 results are looked at; over 4 MB it has failed"),
        Row(46, "It refuses our key", "left alone, and said so; the key is in no log"),
        Row(47, "500 equal queries at once", "one call; a failure is not kept"),
        Row(48, "The one who asked first leaves", "the others get the result"),
    ),
    "Pages": (
        Row(49, "A gzip bomb", "stopped at 2 MB decoded; what came is read, and said to be cut"),
        Row(50, "Several encodings, or one that was not asked for", "refused"),
        Row(51, "A length that is not true", "bounded, or an error"),
        Row(52, "A body that drips", "ended at the page's time limit"),
        Row(53, "A body without end", "stopped at 2 MB; what came is read, and said to be cut"),
        Row(54, "Redirects in a loop, in a long chain, to a private address", "refused"),
        Row(55, "A picture called HTML, and the reverse", "told by its bytes; no picture is parsed"),
        Row(56, "HTML that keeps a parser busy, a PDF that grows", "read in a process with limits, or refused"),
        Row(57, "A charset that is not true", "decoded or replaced"),
        Row(58, "A refresh to a private address", "not followed"),
        Row(59, "403, 451, a challenge", "the model is told; never cited as read"),
        Row(60, "20 pages at once", "bounded per request, per host and in all; other callers have their turn"),
    ),
    "Clients": (
        Row(61, "It leaves in the middle of a stream", "the upstream is closed at once; what it counted is kept"),
        Row(62, "It leaves before the first token", "the same"),
        Row(63, "It leaves while a whole answer is made", "the same"),
        Row(64, "It leaves during a search or while a page is read", "the same"),
        Row(65, "It reads slowly", "the upstream is held back; one that takes nothing at all is cut off"),
        Row(66, "It closes its half and still reads", "counts as leaving: everything stops"),
        Row(67, "A head or a body that comes slowly", "408 at its limit, and closed"),
        Row(68, "A body without length and without end", "413 at the limit, the rest unread"),
        Row(
            69,
            "JSON of any depth, huge numbers, NaN, half characters",
            "400, never 500; of two equal keys the last counts",
        ),
        Row(70, "Heads that two servers read differently", "400, and closed"),
        Row(71, "Hop-by-hop and forged headers", "not passed on, neither up nor down"),
        Row(72, "Several requests at once on one connection", "answered in order, up to 16 ahead"),
    ),
    "The process, load and what is stored": (
        Row(73, "SIGTERM with 50 streams open", "not ready at once; streams end well, or with an error event; exit 0"),
        Row(74, "A second signal", "ends at once"),
        Row(75, "One of several processes is killed", "the others are not disturbed"),
        Row(76, "Ten times the load it can carry", "the rest is told 503 or 429 with `Retry-After`"),
        Row(77, "One caller floods it", "another one's answers stay quick"),
        Row(78, "The event loop is blocked", "measured by a metric; pings go on afterwards"),
        Row(79, "Redis is down or slow", "answers come; each process counts limits alone, and its log says so once"),
        Row(80, "Stored things that are broken, of another version, of another caller", "not found"),
        Row(81, "The log cannot be written, or nobody reads it", "requests go on; what is lost is counted"),
        Row(82, "No descriptors are left", "503, and well again afterwards"),
        Row(83, "The clock jumps", "limits per minute and answers under way do not notice; budgets are each day's own"),
        Row(84, "A config that is not valid, read again by SIGHUP", "the old one stays; the log says why"),
        Row(85, "200 clients, and every answer of the model fails", "at most 240 calls of the model"),
        Row(86, "Hours with 5 % faults", "memory and descriptors stay flat; no stream is stuck"),
        Row(87, "A fallback stands ready after text was sent", "never joined to a begun answer"),
    ),
}

ROWS = {row.number: row for rows in SECTIONS.values() for row in rows}
