"""`explain` through a daemon, which lists what it does not watch: who asks loads no client."""

import sys

from tests.daemon.user import SET, user
from tests.loopback import sandbox
from tests.objects import budget, event

_WITHOUT_A_CLIENT = """
import sys
from kubectl_nodelife.quick import main
code = main()
loaded = sorted({"aiohttp", "asyncio", "ssl", "yaml"} & sys.modules.keys())
print("loaded:", loaded, file=sys.stderr)
sys.exit(code)
"""

_AT = "2026-11-28T10:00:00Z"
_OBJECTS = [
    event(("Node", name), "NodeNotSchedulable", when=_AT, by="somebody") for name in ("a1", "a2")
]
_BUDGET = budget("all", metadata={"generation": 1}, maxUnavailable=0, selector={})


async def test_it_says_what_a_look_says_and_the_one_who_asks_loads_no_client() -> None:
    asked: list[str] = []
    async with (
        sandbox(objects=[*_OBJECTS, _BUDGET], record=asked) as served,
        user(served.kubeconfig) as one,
    ):
        await one.watching()
        await one.ok("status")  # from now on the kubeconfig need not be read
        pods = sorted(served.cluster.api.served.collections["Pod"].entries)
        space, pod = next(key for key in pods if key[0] != "kube-system")
        subjects = [("node", "a1"), ("pod", pod, "-n", space), ("a1",), (pod,)]
        ours, plain = [sys.executable, "-P", "-c", _WITHOUT_A_CLIENT], one.program
        for subject in subjects:
            one.program = plain
            look = await one.json("explain", *subject, "--no-daemon", *SET)
            one.program = ours
            asked.clear()
            told = await one.run("explain", *subject)
            assert told.code == 0, told
            assert told.err.splitlines()[-1] == "loaded: []", told.err
            assert "GET /api/v1/events" in asked and "GET /api/v1/pods" not in asked
            document = await one.json("explain", *subject)
            assert document["source"]["kind"] == "daemon"
            answers = {each["question"]: each for each in document["answers"]}
            for section in look["answers"]:
                assert section["question"] in answers
                if "drain" in section["question"] or "Who" in section["question"]:
                    assert answers[section["question"]] == section
