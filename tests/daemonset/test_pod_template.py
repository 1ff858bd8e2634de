"""A pod template as kubectl describes it, line by line."""

from kubectl_nodelife.report.daemonset import describe_pod_template

TEMPLATE = {
    "metadata": {"labels": {"b": "2", "a": "1"}, "annotations": {"note": "x"}},
    "spec": {
        "serviceAccountName": "agent",
        "containers": [
            {
                "name": "c",
                "image": "registry.example/agent:1",
                "command": ["/agent"],
                "ports": [
                    {"containerPort": 80, "hostPort": 8080, "protocol": "TCP", "name": "web"},
                    {"containerPort": 53, "protocol": "UDP"},
                ],
                "resources": {"limits": {"cpu": "1"}, "requests": {"memory": "1Gi", "cpu": "1"}},
                "livenessProbe": {"httpGet": {"path": "/x", "port": 80}},
                "env": [
                    {"name": "PLAIN", "value": "v"},
                    {"name": "NODE", "valueFrom": {"fieldRef": {"fieldPath": "spec.nodeName"}}},
                    {"name": "KEY", "valueFrom": {"secretKeyRef": {"name": "s", "key": "k"}}},
                ],
                "volumeMounts": [{"name": "h", "mountPath": "/host", "readOnly": True}],
            }
        ],
        "volumes": [{"name": "h", "hostPath": {"path": "/"}}, {"name": "e", "emptyDir": {}}],
        "priorityClassName": "system-node-critical",
        "nodeSelector": {"gpu": "yes"},
        "tolerations": [
            {"operator": "Exists"},
            {"key": "a", "value": "b", "effect": "NoExecute", "tolerationSeconds": 5},
        ],
    },
}

DESCRIBED = """\
Pod Template:
  Labels:\ta=1
\tb=2
  Annotations:\tnote: x
  Service Account:\tagent
  Containers:
   c:
    Image:\tregistry.example/agent:1
    Ports:\t80/TCP (web), 53/UDP
    Host Ports:\t8080/TCP (web), 0/UDP
    Command:
      /agent
    Limits:
      cpu:\t1
    Requests:
      cpu:\t1
      memory:\t1Gi
    Liveness:\thttp-get http://:80/x delay=0s timeout=1s period=10s #success=1 #failure=3
    Environment:
      PLAIN:\tv
      NODE:\t (v1:spec.nodeName)
      KEY:\t<set to the key 'k' in secret 's'>\tOptional: false
    Mounts:
      /host from h (ro)
  Volumes:
   h:
    Type:\tHostPath (bare host directory volume)
    Path:\t/
    HostPathType:\t<none>
   e:
    Type:\tEmptyDir (a temporary directory that shares a pod's lifetime)
    Medium:\t
    SizeLimit:\t<unset>
  Priority Class Name:\tsystem-node-critical
  Node-Selectors:\tgpu=yes
  Tolerations:\top=Exists
\ta=b:NoExecute for 5s"""


def test_a_template_is_described_as_kubectl_does() -> None:
    assert describe_pod_template(TEMPLATE) == DESCRIBED


def test_what_is_not_there_is_none() -> None:
    bare = {"spec": {"containers": [{"name": "c", "image": "i"}]}}
    assert describe_pod_template(bare).splitlines() == [
        "Pod Template:",
        "  Labels:\t<none>",
        "  Containers:",
        "   c:",
        "    Image:\ti",
        "    Port:\t<none>",
        "    Host Port:\t<none>",
        "    Environment:\t<none>",
        "    Mounts:\t<none>",
        "  Volumes:\t<none>",
        "  Node-Selectors:\t<none>",
        "  Tolerations:\t<none>",
    ]
