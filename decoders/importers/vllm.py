"""vLLM's answers with ``--per-request-spec-decode-metrics detailed`` (0.32 and later) and ``"return_token_ids": true``.

``metrics.speculative_decoding`` with ``per_step_accepted`` and ``per_step_drafted``: vLLM's documentation, "Per-Request
Acceptance Metrics" (docs/features/speculative_decoding/acceptance_metrics.md); in a stream it rides on the last chunk
with usage. ``token_ids`` and ``prompt_token_ids``: "OpenAI-compatible server", extra parameters of chat. ``metrics``
with ``generation_time_ms`` and ``time_to_first_token_ms``: "Per-Request Metrics"
(docs/features/per_request_metrics.md).

The first token comes from the forward that reads the prompt, which is no step of the arrays; every later step writes
its accepted tokens and one more, the last one perhaps less. Ids of rejected drafts are not told.
"""

from __future__ import annotations

from typing import Any

from .chat import Answer, answers, timings, usage
from .importer import Contents, Importer
from .request import NO_DRAFT, PROMPT_STEP, Request, ServerStep
from .source import Source
from .values import merged, number, numbers

MOST_DRAFTED = 4096  # tokens of a step


def read(source: Source) -> Contents | None:
    """Requests that carry vLLM's metrics."""
    contents = Contents()
    for answer in answers(source.documents):
        metrics = merged(part["metrics"] for part in answer.parts if isinstance(part.get("metrics"), dict))
        told = metrics.get("speculative_decoding")
        if not isinstance(told, dict):
            continue
        request = answer.request
        request.said = {**usage(answer), **{n: v for n, v in metrics.items() if number(v) is not None}, **told}
        request.prefill_ms, request.decode_ms = (
            number(metrics.get(name)) for name in ("time_to_first_token_ms", "generation_time_ms")
        )
        request.untimed_tokens = 1  # generation_time_ms: from the first token to the last
        request.steps = steps_of(told, request, answer)
        contents.requests.append(request)
    if contents.requests and source.unread:
        contents.notes.append(f"{source.unread} lines of the file are no JSON and were left out")
    return contents if contents.requests else None


def steps_of(told: dict[str, Any], request: Request, answer: Answer) -> list[ServerStep] | None:
    """The steps, where the arrays account for every token; None, with a note, where they do not."""
    accepted, drafted = numbers(told.get("per_step_accepted")), numbers(told.get("per_step_drafted"))
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
    count = len(request.tokens)
    makes = sum(accepted) + len(accepted)
    cut = accepted[-1] if accepted else 0
    first = 1 if makes - cut <= count - 1 <= makes else 0
    if not makes - cut <= count - first <= makes:
        request.notes.append(
            f"the {len(accepted)} steps make {1 + makes} tokens and the answer has {count}: which tokens each of them "
            "wrote is not known (steps without a draft are not listed by the server)"
        )
        return None
    steps = [ServerStep(1, 0, 0, reason=PROMPT_STEP)] * first
    for number_, wrote in enumerate(accepted):
        proposed = None if drafted is None else drafted[number_]
        steps.append(ServerStep(wrote + 1, wrote, proposed, reason=NO_DRAFT))
    times = timings(answer)
    if [n for n, _ in answer.chunks] == [step.emitted for step in steps]:
        for step, ms in zip(steps, times, strict=True):
            step.ms = ms
    return steps


IMPORTER = Importer("vllm", "vLLM", read, order=10)
