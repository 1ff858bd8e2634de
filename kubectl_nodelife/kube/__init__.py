"""Kubernetes' vocabulary, without opinions: slices of its objects, and what their fields mean.

- slices: `meta`, `node`, `pod`, `workload`, `service`, `storage`, `admission`; `kinds` lists them
  by kind and apiVersion
- in: `load` takes a file's text through `documents` (and `yaml_stream`) to `object_reader`, which
  decodes each object (`decode`, `value_checks`) or sets it aside (`unreadable`); out: `encode`
- meaning: `times`, `quantity`, `selectors`, `taints`, `lifecycle`, `field_managers`; `cel` is
  for expressions of admission policies
"""
