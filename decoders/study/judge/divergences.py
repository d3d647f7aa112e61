"""The first place at which an output leaves plain decoding's, and its meaning: a near tie, lossy by design, or a bug.

The verdict on the first place at which they differ:

==================  ====================================================================================================
near tie            neither token, nor any later one of the output, lies more than the tolerance below the best logit at
                    its place, by the plain model teacher-forced on the output: rounding decided
lossy by design     the method may leave the target's first choice
other draws         tokens were drawn, and drawn differently: that is no fault, and says nothing of losslessness
bug                 anything else: a lossless method wrote what the target would not have
==================  ====================================================================================================
"""

from __future__ import annotations

import math
import threading
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

from decoders.errors import UserError
from decoders.model.files.catalog import format_of
from decoders.names import TRACE_FULL
from decoders.trace.metrics import first_difference
from decoders.trace.trace import Trace

if TYPE_CHECKING:
    from torch import Tensor

    from decoders.model.target_model.target import Target
    from decoders.prompt.prompt import Prompt
    from decoders.verifiers.sampling import Sampling

# how far below the best logit a token may lie to pass as a near tie, by the dtype that the target runs in
TOLERANCES = {"float64": 1e-9, "float32": 1e-4, "bfloat16": 0.5, "float16": 0.1, "int8": 1e-4, "int4": 1e-4}
NEAR_TIE, LOSSY, SAMPLING, BUG = "near tie", "lossy by design", "other draws", "bug"
CUT_SHORT = ("cancelled", "error", "interrupted", TRACE_FULL, "")  # runs that ended so are compared as far as they came


@dataclass(frozen=True, slots=True)
class Divergence:
    """The first place at which an output differs from plain decoding's, and the verdict on it.

    ``position`` counts output tokens from 0; ``expected`` is plain decoding's token there, ``got`` the output's (None:
    it had ended). ``expected_prob`` and ``got_prob`` are the target's probabilities of them (temperature 1), ``gap``
    the difference of the two best logits there, and ``shortfall`` the most that a token of the output lies below the
    best logit at its place (at ``shortfall_at``). ``source`` says whose logits these are: "teacher-forced" (the plain
    model's) or "recorded" (the run's own). ``prompt`` numbers the prompt, where several were compared.
    """

    position: int
    expected: int | None
    got: int | None
    verdict: str
    expected_prob: float | None = None
    got_prob: float | None = None
    gap: float | None = None
    shortfall: float | None = None
    shortfall_at: int | None = None
    tolerance: float = 0.0
    source: str = "teacher-forced"
    prompt: int = 0

    def to_json(self) -> dict[str, Any]:
        return asdict(self)


def tolerance_of(numbers: str) -> float:
    """The tolerance for a format of numbers (``format_of`` a model); 0 for one that is not listed."""
    return TOLERANCES.get(numbers, 0.0)


def verdict_on(
    shortfalls: Sequence[float | None], tolerance: float, *, lossless: bool = True, is_sampled: bool = False
) -> str:
    """The verdict on outputs that differ, from how far below the best logit the tokens lie (None: there is no token).

    >>> verdict_on((0.0, 0.3), 0.5), verdict_on((0.0, 0.3), 0.1), verdict_on((0.0, 0.3), 0.1, lossless=False)
    ('near tie', 'bug', 'lossy by design')
    """
    if not lossless:
        return LOSSY
    if is_sampled:
        return SAMPLING
    return NEAR_TIE if all(s is not None and s <= tolerance for s in shortfalls) else BUG


def divergence(
    target: Target,
    output: Trace | Sequence[int],
    prompt: Prompt | Sequence[int] | None = None,
    *,
    plain: Sequence[int] | None = None,
    lossless: bool = True,
    sampling: Sampling | None = None,
    max_new_tokens: int | None = None,
    tolerance: float | None = None,
    cancel: threading.Event | None = None,
) -> Divergence | None:
    """A run's first place off plain decoding, judged by the plain model; None where it has none.

    ``output`` is a trace, which brings its prompt and settings, or token ids, which need a ``prompt``. ``plain`` is
    plain decoding's output where it is known; else it is decoded here. A run that was cut short is compared as far as
    it came. ``tolerance`` (logits) is that of the target's dtype unless given.

    Raises UserError for a trace of another model or of a given answer, or ids without a prompt.
    """
    from ..look.run_settings import check_model, sampling_of  # torch

    whole = True
    if isinstance(output, Trace):
        run = output.run
        check_model(target, run, exact=True)
        if run.get("forced"):
            raise UserError("this run was made to write a given answer: there is nothing to compare it with")
        ids, output_ids = output.prompt_ids, output.output_ids
        lossless = run["method"].get("lossless", True)
        sampling, whole = sampling_of(run), run.get("stop", "") not in CUT_SHORT
    else:
        if prompt is None:
            raise UserError("token ids are compared for a prompt: give it as prompt, or give the run's trace")
        ids, output_ids = list(prompt if isinstance(prompt, Sequence) else prompt.tokens), list(output)
    if plain is None:
        if isinstance(output, Trace):
            plain = plain_of_run(target, output, cancel)
        else:
            limit = max_new_tokens or len(output_ids)
            plain = plain_output(target, ids, sampling=sampling, max_new_tokens=limit, cancel=cancel)
    at = first_difference(plain, output_ids)
    if at == len(output_ids) and (at == len(plain) or not whole):
        return None
    is_sampled = sampling is not None and not sampling.greedy
    return judge_difference(
        target, ids, plain, output_ids, at, lossless=lossless, drawn=is_sampled, tolerance=tolerance
    )


