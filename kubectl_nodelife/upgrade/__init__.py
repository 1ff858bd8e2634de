"""The questions of an upgrade to drain planner, scheduler and other controllers, and its plan.

The controller itself is `controllers/upgrade`; it receives what is here.
"""
