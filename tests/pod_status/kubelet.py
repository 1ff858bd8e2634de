"""A kubelet and its API server, with one pod in it, for the tests of the status manager."""

from msgspec.structs import replace

from kubectl_nodelife.engine.settings import parse_profile
from kubectl_nodelife.kube.pod import Pod, PodStatus
from kubectl_nodelife.kubelet import machine
from kubectl_nodelife.kubelet.releases import StatusRules, rules_for
from tests.pod_status.objects import NOW_NS, pod


class Kubelet:
    """A kubelet and its API server with one pod in it, "web"."""

    def __init__(self, profile: str = "v1.36", subject: Pod | None = None) -> None:
        self.machine = machine.PodStatusMachine(rules_of(profile), self)
        self.stored: Pod | None = subject or pod()
        self.refuse: set[type] = set()
        self.calls: list[machine.ApiCall] = []
        self.running = False
        self.reclaimed = False
        self.machine.observe(self.stored or pod())

    def could_have_running_containers(self, subject: Pod) -> bool:
        return self.running

    def pod_resources_are_reclaimed(self, subject: Pod, status: PodStatus) -> bool:
        return self.reclaimed

    def answer(self, call: machine.ApiCall) -> machine.Answer:
        self.calls.append(call)
        if type(call) in self.refuse:
            return None
        if self.stored is None:
            return None
        if isinstance(call, machine.PatchPodStatusCall):
            self.stored = replace(self.stored, status=call.status)
        before = self.stored
        if isinstance(call, machine.DeletePodCall):
            self.stored = None
        return before

    def sync(self, *, all_pods: bool = True) -> str:
        """One batch; the first letters of its calls."""
        sender = self.machine.sync_batch if all_pods else self.machine.sync_changed
        return "".join(
            type(c).__name__[0].lower() for c in machine.drive(sender(NOW_NS), self.answer)
        )

    def say(self, message: str) -> bool:
        """A pod sync computes a status with that message."""
        subject = self.machine.pods.by_uid("u-web")
        assert subject is not None
        return self.machine.set_pod_status(subject, replace(pod().status, message=message), NOW_NS)


def rules_of(profile: str) -> StatusRules:
    """The rules of a profile by name."""
    return rules_for(parse_profile(profile))
