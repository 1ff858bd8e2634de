"""HTTP endpoint of the metrics: /metrics, /healthz and /readyz, GET only.

Nothing else of the daemon is reachable here, and connections and requests are bounded for each peer
(`BoundedListener`), since none of them may keep the daemon from its work. The text is made in a
thread, in the format that the scraper asks for, and kept for a second, so that a second scraper
costs nothing. With a token file /metrics requires its content as bearer token; the file is read
anew for each request, since tokens rotate.

The only module that imports prometheus_client, which costs 130 ms: it is imported by a daemon that
serves metrics, and by nothing else.
"""

from __future__ import annotations

import asyncio
import hmac
import ssl
import time
from collections.abc import Awaitable, Callable, Iterator
from typing import Final, NamedTuple

from aiohttp import web
from prometheus_client import CollectorRegistry, PlatformCollector, ProcessCollector
from prometheus_client.core import (
    CounterMetricFamily,
    GaugeMetricFamily,
    HistogramMetricFamily,
    Metric,
)
from prometheus_client.exposition import choose_encoder
from prometheus_client.registry import Collector

from kubectl_nodelife.daemon.flags import MetricsOptions
from kubectl_nodelife.daemon.listener import BoundedListener, listen_at
from kubectl_nodelife.daemon.metrics import COUNTER, FAMILIES, GAUGE, HISTOGRAM, MetricFamily
from kubectl_nodelife.daemon.metrics.recorder import Histogram, MetricsRecorder, Values
from kubectl_nodelife.errors import BadInput
from kubectl_nodelife.kube.node import zone_display

KEPT_SECONDS: Final = 1.0
_METHODS: Final = ("GET", "HEAD")

Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]

OURS: Final = "nodelife_"
"""What the names of metrics begin with that upstream does not have."""

MOST_CHARACTERS: Final = 128
"""Of a label's value; names in Kubernetes have 253 at the most, zones far less."""


class MetricsEndpoint:
    """Serves /metrics, /healthz and /readyz."""

    def __init__(self, recorder: MetricsRecorder, options: MetricsOptions) -> None:
        self._recorder = recorder
        self._options = options
        self._listener: BoundedListener | None = None
        self._kept: dict[str, tuple[float, Exposition]] = {}
        self._making = asyncio.Lock()

    async def start(self) -> None:
        """Listen. Raises BadInput where the address or the certificate is of no use."""
        tls = self._tls()
        host, port = self._options.address()
        app = web.Application(middlewares=[self._guard])
        app.router.add_get("/metrics", self._metrics)
        app.router.add_get("/healthz", self._healthz)
        app.router.add_get("/readyz", self._readyz)
        bound = listen_at(host, port, "--metrics-bind-address")
        self._listener = BoundedListener(app, tls)
        await self._listener.start([bound])

    async def close(self) -> None:
        """Listen no more."""
        if self._listener is not None:
            await self._listener.close()

    def _tls(self) -> ssl.SSLContext | None:
        options = self._options
        if not options.tls_cert_file:
            return None
        context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
        try:
            context.load_cert_chain(options.tls_cert_file, options.tls_key_file)
        except (OSError, ssl.SSLError) as error:
            raise BadInput(f"cannot be used: {error}", on=options.tls_cert_file) from None
        return context

    @web.middleware
    async def _guard(self, request: web.Request, handler: Handler) -> web.StreamResponse:
        if request.method not in _METHODS:
            raise web.HTTPMethodNotAllowed(request.method, _METHODS)
        response = await handler(request)
        response.headers["X-Content-Type-Options"] = "nosniff"
        response.headers["Cache-Control"] = "no-store"
        return response

    def _may(self, request: web.Request) -> bool:
        path = self._options.token_file
        if not path:
            return True
        try:
            with open(path, "rb") as file:
                token = file.read(64 * 1024).strip()
        except OSError:
            return False
        given = request.headers.get("Authorization", "").encode("utf-8", "replace")
        return bool(token) and hmac.compare_digest(given, b"Bearer " + token)

    async def _metrics(self, request: web.Request) -> web.Response:
        if not self._may(request):
            raise web.HTTPUnauthorized(headers={"WWW-Authenticate": "Bearer"})
        text = await self._made(request.headers.get("Accept", ""))
        return web.Response(body=text.body, headers={"Content-Type": text.content_type})

    async def _made(self, accept: str) -> Exposition:
        _, kind = choose_encoder(accept)
        async with self._making:
            last = self._kept.get(kind)
            now = time.monotonic()
            if last is not None and now - last[0] < KEPT_SECONDS:
                return last[1]
            plain = self._options.plain_zones
            values = self._recorder.values()
            text = await asyncio.to_thread(expose, values, accept, plain_zones=plain)
            self._kept[kind] = now, text
            return text

    async def _healthz(self, request: web.Request) -> web.Response:
        return web.Response(text="ok\n")

    async def _readyz(self, request: web.Request) -> web.Response:
        missing = self._recorder.not_ready()
        return web.Response(
            text="".join(f"{line}\n" for line in missing) or "ok\n", status=503 if missing else 200
        )


class Exposition(NamedTuple):
    """The body of an answer and its content type."""

    body: bytes
    content_type: str


class _Collected(Collector):
    """Values that were taken beforehand, as a collector. Upstream's metrics have its key of a zone,
    with a NUL byte between region and zone, unless `plain_zones`; ours never have.
    """

    def __init__(self, values: Values, plain_zones: bool) -> None:
        self._values = values
        self._plain_zones = plain_zones

    def collect(self) -> Iterator[Metric]:
        for family in FAMILIES:
            samples = self._values.get(family.name)
            if samples:
                metric = _family(family)
                plain = self._plain_zones or family.name.startswith(OURS)
                zone_at = family.labels.index("zone") if plain and "zone" in family.labels else -1
                for labels, value in samples:
                    words = [
                        zone_display(word) if at == zone_at else word
                        for at, word in enumerate(labels)
                    ]
                    _add(metric, [word[:MOST_CHARACTERS] for word in words], value)
                yield metric


def expose(values: Values, accept: str, *, plain_zones: bool = False) -> Exposition:
    """All values with those of this process, in the format of the Accept header."""
    registry = CollectorRegistry()
    registry.register(_Collected(values, plain_zones))
    ProcessCollector(registry=registry)
    PlatformCollector(registry=registry)
    encoder, content_type = choose_encoder(accept)
    return Exposition(encoder(registry), content_type)


_MADE: Final = {
    COUNTER: CounterMetricFamily,
    GAUGE: GaugeMetricFamily,
    HISTOGRAM: HistogramMetricFamily,
}


def _family(family: MetricFamily) -> Metric:
    name = family.name.removesuffix("_total")  # of a counter, whose text has it all the same
    return _MADE[family.type](name, family.help, labels=list(family.labels))


def _add(metric: Metric, labels: list[str], value: float | Histogram) -> None:
    if isinstance(value, Histogram):
        assert isinstance(metric, HistogramMetricFamily)
        metric.add_metric(labels, buckets=value.cumulative(), sum_value=value.sum)
    else:
        assert isinstance(metric, (CounterMetricFamily, GaugeMetricFamily))
        metric.add_metric(labels, value)
