"""Requests as bytes, and those that two servers could read differently: each must be refused with 400, and the
connection closed, because what stands behind it may be part of it for somebody else.
"""

from __future__ import annotations

HOST = b"Host: localhost\r\n"
GET = b"GET /healthz HTTP/1.1\r\n" + HOST + b"\r\n"
POST = b"POST /v1/chat/completions HTTP/1.1\r\n" + HOST + b"Content-Type: application/json\r\n"
CHUNKED = POST + b"Transfer-Encoding: chunked\r\n\r\n"

SHAPES: dict[str, bytes] = {
    "length and chunks": POST + b"Content-Length: 5\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
    "chunks and length": POST + b"Transfer-Encoding: chunked\r\nContent-Length: 5\r\n\r\n0\r\n\r\n",
    "two lengths": POST + b"Content-Length: 5\r\nContent-Length: 6\r\n\r\nhello",
    "two equal lengths": POST + b"Content-Length: 5\r\nContent-Length: 5\r\n\r\nhello",
    "a list of lengths": POST + b"Content-Length: 5, 5\r\n\r\nhello",
    "a signed length": POST + b"Content-Length: +5\r\n\r\nhello",
    "a hexadecimal length": POST + b"Content-Length: 0x5\r\n\r\nhello",
    "no length after its name": POST + b"Content-Length:\r\n\r\nhello",
    "a length that no number holds": POST + b"Content-Length: 99999999999999999999\r\n\r\nhello",
    "another coding": POST + b"Transfer-Encoding: gzip, chunked\r\n\r\n0\r\n\r\n",
    "another coding behind": POST + b"Transfer-Encoding: chunked, gzip\r\n\r\n0\r\n\r\n",
    "chunked twice": POST + b"Transfer-Encoding: chunked, chunked\r\n\r\n0\r\n\r\n",
    "chunked in two headers": POST + b"Transfer-Encoding: chunked\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
    "identity": POST + b"Transfer-Encoding: identity\r\n\r\n0\r\n\r\n",
    "a coding that nobody knows": POST + b"Transfer-Encoding: xchunked\r\n\r\n0\r\n\r\n",
    "a vertical tab": POST + b"Transfer-Encoding:\x0bchunked\r\n\r\n0\r\n\r\n",
    "chunks in HTTP/1.0": CHUNKED.replace(b"HTTP/1.1", b"HTTP/1.0") + b"0\r\n\r\n",
    "a folded line": b"GET / HTTP/1.1\r\n" + HOST + b"X: a\r\n b\r\n\r\n",
    "a folded first line": b"GET / HTTP/1.1\r\n X: a\r\n" + HOST + b"\r\n",
    "a folded coding": POST + b"Transfer-Encoding:\r\n chunked\r\n\r\n0\r\n\r\n",
    "bare line feeds": b"GET / HTTP/1.1\nHost: localhost\n\n",
    "one bare line feed": b"GET / HTTP/1.1\r\nHost: localhost\nX: y\r\n\r\n",
    "a bare line feed at the end": b"GET / HTTP/1.1\r\nHost: localhost\r\n\n",
    "a bare carriage return": b"GET / HTTP/1.1\r\nHost: localhost\r\nX: a\rY: b\r\n\r\n",
    "a blank before the colon": b"GET / HTTP/1.1\r\nHost : localhost\r\n\r\n",
    "a blank before the length's colon": POST + b"Content-Length : 5\r\n\r\nhello",
    "a header without a name": b"GET / HTTP/1.1\r\n" + HOST + b": a\r\n\r\n",
    "a header without a colon": b"GET / HTTP/1.1\r\n" + HOST + b"X\r\n\r\n",
    "a zero byte": b"GET / HTTP/1.1\r\n" + HOST + b"X: a\x00b\r\n\r\n",
    "no host": b"GET / HTTP/1.1\r\n\r\n",
    "two hosts": b"GET / HTTP/1.1\r\n" + HOST + HOST + b"\r\n",
    "an empty host": b"GET / HTTP/1.1\r\nHost:\r\n\r\n",
    "a host that is none": b"GET / HTTP/1.1\r\nHost: a/b\r\n\r\n",
    "another host in the address": b"GET http://evil.example/ HTTP/1.1\r\n" + HOST + b"\r\n",
    "a fragment": b"GET /a#b HTTP/1.1\r\n" + HOST + b"\r\n",
    "HTTP/0.9": b"GET /\r\n\r\n",
    "HTTP/0.9 by name": b"GET / HTTP/0.9\r\n" + HOST + b"\r\n",
    "HTTP/1.2": b"GET / HTTP/1.2\r\n" + HOST + b"\r\n",
    "HTTP/2": b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n",
    "HTTP/2.0 in an old head": b"GET / HTTP/2.0\r\n" + HOST + b"\r\n",
    "TLS": b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03",
    "a method that is none": b"FOO / HTTP/1.1\r\n" + HOST + b"\r\n",
    "a small method": b"get / HTTP/1.1\r\n" + HOST + b"\r\n",
    "a tunnel": b"CONNECT evil.example:443 HTTP/1.1\r\nHost: evil.example:443\r\n\r\n",
    "an echo of the head": b"TRACE / HTTP/1.1\r\n" + HOST + b"\r\n",
    "another protocol": b"DESCRIBE / RTSP/1.0\r\n" + HOST + b"\r\n",
    "a blank in the address": b"GET /a b HTTP/1.1\r\n" + HOST + b"\r\n",
    "a chunk's size that is none": CHUNKED + b"zz\r\nhello\r\n0\r\n\r\n",
    "a negative chunk": CHUNKED + b"-5\r\nhello\r\n0\r\n\r\n",
    "a prefix before a chunk's size": CHUNKED + b"0x5\r\nhello\r\n0\r\n\r\n",
    "a blank behind a chunk's size": CHUNKED + b"5 \r\nhello\r\n0\r\n\r\n",
    "chunks with bare line feeds": CHUNKED + b"5\nhello\n0\n\n",
    "an extension with a bare line feed": CHUNKED + b"5;a\nhello\r\n0\r\n\r\n",
    "a chunk that is longer than it says": CHUNKED + b"5\r\nhello!\r\n0\r\n\r\n",
    "a chunk that no number holds": CHUNKED + b"fffffffffffffffff\r\nhello\r\n0\r\n\r\n",
    "a length among the trailers": CHUNKED + b"0\r\nContent-Length: 5\r\n\r\n",
}
