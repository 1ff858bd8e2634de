"""Pure rules that several users share.

- disruption: `budgets` (the arithmetic and the Eviction API's decision), `budget_ledger` (one
  budget over time)
- scheduling: `scheduling` are the filters, with `topology`, `volumes`; `scoring` chooses among
  the nodes that fit; `placement` does both for many pods, by `pod_classes` and `placement_rules`
- owners: `owners` (what replaces a pod, and how many there should be), `time_to_ready`
- admission: `admission` (what the API server refuses: namespaces that end, webhooks, policies)
- drains: `waves`; `force_advice` and `node_readiness`: pods on dead nodes
"""
