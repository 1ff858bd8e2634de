"""The runtime of the controllers: events in, actions out. Read `engine` first.

- `events`, `cache`: what happened, and the picture of the cluster that it makes
- `controller`: what a controller is to the engine
- `actions`: what is decided, a file for what it concerns; `calls`: each action as API calls
- `timers`, `ratelimit`: who is due when, and who must wait for a token
- `settings`, `profiles`: the flags and gates of a release
- `executor`: who carries actions out: planning only, the virtual cluster, or a writer
- `loop`: the driver on virtual time; `live.loop` is the same in real time
- `overlay`: the overlay of what is planned or on its way; `planned_view`: the objects that it
  changes; `settlement`: whether an entry still stands
"""
