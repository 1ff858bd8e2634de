"""Metrics of the daemon: `families` is the table of them, `recorder` keeps their values in memory,
and `endpoint` makes the text with prometheus_client and serves it.

Nodes, zones and what the daemon does not watch are looked at by `cluster_sample`.
`alerts.yaml` holds the alerting rules, `dashboard.yaml` the dashboard.
"""