def plain_output(target: Target, prompt: Sequence[int], **options: Any) -> list[int]:
    """Plain decoding's output after a prompt's token ids. Options as in ``Decoding.of``."""
    from decoders.engine.decoding import generate
    from decoders.prompt.prompt import Prompt

    return generate(target, Prompt.from_ids(prompt), **options)


def plain_of_run(target: Target, trace: Trace, cancel: threading.Event | None = None) -> list[int]:
    """Plain decoding's output for a run's prompt and settings: its logits processors and its grammar, too. Raises
    UserError for a run with processors that no trace holds.
    """
    from decoders.engine.decoding import generate
    from decoders.prompt.codec import of_trace

    from ..look.run_settings import extra_processors, generation_of, sampling_of

    run = trace.run
    if names := extra_processors(run):
        raise UserError(f"this run's logits went through {names}, which no trace holds: plain decoding lacks it here")
    return generate(
        target, of_trace(trace), sampling=sampling_of(run), max_new_tokens=run["max_new_tokens"],
        stop_ids=run.get("stop_ids"), cancel=cancel, generation=generation_of(run),
    )  # fmt: skip


def judge_difference(
    target: Target,
    prompt: Sequence[int],
    plain: Sequence[int],
    output: Sequence[int],
    at: int,
    *,
    lossless: bool = True,
    drawn: bool = False,
    tolerance: float | None = None,
    number: int = 0,
) -> Divergence:
    """The divergence of two outputs that differ first ``at`` a place, by the plain model's own logits.

    They are those of one forward over prompt and output through the model's own attention, without a cache
    (``Target.reference_logits``), so no part of the engine judges itself.
    """
    allowance = tolerance_of(format_of(target.info)) if tolerance is None else tolerance
    expected, output_token = (tokens[at] if at < len(tokens) else None for tokens in (plain, output))
    logits: Tensor = target.reference_logits([*prompt, *output], rows=len(output) + 1)
    next_logits = logits[at]
    best = next_logits.topk(2).values
    log_sum = float(next_logits.logsumexp(-1))
    probs = [
        None if token is None else math.exp(float(next_logits[token]) - log_sum) for token in (expected, output_token)
    ]
    expected_shortfall = None if expected is None else float(best[0] - next_logits[expected])
    worst, worst_at = 0.0, at
    if output:
        rows = logits[: len(output)]
        shortfalls = rows.max(-1).values - rows.gather(1, rows.new_tensor(output).long()[:, None])[:, 0]
        worst_at = int(shortfalls.argmax())
        worst = float(shortfalls[worst_at])
    below_best = expected_shortfall, None if output_token is None else worst
    verdict = verdict_on(below_best, allowance, lossless=lossless, is_sampled=drawn)
    return Divergence(
        at,
        expected,
        output_token,
        verdict,
        probs[0],
        probs[1],
        float(best[0] - best[1]),
        worst,
        worst_at,
        allowance,
        prompt=number,
    )


def recorded_divergence(trace: Trace, plain: Sequence[int]) -> Divergence | None:
    """The same without a model, from what the run recorded of the target's choices; None where the outputs agree.

    Only the first place can be judged so, and by the logits that the run itself had.
    """
    run, output_ids = trace.run, trace.output_ids
    at = first_difference(plain, output_ids)
    if at == len(output_ids) and (at == len(plain) or run.get("stop", "") in CUT_SHORT):
        return None
    expected, output_token = (tokens[at] if at < len(tokens) else None for tokens in (plain, output_ids))
    choices = _choices(trace, at)
    best = sorted(choices.values(), reverse=True)
    got_prob = trace.tables["tokens"]["prob"][run["prompt_length"] + at] if output_token is not None else None
    expected_prob = choices.get(expected) if expected is not None else None
    gap = math.log(best[0] / best[1]) if len(best) > 1 and best[1] > 0 else None
    shortfalls = [math.log(best[0] / p) if best and p else None for p in (expected_prob, got_prob)]
    allowance = tolerance_of(format_of(run["model"]))
    lossless, is_sampled = run["method"].get("lossless", True), bool(run["sampling"].get("temperature"))
    verdict = verdict_on(shortfalls, allowance, lossless=lossless, is_sampled=is_sampled)
    return Divergence(
        at,
        expected,
        output_token,
        verdict,
        expected_prob,
        got_prob,
        gap,
        shortfalls[1],
        at,
        allowance,
        source="recorded",
    )


def _choices(trace: Trace, at: int) -> dict[int, float]:
    """The target's recorded first choices for output token ``at``: token → probability."""
    position = trace.run["prompt_length"] + at
    if position >= trace.rows("tokens"):
        return {}
    step = trace.tables["tokens"]["step"][position]
    nodes, targets = trace.tables["nodes"], trace.tables["targets"]
    step_rows = [row for row, owner in enumerate(nodes["step"]) if owner == step]
    path = [number for number, row in enumerate(step_rows) if nodes["status"][row] in ("root", "accepted")]
    node = path[position - trace.tables["steps"]["context"][step]]
    rows = zip(targets["step"], targets["node"], targets["token"], targets["prob"], strict=True)
    return {token: prob for owner, at_node, token, prob in rows if owner == step and at_node == node}
