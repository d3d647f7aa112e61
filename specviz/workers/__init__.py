"""Units of work on many workers: processes, Ray or SLURM. The folder of results is the only state.

Read ``work`` first (what a unit, a job and a worker are), then ``folder`` (where results go), then ``sweep`` (the loop
that hands units out). ``kept`` (on ``backends``, which are processes or Ray's actors) and ``slurm_array`` are
workers behind the four calls of ``pool``. Nothing here knows what a unit does: ``specviz.experiments.units`` says that.
"""
