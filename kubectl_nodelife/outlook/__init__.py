"""What will happen next, read off the joined controllers' memory: the facts behind `status` and
`explain`.

Pure: a cache, the controllers and `now` in, plain values out. Where something cannot be known from
outside (tokens, the phase of the passes) the value is a range.
"""
