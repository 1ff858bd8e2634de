"""`metrics list`, `alerts` and `dashboard`: one table, one rules file, expressions that parse."""

import json
import re
from pathlib import Path
from typing import Any

import pytest
import yaml
from click.testing import CliRunner

from kubectl_nodelife.commands.answering.status import finished
from kubectl_nodelife.commands.cluster.look import view_of_dump
from kubectl_nodelife.commands.metrics import metrics
from kubectl_nodelife.daemon.metrics import FAMILIES, cluster_sample
from kubectl_nodelife.dumps.dump import read_dump
from kubectl_nodelife.errors import BadInput
from kubectl_nodelife.outlook.status import KINDS
from tests.metrics.played import play
from tests.metrics.promtool import BY_NAME, ROOT, RULES, needs_promtool, promtool
from tests.metrics.situations import CASES

_NAMES = re.compile(r"\b(?:nodelife|node_collector|taint_eviction|pod_gc)[a-z_]+\b")


def said(*words: str) -> str:
    done = CliRunner().invoke(metrics, words, catch_exceptions=False)
    assert done.exit_code == 0, done.output
    return done.output


def test_list_is_the_table() -> None:
    items = json.loads(said("list", "-o", "json"))["items"]
    assert [item["name"] for item in items] == [family.name for family in FAMILIES]
    for family in FAMILIES:
        assert f"| `{family.name}` |" in (ROOT / "docs/metrics.md").read_text()


def test_rules_and_dashboard_name_metrics_that_there_are() -> None:
    panels = json.loads(said("dashboard"))["panels"]
    queries = [target["expr"] for panel in panels for target in panel["targets"]]
    text = "\n".join([RULES.read_text(), *queries])
    plain = {re.sub(r"_(bucket|count|sum)$", "", name) for name in _NAMES.findall(text)}
    recorded = {"nodelife"}  # what `nodelife:...` begins with
    assert plain - recorded <= BY_NAME.keys() | {"nodes_in_trouble", "prediction_error_seconds"}


@needs_promtool
@pytest.mark.parametrize("form", ["yaml", "prometheusrule"])
def test_alerts_are_rules(form: str, tmp_path: Path) -> None:
    made: dict[str, Any] = yaml.safe_load(said("alerts", "-o", form, "--runbooks", "https://d/m"))
    path = tmp_path / "rules.yaml"
    path.write_text(yaml.safe_dump(made if form == "yaml" else made["spec"]))
    assert "17 rules found" in promtool("check", "rules", str(path))
    group = (made if form == "yaml" else made["spec"])["groups"][0]
    alerts = [rule for rule in group["rules"] if "alert" in rule]
    for rule in alerts:
        assert rule["annotations"].keys() == {"summary", "description", "runbook_url"}
        assert "kubectl nodelife " in rule["annotations"]["description"]
        heading = f"### {rule['alert']}\n"
        assert heading in (ROOT / "docs/metrics.md").read_text()


def test_severities_take_other_names() -> None:
    made = yaml.safe_load(said("alerts", "--severity-map", "critical=page,info=none"))
    rules = made["groups"][0]["rules"]
    found = {rule["labels"]["severity"] for rule in rules if "labels" in rule}
    assert found == {"page", "warning", "none"}
    with pytest.raises(BadInput, match="renames no severity"):
        CliRunner().invoke(metrics, ["alerts", "--severity-map", "page"], catch_exceptions=False)


@needs_promtool
def test_the_dashboards_expressions_parse(tmp_path: Path) -> None:
    dashboard = json.loads(said("dashboard"))
    exprs = [t["expr"] for panel in dashboard["panels"] for t in panel["targets"]]
    rules = [{"record": f"r:{n}", "expr": expr} for n, expr in enumerate(exprs)]
    path = tmp_path / "rules.yaml"
    path.write_text(yaml.safe_dump({"groups": [{"name": "g", "rules": rules}]}))
    assert f"{len(exprs)} rules found" in promtool("check", "rules", str(path))


def test_the_dashboard_is_chosen_by_cluster_and_zone_and_nothing_lies_on_another() -> None:
    dashboard = json.loads(said("dashboard"))
    names = [variable["name"] for variable in dashboard["templating"]["list"]]
    assert names == ["datasource", "cluster", "zone"]
    taken: set[tuple[int, int]] = set()
    for panel in dashboard["panels"]:
        at = panel["gridPos"]
        cells = {(at["x"] + x, at["y"] + y) for x in range(at["w"]) for y in range(at["h"])}
        assert not cells & taken and max(x for x, _ in cells) < 24, panel["title"]
        taken |= cells
        assert all('cluster=~"$cluster"' in target["expr"] for target in panel["targets"])
    kinds = {panel["type"] for panel in dashboard["panels"]}
    assert kinds == {"stat", "state-timeline", "timeseries"}


@pytest.mark.parametrize("limit", [1, 2, 4])
def test_of_more_nodes_than_the_limit_those_in_trouble_stay(
    limit: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    view = view_of_dump(read_dump([str(ROOT / "tests/dumps/two-zones")]), KINDS)
    monkeypatch.setattr(cluster_sample.metrics, "MOST_NODES", limit)
    sample = finished(cluster_sample.sample_steps(view, per_node=True))
    worst_first = ["worker-a2", "worker-b1", "worker-b2", "worker-a1", "worker-a3", "worker-b3"]
    assert [node.name for node in sample.nodes] == worst_first[:limit]
    assert sample.dropped == 6 - limit


def most(text: str, zones: int) -> int:
    """How many series the table says that there are at the most."""
    return int(text[:-1] or 1) * zones if text.endswith("z") else int(text)


def test_there_are_few_series_however_large_the_cluster_is() -> None:
    families = [family for family in FAMILIES if not family.per_node]
    assert sum(most(family.most, zones=20) for family in families) <= 2_500
    (braked,) = (case for case in CASES if case.name == "three of five nodes of a zone are lost")
    for values in play(braked):
        for family in families:
            series = values.get(family.name, ())
            assert len(series) <= most(family.most, zones=2), family.name
            assert len({labels for labels, _ in series}) == len(series), family.name
