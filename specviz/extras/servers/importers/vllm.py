"""vLLM's answers with ``--per-request-spec-decode-metrics detailed`` (0.32 and later) and ``"return_token_ids": true``.

``metrics.speculative_decoding`` with ``per_step_accepted`` and ``per_step_drafted``: vLLM's documentation, "Per-Request
Acceptance Metrics" (docs/features/speculative_decoding/acceptance_metrics.md); in a stream it rides on the last chunk
with usage. ``token_ids`` and ``prompt_token_ids``: "OpenAI-compatible server", extra parameters of chat. ``metrics``
with ``generation_time_ms`` and ``time_to_first_token_ms``: "Per-Request Metrics"
(docs/features/per_request_metrics.md).

The first token comes from the forward that reads the prompt, which is no step of the arrays; every later step writes
its accepted tokens and one more, the last one perhaps less. Steps without a draft are not in the arrays; a stream's
chunks, one a step, tell where they were. Ids of rejected drafts are not told.
"""

from __future__ import annotations

from typing import Any

from decoders.importers.fields import merge_fields
from decoders.importers.importer import Contents, Importer
from decoders.importers.request import NO_DRAFT, PROMPT_STEP, Request, ServerStep
from decoders.importers.source import LogSource
from decoders.importers.values import merge, number, numbers, whole

from .chat import Answer, answers, timings

TOTALS = {
    "drafted": "num_draft_tokens", "accepted": "num_accepted_draft_tokens", "tokens": "usage.completion_tokens",
}  # fmt: skip
MOST_DRAFTED = 4096  # tokens of a step


def read(source: LogSource) -> Contents | None:
    """Requests that carry vLLM's metrics."""
    contents = Contents()
    for answer in answers(source.documents):
        metrics = merge(part["metrics"] for part in answer.parts if isinstance(part.get("metrics"), dict))
        speculation = metrics.get("speculative_decoding")
        if not isinstance(speculation, dict):
            continue
        request = answer.request
        request.server_fields = merge_fields(
            request.server_fields, {**{n: v for n, v in metrics.items() if number(v) is not None}, **speculation}
        )
        request.prefill_ms, request.decode_ms = (
            number(metrics.get(name)) for name in ("time_to_first_token_ms", "generation_time_ms")
        )
        request.totals |= {name: whole(request.server_fields.get(field)) for name, field in TOTALS.items()}
        request.untimed_tokens = 1  # generation_time_ms: from the first token to the last
        request.steps = steps_of(speculation, request, answer)
        contents.requests.append(request)
    if contents.requests and source.unread:
        contents.notes.append(f"{source.unread} lines of the file are no JSON and were left out")
    return contents if contents.requests else None


def steps_of(speculation: dict[str, Any], request: Request, answer: Answer) -> list[ServerStep] | None:
    """The steps, where the arrays account for every token; None, with a note, where they do not."""
    accepted, drafted = numbers(speculation.get("per_step_accepted")), numbers(speculation.get("per_step_drafted"))
    if accepted is None:
        request.notes.append("no per_step_accepted: start the server with --per-request-spec-decode-metrics detailed")
        return None
    if drafted is None or len(drafted) != len(accepted):
        request.notes.append("per_step_drafted is missing, or not as long as per_step_accepted")
        drafted = None
    elif odd := [i for i, (a, d) in enumerate(zip(accepted, drafted, strict=True)) if not a <= d <= MOST_DRAFTED]:
        count = f"{accepted[odd[0]]:,} of {drafted[odd[0]]:,} drafted tokens"
        request.notes.append(f"step {odd[0] + 1} is said to have accepted {count}: the arrays were left out")
        return None
    if answer.is_stream and (steps := by_chunks([n for n, _ in answer.chunks], accepted, drafted)) is not None:
        return _add_times(steps, answer, request)
    count = len(request.tokens)
    makes = sum(accepted) + len(accepted)
    cut = accepted[-1] if accepted else 0
    first = 1 if makes - cut <= count - 1 <= makes else 0
    if not makes - cut <= count - first <= makes:
        request.notes.append(
            f"the {len(accepted)} steps make {1 + makes} tokens and the answer has {count}: which tokens each of them "
            "wrote is not known (steps without a draft are not listed by the server; the chunks of a stream tell them)"
        )
        return None
    hidden = cut - (makes - (count - first))  # the server counts what it accepted behind the end, too
    if hidden > 0:
        request.warnings.append(
            f"up to {hidden} step{'s' * (hidden > 1)} without a draft may be missing here, and as many tokens of the "
            "last draft not written: stream the answer to know"
        )
    steps = [ServerStep(1, 0, 0, reason=PROMPT_STEP)] * first
    for number_, wrote in enumerate(accepted):
        proposed = None if drafted is None else drafted[number_]
        steps.append(ServerStep(wrote + 1, wrote, proposed, reason=NO_DRAFT))
    return _add_times(steps, answer, request)


