"""Plays the joined present without the acts (the baseline) and with them (the future).

With `set` among the acts both have the other acts, and the future other settings, so that the
difference is what the settings do. Times to ready and the use of grace periods are not known: the
middle play is shown, a fast and a slow one give the ranges.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from functools import cached_property, partial
from itertools import chain
from typing import Any, Final, NamedTuple

from msgspec.structs import replace

from kubectl_nodelife.controllers import make_controllers
from kubectl_nodelife.engine.cache import Cache
from kubectl_nodelife.engine.heartbeat import sign_of_life
from kubectl_nodelife.engine.pace import FASTER_QPS, pace_of
from kubectl_nodelife.engine.settings import Settings, SettingsError, make_settings
from kubectl_nodelife.errors import BadInput
from kubectl_nodelife.kube.meta import controller_of
from kubectl_nodelife.kube.times import SECOND_NS, human_duration
from kubectl_nodelife.outlook.what_if.acts import TOLERATION_SECONDS, Act
from kubectl_nodelife.outlook.what_if.node_futures import Extreme
from kubectl_nodelife.outlook.what_if.play_reading import Played
from kubectl_nodelife.outlook.what_if.service_levels import ServiceLevels
from kubectl_nodelife.sim.api import DefaultTolerationSeconds, template_of
from kubectl_nodelife.sim.attached_volumes import AttachedVolumes
from kubectl_nodelife.sim.events import ScenarioEvent, read_events
from kubectl_nodelife.sim.fields import FieldPath
from kubectl_nodelife.sim.kubelet_state import KubeletTerms
from kubectl_nodelife.sim.present import Branch, Present, join, last_sign
from kubectl_nodelife.sim.run import Run, RunSummary, summarize_run
from kubectl_nodelife.sim.scenario import CONTROLLER_NAMES, HIGHEST_SCORE, PASS_DRIFT_NS
from kubectl_nodelife.sim.timeline import without_collector
from kubectl_nodelife.sim.timing import FAST, MIDDLE, SLOW, Timing
from kubectl_nodelife.workloads.placement import Luck

TOLERATION_FLAGS: Final = (
    "default-not-ready-toleration-seconds",
    "default-unreachable-toleration-seconds",
)


class Question(NamedTuple):
    """A question about a cluster at a moment (ns since the epoch). `until_ns`: the horizon after
    it. `kinds_read`: kinds of which an object that is not there is known not to exist.
    `next_pass_ns`: when the running node-lifecycle begins its next pass; None: not known.
    `kubelet`: what is said of kubelets that the cluster does not show; `scheduler`: how a node is
    chosen, a key of SCHEDULERS; `controllers`: those that run.
    """

    cluster: Cache
    settings: Settings
    now_ns: int
    kinds_read: frozenset[str]
    acts: Sequence[Act]
    until_ns: int
    late_renew: bool = False
    next_pass_ns: int | None = None
    kubelet: KubeletTerms = KubeletTerms()
    scheduler: str = HIGHEST_SCORE
    controllers: tuple[str, ...] = CONTROLLER_NAMES


class Plays(NamedTuple):
    """Baseline and future of a question; what is read of the futures of a fast and a slow cluster.
    `without_acts`: the baseline, or where that has acts a play without any. `assumed`: sentences;
    `present`: what was played."""

    without_acts: Played
    baseline: Played
    future: Played
    fast: Extreme
    slow: Extreme
    settings: Settings
    present: Present
    assumed: tuple[str, ...]


_UNSEEN: Final = frozenset({"lose", "drain"})
"""Acts of which nothing shows to the controllers at the instant at which they begin."""


class _Restart(NamedTuple):
    at_ns: int
    settings: Settings


class _Future(NamedTuple):
    """Under which settings the controllers run from the beginning, when they are started anew under
    others, and whether the stamps of admission on pods are changed."""

    settings: Settings
    restarts: tuple[_Restart, ...]
    restamps: bool

    @property
    def last_settings(self) -> Settings:
        """Those under which it ends."""
        return self.restarts[-1].settings if self.restarts else self.settings


Works = Sequence[Callable[[], Any]]
Beside = Callable[[Works], AbstractContextManager[Callable[[], list[Any]]]]
"""Begins works that do not depend on what is done meanwhile; the function waits for what they
return."""


@contextmanager
def afterwards(works: Works) -> Iterator[Callable[[], list[Any]]]:
    """Nothing is done beside: the works are done when it is asked for what they return."""
    yield lambda: [work() for work in works]


@without_collector()
def play(
    question: Question,
    progress: Callable[[int], None] = lambda done: None,
    beside: Beside = afterwards,
) -> Plays:
    """Play the question. `progress` receives how many of the plays are done, 0 as the first one
    begins; `beside` may play the extremes meanwhile. Raises BadInput.
    """
    setting = [act for act in question.acts if act.is_setting]
    acting = [act for act in question.acts if not act.is_setting]
    named, events = frozenset(name for act in acting for name in act.nodes), events_of(acting)
    asked = _future(question, setting)
    if asked.settings is not question.settings:  # of controllers that have never run so
        question = question._replace(next_pass_ns=None)
    present = _present(question, question.settings)
    under = present
    if asked.settings is not question.settings or asked.restamps:
        under = _present(question, asked.settings, restamps=asked.restamps)
    today = _Beginning(present, question)
    begun = today if under is present else _Beginning(under, question)
    last = asked.last_settings

    def extreme(timing: Timing, *, seeks: bool) -> Extreme:
        branch = begun.fork_under(timing, acting, asked.restarts)
        branch.world.scheduler.placement.luck = Luck(named, seeks)  # where a pod's node is chance
        return Extreme.of(_played(branch, events, question, asked.restarts), last)

    progress(0)
    works = (partial(extreme, FAST, seeks=False), partial(extreme, SLOW, seeks=True))
    with beside(works) as extremes:
        without_acts = baseline = _played(today.fork(()), (), question)
        if setting and acting:
            baseline = _played(today.fork(acting), events, question)
        progress(1)
        future = _played(begun.fork(acting, asked.restarts), events, question, asked.restarts)
        progress(2)
        fast, slow = extremes()
    progress(4)
    assumed = (*present.assumed, *_paced(future, fast, last))
    return Plays(without_acts, baseline, future, fast, slow, last, present, assumed)


def _paced(future: Played, fast: Extreme, settings: Settings) -> Iterator[str]:
    """Which pace the play took, where writes had to wait for it, and how far it may be off."""
    pace = pace_of(settings)
    if pace is not None and future.waited_ns >= SECOND_NS:
        waited = human_duration(future.waited_ns)
        other = ""
        if not pace.is_seen and pace.qps < FASTER_QPS:
            least = human_duration(fast.waited_ns)
            other = f", at {FASTER_QPS:g} a second {least}: times range from the one to the other"
        yield f"{pace.sentence}: a request waits for up to {waited}{other}"


def run_summary_of(plays: Plays) -> RunSummary:
    """The future as the story of a run, whose document is a Timeline."""
    end, setting = plays.future, plays.present.setting
    run = Run(setting, end.end_ns, end.timeline, end.cluster, end.failures)
    return summarize_run(run, plays.settings)


class EachPlay:
    """One present, of which many futures are played, each from a fork of it. All have the timing
    of the middle play."""

    def __init__(self, question: Question) -> None:
        self._question = question
        self._begun = _Beginning(_present(question, question.settings), question, prepares=True)

    @property
    def present(self) -> Present:
        """The present that both plays begin from."""
        return self._begun.present

    @cached_property
    def baseline(self) -> Played:
        """The play without any act."""
        return _played(self._begun.fork(()), (), self._question)

    def play_later(self, events: Sequence[ScenarioEvent]) -> Played:
        """The future in which these happen, all of them after t=0. Raises BadInput."""
        return _played(self._begun.fork(()), events, self._question)

    def play(self, acts: Sequence[Act]) -> Played:
        """The future with these acts. Raises BadInput."""
        return _played(self._begun.fork(acts), events_of(acts), self._question)


class _Beginning:
    """Where the plays of one present begin: before its controllers have joined, or after.

    A loss of t=0 shows in nothing that they look at when they join, so plays of it begin after
    that, and do not do it anew. Where something shows, they begin before it. `prepares`: there
    will be many.
    """

    def __init__(self, present: Present, question: Question, *, prepares: bool = False) -> None:
        self.present, self._question = present, question
        self._begun = _begin(present, question, MIDDLE)
        if prepares:
            self._begun.prepare()
        else:
            scheduler, pods_on = self._begun.world.scheduler, question.cluster.pods_on
            scheduler.count_rooms()
            named = dict.fromkeys(name for act in question.acts for name in act.nodes)
            scheduler.placement.prepare_for(chain.from_iterable(map(pods_on, named)))
        self._joined = self._begun.fork()
        changes = self._joined.world.api.changes
        self._joined.play_to(question.now_ns)
        self._rests = self._joined.world.api.changes == changes
        self._beats_now = _beat_now(present)

    def fork(self, acts: Sequence[Act], restarts: Sequence[_Restart] = ()) -> Branch:
        """Another play, to which these acts and restarts are still to come."""
        return self._before(acts, restarts).fork()

    def fork_under(
        self, timing: Timing, acts: Sequence[Act], restarts: Sequence[_Restart]
    ) -> Branch:
        """The same, in which things take so long: from after the join where that changed nothing,
        so that it is done once."""
        before = self._before(acts, restarts)
        return (before if self._rests else self._begun).fork_under(timing)

    def _before(self, acts: Sequence[Act], restarts: Sequence[_Restart]) -> Branch:
        """The latest point to which these acts and restarts are still to come."""
        shows = any(restart.at_ns == 0 for restart in restarts) or any(
            not act.at_seconds
            and (act.act.split()[0] not in _UNSEEN or not self._beats_now.isdisjoint(act.nodes))
            for act in acts
        )
        return self._begun if shows else self._joined


def _beat_now(present: Present) -> frozenset[str]:
    """The nodes with a sign of life that is due at the very moment and was not seen yet."""
    setting = present.setting
    nodes, now_ns = setting.cluster.nodes, setting.start_ns
    return frozenset(
        name
        for name, beats in present.kubelets.items()
        if now_ns == (beats.first_ns if setting.leases_count else beats.post_ns)
        and last_sign(setting, nodes[name]).at_ns != now_ns
    )


def _future(question: Question, acts: Sequence[Act]) -> _Future:
    """The settings after the acts of `set`, and the restarts that they need. Raises BadInput."""
    settings = begun = question.settings
    restarts: list[_Restart] = []
    for act in sorted(acts, key=lambda act: act.at_seconds):
        settings = changed_settings(settings, [act])
        if act.restart:
            restarts.append(_Restart(round(act.at_seconds * SECOND_NS), settings))
        else:
            begun = changed_settings(begun, [act])
            restarts = [r._replace(settings=changed_settings(r.settings, [act])) for r in restarts]
    return _Future(begun, tuple(restarts), any(act.restamp for act in acts))


def _present(question: Question, settings: Settings, *, restamps: bool = False) -> Present:
    cluster = question.cluster
    if restamps:
        cluster = restamped(cluster, question.settings, settings)
    present = join(
        cluster,
        settings,
        question.now_ns,
        question.kinds_read,
        late_renew=question.late_renew,
        next_pass_ns=question.next_pass_ns,
        kubelet=question.kubelet,
        scheduler=question.scheduler,
    )
    stamped = DefaultTolerationSeconds(*question.settings.default_toleration_seconds)
    return replace(present, setting=replace(present.setting, stamped=stamped))


def restamped(cluster: Cache, was: Settings, now: Settings) -> Cache:
    """The cluster as if its pods had been made under other default tolerations."""
    before = DefaultTolerationSeconds(*was.default_toleration_seconds)
    after = DefaultTolerationSeconds(*now.default_toleration_seconds)
    changed = cluster.copy()
    for key, pod in cluster.pods.items():
        owner = controller_of(pod.metadata)
        owner_object = cluster.get(owner.kind, (key[0], owner.name)) if owner is not None else None
        changed.set("Pod", key, after.admit(before.unstamped(pod, template_of(owner_object))))
    return changed


def _begin(present: Present, question: Question, timing: Timing) -> Branch:
    """The play of it before its first tick, with what is counted of it."""
    branch = present.begin(question.until_ns, timing=timing, controllers=question.controllers)
    branch.world.disruption.count_all()
    ServiceLevels(branch.world)
    return branch


def _played(
    branch: Branch,
    events: Sequence[ScenarioEvent],
    question: Question,
    restarts: Sequence[_Restart] = (),
) -> Played:
    branch.add(events)
    for restart in restarts:
        controllers = make_controllers(
            restart.settings, question.controllers, pass_drift_ns=PASS_DRIFT_NS
        )
        branch.restart(controllers, question.now_ns + restart.at_ns, restart.settings)
    branch.play_until_quiet()
    world, levels = branch.world, branch.world.agenda.parts[ServiceLevels]
    assert isinstance(levels, ServiceLevels)
    volumes = world.agenda.parts.get(AttachedVolumes)
    end_ns = question.now_ns + question.until_ns
    pods = world.api.store.pods
    made_of_it = Played(
        question.now_ns,
        end_ns,
        world.api.now_ns if branch.rests else end_ns,
        world.api.store,
        branch.timeline,
        world.failures,
        levels,
        _silent(branch, question.settings.leases_count),
        _last_signs(branch, question),
        {key: str(world.scheduler.placement.no_room(pods[key])) for key in sorted(levels.unbound)},
        dict(volumes.waits) if isinstance(volumes, AttachedVolumes) else {},
        list(world.owners.not_made()),
        {key: world.disruption.ledgers[key] for key in sorted(world.disruption.changed)},
        list(branch.due()),
        world.clients.longest_wait_ns if world.clients is not None else 0,
    )
    world.end()
    return made_of_it


def _silent(branch: Branch, leases_count: bool) -> dict[str, int | None]:
    """The nodes whose kubelets are silent now -> their last sign of life, ns."""
    world, cache = branch.world, branch.engine.cache
    now_ns = world.api.now_ns
    nodes = world.api.store.nodes
    return {
        name: sign_of_life(nodes[name], cache, now_ns, leases_count).at_ns
        for name in sorted(world.kubelets.silent)
        if name in nodes
    }


def _last_signs(branch: Branch, question: Question) -> dict[str, tuple[int, int]]:
    """The last sign of life of each node that fell silent, before it did so first: its last renewal
    in the play, where Leases count, else the sign that was read.
    """
    cluster, counts = question.cluster, question.settings.leases_count
    kubelets, signs = branch.world.kubelets, dict[str, tuple[int, int]]()
    for name in sorted({*kubelets.last_renewals, *kubelets.silent}):
        renewed = kubelets.last_renewals.get(name)
        if renewed is not None and counts:
            signs[name] = renewed
        elif renewed is None and (node := cluster.nodes.get(name)) is not None:
            at_ns = sign_of_life(node, cluster, question.now_ns, counts).at_ns
            if at_ns is not None:
                signs[name] = (at_ns, at_ns)
    return signs


def events_of(acts: Sequence[Act]) -> tuple[ScenarioEvent, ...]:
    """The events of the acts, as a scenario's reader reads them. Raises BadInput."""
    details = list(chain.from_iterable(act.detail for act in acts))
    return read_events(details, FieldPath("what-if", "acts"))


def changed_settings(settings: Settings, acts: Sequence[Act]) -> Settings:
    """The settings under which the future is played. Raises BadInput."""
    if not acts:
        return settings
    given: dict[str, Any] = {}
    for act in acts:
        for detail in act.detail:
            given |= _flags(detail)
    given_before = {name: settings.flags[name] for name in given_flags(settings)}
    origins = {
        **{name: settings.origins[name] for name in given_before},
        **dict.fromkeys(given, "set"),
    }
    try:
        return make_settings(settings.profile, {**given_before, **given}, origins=origins)
    except SettingsError as error:
        raise BadInput(str(error), on="set") from None


def given_flags(settings: Settings) -> list[str]:
    """The flags that were given, and that are no defaults of the release."""
    return [name for name, where in settings.origins.items() if not where.startswith("default")]


def _flags(detail: Mapping[str, str]) -> Mapping[str, str]:
    if TOLERATION_SECONDS in detail:
        return dict.fromkeys(TOLERATION_FLAGS, detail[TOLERATION_SECONDS])
    return detail
