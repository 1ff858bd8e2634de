"""`daemonset undo` carried out on the sandbox."""

import json
from typing import Any

from tests.acts.program import nodelife
from tests.acts.test_repair import KUBE_SYSTEM
from tests.loopback import client, sandbox
from tests.objects import manifest

SET = "/apis/apps/v1/namespaces/tools/daemonsets/agent"


def template(image: str) -> dict[str, Any]:
    return {
        "metadata": {"labels": {"app": "agent"}},
        "spec": {"containers": [{"name": "c", "image": image, "args": ["a && b < c"]}]},
    }


DAEMON_SET = {
    "apiVersion": "apps/v1",
    "kind": "DaemonSet",
    "metadata": {"name": "agent", "namespace": "tools", "uid": "u-agent"},
    "spec": {"selector": {"matchLabels": {"app": "agent"}}, "template": template("agent:2")},
}


def revision(number: int) -> dict[str, Any]:
    owner = {"apiVersion": "apps/v1", "kind": "DaemonSet", "name": "agent", "uid": "u-agent"}
    return manifest(
        "ControllerRevision",
        f"agent-{number}",
        "tools",
        labels={"app": "agent"},
        owners=[{**owner, "controller": True}],
        data={"spec": {"template": {**template(f"agent:{number}"), "$patch": "replace"}}},
        revision=number,
    )


async def test_back_to_the_revision_before() -> None:
    objects = [KUBE_SYSTEM, DAEMON_SET, revision(1), revision(2)]
    async with sandbox(generate=None, objects=objects) as served, client(served) as reader:
        words = ("daemonset", "undo", "ds/agent", "-n", "tools")
        where = (served.kubeconfig, served.folder)
        before = json.loads(await reader.read(SET))
        asked = await nodelife(*where, *words)
        assert asked.code == 5 and "give --yes" in asked.err
        tried = await nodelife(*where, *words, "--dry-run=server")
        assert tried.out.endswith("daemonset.apps/agent rolled back (server dry run)\n")
        assert json.loads(await reader.read(SET)) == before
        done = await nodelife(*where, *words, "--yes")
        assert (done.code, done.out.splitlines()[-1]) == (0, "daemonset.apps/agent rolled back")
        after = json.loads(await reader.read(SET))
        assert after["spec"]["template"]["spec"]["containers"][0]["image"] == "agent:1"
        again = await nodelife(*where, *words, "--to-revision=1", "--yes")
        assert again.code == 0 and "already matches revision 1" in again.out
