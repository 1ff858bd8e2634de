"""What will Kubernetes do about my nodes, when, why, and why not yet?

One loop, three plugs: a source says what happened and what time it is, the engine decides, an
executor acts. A real cluster and a simulated one differ in the two plugs only.

    API server - list + watch -> live/source -+                  +-> engine/overlay: planning only
                                              +-> loop -> engine +-> live/executor: a writer
    scenario, dump ------------> sim/source --+    ^   cache ->  +-> sim/world: applies, answers,
                                              |    |   controllers     makes the next events
                                              |    |   -> actions --+
                                              |    +--- outcome ----+
                                              +-> journal -> report -> commands -> cli

`engine.step(now, events) -> actions` does no I/O. Controllers are pure: they get the cache and
`now` and return actions, each with the sentence that says why; waiting is an action too. Nothing
in the core calls an API, sleeps, reads a clock, draws a random number, logs or prints. Instants
and durations inside are ints of nanoseconds (`_ns`); other forms of time exist only where text is
read and written. In a dry run nothing is sent: the cache holds two layers, what the cluster shows
(observed) and what our own planned actions would change (the overlay, engine/overlay), and the
controllers read the sum. Where writes are sent, it holds what the cluster shows and nothing else.

Ranked goals, the higher wins:

1. the cluster's safety
2. fidelity to upstream behaviour
3. clarity of the code
4. speed and memory

Import rule (tests/test_layers.py holds it, as a table): a folder imports only from those before
it in

    kube < workloads, engine < kubelet < controllers < sim < drain < upgrade, live < outlook
         < sandbox, snapshot < sweep < daemon < acts, report < dumps < commands < cli

where `engine` does without `workloads`, controllers never import one another or `kubelet`, `live`
and `sim` never each other, and `report` takes data types only. `errors`, `copy_on_write` and
`document` may be imported by all and import nothing. `kube`, `workloads`, `engine`, `kubelet`,
`controllers`, `drain`, `upgrade` and `outlook` are the core: no clock, random, threads, sockets,
asyncio, os, logging or click in there. Only `report` and `cli` print.

- `kube`         Kubernetes' vocabulary without opinions: slices of API objects, taints, selectors
- `workloads`    pure rules with several users: disruption budgets, scheduling predicates, owners
- `engine`       settings and profiles, cache, events, actions, timers, rate limits, the loop
- `kubelet`      the kubelet's pod status manager, a machine that simulated kubelets run
- `controllers`  the decisions, a file or a small folder for each controller
- `drain`        the drain planner; its kubectl is that of `sim`
- `upgrade`      the plan of a node upgrade, and the answers that its controller uses
- `outlook`      each answer: what comes next, read off controllers and plays, and its document
- `live`         a real cluster: kubeconfig and auth, list + watch, the live loop, executor, writer
- `sim`          a virtual cluster: scenario, timeline, kubelets, scheduler, owners, kubectl drain
- `sandbox`      the virtual cluster served as a Kubernetes API on loopback
- `snapshot`     a cluster in a file: what is kept of an object, and the file, on top of `live`
- `sweep`        many futures under many settings, on Dask workers (extra `sweep`)
- `daemon`       the per-user process: socket, single instance, config reload, journal
- `acts`         what a person orders and watches: drain, repair, rollback, the leader of an upgrade
- `report`       results to text, pictures and JSON
- `dumps`        a cluster out of the files that `-f` names: folders, archives, standard input
- `commands`     one file for each verb: parse, plug together, call, report
"""

__version__ = "1.0.0rc1"

PROGRAM = "kubectl-nodelife"
"""The plugin's program, as kubectl and krew look for it on PATH."""
SHIM = "kubectl_complete-nodelife"
"""The program by which kubectl completes the plugin's words."""
