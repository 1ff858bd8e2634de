"""The endpoint: what it serves, to whom, and what a real Prometheus makes of it."""

import asyncio
import contextlib
import json
import shutil
import ssl
from collections import Counter
from collections.abc import AsyncIterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import aiohttp
import pytest
import yaml
from prometheus_client.parser import text_string_to_metric_families

from kubectl_nodelife.daemon.flags import MetricsOptions
from kubectl_nodelife.daemon.metrics import FAMILIES, HISTOGRAM
from kubectl_nodelife.daemon.metrics.endpoint import MetricsEndpoint, expose
from kubectl_nodelife.daemon.metrics.recorder import Histogram
from kubectl_nodelife.errors import BadInput
from kubectl_nodelife.sandbox.tls import make_certificate
from tests.daemon.user import SET, silence, user
from tests.loopback import free_port, sandbox
from tests.metrics.promtool import RULES, needs_promtool, promtool

PROMETHEUS = shutil.which("prometheus")
FLAGS = {
    "node-monitor-period": "500ms",
    "node-monitor-grace-period": "3s",
    "node-eviction-rate": "10",
}
ALL = ("node-lifecycle", "taint-eviction", "daemonset", "pod-gc")


class Recorder:
    """A recorder whose values stand still."""

    def __init__(self) -> None:
        self.asked = 0
        self.missing: list[str] = []

    def values(self) -> Any:
        self.asked += 1
        return {"nodelife_synced": [((), 1)]}

    def not_ready(self) -> list[str]:
        return self.missing


@contextlib.asynccontextmanager
async def served(options: MetricsOptions) -> AsyncIterator[tuple[str, Recorder]]:
    recorder = Recorder()
    endpoint = MetricsEndpoint(recorder, options)  # type: ignore[arg-type]
    await endpoint.start()
    try:
        yield options.url.removesuffix("/metrics"), recorder
    finally:
        await endpoint.close()


def local(**more: Any) -> MetricsOptions:
    return MetricsOptions(bind_address=f"127.0.0.1:{free_port()}", **more)


async def test_health_readiness_and_methods() -> None:
    async with served(local()) as (url, recorder), aiohttp.ClientSession() as session:
        async with session.get(f"{url}/healthz") as answer:
            assert (answer.status, await answer.text()) == (200, "ok\n")
        async with session.get(f"{url}/readyz") as answer:
            assert answer.status == 200
        recorder.missing = ["Pod: not read yet"]
        async with session.get(f"{url}/readyz") as answer:
            assert (answer.status, await answer.text()) == (503, "Pod: not read yet\n")
        for method in ("POST", "PUT", "DELETE", "OPTIONS", "PATCH"):
            async with session.request(method, f"{url}/metrics") as answer:
                assert answer.status == 405
        for path in ("/", "/v1/status", "/v1/stop", "/metrics/"):
            async with session.get(url + path) as answer:
                assert answer.status == 404


async def test_a_second_scraper_costs_nothing_and_formats_are_negotiated() -> None:
    async with served(local()) as (url, recorder):
        kinds = {
            "text/plain;version=0.0.4": "text/plain",
            "application/openmetrics-text;version=1.0.0": "application/openmetrics-text",
        }
        async with aiohttp.ClientSession() as session:
            for accept, expected in kinds.items():
                for _ in range(3):
                    headers = {"Accept": accept}
                    async with session.get(f"{url}/metrics", headers=headers) as answer:
                        assert answer.headers["Content-Type"].startswith(expected)
                        assert b"nodelife_synced 1.0" in await answer.read()
        assert recorder.asked == len(kinds)


async def test_a_token_is_asked_for_and_may_change(tmp_path: Path) -> None:
    token = tmp_path / "token"
    token.write_text("first\n")

    async with (
        served(local(token_file=str(token))) as (url, _),
        aiohttp.ClientSession() as session,
    ):

        async def status(given: str) -> int:
            headers = {"Authorization": given} if given else {}
            async with session.get(f"{url}/metrics", headers=headers) as answer:
                return answer.status

        assert await status("") == 401
        assert await status("Bearer second") == 401
        assert await status("Bearer first") == 200
        token.write_text("second")
        assert await status("Bearer first") == 401
        assert await status("Bearer second") == 200
        token.write_text("")
        assert await status("Bearer ") == 401
        token.unlink()
        assert await status("Bearer second") == 401


async def test_tls(tmp_path: Path) -> None:
    made = make_certificate()
    cert, key = tmp_path / "tls.crt", tmp_path / "tls.key"
    cert.write_text(made.certificate)
    key.write_text(made.key)

    async with served(local(tls_cert_file=str(cert), tls_key_file=str(key))) as (url, _):
        assert url.startswith("https://127.0.0.1:")
        trusted = ssl.create_default_context(cadata=made.certificate)
        async with (
            aiohttp.ClientSession() as session,
            session.get(f"{url}/metrics", ssl=trusted) as answer,
        ):
            assert answer.status == 200


@pytest.mark.parametrize(
    "options, words",
    [
        (MetricsOptions(bind_address="9876"), "is no address"),
        (MetricsOptions(bind_address="host:9876"), "is no address"),
        (MetricsOptions(bind_address="127.0.0.1:0"), "is no address"),
        (MetricsOptions(bind_address="127.0.0.1:99999"), "is no address"),
        (MetricsOptions(per_node=True), "needed for the other flags"),
        (MetricsOptions(bind_address="127.0.0.1:1", tls_key_file="k"), "go together"),
    ],
)
def test_flags_that_make_no_sense(options: MetricsOptions, words: str) -> None:
    with pytest.raises(BadInput, match=words):
        options.check()


