"""One played kubelet, and what is wrong with its node.

In `Ailments` pods are named by a label (`app=web`, or its key alone) or an image (`image=NAME`).
"""

import time
import uuid
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any, TypeVar

T = TypeVar("T")

_FLAP_S = 1.0


@dataclass
class Ailments:
    """What is wrong with a node. `starts`, `stops`: how many seconds pods take to be Ready, from
    being bound or from the boot, and to end, whatever their grace; `math.inf`: for ever. `waits`:
    pods that never start, and the reason that their containers wait for.

    After the next boot Ready breaks `flaps` times, for a second each, and `lost` is what is
    allocatable of those resources.
    """

    starts: dict[str, float] = field(default_factory=dict)
    stops: dict[str, float] = field(default_factory=dict)
    waits: dict[str, str] = field(default_factory=dict)
    flaps: int = 0
    lost: dict[str, str] = field(default_factory=dict)


class Kubelet:
    """One kubelet. `conditions` are what it sees; `alive` whether it does anything.

    `boots_at`: when a reboot is over (monotonic seconds), None while there is none.
    """

    def __init__(self, name: str, version: str = "v1.36.3") -> None:
        self.name = name
        self.alive = True
        self.version = version
        self.boot_id = str(uuid.uuid4())
        self.boots_at: float | None = None
        self.booted_at = 0.0
        self.reboots = 0
        self.ailments = Ailments()
        self.allocatable: dict[str, str] = {}
        self.turns_at: list[float] = []
        self.conditions = {
            "Ready": "True",
            "MemoryPressure": "False",
            "DiskPressure": "False",
            "PIDPressure": "False",
        }
        self.since = dict.fromkeys(self.conditions, now_text())
        self.renew_at = 0.0
        self.report_at = 0.0

    def report(self, type_: str, status: str) -> None:
        """From now on the kubelet sees this."""
        if self.conditions.get(type_) != status:
            self.since[type_] = now_text()
        self.conditions[type_] = status
        self.report_at = 0.0

    def start(self) -> None:
        """Begin (again): renew and post at once."""
        self.alive, self.renew_at, self.report_at = True, 0.0, 0.0

    def reboot(self, seconds: float, version: str = "") -> None:
        """Fall silent for so long, and come back with another bootID."""
        self.alive = False
        self.boots_at = time.monotonic() + seconds
        self.version = version or self.version

    def boot(self, now: float) -> None:
        """The reboot is over."""
        self.boots_at, self.booted_at = None, now
        self.reboots += 1
        self.boot_id = str(uuid.uuid4())
        self.allocatable |= self.ailments.lost
        self.turns_at = [now + _FLAP_S * (i + 1) for i in range(2 * self.ailments.flaps)]
        self.start()

    def flap(self, now: float) -> None:
        """Ready breaks, or is well again, where its time has come."""
        if self.turns_at and now >= self.turns_at[0]:
            self.report("Ready", "False" if len(self.turns_at) % 2 == 0 else "True")
            self.turns_at.pop(0)

    def node_info(self) -> dict[str, str]:
        """What of `status.nodeInfo` changes."""
        return {"bootID": self.boot_id, "kubeletVersion": self.version}

    def container_id(self, pod_uid: str, container: str) -> str:
        """The id of a pod's container since the last boot."""
        return f"containerd://{uuid.uuid5(uuid.UUID(self.boot_id), pod_uid + container).hex}"


def found(pod: dict[str, Any], by_name: Mapping[str, T], default: T) -> T:
    """What stands by the first name that is a label or an image of the pod."""
    names = {f"image={c.get('image', '')}" for c in pod["spec"]["containers"]}
    for key, value in (pod["metadata"].get("labels") or {}).items():
        names |= {key, f"{key}={value}"}
    # copied: a test may add to it meanwhile
    return next((value for name, value in dict(by_name).items() if name in names), default)


def now_text(micro: bool = False) -> str:
    """The present as the API writes it."""
    return datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ" if micro else "%Y-%m-%dT%H:%M:%SZ")
