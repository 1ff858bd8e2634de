"""The kubelet's pod status manager: as a machine for simulated kubelets, and as a judge from
outside.

Inside view, after pkg/kubelet/status: `releases` (what differs between releases), `conditions`
(what a kubelet computes), `status` (normal form, equality), `transition` (terminated containers),
`merge` (what is sent), `pods` and `calls` (what the machine stands on), `machine`,
`controller` (the machines of a virtual cluster's kubelets).

Outside view, our own: `classify` (does a pod's readiness fit its containers and its node?).
"""
