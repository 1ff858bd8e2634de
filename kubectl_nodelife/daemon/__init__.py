"""The per-user process that watches one cluster, plans in dry-run, and answers at once.

`paths` and `client` are the half that every quick command loads: nothing in them
imports more than a socket and json. The rest is the process itself, in the order of a run:

- `instance` starts it in the background and sees that there is one for each user and cluster,
  `process` takes its state folder, `flags` and `settings` say how it runs, and
  `run` plugs it together, up to `own_program`, which passes the work to a newer version.
- News come to `decisions`, the one task that touches the engine; `gate` (with their queue) and
  `lease_check` say whether the controllers may decide, and what is watched.
- `controller_host` is the engine with its overlay. What the running controllers do is seen as
  changes of objects: `foreign_writes` reads their actions off two versions of one, which is
  detection alone, and where we enforce it says that another program writes what only such a
  controller does. For planning only, `follower` puts events in order, records what was done before
  ours was due and adjusts our passes and tokens to it, with `daemonset_acts` for DaemonSets.
  `ledger` numbers what is planned; `journal` keeps it as `changes`, in their file.
- `enforce` writes, after `preflight`; `intents` is its journal of writes.
- `server` answers: from `cluster_view`, `forked_answers` and `divergence_recorder`;
  `metrics` and `ui` show the same to others, and `notices` notifies people.
"""
