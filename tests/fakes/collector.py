"""A collector of traces on loopback: takes spans as OTLP over HTTP, in protobuf, as every real one does, and keeps them
for the test. It can refuse, too.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, Self

from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest
from opentelemetry.proto.common.v1.common_pb2 import AnyValue
from opentelemetry.proto.trace.v1 import trace_pb2

KINDS = {trace_pb2.Span.SPAN_KIND_SERVER: "server", trace_pb2.Span.SPAN_KIND_CLIENT: "client"}


@dataclass(frozen=True)
class SeenSpan:
    name: str
    trace_id: str
    id: str
    parent_id: str
    kind: str
    start: int
    end: int
    failed: bool
    attributes: dict[str, Any]
    resource: dict[str, Any]


class Collector:
    """`with Collector() as collector: …; collector.trace(3)`"""

    def __init__(self) -> None:
        self.spans: list[SeenSpan] = []
        self.heads: list[dict[str, str]] = []
        self.status = 200
        self._came = threading.Condition()
        self._server = ThreadingHTTPServer(("127.0.0.1", 0), self._handler())
        self._thread = threading.Thread(target=self._server.serve_forever, daemon=True)

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self._server.server_port}"

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()

    def trace_of(self, request_id: str) -> dict[str, SeenSpan]:
        """The spans of one request by their names, its own as "", once that has come: it is the last to end. Of several
        with one name there is a list for each in `all_of`."""
        return {("" if span.kind == "server" else span.name): span for span in self.all_of(request_id)}

    def all_of(self, request_id: str) -> list[SeenSpan]:
        end = time.monotonic() + 20
        with self._came:
            while time.monotonic() < end:
                whole = [s for s in self.spans if s.attributes.get("groundwire.request_id") == request_id]
                if whole:
                    return [span for span in self.spans if _is_of(span, whole[0], self.spans)]
                self._came.wait(0.5)
        raise AssertionError(f"no span of {request_id} came: {self.spans}")

    def await_post(self, number: int = 1) -> None:
        with self._came:
            assert self._came.wait_for(lambda: len(self.heads) >= number, 20), "nobody posted anything"

    def _take(self, head: dict[str, str], path: str, body: bytes) -> None:
        with self._came:
            self.heads.append({**head, ":path": path})
            if self.status == 200:
                self.spans += _read(body)
            self._came.notify_all()

    def _handler(self) -> type[BaseHTTPRequestHandler]:
        collector = self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                body = self.rfile.read(int(self.headers["content-length"]))
                collector._take({k.lower(): v for k, v in self.headers.items()}, self.path, body)
                self.send_response(collector.status)
                self.send_header("content-length", "0")
                self.end_headers()

            def log_message(self, format: str, *args: Any) -> None: ...  # noqa: A002

        return Handler


def _is_of(span: SeenSpan, whole: SeenSpan, spans: list[SeenSpan]) -> bool:
    """Is it this request's, and not another one's of the same trace?"""
    by_id = {span.id: span for span in spans}
    while span.id != whole.id and span.parent_id in by_id:
        span = by_id[span.parent_id]
    return span.id == whole.id


def _read(body: bytes) -> Iterator[SeenSpan]:
    sent = ExportTraceServiceRequest.FromString(body)
    for resource in sent.resource_spans:
        about = {pair.key: _value(pair.value) for pair in resource.resource.attributes}
        for scope in resource.scope_spans:
            for span in scope.spans:
                yield SeenSpan(
                    span.name,
                    span.trace_id.hex(),
                    span.span_id.hex(),
                    span.parent_span_id.hex(),
                    KINDS.get(span.kind, "internal"),
                    span.start_time_unix_nano,
                    span.end_time_unix_nano,
                    span.status.code == trace_pb2.Status.STATUS_CODE_ERROR,
                    {pair.key: _value(pair.value) for pair in span.attributes},
                    about,
                )


def _value(value: AnyValue) -> Any:
    kind = value.WhichOneof("value")
    return getattr(value, kind) if kind else None
