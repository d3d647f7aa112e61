"""Units of work on many workers: processes, Ray or SLURM. The folder of results is the only state.

Read ``work`` first (what a unit, a job and a worker are), then ``folder`` (where results go), then ``sweep`` (the loop
that hands units out). Workers are backends (processes, Ray's actors) under a ``supervisor``, as the app's are, or a
``slurm_array``, both behind the four calls of ``pool``. Nothing here knows what a unit does:
``specviz.experiments.units`` says that.
"""
