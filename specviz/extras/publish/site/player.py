"""A run as the player of a static site gets it: its output, its steps and their drafts, without the prompt.

Of 300 tokens, some 2 kB for a copying method and 30 kB for trees of 60 nodes: no column is there that the player does
not draw or that follows from others, tokens are numbered by how often they occur, and probabilities have two digits;
those of nodes that the target never judged are left out.
"""

from __future__ import annotations

from collections import Counter
from typing import Any

from decoders.importers.request_trace import NOT_RECORDED
from decoders.trace.trace import Trace

RUN = ("title", "complete", "stop", "opens", "unknown")
STEPS = ("drafted", "accepted", "emitted")


def player_document(trace: Trace) -> dict[str, Any]:
    """The form of which ``player/unfold.js`` makes a trace, whose prompt is its last token alone.

    ``pieces``: bytes in hexadecimal and whether special, of the tokens numbered 0, 1, …; ``tokens``, ``bonus`` and
    ``nodes.token`` count by them (-1: none, -2: not recorded). ``nodes.up``: how many rows above its parent stands (a
    root: 0).
    """
    run, tables = trace.run, trace.tables
    tokens, steps, nodes = (tables[name] for name in ("tokens", "steps", "nodes"))
    offset = max(0, int(run["prompt_length"]) - 1)  # positions that are left out
    ids = tokens["id"][offset:]
    counts = Counter([*ids, *steps["bonus"], *nodes["token"]])
    bytes_of = {
        token: (text, special)
        for token, text, special in zip(*(tables["pieces"][name] for name in ("id", "hex", "special")), strict=True)
    }
    often = [token for token, _ in counts.most_common() if token not in (-1, NOT_RECORDED)]
    number = {-1: -1, NOT_RECORDED: -2} | {token: place for place, token in enumerate(often)}
    rows: list[int] = []  # of each node its place in its step
    for step, at in enumerate(nodes["step"]):
        rows.append(rows[-1] + 1 if step and nodes["step"][step - 1] == at else 0)
    return {
        "run": {
            **{name: value for name, value in run.items() if name in RUN},
            "prompt_length": len(ids) - len(trace.output_ids),
            "method": {name: run["method"].get(name) for name in ("name", "title")},
            "model": {"name": (run.get("model") or {}).get("name")},
        },
        "pieces": [bytes_of.get(token, ("", True)) for token in often],
        "tokens": [number[token] for token in ids],
        "kinds": tokens["kind"][offset:],
        "steps": {**{name: steps[name] for name in STEPS}, "bonus": [number[token] for token in steps["bonus"]]},
        "nodes": {
            "token": [number[token] for token in nodes["token"]],
            "up": [row - parent if parent >= 0 else 0 for row, parent in zip(rows, nodes["parent"], strict=True)],
            "status": nodes["status"],
            "prob": [
                None if p is None or status == "unreached" else round(p, 2)
                for p, status in zip(nodes["prob"], nodes["status"], strict=True)
            ],
        },
    }  # fmt: skip
