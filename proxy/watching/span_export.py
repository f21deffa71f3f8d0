"""The way of spans to a collector: OpenTelemetry's SDK and its OTLP exporter over HTTP. Handed the `traces` section and
the way out; hands on a tracer. Spans wait in a queue with an end, and a thread sends them: no request waits. That a
collector is gone is said once, and once that it is back.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Sequence
from importlib.metadata import version
from typing import Any
from urllib.parse import urlsplit

import requests
from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
from opentelemetry.sdk.resources import OTELResourceDetector, Resource
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import BatchSpanProcessor, SpanExporter, SpanExportResult
from opentelemetry.sdk.trace.sampling import ParentBased, TraceIdRatioBased
from opentelemetry.trace import Tracer
from requests.adapters import HTTPAdapter

from providers.web.certificates import new_context
from providers.web.egress import Egress

from ..config.traces import TracesConfig
from . import trace_names as names
from .contents import printable

log = logging.getLogger("groundwire")

_EVERY = 1000  # milliseconds that spans wait for others
_PATIENCE = 2.0  # seconds that the end waits for a collector
_LONGEST_REASON = 300


class SpanExport:
    def __init__(self, config: TracesConfig, egress: Egress) -> None:
        self._exporter = _Collector(config, egress)
        ours = Resource({names.SERVICE: "groundwire", names.VERSION: version("groundwire")})
        # What a client says about sampling counts; where it says nothing, its trace id decides by chance.
        self._provider = TracerProvider(
            sampler=ParentBased(TraceIdRatioBased(config.sample)),
            resource=ours.merge(OTELResourceDetector().detect()),
            shutdown_on_exit=False,
        )
        self._provider.add_span_processor(BatchSpanProcessor(self._exporter, schedule_delay_millis=_EVERY))

    @property
    def tracer(self) -> Tracer:
        return self._provider.get_tracer("groundwire", version("groundwire"))

    def close(self) -> None:
        """Sends what waits, if somebody takes it at once. The SDK itself would wait for half a minute."""
        ending = threading.Thread(target=self._provider.shutdown, name="traces", daemon=True)
        ending.start()
        ending.join(_PATIENCE)
        self._exporter.shutdown()


class _Collector(SpanExporter):
    def __init__(self, config: TracesConfig, egress: Egress) -> None:
        parts = urlsplit(config.endpoint)
        self._where = f"{parts.scheme}://{parts.hostname}:{parts.port}" if parts.port else str(parts.hostname)
        self._last_words = _LastWords()
        self._exporter = OTLPSpanExporter(
            config.endpoint,
            headers=config.headers,
            session=_session(config.endpoint, egress),
        )
        self._failing = False
        self._over = False

    def export(self, spans: Sequence[ReadableSpan]) -> SpanExportResult:
        result = self._exporter.export(spans)
        failing = result is not SpanExportResult.SUCCESS
        if failing and not self._failing and not self._over:
            text = "traces cannot be sent to %s, and are lost until they can: %s"
            log.warning(text, self._where, printable(self._last_words.said, _LONGEST_REASON))
        elif self._failing and not failing:
            log.warning("traces are taken by %s again", self._where)
        self._failing = failing
        return result

    def shutdown(self) -> None:
        if not self._over:
            self._over = True
            self._exporter.shutdown()  # type: ignore[no-untyped-call]


class _LastWords(logging.Handler):
    """What the SDK says of its troubles, which it would say again with each batch."""

    def __init__(self) -> None:
        super().__init__(logging.WARNING)
        self.said = "no reason was given"
        sdk = logging.getLogger("opentelemetry")  # elsewhere it repeats what clients wrote into their headers
        sdk.propagate = False
        sdk.addHandler(logging.NullHandler())
        logging.getLogger("opentelemetry.exporter").addHandler(self)

    def emit(self, record: logging.LogRecord) -> None:
        self.said = record.getMessage()


class _Trusting(HTTPAdapter):
    """Checks certificates against the authorities that everything here trusts, not against the library's own list."""

    def __init__(self, ca_file: str) -> None:
        self._context = new_context(ca_file)
        super().__init__()

    def init_poolmanager(self, *arguments: Any, **options: Any) -> None:
        super().init_poolmanager(*arguments, **options, ssl_context=self._context)

    def proxy_manager_for(self, *arguments: Any, **options: Any) -> Any:
        return super().proxy_manager_for(*arguments, **options, ssl_context=self._context)

    def cert_verify(self, conn: Any, url: str, verify: Any, cert: Any) -> None:
        super().cert_verify(conn, url, verify, cert)
        if verify is True:  # and no file of OTEL_EXPORTER_OTLP_CERTIFICATE, which counts besides
            conn.ca_certs = None


def _session(endpoint: str, egress: Egress) -> requests.Session:
    """On the way out that everything takes."""
    session = requests.Session()
    session.trust_env = False
    session.mount("https://", _Trusting(egress.ca_file))
    if proxy := egress.proxy_to_url(endpoint):
        session.proxies = {"http": proxy.url, "https": proxy.url}
    return session
