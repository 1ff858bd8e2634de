"""Studies: one cluster, many settings, many failures, each played for hours on virtual time.

    study -> points of its space x seeds -> runs, each on a fork of its point's present
          -> what each run measures -> quantiles, intervals, paired differences, assertions

`study` reads the document, `points` has its space, its base and what a point makes of it,
`failures` define what fails when, `runs` plays and measures, `result` sums up and keeps runs in
files, and only `pool` uses Dask.
"""
