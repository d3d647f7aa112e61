"""Fields about drafts in somebody else's JSON: found by their names, wherever they stand, and read as totals.

Servers give one count many names (``draft_n``, ``num_draft_tokens``, ``total_draft_tokens_count``): the names of one
count are aliases here, of which the first that a file has is taken, so that none is added to another.
"""

from __future__ import annotations

import re
from collections import deque
from collections.abc import Iterator, Mapping
from typing import Any

from .values import clean, number, whole

ABOUT_DRAFTS = re.compile(
    r"draft|accept|reject|specul|(?:^|_)spec_|(?:^|_)mtp(?:_|$)|medusa|eagle|lookahead|tokens_per_(?:iter|step)"
)
CAMEL = re.compile(r"(?<=[a-z0-9])(?=[A-Z])")
NOT_LOOKED_INTO = frozenset(("logprobs", "content", "top_logprobs", "tool_calls", "messages", "prompt_logprobs"))
MOST_FIELDS, MOST_DEPTH, MOST_LISTED = 20_000, 8, 20  # values looked at, objects within one another, items of a list
MOST_NAMED = 12

# the names of each count, the most particular first: all lower case, words joined by _
ALIASES: dict[str, tuple[str, ...]] = {
    "drafted": (
        "num_draft_tokens", "draft_n", "n_drafted", "total_draft_tokens", "total_draft_tokens_count",
        "spec_num_proposed_drafts", "spec_draft_token_num", "spec_decode_draft_tokens", "spec_decode_num_draft_tokens",
        "num_drafted_tokens", "drafted_tokens", "draft_tokens", "proposed_tokens", "draft_tokens_total",
    ),
    "accepted": (
        "num_accepted_tokens", "num_accepted_draft_tokens", "draft_n_accepted", "n_accept", "n_accepted",
        "total_accepted_draft_tokens", "accepted_draft_tokens_count", "spec_num_correct_drafts",
        "spec_accept_token_num", "spec_decode_accepted_tokens", "spec_decode_num_accepted_tokens",
        "accepted_draft_tokens", "draft_tokens_accepted", "accepted_prediction_tokens", "accepted_tokens",
    ),
    "rejected": ("rejected_prediction_tokens", "rejected_draft_tokens", "draft_tokens_rejected"),
    "drafts": ("num_drafts", "spec_decode_num_drafts", "n_drafts"),
    "steps": ("spec_verify_ct", "num_verify_steps", "verify_steps"),
    "tokens": ("predicted_n", "completion_tokens", "n_predict", "generated_tokens", "tokens_predicted", "eval_count"),
    "cached": ("cached_tokens", "cache_n", "cache_read_input_tokens", "prompt_cache_hit_tokens"),
}  # fmt: skip
LENGTHS = ("avg_decoded_tokens_per_iter", "spec_accept_length")  # tokens per step, of which the steps follow


def snake(name: str) -> str:
    """A field's name in lower case, its words joined by _.

    >>> snake("totalDraftTokensCount"), snake("usage.completion_tokens")
    ('total_draft_tokens_count', 'completion_tokens')
    """
    return CAMEL.sub("_", name.partition("{")[0].rpartition(".")[2][:80]).lower()


def merge_fields(old_fields: Mapping[str, Any], new_fields: Mapping[str, Any]) -> dict[str, Any]:
    """Join two places in which a server says the same: a field by its path goes where the other has it by its name.

    >>> merge_fields({"timings.draft_n": 3, "usage.x": 1}, {"draft_n": 3})
    {'usage.x': 1, 'draft_n': 3}
    """
    return {path: value for path, value in old_fields.items() if path.rpartition(".")[2] not in new_fields} | dict(
        new_fields
    )