def by_chunks(chunks: list[int], accepted: list[int], drafted: list[int] | None) -> list[ServerStep] | None:
    """The steps of a stream of a chunk each, by its chunks' tokens and the arrays, which leave out steps without a
    draft; None where they do not go together. A chunk of one token is a step without a draft, or one of whose draft
    nothing was accepted: where both are possible its ``drafted`` is None.

    >>> [(s.emitted, s.accepted, s.drafted) for s in by_chunks([1, 1, 3, 1], [2, 0], [4, 4])]
    [(1, 0, 0), (1, 0, 0), (3, 2, 4), (1, 0, 4)]
    >>> [s.drafted for s in by_chunks([1, 1, 1, 3], [0, 2], [4, 4])]
    [0, None, None, 4]
    """
    steps = [ServerStep(1, 0, 0, reason=PROMPT_STEP)]
    at, single, draft_places = 0, list[ServerStep](), list[int]()

    def settle() -> None:
        """The one-token steps in front of a longer one, and the entries of the arrays that are theirs."""
        for place, step in enumerate(single):
            if len(draft_places) == len(single):
                step.drafted = None if drafted is None else drafted[draft_places[place]]
            elif draft_places:
                step.drafted = None
        single.clear()
        draft_places.clear()

    if len(chunks) < 2 or chunks[0] != 1:
        return None
    for place, count in enumerate(chunks[1:], 1):
        last = place == len(chunks) - 1
        accept_index = next((i for i in range(at, len(accepted)) if accepted[i]), len(accepted))
        cut = (
            last and accept_index == len(accepted) - 1 and accepted[accept_index] >= count
        )  # the answer ended inside its draft
        if count == 1 and not cut:
            single.append(ServerStep(1, 0, 0, reason=NO_DRAFT))
            steps.append(single[-1])
            continue
        if accept_index == len(accepted) or (accepted[accept_index] != count - 1 and not cut):
            return None
        draft_places += range(at, accept_index)
        if len(draft_places) > len(single):
            return None
        settle()
        steps.append(ServerStep(count, accepted[accept_index], None if drafted is None else drafted[accept_index]))
        at = accept_index + 1
    draft_places += range(at, len(accepted))
    if len(draft_places) > len(single) or any(accepted[i] for i in draft_places):
        return None
    settle()
    return steps


def _add_times(steps: list[ServerStep], answer: Answer, request: Request) -> list[ServerStep]:
    """The steps with their times, where each is a chunk."""
    if [n for n, _ in answer.chunks] == [step.emitted for step in steps]:
        for step, ms in zip(steps, timings(answer), strict=True):
            step.ms = ms
    if unknown := sum(step.drafted is None for step in steps):
        request.notes.append(
            f"{unknown} steps of one token: some had a draft of which nothing was accepted, which of them is not told"
        )
    return steps


IMPORTER = Importer("vllm", "vLLM", read, order=10, fields=frozenset(("per_step_accepted", "per_step_drafted")))
