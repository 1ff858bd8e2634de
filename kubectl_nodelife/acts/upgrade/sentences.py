"""A leader's deeds in plain sentences: `start` prints them, `start --dry-run` those of a play.

One sentence for each record of an action (`Action.records`), the same states and reasons as in the
Events of nodes and in `upgrade status`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Final

from kubectl_nodelife.engine.actions import Action, Detail
from kubectl_nodelife.kube.names import counted

_NO_LONGER: Final = "no longer: "
_SELF_EVIDENT: Final = ("SetWindow", "WorkDone")


class Waits:
    """Why a leader waits, said once for each reason, and at last that it waits no more."""

    def __init__(self) -> None:
        self._last_reason = ""

    def line(self, unseen: str, shut: str) -> str:
        """The line that is due, "" for none.

        `unseen`: why the cluster is not seen, one reason for as long as it lasts: it counts down
        the seconds. `shut`: what stops all writing, such as the ConfigMap that a person has made;
        it is said whether the cluster is seen or not. Both are "" where they do not hold.
        """
        reason = shut or ("unseen" if unseen else "")
        if reason == self._last_reason:
            return ""
        self._last_reason = reason
        return f"waits: {shut or unseen}" if reason else "sees the whole cluster"


def sentences_of(action: Action) -> Iterable[str]:
    """One line a record, such as `node b7: cordoned, now Draining: BECAUSE`."""
    about = about_of(action)
    cordon = getattr(action, "unschedulable", None)
    for record, detail in action.records():
        if record == "SetGate":
            yield _gate(detail, action.because)
            continue
        make_text = SENTENCES.get(record)
        text = make_text(detail) if make_text is not None else _plain(record, detail)
        if cordon is not None:
            text = f"{'cordoned' if cordon else 'uncordoned'}, {text}"
        because = f": {action.because}" if action.because and record not in _SELF_EVIDENT else ""
        yield f"{about}: {text}{because}"


def about_of(action: Action) -> str:
    """The object that an action is about: `node b7`, `pod default/web-1`, `the run`."""
    kind, (namespace, name) = action.target
    if kind == "Lease":
        return "the run"
    node = getattr(action, "node", "")
    if node:
        return f"node {node}"
    return f"{kind.lower()} {f'{namespace}/' * bool(namespace)}{name}"


def _gate(detail: Detail, because: str) -> str:
    gate, because = detail["gate"], because.removeprefix(_NO_LONGER)
    return f"gate {gate} {'closes' if detail['holds'] else 'opens, closed till now'}: {because}"


def _entered(detail: Detail) -> str:
    return f"now {detail['to']}" if detail.get("to") else "marks taken off"


def _work_ended(detail: Detail) -> str:
    code = f", exit code {detail['code']}" if "code" in detail else ""
    return f"work ended (try {detail['try']}{code})"


def _stepped(detail: Detail) -> str:
    window = detail["window"]
    if not window:
        return "the steps are over; nodes are taken whenever the limits allow"
    return f"step {detail['step']} begins, with {counted(window, 'node')} at most"


def _plain(record: str, detail: Detail) -> str:
    return " ".join([record, *(f"{key}={value}" for key, value in detail.items())])


SENTENCES: Final[dict[str, Callable[[Detail], str]]] = {
    **dict.fromkeys(("ClaimNode", "SetUpgradeState", "OpenForProof"), _entered),
    **dict.fromkeys(("ReleaseNode", "RestoreNode", "FailNode"), _entered),
    "MarkNode": lambda detail: "marks changed",
    "StartWork": lambda detail: f"work begins (--{detail['mode']})",
    "StopWork": lambda detail: f"work is stopped (try {detail['try']})",
    "WorkDone": _work_ended,
    "EvictPod": lambda detail: "evicted",
    "CreateCanary": lambda detail: "canary pod created",
    "DeleteCanary": lambda detail: "canary pod deleted",
    "CreateJob": lambda detail: "Job created",
    "DeleteJob": lambda detail: "Job deleted",
    "SetNodeCondition": lambda detail: f"condition {detail['type']} set to {detail['status']}",
    "SetUpgradePhase": lambda detail: f"now {detail['to']}",
    "SetWindow": _stepped,
}
