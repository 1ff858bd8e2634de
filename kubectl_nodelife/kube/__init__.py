"""Kubernetes' vocabulary, without opinions: slices of its objects, and what their fields mean.

- slices: `meta`, `node`, `pod`, `workload`, `service`, `storage`, `admission`; `kinds` lists them
  by kind and apiVersion
- in: `load` takes a file's text through `documents` to `object_reader`, which decodes and checks
  each object (`codec`) or sets it aside (`unreadable`); out: `codec`, too
- meaning: `names`, `times`, `quantity`, `selectors`, `taints`, `lifecycle`, `field_managers`; `cel`
  is for expressions of admission policies
"""
