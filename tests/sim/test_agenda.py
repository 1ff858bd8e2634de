from functools import partial

from kubectl_nodelife.engine.cache import Cache
from kubectl_nodelife.kube.times import HOUR_NS, SECOND_NS
from kubectl_nodelife.sim.api import Api
from kubectl_nodelife.sim.kubelet_state import KubeletTerms
from kubectl_nodelife.sim.timeline import KUBELET, SCRIPT, Agenda
from kubectl_nodelife.sim.world import World

DAY = 24 * HOUR_NS


def test_order_is_instant_then_rank_then_insertion() -> None:
    agenda = Agenda()
    happened: list[str] = []

    def happen(name: str, at_ns: int) -> None:
        happened.append(f"{name}@{at_ns}")

    for name, at_ns, rank in [
        ("kubelet-1", 5, KUBELET),
        ("script-1", 5, SCRIPT),
        ("later", 7, SCRIPT),
        ("kubelet-2", 5, KUBELET),
        ("script-2", 5, SCRIPT),
        ("first", 3, KUBELET),
    ]:
        agenda.add(at_ns, rank, partial(happen, name))
    assert agenda.next_at() == 3
    agenda.run(5)
    assert happened == ["first@3", "script-1@5", "script-2@5", "kubelet-1@5", "kubelet-2@5"]
    assert agenda.next_at() == 7


def test_what_comes_due_meanwhile_happens_in_the_same_run() -> None:
    agenda = Agenda()
    happened: list[int] = []

    def again(at_ns: int) -> None:
        happened.append(at_ns)
        if len(happened) < 3:
            agenda.add(at_ns, SCRIPT, again)

    agenda.add(4, KUBELET, again)
    agenda.run(4)
    assert happened == [4, 4, 4]
    assert agenda.next_at() is None


def world() -> World:
    return World(Api(None, 0, Cache()), KubeletTerms(), end_ns=1 << 70)


class Asking:
    """Asks every five seconds, and is settled once it has asked so often; `ends_ns`: a deadline."""

    def __init__(self, world: World, enough: int, ends_ns: int | None = None) -> None:
        self.world, self.enough = world, enough
        self.asked: list[float] = []
        world.asker = self
        world.agenda.ask(5 * SECOND_NS, self.again)
        if ends_ns is not None:
            world.agenda.ask(ends_ns, self.end, waits=False)

    def again(self) -> None:
        at_ns = self.world.api.now_ns
        self.asked.append(at_ns / SECOND_NS)
        self.world.agenda.ask(at_ns + 5 * SECOND_NS, self.again)

    def end(self) -> None:
        self.asked.append(-self.world.api.now_ns / SECOND_NS)
        self.enough = 0

    def settled(self) -> bool:
        return len(self.asked) > self.enough

    def answered(self) -> bool:
        return True


def played(world: World) -> list[float]:
    """The instants at which something happened."""
    instants = []
    while tick := world.next(None):
        instants.append(tick[0] / SECOND_NS)
    return instants


def test_only_questions_that_are_answered_end_a_play() -> None:
    here = world()
    asking = Asking(here, 3)
    here.agenda.add(12 * SECOND_NS, SCRIPT, lambda at_ns: None)
    assert played(here) == [0, 12] and here.rests
    assert asking.asked == [5, 10, 15, 20]


def test_what_happens_at_the_instant_of_a_question_happens_before_it() -> None:
    here = world()
    asking = Asking(here, 0)
    here.agenda.add(5 * SECOND_NS, KUBELET, lambda at_ns: asking.asked.append(0))
    assert played(here) == [0, 5] and asking.asked == [0]
    asking.enough = 1
    assert played(here) == [] and asking.asked == [0, 5]


def test_questions_that_nothing_will_answer_soon_are_put_off_by_whole_minutes() -> None:
    """After ten minutes without a change, up to what happens next in two days."""
    here = world()
    asking = Asking(here, 1 << 30)
    here.agenda.add(2 * DAY, SCRIPT, lambda at_ns: setattr(asking, "enough", 0))
    assert played(here) == [0, 2 * DAY / SECOND_NS]
    assert len(asking.asked) < 140 and all(at_s % 5 == 0 for at_s in asking.asked)
    assert asking.asked[-1] > 2 * DAY / SECOND_NS - 60


def test_a_deadline_is_never_put_off() -> None:
    here = world()
    asking = Asking(here, 1 << 30, ends_ns=DAY + 1)
    assert played(here) == [0]
    assert -(DAY + 1) / SECOND_NS in asking.asked and len(asking.asked) < 140


def test_a_play_that_ends_before_its_questions_do_can_be_gone_on_with() -> None:
    here = world()
    asking = Asking(here, 1 << 30)
    here.end_ns = 12 * SECOND_NS
    assert played(here) == [0] and asking.asked == [5, 10] and not here.rests
    here.end_ns, asking.enough = 1 << 70, 3
    assert played(here) == [] and asking.asked == [5, 10, 15, 20]
