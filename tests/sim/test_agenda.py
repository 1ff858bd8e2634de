from __future__ import annotations

from functools import partial

from kubectl_nodelife.sim.timeline import KUBELET, SCRIPT, Agenda


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
