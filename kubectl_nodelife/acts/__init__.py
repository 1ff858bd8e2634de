"""One-off acts that a person orders and watches: `repair`, `daemonset undo`, `drain`.

`session` is what every act writes through: checks before the first write, a journal of intents of
its own, the kill switch, the guard. It carries single actions out by the live executor, or sends
them as server-side dry runs. `drain` drains nodes wave by wave by a plan; `node_drain` is one
node's turn in it. No daemon is needed, and no Lease: a person is there.
"""
