"""The runtime of the controllers: events in, actions out. Read `engine` first.

- `events`, `cache`: what happened, and the picture of the cluster that it makes; `quarantine`: what
  cannot be read, and what is refused because of it
- `controller`: what a controller is to the engine
- `actions`: what is decided, a file for what it concerns; `calls`: each action as API calls
- `workqueue`: what is due when, and what must wait for a token
- `settings`, `profiles`: the flags and gates of a release
- `loop`: the driver on virtual time (`live.loop` is the same in real time), and who hosts an engine
- `overlay`: what a dry run plans, laid over the cluster; `settlement`: whether a plan still stands
- `guard`, `dependent_writes`, `election`: what a writer asks before it writes
"""
