"""Random sequences for a kubelet's status manager: `python -m tests.real_code.status_sequences 7`.

Pods of all restart policies, with rules of their own, init containers, sidecars and readiness
gates, static ones with mirrors; statuses that a runtime could show, and such that it should not;
probes, the end of pods, deletions with grace and without, pods made anew under their name, writes
of others, calls that fail, slow calls and a late watch.
"""

import json
import random
import sys
from typing import Any

from kubectl_nodelife.kube.times import MILLISECOND_NS, SECOND_NS
from tests.objects import of_kind

Json = dict[str, Any]
WHEN = "1999-12-31T23:%02d:%02d.%03dZ"
LONG = "x" * 7_000
OTHERS = ("custom.io/gate", "DisruptionTarget", "Ready", "ContainersReady", "PodResizePending")


def generate(seed: int) -> Json:
    """The sequence of that seed."""
    return _Maker(random.Random(seed)).sequence()


class _Maker:
    def __init__(self, rnd: random.Random) -> None:
        self.rnd = rnd
        self.number = 0
        self.pods: list[Json] = []  # those that the kubelet runs: no mirrors
        self.last: dict[str, Json] = {}  # uid -> the last status that it computed

    def chance(self, probability: float) -> bool:
        return self.rnd.random() < probability

    def sequence(self) -> Json:
        several = self.chance(0.3)
        api = [pod for _ in range(self.rnd.randint(2, 3) if several else 1) for pod in self.add()]
        latency = (
            1_000 if several else self.rnd.choice((1_009, 7_000_037, 411_000_013, 4_300_000_007))
        )
        at, steps = 50 * MILLISECOND_NS, list[Json]()
        for _ in range(self.rnd.randint(5, 25)):
            steps.append({"at": at, **self.step()})
            pause = self.rnd.choice((3, 40, 700, 2_900, 11_300))
            at += pause * MILLISECOND_NS + self.rnd.randrange(1, MILLISECOND_NS)
        lag = self.rnd.choice((1_000_003, 150_000_049, 6_100_000_021))
        return {
            "latency": latency,
            "lag": lag,
            "end": at + 35 * SECOND_NS,
            "pods": api,
            "steps": steps,
        }

    # -- pods

    def add(self) -> list[Json]:
        """A pod, and its mirror where it is static; the kubelet runs it from now on."""
        pod = self.pod(f"p{len(self.pods)}")
        self.pods.append(pod)
        if not self.chance(0.15):
            return [pod]
        pod["metadata"]["annotations"] = {"kubernetes.io/config.source": "file"}
        mirror = json.loads(json.dumps(pod))
        mirror["metadata"]["uid"] += "-mirror"
        mirror["metadata"]["annotations"]["kubernetes.io/config.mirror"] = pod["metadata"]["uid"]
        pod["status"] = {"phase": "Pending"}
        return [pod, mirror] if self.chance(0.9) else [pod]

    def pod(self, name: str) -> Json:
        self.number += 1
        spec: Json = {
            "nodeName": "n1",
            "restartPolicy": self.rnd.choice(("Always", "OnFailure", "Never")),
            "containers": [self.container(f"c{i}") for i in range(self.rnd.randint(1, 2))],
        }
        if self.chance(0.5):
            spec["initContainers"] = [
                self.container(f"i{i}", init=True) for i in range(self.rnd.randint(1, 2))
            ]
        if self.chance(0.2):
            spec["readinessGates"] = [{"conditionType": "custom.io/gate"}]
        status: Json = {"phase": "Pending"}
        if self.chance(0.5):
            status = {
                **self.status(spec, f"u{self.number}"),
                "conditions": [self.condition(t) for t in self.some(OTHERS)],
            }
        return of_kind("Pod", name, "default", uid=f"u{self.number}", spec=spec, status=status)

    def some(self, words: tuple[str, ...]) -> list[str]:
        return [word for word in words if self.chance(0.3)]

    def container(self, name: str, *, init: bool = False) -> Json:
        made: Json = {"name": name, "image": "i"}
        if init and self.chance(0.4):
            made["restartPolicy"] = "Always"
        elif self.chance(0.25):
            made["restartPolicy"] = self.rnd.choice(("Always", "OnFailure", "Never"))
            if self.chance(0.5):
                action = self.rnd.choice(("Restart", "Restart", "RestartAllContainers"))
                codes = {
                    "operator": self.rnd.choice(("In", "NotIn")),
                    "values": [self.rnd.choice((1, 137))],
                }
                made["restartPolicyRules"] = [{"action": action, "exitCodes": codes}]
        return made

    # -- statuses

    def status(self, spec: Json, uid: str) -> Json:
        made: Json = {
            "phase": self.rnd.choices(("Pending", "Running", "Succeeded", "Failed"), (2, 6, 1, 1))[
                0
            ]
        }
        likely = {"Pending": "waiting", "Running": "running"}.get(made["phase"], "terminated")
        regular = [self.container_status(c["name"], uid, likely) for c in spec["containers"]]
        init = [
            self.container_status(c["name"], uid, "terminated")
            for c in spec.get("initContainers", ())
        ]
        if self.chance(0.15):
            self.rnd.shuffle(regular)
        if self.chance(0.1):
            self.rnd.shuffle(init)
        if self.chance(0.9):
            made["containerStatuses"] = regular
        if init and self.chance(0.9):
            made["initContainerStatuses"] = init
        if self.chance(0.3):
            made["startTime"] = self.time()
        if self.chance(0.2):
            made |= {"reason": self.rnd.choice(("Evicted", "NodeShutdown")), "message": "told"}
        if self.chance(0.2):
            made["podIP"] = "10.0.0.1"
        return made

    def time(self) -> str:
        return WHEN % (
            self.rnd.randrange(60),
            self.rnd.randrange(60),
            self.rnd.choice((0, 0, 250, 999)),
        )

    def container_status(self, name: str, uid: str, likely: str) -> Json:
        state = self.rnd.choice((likely, likely, likely, "waiting", "running", "terminated"))
        made: Json = {"name": name, "containerID": f"c://{uid}-{name}", "image": "i", "imageID": ""}
        made |= {
            "state": self.state(state),
            "ready": state == "running" and self.chance(0.7),
            "restartCount": 0,
        }
        if state == "running" or self.chance(0.2):
            made["started"] = self.chance(0.8)
        if self.chance(0.2):
            made |= {"lastState": self.state("terminated"), "restartCount": 1}
        return made

    def state(self, state: str) -> Json:
        if state == "waiting":
            return {
                "waiting": {"reason": self.rnd.choice(("ContainerCreating", "CrashLoopBackOff"))}
            }
        if state == "running":
            return {"running": {"startedAt": self.time()}}
        code = self.rnd.choice((0, 0, 1, 137))
        message = LONG if self.chance(0.05) else ""
        ended = {
            "exitCode": code,
            "reason": "Completed" if not code else "Error",
            "message": message,
        }
        return {"terminated": {**ended, "startedAt": self.time(), "finishedAt": self.time()}}

    def condition(self, type_: str) -> Json:
        words = {
            "status": self.rnd.choice(("True", "False")),
            "reason": self.rnd.choice(("", "Why", "Other")),
        }
        return {"type": type_, **words, "lastTransitionTime": self.time()[:-5] + "Z"}

    # -- steps

    def step(self) -> Json:
        kinds = (
            self.computed,
            self.probed,
            self.terminated,
            self.of_others,
            self.of_the_surroundings,
        )
        return self.rnd.choices(kinds, (8, 6, 2, 5, 3))[0]()

    def one(self) -> Json:
        return self.rnd.choice(self.pods)

    def computed(self) -> Json:
        """A pod sync: mostly what it computed before with one thing changed."""
        pod = self.one()
        uid = pod["metadata"]["uid"]
        status = json.loads(json.dumps(self.last.get(uid))) if self.chance(0.5) else None
        fresh = self.status(pod["spec"], uid)
        if status is None:
            status = fresh
        else:
            for name in self.rnd.sample(sorted(fresh), min(len(fresh), self.rnd.randint(0, 2))):
                status[name] = fresh[name]
        status["conditions"] = [
            self.condition(t)
            for t in ("DisruptionTarget", "AllContainersRestarting")
            if self.chance(0.1)
        ]
        generated = self.chance(0.9)
        if not generated:
            status["conditions"] += [
                self.condition(type_)
                for type_ in self.some(("Ready", "ContainersReady", "Initialized"))
            ]
        self.last[uid] = status
        return {"op": "setPodStatus", "uid": uid, "status": status, "generate": generated}

    def probed(self) -> Json:
        pod = self.one()
        uid, spec = pod["metadata"]["uid"], pod["spec"]
        name = self.rnd.choice([*spec["containers"], *spec.get("initContainers", ())])["name"]
        op = self.rnd.choice(
            ("setContainerReadiness", "setContainerReadiness", "setContainerStartup")
        )
        return {"op": op, "uid": uid, "container": f"c://{uid}-{name}", "value": self.chance(0.5)}

    def terminated(self) -> Json:
        return {"op": "terminatePod", "uid": self.one()["metadata"]["uid"]}

    def of_others(self) -> Json:
        """A write of another client."""
        name = self.one()["metadata"]["name"]
        draw = self.rnd.random()
        if draw < 0.3:
            return {"op": "delete", "name": name, "grace": self.rnd.choice((0, 30, 30, 30))}
        if draw < 0.4:
            return self.made_anew(name)
        types = self.some(OTHERS)
        fields = self.rnd.choice(
            (
                {},
                {},
                {"podIP": "10.9.9.9"},
                {"phase": "Failed", "reason": "PodGC"},
                {"message": "other"},
            )
        )
        dropped = sorted({*types, *self.some(("Initialized", "PodScheduled"))})
        return {
            "op": "change",
            "name": name,
            "drop": dropped,
            "conditions": [self.condition(type_) for type_ in types],
            "fields": fields,
        }

    def made_anew(self, name: str) -> Json:
        """A pod, or the mirror of a static one, comes to be under a name, where that is free."""
        pod = self.pod(name)
        first = next(pod for pod in self.pods if pod["metadata"]["name"] == name)
        if "annotations" in first["metadata"]:
            source = {"kubernetes.io/config.mirror": first["metadata"]["uid"]}
            pod["metadata"]["annotations"] = source
        else:
            self.pods.append(pod)
        return {"op": "create", "pod": pod}

    def of_the_surroundings(self) -> Json:
        draw = self.rnd.random()
        if draw < 0.35:
            return {"op": "kubelet", "value": self.chance(0.5)}
        if draw < 0.5:
            keep = [pod["metadata"]["uid"] for pod in self.pods if self.chance(0.6)]
            return {"op": "removeOrphanedStatuses", "keep": keep}
        verb = self.rnd.choice(("get", "patch", "delete"))
        code = self.rnd.choice((404, 409, 500, 403))
        name = self.one()["metadata"]["name"]
        return {
            "op": "fail",
            "verb": verb,
            "name": name,
            "code": code,
            "times": self.rnd.randint(1, 2),
        }


if __name__ == "__main__":
    print(json.dumps(generate(int(sys.argv[1])), indent=1))