def flat(value: Mapping[str, Any]) -> Iterator[tuple[str, Any]]:
    """Every plain value of a document by its path, as many as are looked at; of a list of objects its first ones.

    >>> list(flat({"usage": {"completion_tokens": 3}, "choices": [{"index": 0}]}))
    [('usage.completion_tokens', 3), ('choices.index', 0)]
    """
    waiting = deque[tuple[str, Any, int]]([("", value, 0)])
    field_count = 0
    while waiting and field_count < MOST_FIELDS:
        path, inner, depth = waiting.popleft()
        for name, entry in list(inner.items())[:400]:
            field_count += 1
            if not isinstance(name, str) or name in NOT_LOOKED_INTO:
                continue
            place = f"{path}.{name[:80]}" if path else name[:80]
            several = entry[:MOST_LISTED] if isinstance(entry, list) else [entry]
            objects = [item for item in several if isinstance(item, dict)]
            if objects and depth < MOST_DEPTH:
                waiting += [(place, item, depth + 1) for item in objects]
            elif not objects:
                yield place, entry


def about_drafts(value: Mapping[str, Any]) -> dict[str, Any]:
    """The fields of a document whose names speak of drafts, by their paths: numbers, short texts and lists."""
    fields = {path: item for path, item in flat(value) if ABOUT_DRAFTS.search(snake(path))}
    return {path: item for path, item in fields.items() if _says(item)}


def _says(value: Any) -> bool:
    if isinstance(value, str):
        return 0 < len(value) <= 200
    return isinstance(value, bool) or number(value) is not None or (isinstance(value, list) and bool(value))


def totals_of(fields: Mapping[str, Any]) -> dict[str, Any]:
    """The counts among a server's own numbers, each by the first of its names; counts that cannot be are left out.

    >>> totals_of({"draft_n": 8, "draft_n_accepted": 3, "usage.completion_tokens": 9})
    {'drafted': 8, 'accepted': 3, 'tokens': 9}
    >>> totals_of({"accepted_prediction_tokens": 3, "rejected_prediction_tokens": 1})
    {'accepted': 3, 'drafted': 4}
    """
    plain = {snake(name): value for name, value in reversed(list(fields.items()))}
    totals: dict[str, Any] = {}
    for count, names in ALIASES.items():
        if (amount := next((n for name in names if (n := _count(plain.get(name))) is not None), None)) is not None:
            totals[count] = amount
    reject_count, accepted = totals.pop("rejected", None), totals.get("accepted")
    if "drafted" not in totals and reject_count is not None and accepted is not None and accepted + reject_count:
        totals["drafted"] = accepted + reject_count
    if "drafted" not in totals and not totals.get("accepted"):
        totals.pop("accepted", None)
    if "steps" not in totals and (steps := steps_by_length(totals.get("tokens"), plain)) is not None:
        totals["steps"] = steps
    return check_totals(totals)


def _count(value: Any) -> int | None:
    if isinstance(value, float) and value.is_integer():
        value = int(value)
    return whole(value)


def steps_by_length(tokens: Any, plain: Mapping[str, Any]) -> int | None:
    """The steps of so many tokens at the length that a server names, where that is a whole number of them."""
    length = next((n for name in LENGTHS if (n := number(plain.get(name)))), None)
    if not isinstance(tokens, int) or not tokens or length is None or length < 1:
        return None
    steps = round(tokens / length)
    return steps if steps and abs(tokens / steps - length) < 1e-4 * length else None


def check_totals(totals: Mapping[str, Any]) -> dict[str, Any]:
    """Totals without those that cannot be: more accepted than drafted, more drafts than drafted tokens."""
    good = {name: value for name, value in totals.items() if value is not None}
    if good.get("accepted", 0) > good.get("drafted", good.get("accepted", 0)):
        del good["accepted"], good["drafted"]
    if good.get("drafts", 0) > good.get("drafted", good.get("drafts", 0)):
        del good["drafts"]
    return good


def field_words(fields: Mapping[str, Any]) -> str:
    """Fields in words, with short values, some of many.

    >>> field_words({"a.draft_x": 3, "spec_mode": "tree"})
    'a.draft_x = 3, spec_mode = tree'
    """
    words = [f"{clean(path[-80:])} = {_short(value)}" for path, value in list(fields.items())[:MOST_NAMED]]
    extra_count = len(fields) - len(words)
    return ", ".join(words) + (f" and {extra_count} more" if extra_count else "")


def _short(value: Any) -> str:
    text = clean(str(value[:6]) if isinstance(value, list) else str(value))
    return text if len(text) <= 40 else f"{text[:39]}…"
