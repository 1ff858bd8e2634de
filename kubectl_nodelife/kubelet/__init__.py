"""The kubelet's pod status manager, after pkg/kubelet/status, without a kubelet around it.

`releases` (what differs between releases), `conditions` (what a kubelet computes), `status` (normal
form, equality), `transition` (terminated containers), `pods` and `calls`
(what the machine stands on), `machine`, `containers` (what a pod sync computes), `reclaim` (what
must be gone before a pod object may go). The machines of a virtual cluster's kubelets run in
`sim/status_manager`; what the API shows of a pod's readiness is judged in `outlook/audit`.
"""
