"""Answer files of EAGLE's and Spec-Bench's evaluation: a line per question, with what each turn's steps wrote.

Spec-Bench, evaluation/eval.py: ``choices[].turns``, ``new_tokens``, ``wall_time`` and ``decoding_steps`` per turn, and
``accept_lengths``, the tokens that each step of all turns wrote, the target's own included (its τ is their mean).
EAGLE, evaluation/gen_ea_answer_*.py: the same with ``idxs`` in place of the steps: the loop's last index, which counts
from 0, so that a turn has one step more. Others add ``acceptance_length``, a list of steps per turn.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import accumulate, pairwise
from typing import Any

from decoders.importers.importer import Contents, Importer
from decoders.importers.request import MOST_REQUESTS, Request, ServerStep, Token, check_tokens
from decoders.importers.source import LogSource
from decoders.importers.values import clean, dicts, number, whole

LENGTHS = ("accept_lengths", "accept_length", "acceptance_lengths", "acceptance_length", "accept_length_list")
STEPS = ("decoding_steps", "idxs", "steps")
INDEX = "idxs"
FROM_0 = "idxs count from 0: a turn has one step more; τ is Σ new_tokens ÷ Σ (idxs + 1)"


def read(source: LogSource) -> Contents | None:
    """A request per turn, or per question where the steps are not told by turn."""
    contents, tokens = Contents(), 0
    for document in source.documents:
        key = str(document.value.get("question_id", document.value.get("task_id", "")))
        model = str(document.value.get("model_id") or "")
        for choice in dicts(document.value.get("choices")):
            if "new_tokens" not in choice or len(contents.requests) > MOST_REQUESTS:
                continue
            for request in _turns(choice, f"question {clean(key[:60])}", model):
                tokens += len(request.tokens)
                check_tokens(tokens)
                contents.requests.append(request)
    return contents if contents.requests else None


def _as_list(value: Any) -> list[Any]:
    return value if isinstance(value, list) else [] if value is None else [value]


def _counts(values: Any) -> list[int] | None:
    """Whole numbers, also where a program wrote them with a point."""
    counts = [whole(int(n)) if (n := number(value)) is not None and n == int(n) else None for value in _as_list(values)]
    return None if not counts or None in counts else [count for count in counts if count is not None]


def _turns(choice: dict[str, Any], key: str, model: str) -> Iterator[Request]:
    wrote = _counts(choice.get("new_tokens"))
    if wrote is None:
        return
    name = next((name for name in STEPS if _counts(choice.get(name)) is not None), "")
    steps = _counts(choice.get(name)) or []
    lengths = next((choice[name] for name in LENGTHS if isinstance(choice.get(name), list)), [])
    nested = [_counts(turn) for turn in lengths] if lengths and all(isinstance(turn, list) for turn in lengths) else []
    flat = _counts(lengths) if lengths and not nested else None
    if flat is not None:
        step_counts = [count + (name == INDEX and sum(steps) != len(flat)) for count in steps]
        if len(step_counts) == len(wrote) and sum(step_counts) == len(flat):
            ends = [0, *accumulate(step_counts)]
            nested = [flat[start:end] for start, end in pairwise(ends)]
        else:  # which steps are of which turn is not told
            steps, wrote, nested = [], [sum(wrote)], [flat]
            choice = {**choice, "turns": ["".join(str(turn) for turn in _as_list(choice.get("turns")))]}
    times = _as_list(choice.get("wall_time"))
    texts = _as_list(choice.get("turns", choice.get("output")))
    for turn, count in enumerate(wrote):
        accept_lengths = nested[turn] if turn < len(nested) else None
        request = Request(f"{key}, turn {turn + 1}" if len(wrote) > 1 else key, model)
        request.text = str(texts[turn]) if turn < len(texts) else ""
        request.server_fields = {"new_tokens": count}
        request.totals["tokens"] = count
        if turn < len(times) and (seconds := number(times[turn])) is not None:
            request.server_fields["wall_time"] = seconds
            if len(times) == len(wrote):
                request.decode_ms = seconds * 1e3
        if turn < len(steps):
            request.server_fields[name] = steps[turn]
        if accept_lengths and min(accept_lengths) >= 1:
            request.server_fields["mean accept length"] = sum(accept_lengths) / len(accept_lengths)
            request.tokens = [Token()] * sum(accept_lengths)
            request.steps = [ServerStep(length, length - 1) for length in accept_lengths]
        else:
            request.tokens = [Token()] * min(count, 10**7)
            if turn < len(steps):
                request.totals["steps"] = steps[turn] + (name == INDEX)
                request.notes += [FROM_0] if name == INDEX else []
        yield request


FIELDS = frozenset((*LENGTHS, *STEPS, "new_tokens"))
IMPORTER = Importer("spec-bench", "EAGLE's or Spec-Bench's answers", read, order=9, fields=FIELDS)
