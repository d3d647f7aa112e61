"""Files that are no traces: an answer or a log of a server."""

from __future__ import annotations

from typing import Any

from specviz.words import sentence

from .forms import Refusal

MOST_REQUESTS = 20  # of one log that are opened at once


def import_runs(data: bytes, problem: Exception) -> list[Any]:
    """The runs in a server's file. Raises Refusal: ``problem`` where it is none, its numbers where it has no run."""
    from decoders.importers import ImportFault, NotALog, open_log

    try:
        log = open_log(data)
    except NotALog:
        raise Refusal("file", sentence(problem)) from None
    except ImportFault as fault:
        raise Refusal("file", sentence(fault)) from None
    if not log.traces:
        values = "; ".join(f"{name}: {value}" for name, value in log.numbers[0].values.items())
        explanation = f"{log.title} gives numbers of many requests, which are no run. {log.numbers[0].title}: {values}"
        raise Refusal(
            "file", f"{explanation[:900]}. Acceptance, on the page Runs, makes a set of it: add the file there."
        )
    if len(log.traces) > MOST_REQUESTS:
        log.notes.append(f"the first {MOST_REQUESTS} of {len(log.traces)} requests in this file were opened")
    if "imported" in (run := log.traces[0].run):
        run["imported"]["notes"] += log.notes
    return log.traces[:MOST_REQUESTS]
