"""What an upgrade asks of the drain planner, the scheduler and other controllers, and its plan.

The controller itself is `controllers/upgrade`; it is handed in what is here.
"""
