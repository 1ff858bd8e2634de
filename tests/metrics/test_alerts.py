"""Each alert fires in its situation and in no other, by Prometheus' own judgement.

The series are those of a daemon that watches the sandbox's cluster on virtual time (`played.py`);
situations that a cluster alone does not give (enforcing, an upgrade) add values of their own.
"""

from pathlib import Path

import pytest
import yaml

from tests.metrics.played import Situation, play
from tests.metrics.promtool import RULES, check_rules, firing_test, needs_promtool, promtool
from tests.metrics.situations import CASES


def alerts() -> list[dict[str, object]]:
    groups = yaml.safe_load(RULES.read_text())["groups"]
    return [rule for group in groups for rule in group["rules"] if "alert" in rule]


@needs_promtool
def test_promtool_accepts_the_rules() -> None:
    assert "17 rules found" in promtool("check", "rules", str(RULES))


def test_there_are_fifteen_and_each_has_its_situation() -> None:
    names = [str(rule["alert"]) for rule in alerts()]
    assert len(names) == len(set(names)) == 15
    fired = {name for case in CASES for name in case.alerts}
    assert fired == set(names)


@needs_promtool
@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name.replace(" ", "-"))
def test_it_fires_in_its_situation_and_in_no_other(case: Situation, tmp_path: Path) -> None:
    assert "SUCCESS" in check_rules(tmp_path, [firing_test(play(case), case.alerts)])


@needs_promtool
def test_a_judge_of_series_that_can_fail(tmp_path: Path) -> None:
    quiet = play(CASES[0])
    with pytest.raises(AssertionError, match="FAILED"):
        check_rules(tmp_path, [firing_test(quiet, {"NodeLifeBlind"})])
