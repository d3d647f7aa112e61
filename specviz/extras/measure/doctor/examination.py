"""An examination of the drafter doctor where the model is, a stage at a time: by the app, or by a backend of it.

Functions of a ``Holder`` and plain JSON; between two stages runs of others are made.
"""

from __future__ import annotations

from collections.abc import Generator, Mapping
from functools import partial
from typing import Any

from decoders.errors import UserError
from decoders.prompt.files import PromptRecord
from specviz.server.backend_host import Holder

from .. import stages

MEMORY = "doctor"
LOST = "the model was exchanged, or its backend lost, while it was examined: examine it again"
ROOM = 64  # tokens that a prompt in another form may have more


def advance(holder: Holder, request: Mapping[str, Any]) -> dict[str, Any]:
    """Do the next stage of the examination ``key``, which ``begin`` describes where it is the first: ``Stage``'s
    fields, or the {"report"} behind the last one.

    Raises UserError where the examination is not held here (any more), and as ``doctor.examination``.
    """
    begin = partial(_begin, holder, request["begin"]) if "begin" in request else None
    stage = stages.advance(holder, MEMORY, request["key"], begin, LOST)
    return {"report": stage["report"].to_json()} if "report" in stage else stage


def forget(holder: Holder, request: Mapping[str, Any]) -> dict[str, Any]:
    """Let go of an examination that was stopped."""
    return stages.forget(holder, MEMORY, request["key"])


def _begin(holder: Holder, request: Mapping[str, Any]) -> Generator[Any, None, Any]:
    from .doctor import examination
    from .server import ServerNumbers
    from .setup import drafting_of, forms_of, is_rounded, prompts_of, skip_reasons

    target, new, raw = holder.target, request["max_new_tokens"], request["raw"]
    records = [_record(record) for record in request["records"]]
    pairs = zip(records, prompts_of(target.tokenizer, records, raw), strict=True)
    fitting = [(record, prompt) for record, prompt in pairs if len(prompt.tokens) + new + ROOM <= target.context_length]
    if not fitting:
        raise UserError(f"no prompt fits the {target.context_length:,} tokens that {target.name} reads: take others")
    records, prompts = [record for record, _ in fitting], [prompt for _, prompt in fitting]
    forms = forms_of(target.tokenizer, records, prompts, raw)
    server = None if request["server"] is None else ServerNumbers(request["server"][0], tuple(request["server"][1]))
    skips = skip_reasons(target, forms, server is not None)
    if is_rounded(target):
        skips.append("precision: specviz doctor examines it, which opens the target in float32 too")
    return examination(
        drafting_of(target, request["part"]), prompts, part=request["title"], max_new_tokens=new,
        places=request["places"],
        temperature=request["temperature"], forms=forms, server=server, skipped_causes=skips,
    )  # fmt: skip


def _record(data: Mapping[str, Any]) -> PromptRecord:
    """A record back from JSON, which has lists for tuples."""
    tuples = {name: tuple(data[name]) for name in ("turns", "context", "further_references")}
    return PromptRecord(**{**data, **tuples, "messages": tuple((role, text) for role, text in data["messages"])})
