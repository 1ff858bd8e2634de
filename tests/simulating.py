"""Simulating a scenario in a test: as the command does it, or tick by tick, to be forked."""

from pathlib import Path

from kubectl_nodelife.controllers import make_controllers
from kubectl_nodelife.engine.settings import make_settings
from kubectl_nodelife.sim.events import UpgradeEvent
from kubectl_nodelife.sim.present import Branch
from kubectl_nodelife.sim.run import Run, RunSummary, run, summarize_run
from kubectl_nodelife.sim.scenario import PASS_DRIFT_NS, Scenario, Setting, assemble, parse_scenario
from kubectl_nodelife.sim.world import Faults
from kubectl_nodelife.upgrade.answers import decider_for

NO_LIMIT = {"kube-api-qps": "-1"}
"""For tests of what is decided: it is written at once, whatever the pace of the client."""


def simulate_file(path: Path) -> RunSummary:
    """The story of a scenario in a file; one without a snapshot."""
    return simulate_scenario(parse_scenario(path.read_bytes(), path.name))


def simulate_scenario(scenario: Scenario) -> RunSummary:
    """The story of a scenario without a snapshot."""
    setting = assemble(scenario)
    return summarize_run(play(setting), make_settings(setting.profile, scenario.flags))


def play(setting: Setting, faults: Faults | None = None, until_ns: int | None = None) -> Run:
    """Run a setting with fresh controllers, to its end or for so long."""
    settings = make_settings(setting.profile, setting.scenario.flags)
    setting = setting.under(settings)
    names = setting.scenario.controllers
    controllers = make_controllers(settings, names, pass_drift_ns=PASS_DRIFT_NS)
    upgrades = any(isinstance(event.what, UpgradeEvent) for event in setting.scenario.events)
    decider = decider_for(settings) if upgrades else None
    return run(setting, controllers, until_ns=until_ns, faults=faults, make_decider=decider)


def begin(setting: Setting) -> Branch:
    """The setting before its first tick, with fresh controllers."""
    settings = make_settings(setting.profile, setting.scenario.flags)
    names = setting.scenario.controllers
    controllers = make_controllers(settings, names, pass_drift_ns=PASS_DRIFT_NS)
    return Branch.begin(setting.under(settings), controllers)
