"""The calls that a kubelet's status sender makes, and the conversation they are made in.

A sender is a generator: it yields one call after the other, as upstream's single sync thread
does, and is sent the answer to each. So the order of calls and what depends on an answer is written
down as it happens, and neither a network nor a simulated world has to be known here.
"""

from __future__ import annotations

from collections.abc import Callable, Generator
from typing import Final

import msgspec

from kubectl_nodelife.kube.pod import Pod, PodStatus


class GetPodCall(msgspec.Struct, frozen=True):
    """Read a pod from the API server, not from a cache."""

    namespace: str
    name: str


class PatchPodStatusCall(msgspec.Struct, frozen=True):
    """Patch the `status` subresource, so that it becomes `status`. `uid` is the precondition, "" in
    releases that send none."""

    namespace: str
    name: str
    uid: str
    status: PodStatus


class DeletePodCall(msgspec.Struct, frozen=True):
    """DELETE with grace period 0 and a uid precondition."""

    namespace: str
    name: str
    uid: str


ApiCall = GetPodCall | PatchPodStatusCall | DeletePodCall

CALL_WORDS: Final = {GetPodCall: "get", PatchPodStatusCall: "patch", DeletePodCall: "delete"}


class CallRefused(msgspec.Struct, frozen=True):
    """The API server's answer where it is not the pod: gone (404), or any other failure."""

    not_found: bool = False


Answer = Pod | CallRefused
Calls = Generator[ApiCall, Answer, None]


def drive(calls: Calls, api: Callable[[ApiCall], Answer]) -> list[ApiCall]:
    """Run a batch to its end, `api` answering each call at once; returns the calls that were made.

    A DELETE is answered by the pod as it was.
    """
    made: list[ApiCall] = []
    try:
        call = next(calls)
        while True:
            made.append(call)
            call = calls.send(api(call))
    except StopIteration:
        return made
