"""A virtual cluster: scenario in, timeline out. It plugs into the loop in place of a real one.

The controllers that run on it are the real ones; what is simulated here is everything around them.

- in: `scenario` with its `events` and `fields`; `generate` makes clusters; `run` plays one
- the cluster: `world` over `api`, `kubelet` (with `kubelet_state` and `conditions`), `machines`
  under the kubelets, `scheduler`, `owners`, `disruption` (budgets),
  `endpoints` (Services), `defaults`; `agenda` knows what happens when
- a world forks (`World.fork`) in a tenth of a millisecond, whatever its size: its parts share what
  does not change, and `agenda` keeps happenings as data
- people: `script` does what the scenario says; `kubectl` is `kubectl drain`, `drained` its cluster;
  `upgrade_run` hosts the leaders of an upgrade, `upgrade_work` what they have done to machines
- out: `timeline` words the records, of `acts` too; `story` and `losses` sum them up
"""
