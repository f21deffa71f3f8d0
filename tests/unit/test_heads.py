"""What a head may be, beyond what the parser sees to: hosts, encodings, versions and targets."""

from __future__ import annotations

import pytest

from proxy.serving.heads import FramingHeaders, HeadRefused, path_and_query


def framing(*headers: tuple[str, str], method: str = "POST", version: str = "1.1") -> FramingHeaders:
    found = FramingHeaders()
    for name, value in headers:
        found.take(name.encode(), value.encode("latin-1"))
    found.check(method.encode(), version)
    return found


HOST = ("host", "localhost")


@pytest.mark.parametrize(
    "host", ["localhost", "LOCALHOST:8080", "a-b.example", "a_b", "127.0.0.1:", "[::1]", "[::1]:80", "x" * 300, "a."]
)
def test_hosts_that_can_be_read(host: str) -> None:
    assert framing(("host", host)).host == host.encode()


@pytest.mark.parametrize(
    "host",
    [
        "",
        " ",
        "a b",
        "a/b",
        "user@a",
        "a:b",
        "a:80:80",
        "[::1",
        "::1]",
        "a,b",
        "a\tb",
        "a?b",
        "a#b",
        "é",
        "a:123456",
        "[]",
    ],
)
def test_hosts_that_cannot(host: str) -> None:
    with pytest.raises(HeadRefused) as refused:
        framing(("host", host))
    assert (refused.value.failed.status, refused.value.failed.error["code"]) == (400, "bad_host")


@pytest.mark.parametrize(
    "headers",
    [
        [],
        [HOST, HOST],
        [HOST, ("host", "other")],
        [HOST, ("transfer-encoding", "gzip, chunked")],
        [HOST, ("transfer-encoding", "chunked, chunked")],
        [HOST, ("transfer-encoding", "identity")],
        [HOST, ("transfer-encoding", "xchunked")],
        [HOST, ("transfer-encoding", "")],
        [HOST, ("transfer-encoding", "chunked"), ("transfer-encoding", "chunked")],
    ],
)
def test_what_two_servers_could_read_differently(headers: list[tuple[str, str]]) -> None:
    with pytest.raises(HeadRefused) as refused:
        framing(*headers)
    assert refused.value.failed.status == 400


@pytest.mark.parametrize(
    ("method", "version"),
    [("POST", "0.9"), ("POST", "2.0"), ("CONNECT", "1.1"), ("TRACE", "1.1"), ("DESCRIBE", "1.0")],
)
def test_other_versions_and_methods(method: str, version: str) -> None:
    with pytest.raises(HeadRefused) as refused:
        framing(HOST, method=method, version=version)
    assert refused.value.failed.status == 400


def test_chunks_are_of_http_1_1() -> None:
    assert framing(HOST, ("transfer-encoding", " Chunked ")).chunked
    with pytest.raises(HeadRefused, match="chunked bodies"):
        framing(HOST, ("transfer-encoding", "chunked"), version="1.0")


@pytest.mark.parametrize(
    ("target", "found"),
    [
        (b"/", (b"/", b"")),
        (b"/a%20b?c=d?e", (b"/a%20b", b"c=d?e")),
        (b"//evil.example/x", (b"//evil.example/x", b"")),
        (b"/a://b", (b"/a://b", b"")),
        (b"*", (b"*", b"")),
        (b"http://localhost/a?b", (b"/a", b"b")),
        (b"HTTP://LocalHost/A", (b"/A", b"")),
        (b"https://localhost", (b"/", b"")),
        (b"http://localhost?q", (b"/", b"q")),
    ],
)
def test_targets(target: bytes, found: tuple[bytes, bytes]) -> None:
    assert path_and_query(target, b"localhost") == found


@pytest.mark.parametrize(
    "target",
    [
        b"http://evil.example/",
        b"http://localhost@evil.example/",
        b"http://user@localhost/",
        b"http://localhost:81/",
        b"http://localhost.evil.example/",
        b"ftp://localhost/",
        b"localhost/a",
        b"a",
        b"",
        b"/a#b",
        b"http://localhost/#",
    ],
)
def test_targets_of_somebody_else(target: bytes) -> None:
    with pytest.raises(HeadRefused) as refused:
        path_and_query(target, b"localhost")
    assert refused.value.failed.status == 400
