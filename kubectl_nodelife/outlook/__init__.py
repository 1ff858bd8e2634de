"""Predicts what the controllers do next, from what they remember of the cluster.

Pure: a cache, the controllers and `now` in, plain values out. What cannot be known from outside
(tokens left in a rate limiter, when a monitor pass falls) is given as a range.
"""