def test_others_can_read_is_said() -> None:
    assert MetricsOptions(bind_address="[::1]:9876").warnings() == []
    (said,) = MetricsOptions(bind_address="0.0.0.0:9876").warnings()
    assert "unencrypted" in said and "by all who reach it" in said


def test_labels_of_any_kind_parse() -> None:
    odd = ['"', "\\", "\n", "a\0b", "é" * 300, '{}="', "‮x", *(f"z{n}" for n in range(2_000))]
    values = {"node_collector_zone_size": [((zone,), 1.0) for zone in odd]}
    text = expose(values, "text/plain").body.decode()  # type: ignore[arg-type]
    families = {f.name: f for f in text_string_to_metric_families(text)}
    found = [s.labels["zone"] for s in families["node_collector_zone_size"].samples]
    assert found == [zone[:128] for zone in odd]


@pytest.mark.parametrize("plain_zones", [False, True])
def test_only_upstreams_metrics_have_its_key_of_a_zone(plain_zones: bool) -> None:
    zone = ("eu-1:\0:eu-1a",)
    values: Any = {name: [(zone, 1.0)] for name in ("node_collector_zone_size", "nodelife_nodes")}
    values["nodelife_nodes"] = [((*zone, "healthy"), 1.0)]
    text = expose(values, "text/plain", plain_zones=plain_zones).body.decode()
    found = {f.name: f.samples[0].labels for f in text_string_to_metric_families(text)}
    upstreams = "eu-1/eu-1a" if plain_zones else zone[0]
    assert found["node_collector_zone_size"] == {"zone": upstreams}
    assert found["nodelife_nodes"] == {"zone": "eu-1/eu-1a", "state": "healthy"}


@needs_promtool
@pytest.mark.parametrize("accept", ["text/plain", "application/openmetrics-text;version=1.0.0"])
def test_promtool_is_content_with_every_family(accept: str) -> None:
    def value(kind: str) -> Any:
        return Histogram((1.0, 2.0)) if kind == HISTOGRAM else 1.0

    values: Any = {f.name: [(f.labels, value(f.type))] for f in FAMILIES}
    text = expose(values, accept).body.decode()
    assert Counter(text.splitlines())["# EOF"] == ("openmetrics" in accept)
    if "openmetrics" not in accept:
        assert promtool("check", "metrics", stdin=text) == ""
    assert all(f"# HELP {f.name.removesuffix('_total')}" in text for f in FAMILIES)


@pytest.mark.skipif(PROMETHEUS is None, reason="there is no prometheus on this machine")
async def test_a_real_prometheus_scrapes_the_daemon(tmp_path: Path) -> None:
    port, own = free_port(), free_port()
    async with sandbox(controllers=ALL, flags=FLAGS) as cluster, user(cluster.kubeconfig) as one:
        await one.begin(*SET, f"--metrics-bind-address=127.0.0.1:{port}", "--metrics-per-node")
        assert (await one.health())["metrics"] == f"http://127.0.0.1:{port}/metrics"
        process = await _prometheus(tmp_path, port, own)
        try:
            await _until(own, "min_over_time(up[10s]) == 1 and count_over_time(up[10s]) > 4")
            silence(cluster, "a1")
            lost = 'sum(nodelife_nodes{state="unreachable"}) == 1'
            await _until(own, lost)
            await _until(own, 'ALERTS{alertname="NodeLifeNodeAboutToBeLost"}')
            dropped = "sum(increase(prometheus_target_scrapes_sample_out_of_order_total[5m]))"
            await _until(own, f"{dropped} == 0")
            await _until(own, "min_over_time(up[1m]) == 1")
        finally:
            process.terminate()
            await process.wait()


async def _prometheus(folder: Path, port: int, own: int) -> asyncio.subprocess.Process:
    config = folder / "prometheus.yml"
    jobs = [
        {"job_name": name, "static_configs": [{"targets": [f"127.0.0.1:{at}"]}]}
        for name, at in (("nodelife", port), ("prometheus", own))
    ]
    every = {"scrape_interval": "1s", "evaluation_interval": "1s"}
    document = {"global": every, "rule_files": [str(RULES)], "scrape_configs": jobs}
    config.write_text(yaml.safe_dump(document))
    assert PROMETHEUS is not None
    return await asyncio.create_subprocess_exec(
        PROMETHEUS,
        f"--config.file={config}",
        f"--storage.tsdb.path={folder}/data",
        f"--web.listen-address=127.0.0.1:{own}",
        stdout=asyncio.subprocess.DEVNULL,
        stderr=asyncio.subprocess.DEVNULL,
    )


async def _until(port: int, expr: str) -> None:
    """Until Prometheus has an answer to the expression."""
    said: Any = SimpleNamespace()
    async with aiohttp.ClientSession() as session, asyncio.timeout(60):
        while True:
            try:
                url = f"http://127.0.0.1:{port}/api/v1/query"
                async with session.get(url, params={"query": expr}) as answer:
                    said = json.loads(await answer.text())
                    if said.get("data", {}).get("result"):
                        return
            except (aiohttp.ClientError, ValueError):
                pass  # it does not listen yet, or says that it is not ready
            await asyncio.sleep(0.2)
