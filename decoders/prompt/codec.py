"""A prompt as plain JSON, back from it, and as a recorded run read it: one codec for all that hand prompts on."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict
from typing import Any

import numpy as np

from decoders.trace.trace import Trace

from .grammar import Grammar
from .prompt import Dialogue, Pool, Prompt, Segment, segments_of


def to_json(prompt: Prompt) -> dict[str, Any]:
    """A prompt with all that a run of it may read."""
    pool, held = prompt.pool, None
    if pool is not None:
        positions = None if pool.positions is None else pool.positions.tolist()
        held = {
            "tokens": pool.tokens.tolist(), "starts": list(pool.starts), "positions": positions, "label": pool.label,
        }  # fmt: skip
    talk = prompt.dialogue
    return {
        "tokens": list(map(int, prompt.tokens)),
        "segments": [[s.name, s.start, s.stop, s.passage] for s in prompt.segments], "pool": held,
        "compression": prompt.compression, "reference": prompt.reference, "reference_of": prompt.reference_of,
        "dialogue": talk and {name: getattr(talk, name) for name in talk.__slots__},
        "grammar": prompt.grammar and asdict(prompt.grammar),
    }  # fmt: skip


def from_json(data: Mapping[str, Any]) -> Prompt:
    """Back from ``to_json``."""
    pool, talk = data["pool"], data.get("dialogue")
    if pool is not None:
        positions = None if pool["positions"] is None else np.asarray(pool["positions"], dtype=np.int64)
        pool = Pool(np.asarray(pool["tokens"], dtype=np.int64), tuple(pool["starts"]), positions, pool["label"])
    if talk is not None:
        messages = tuple((role, text) for role, text in talk["messages"])
        talk = Dialogue(messages, tuple(talk["further"]), tuple(talk["references"]), talk["turn"])
    return Prompt(
        tuple(data["tokens"]), tuple(Segment(*segment) for segment in data["segments"]), pool, data["compression"],
        data["reference"], data["reference_of"], talk, grammar=data.get("grammar") and Grammar(**data["grammar"]),
    )  # fmt: skip


def of_trace(trace: Trace) -> Prompt:
    """The prompt that a recorded run read, token by token: its segments, its pool (where all of it was recorded, see
    ``pool_is_partial``), what compression left out, and its reference.
    """
    tokens, run = trace.tables["tokens"], trace.run
    length = run["prompt_length"]
    segments = segments_of(zip(tokens["segment"][:length], tokens["passage"][:length], strict=True))
    pool_record, pool = run.get("pool") or {}, None
    if not pool_record.get("in_prompt", True) and not pool_is_partial(trace):
        columns = (trace.tables["pool"][name] for name in ("position", "id", "passage"))
        positions, ids, passages = np.array([*columns], dtype=np.int64)
        order = np.argsort(positions)
        ids, passages = ids[order], passages[order]
        starts = (0, *(np.flatnonzero(np.diff(passages)) + 1).tolist())
        pool = Pool(ids, starts, None, str(pool_record.get("label", "the pool")))
    reference, reference_source = (str(run.get(name) or "") for name in ("reference", "reference_of"))
    compression = dict(run["compression"]) if "compression" in run else None
    form = run.get("grammar")
    grammar = form and Grammar(form["kind"], form["text"], form["drafts"], form["prefix"])
    return Prompt(tuple(trace.prompt_ids), segments, pool, compression, reference, reference_source, grammar=grammar)


def pool_is_partial(trace: Trace) -> bool:
    """True where a run drafted from a text of which it recorded parts only."""
    pool = trace.run.get("pool") or {}
    return not pool.get("in_prompt", True) and pool.get("tokens") != trace.rows("pool")
