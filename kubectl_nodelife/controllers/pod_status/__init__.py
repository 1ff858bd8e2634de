"""The kubelet's pod status manager, after pkg/kubelet/status, for simulated kubelets.

`releases` (what differs between releases), `conditions` (what a kubelet computes), `status` (normal
form, equality), `transition` (terminated containers), `merge` (what is sent), `pods` and `calls`
(what the machine stands on), `machine`, `controller` (the machines of a virtual cluster's
kubelets). What the API shows of a pod's readiness is judged in `outlook/audit`.
"""
