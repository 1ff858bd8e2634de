"""Keeps a planning copy of the controllers beside the running ones.

What the running controllers do is seen as changes of objects. `foreign_writes` reads their actions
off two versions of an object; that is detection alone, and where we enforce it says that another
program writes what only such a controller does. Following is for planning only: `follower` puts
events in order, records what was done before ours was due and adjusts our passes and tokens to it;
`daemonset_acts` holds the DaemonSet controller's acts against what our copy plans.
"""
