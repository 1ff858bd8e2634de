"""Pure rules that several users share.

- disruption: `budgets` (the arithmetic), `budget_ledger` (one budget over time), `scales`,
  `eviction`, `matching`
- scheduling: `scheduling` are the filters, with `spread`, `interpod`, `volumes`;
  `scoring` chooses among the nodes that fit; `placement` does both for many pods, by `pod_classes`
  and `placement_rules`
- owners: `owners` (what replaces a pod), `daemonset_defaults`, `endpoints`,
  `time_to_ready`
- drains: `waves`; `force_advice` and `node_readiness`: pods on dead nodes
"""
