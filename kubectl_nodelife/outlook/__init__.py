"""Every answer, from what the controllers remember and from plays, to the document that shows it.

Pure: a `ClusterView` (`view.py`), controllers, plans or lines of a timeline and `now` in, plain
values out. What cannot be known from outside (tokens left in a rate limiter, when a monitor pass
falls) is given as a range. A document is made once, and the terminal, the daemon's socket and the
page show it: plain JSON values with `apiVersion` and `kind`, in the order of keys in which they are
printed. How an answer looks to people is `report`'s.
"""
