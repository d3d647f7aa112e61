"""Units of work on many workers, and the workers behind an app. The folder of results is a sweep's only state.

Read ``work`` first (a unit, a job, a worker), then ``folder`` (where results go), then ``sweep`` (the loop that hands
units out). A worker is an executor with ``concurrent.futures``' interface (``executors``); a ``supervisor`` opens it,
and opens it anew after a loss. Nothing here knows what a unit does.
"""

from decoders.extra import cards

from .kinds import register
from .processes import PROCESSES

for kind in (PROCESSES, *(kind for _, kind in cards("workers", "WORKERS"))):
    register(kind)
