"""Step dumps of llama.cpp's forks: ``LLAMA_SPEC_DUMP=FILE`` appends an object of JSON per verified draft.

turbo-tan/llama.cpp-tq3, pull request 83: ``{"step", "seq", "n_draft", "n_accepted", "pmin_drop", "pos": [{"i", "tok",
"p", "logp", "acc", "top": [{"tok", "p"}, …]}, …]}``: the drafter's own probabilities. Another fork names them
``n_accept``, ``draft[d].top`` and ``target[i].top`` (10 × [id, p, logit]), ``draft_tok`` and ``tgt_tok``. A sequence is
a run; the target's own token of a step is told by the second form alone. Steps without a draft are not dumped.
"""

from __future__ import annotations

from typing import Any

from decoders.importers.importer import Contents, Importer
from decoders.importers.request import MOST_REQUESTS, Choice, Request, ServerStep, Token, check_tokens
from decoders.importers.source import LogSource
from decoders.importers.values import dicts, number, numbers, share, whole

ACCEPTED = ("n_accepted", "n_accept")
PLACES = ("pos", "draft")
MOST_DRAFTED, MOST_CHOICES = 4096, 20
NO_OWN = "the dump has drafts alone: the target's own token of a step is not in it, nor is a step without a draft"


def read(source: LogSource) -> Contents | None:
    """A request per sequence, or slot and task."""
    if '"n_draft"' not in source.text:
        return None
    contents, begun, tokens = Contents(), dict[str, Request](), 0
    for document in source.documents:
        value = document.value
        accepted = next((n for name in ACCEPTED if (n := whole(value.get(name), MOST_DRAFTED)) is not None), None)
        drafted = whole(value.get("n_draft"), MOST_DRAFTED)
        if "n_draft" not in value or not (any(name in value for name in (*ACCEPTED, *PLACES))):
            continue
        if drafted is None or accepted is None or accepted > drafted:
            contents.unread += 1
            continue
        if value.get("replay") is True:
            continue
        key = ", ".join(f"{name} {str(value[name])[:40]}" for name in ("seq", "slot", "task") if name in value)
        if key not in begun:
            if len(begun) > MOST_REQUESTS:
                continue
            begun[key] = Request(key or "the dump", steps=[], notes=[NO_OWN] if "tgt_tok" not in value else [])
        tokens += accepted + 1
        check_tokens(tokens)
        _add(begun[key], value, drafted, accepted)
    contents.requests = list(begun.values())
    contents.unread += source.unread if contents.requests else 0
    return contents if contents.requests else None


def _add(request: Request, value: dict[str, Any], drafted: int, accepted: int) -> None:
    places = next((value[name] for name in PLACES if isinstance(value.get(name), list)), [])
    ids = numbers(value.get("draft_tok")) or []
    draft = [_choices(place, ids[i] if i < len(ids) else None) for i, place in enumerate(dicts(places)[:drafted])]
    if len(draft) != drafted or not all(draft):
        draft = [[(token, None, None)] for token in ids[:drafted]] if len(ids) >= drafted else []
    target_tokens = numbers(value.get("tgt_tok")) or []
    accepted_tokens: list[int | None] = [choices[0][0] for choices in draft[:accepted]] if draft else [None] * accepted
    request.tokens += [
        Token(token) for token in (*accepted_tokens, target_tokens[accepted] if len(target_tokens) > accepted else None)
    ]
    step = ServerStep(accepted + 1, accepted, drafted, draft)
    targets = dicts(value.get("target"))
    if targets:
        step.tops = [_choices(target, None) for target in targets[: drafted + 1]]
    time = value.get("t")
    if isinstance(time, dict):
        step.draft_ms, step.verify_ms, step.ms = (number(time.get(name)) for name in ("draft", "verify", "step"))
    assert request.steps is not None
    request.steps.append(step)
    drop_count = whole(value.get("pmin_drop"))
    if drop_count:
        request.server_fields["pmin_drop"] = request.server_fields.get("pmin_drop", 0) + drop_count


def _choices(place: dict[str, Any], token: int | None) -> list[Choice]:
    """The first choices of a position, the drafted one first."""
    drafted = whole(place.get("tok", token), 2**31 - 1)
    top: list[Choice] = []
    for entry in place["top"][:MOST_CHOICES] if isinstance(place.get("top"), list) else ():
        if isinstance(entry, dict):
            pair = entry.get("tok", entry.get("id")), entry.get("p")
        else:
            pair = (entry[0], entry[1]) if isinstance(entry, list) and len(entry) > 1 else (None, None)
        if (token_id := whole(pair[0], 2**31 - 1)) is not None:
            top.append((token_id, None, share(pair[1])))
    if drafted is None:
        return top
    probability = next((p for token_id, _, p in top if token_id == drafted), share(place.get("p")))
    return [(drafted, None, probability), *(choice for choice in top if choice[0] != drafted)]


FIELDS = frozenset((*ACCEPTED, "n_draft", "draft_tok", "pmin_drop", "draft", "draft_depth"))
IMPORTER = Importer("llama.cpp-dump", "llama.cpp's step dump", read, order=8, fields=FIELDS)
