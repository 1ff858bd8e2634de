"""The kubelet's pod status manager, after pkg/kubelet/status, without a kubelet around it.

`releases` (what differs between releases), `conditions` (what a kubelet computes), `status` (normal
form, equality), `machine` (the manager itself, with the pods that it received), `containers` (what
a pod sync computes, and terminated containers), `reclaim` (what must be gone before a pod object
may go). The machines of a virtual cluster's kubelets run in `sim/status_manager`; what the API
shows of a pod's readiness is judged in `outlook/audit`.
"""
