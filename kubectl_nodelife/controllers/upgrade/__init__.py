"""Node upgrades: takes nodes out, has something done to them, proves them, and gives them back.

No controller of Kubernetes does this. `policy.py` says what a run may do, `marks.py` what stands on
a node, `document.py` what stands on the run's Lease; `controller.py` says what a leader does with
the controller, `memory.py` what it must pass. A state of a node has a file of its own.
"""
