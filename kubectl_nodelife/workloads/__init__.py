"""Pure rules that several users share.

- disruption: `budgets` (the arithmetic and the Eviction API's decision)
- scheduling: `scheduling` are the filters, with `topology`; `scoring` chooses among the nodes that
  fit; `placement` does both for many pods, by `pod_classes` and `placement_rules`
- owners: `owners` (what replaces a pod, and how many there should be)
- admission: `admission` (what the API server refuses: namespaces that end, webhooks, policies)
- drains: `waves`; `force_advice`: pods on dead nodes
"""
