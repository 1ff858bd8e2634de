"""A virtual cluster: it plays a scenario into a timeline. The loop runs on it as on a real cluster.

The controllers that run on it are the real ones; everything around them is simulated here.

- in: `scenario` with its `events` and `fields`; `generate` makes clusters; `present` joins a
  running one and forks it into branches; `run` plays one
- the cluster: `world` over `api`, `kubelet` (with `kubelet_state`), `machines`
  under the kubelets, `scheduler`, `owners`, `disruption` (budgets), `endpoints` (Services),
  `namespaces` (those that end); `timing`: how long things take that were not read
- a world forks (`World.fork`) in a tenth of a millisecond, whatever its size: its parts share what
  does not change, and the agenda in `timeline` stores happenings as data
- users: `script` plays the scenario's events; `kubectl` is `kubectl drain`, `drained` its cluster;
  `upgrade_run` hosts the leaders of an upgrade, `upgrade_work` plays their work on machines
- out: `timeline` words the records, and `run` sums them up
"""
