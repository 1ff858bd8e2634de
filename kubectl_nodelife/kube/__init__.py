"""Kubernetes' vocabulary, without opinions: slices of its objects, and what their fields mean.

- slices: `meta`, `node`, `pod`, `workload`, `core`, `storage`, `admission`, `affinity`; `kinds`
  lists them by kind and apiVersion
- in and out: `load` (files) over `documents`, `decode` and `share`; `encode`
- meaning: `times`, `duration`, `quantity`, `selectors`, `taints`, `zones`, `pod_conditions`
"""
