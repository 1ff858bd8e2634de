"""The runtime of the controllers: events in, actions out. Read `engine` first; it has the driver on
virtual time, too (`live.loop` is the same in real time), and who hosts an engine.

- `events`, `cache`: what happened, and the picture of the cluster that it makes; `quarantine`: what
  cannot be read, and what is refused because of it
- `controller`: what a controller is to the engine
- `actions`: what is decided, and by whom; `calls`: each action as API calls
- `workqueue`: what is due when, and what must wait for a token
- `settings`: the behaviour, flags and gates of a release; `pace`: how fast its clients are
- `heartbeat`: signs of life of kubelets
- `overlay`: what a dry run plans, laid over the cluster; `settlement`: whether a plan still stands
- `guard`, `dependent_writes`, `election`: what a writer asks before it writes
"""
