"""Prometheus' own judge of metrics and rules: `promtool`, of the Debian package prometheus."""

import shutil
import subprocess
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
import yaml

from kubectl_nodelife.daemon.metrics import FAMILIES
from kubectl_nodelife.daemon.metrics.recorder import Histogram, Values
from kubectl_nodelife.kube.times import SECOND_NS
from tests.enforce.virtual_time import EPOCH_NS
from tests.metrics.played import STEP_S

BY_NAME = {family.name: family for family in FAMILIES}
ROOT = Path(__file__).parents[2]
RULES = ROOT / "kubectl_nodelife/daemon/metrics/alerts.yaml"
PROMTOOL = shutil.which("promtool")
needs_promtool = pytest.mark.skipif(
    PROMTOOL is None, reason="there is no promtool on this machine: apt-get install prometheus"
)


def promtool(*args: str, stdin: str = "") -> str:
    """What promtool says; it must be content."""
    assert PROMTOOL is not None
    done = subprocess.run(
        [PROMTOOL, *args], input=stdin, capture_output=True, text=True, timeout=120
    )
    assert done.returncode == 0, f"promtool {' '.join(args)}: {done.stdout}{done.stderr}"
    return done.stdout + done.stderr


def firing_test(scrapes: Sequence[Values], alerts: set[str]) -> dict[str, Any]:
    """A test that exactly these alerts have fired by the last scrape, as `promtool` reads it."""
    minutes = len(scrapes) * STEP_S // 60
    return {
        "interval": f"{STEP_S}s",
        "input_series": _series(scrapes),
        "promql_expr_test": [
            {
                "expr": "group by (alertname) "
                f'(max_over_time(ALERTS{{alertstate="firing"}}[{minutes + 1}m]))',
                "eval_time": f"{minutes}m",
                "exp_samples": [
                    {"labels": f'{{alertname="{name}"}}', "value": 1} for name in sorted(alerts)
                ],
            }
        ],
    }


def check_rules(folder: Path, tests: Sequence[dict[str, Any]]) -> str:
    """Run these tests on our rules."""
    document = {
        "rule_files": [str(RULES)],
        "evaluation_interval": f"{STEP_S}s",
        "tests": list(tests),
    }
    path = folder / "tests.yaml"
    path.write_text(yaml.safe_dump(document, width=1_000_000))
    return promtool("test", "rules", str(path))


def _series(scrapes: Sequence[Values]) -> list[dict[str, str]]:
    """The first value stands for the instant before the first scrape as well."""
    found: dict[str, list[str]] = {}
    for number, values in enumerate(scrapes, 1):
        for name, samples in values.items():
            for labels, value in samples:
                for series, number_text in _flat(name, labels, value):
                    known = found.setdefault(series, [])
                    known += ["_"] * (number - len(known))
                    known.append(number_text)
    return [{"series": name, "values": " ".join(values)} for name, values in found.items()]


def _flat(name: str, labels: Sequence[str], value: float | Histogram) -> list[tuple[str, str]]:
    pairs = list(zip(BY_NAME[name].labels, labels, strict=True))
    if not isinstance(value, Histogram):
        if name.endswith("_timestamp_seconds") and value:
            value -= EPOCH_NS / SECOND_NS  # promtool's time begins with 0
        return [(_named(name, pairs), f"{value:.6f}")]
    buckets = [
        (_named(f"{name}_bucket", [*pairs, ("le", bound)]), f"{count:.0f}")
        for bound, count in value.cumulative()
    ]
    return [*buckets, (_named(f"{name}_count", pairs), buckets[-1][1])]


def _named(name: str, pairs: Sequence[tuple[str, str]]) -> str:
    inside = ",".join(f'{key}="{_escaped(text)}"' for key, text in pairs)
    return f"{name}{{{inside}}}"


def _escaped(text: str) -> str:
    for raw, escape in (("\\", "\\\\"), ('"', '\\"'), ("\n", "\\n"), ("\0", "\\x00")):
        text = text.replace(raw, escape)
    return text
