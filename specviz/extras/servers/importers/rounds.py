"""The least that a run can say of itself, in a form of our own (docs/spectrace.md): how much each round drafted and how
much of it was accepted.

``{"rounds": [{"drafted": 5, "accepted": 3}, …]}``; a round may have ``ids`` (the tokens that it emitted), ``text`` (of
them), ``draft`` (the drafted ids), ``emitted`` (by default ``accepted`` + 1), ``draft_ms`` and ``verify_ms``; the
object ``id``, ``model``, ``method``, ``prompt`` (text) and ``prompt_ids``. All but the rounds may be left out.
"""

from __future__ import annotations

from itertools import accumulate
from typing import Any

from decoders.importers.importer import Contents, Importer
from decoders.importers.request import ImportFault, Request, ServerStep, Token, check_tokens
from decoders.importers.source import LogSource
from decoders.importers.values import dicts, number, numbers, whole

COLUMNS = ("drafted", "accepted")


def read(source: LogSource) -> Contents | None:
    """A request per object with rounds."""
    contents = Contents()
    for place, document in enumerate(source.documents):
        rounds = dicts(document.value.get("rounds"))
        if rounds and any(name in entry for entry in rounds for name in COLUMNS):
            contents.requests.append(_request(document.value, rounds, f"run {place + 1}"))
    return contents if contents.requests else None


def _request(value: dict[str, Any], rounds: list[dict[str, Any]], key: str) -> Request:
    request = Request(str(value.get("id") or key)[:80], str(value.get("model") or "")[:200])
    request.prompt = value["prompt"] if isinstance(value.get("prompt"), str) else None
    request.prompt_ids = numbers(value.get("prompt_ids")) or ()
    steps = request.steps = [_step(entry, number) for number, entry in enumerate(rounds, 1)]
    check_tokens(list(accumulate(step.emitted for step in steps))[-1])
    for entry, step in zip(rounds, steps, strict=True):
        ids, text = numbers(entry.get("ids")), entry.get("text")
        ids = ids if ids is not None and len(ids) == step.emitted else [None] * step.emitted
        texts = [text if isinstance(text, str) and place == 0 else None for place in range(step.emitted)]
        request.tokens += [Token(token, piece) for token, piece in zip(ids, texts, strict=True)]
    request.server_fields = {name: value[name] for name in ("method", "model") if isinstance(value.get(name), str)}
    return request


def _step(entry: dict[str, Any], place: int) -> ServerStep:
    """A round. Raises ImportFault for counts that cannot be."""
    draft = numbers(entry.get("draft"))
    drafted, accepted = whole(entry.get("drafted")), whole(entry.get("accepted"))
    drafted = len(draft) if drafted is None and draft is not None else drafted
    if drafted is not None and accepted is not None and accepted > drafted:
        raise ImportFault(f"round {place} accepted {accepted} of {drafted} drafted tokens: give accepted ≤ drafted")
    if draft is not None and len(draft) != drafted:
        raise ImportFault(f"round {place} drafted {drafted} tokens and its draft has {len(draft)}: give as many")
    emitted = whole(entry.get("emitted"))
    emitted = (accepted or 0) + 1 if emitted is None else emitted
    chain = [[(token, None, None)] for token in draft or ()]
    draft_ms, verify_ms = number(entry.get("draft_ms")), number(entry.get("verify_ms"))
    return ServerStep(emitted, accepted, drafted, chain, draft_ms=draft_ms, verify_ms=verify_ms)


IMPORTER = Importer("rounds", "A run's rounds: drafted and accepted", read, order=20)
