"""Studies: one cluster, many settings, many failures, each played for hours on virtual time.

    study -> points of its space x seeds -> runs, each on a fork of its point's present
          -> what each run measures -> quantiles, intervals, paired differences, assertions

`study` reads the document, `space` makes its points, `laws`, `failures` and `trace` say what fails
when, `base` is the cluster as it is sent to workers, `points` what a point makes of it, `runs`
plays, `measures` reads a play, `statistics` and `result` sum up, `store` keeps runs in files, and
`pool` is the only one that knows of Dask.
"""
