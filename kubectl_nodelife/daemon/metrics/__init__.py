"""Metrics of the daemon: `families` is the table of them, `recorder` keeps their values in memory,
and `endpoint` makes the text with prometheus_client and serves it.

The other modules of the folder are where values come from: nodes and zones (`cluster_sample`), the
changes of the journal (`values`), and what the daemon does not watch (there as well).
`alerts.yaml` holds the alerting rules.
"""
