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
        opened = open_log(data)
    except NotALog:
        raise Refusal("file", sentence(problem)) from None
    except ImportFault as fault:
        raise Refusal("file", sentence(fault)) from None
    if not opened.traces:
        values = "; ".join(f"{name}: {value}" for name, value in opened.numbers[0].values.items())
        told = f"{opened.title} gives numbers of many requests, which are no run. {opened.numbers[0].title}: {values}"
        raise Refusal("file", f"{told[:900]}. Acceptance, on the page Runs, makes a set of it: add the file there.")
    if len(opened.traces) > MOST_REQUESTS:
        opened.notes.append(f"the first {MOST_REQUESTS} of {len(opened.traces)} requests in this file were opened")
    if "imported" in (run := opened.traces[0].run):
        run["imported"]["notes"] += opened.notes
    return opened.traces[:MOST_REQUESTS]
