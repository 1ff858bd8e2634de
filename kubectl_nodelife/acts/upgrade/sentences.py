"""What a leader says: a sentence for each record of an action, with the states and reasons of the
nodes' Events, which `start` prints, and `start --dry-run` of a play; and why it waits.
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

    _last_reason = ""

    def line(self, unseen: str, shut: str) -> str:
        """The line that is due, "" for none. `unseen`: why the cluster is not seen, which counts
        as one reason, since it counts down the seconds; `shut`: what stops all writing. "": not so.
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
        if record in SENTENCES:
            text = SENTENCES[record](detail)
        else:
            text = " ".join([record, *(f"{key}={value}" for key, value in detail.items())])
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


SENTENCES: Final[dict[str, Callable[[Detail], str]]] = {
    **dict.fromkeys(("ClaimNode", "SetUpgradeState", "OpenForProof"), _entered),
    **dict.fromkeys(("ReleaseNode", "RestoreNode", "FailNode", "SetUpgradePhase"), _entered),
    "MarkNode": lambda detail: "marks changed",
    "StartWork": lambda detail: f"work begins (--{detail['mode']})",
    "StopWork": lambda detail: f"work is stopped (try {detail['try']})",
    "WorkDone": _work_ended,
    "EvictPod": lambda detail: "evicted",
    "CreateCanary": lambda detail: "canary pod created",
    "DeleteCanary": lambda detail: "canary pod deleted",
    "CreateJob": lambda detail: "Job created",
    "DeleteJob": lambda detail: "Job deleted",
    "SetWindow": _stepped,
}
