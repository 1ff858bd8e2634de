"""Studies: one cluster, many settings, many failures, each played for hours on virtual time.

    study -> points of its space x seeds -> runs, each on a fork of its point's present
          -> what each run measures -> quantiles, intervals, paired differences, assertions

`study` reads the document, `space` makes its points, `failures` say what fails when, `points` is
the base and what a point makes of it, `runs` plays and measures, `statistics` and `result` sum up,
`store` keeps runs in files, and `pool` is the only one that knows of Dask.
"""
