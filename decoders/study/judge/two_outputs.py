"""Two outputs of one prompt, with drafting and without: where they part, and whether rounding can be why.

Neither was written here: both are read teacher-forced by the model's own forward. The verdict is that of
``divergences``, with one more: an output without drafting that is not the model's greedy one shows nothing of drafting.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

from decoders.errors import UserError

from .divergences import TOLERANCES, first_difference, verdict_on

if TYPE_CHECKING:
    from torch import Tensor

    from decoders.model.target_model.target import Target

NOT_GREEDY, IDENTICAL = "not greedy", "same"


@dataclass(frozen=True, slots=True)
class OutputReading:
    """One output as the model sees it, per token: how far its logit lies below the best one there (``below``, 0: the
    model's first choice), and its probability at temperature 1.
    """

    tokens: tuple[int, ...]
    below: tuple[float, ...]
    probs: tuple[float, ...]

    @property
    def worst(self) -> float:
        """The most that a token lies below the best logit at its place; 0 for no tokens."""
        return max(self.below, default=0.0)


@dataclass(frozen=True, slots=True)
class TwoOutputs:
    """``at`` is the first token at which they differ (None: nowhere); ``gap`` the difference of the two best logits
    there, by the text that both share. ``tolerance`` is in logits.
    """

    plain: OutputReading
    drafted: OutputReading
    at: int | None
    verdict: str
    tolerance: float
    gap: float | None = None
    plain_prob: float | None = None
    drafted_prob: float | None = None

    def to_json(self) -> dict[str, Any]:
        return asdict(self)


def two_outputs(
    target: Target,
    prompt: Sequence[int],
    plain: Sequence[int],
    drafted: Sequence[int],
    *,
    lossless: bool = True,
    dtype: str = "bfloat16",
) -> TwoOutputs:
    """Judge what a server wrote for a prompt without drafting (``plain``) and with it. ``dtype`` is the one that the
    server computes in, which says how much rounding may decide.

    Raises UserError for an empty output, a text beyond the model's context, or a dtype without a tolerance.
    """
    if dtype not in TOLERANCES:
        raise UserError(f"the dtype {dtype!r} has no tolerance: use one of {', '.join(TOLERANCES)}")
    if not plain or not drafted:
        raise UserError("an output is empty: give both, the one without drafting and the one with it")
    limit = target.context_length - len(prompt)
    if max(len(plain), len(drafted)) > limit:
        raise UserError(
            f"prompt and output have {len(prompt) + max(len(plain), len(drafted)):,} tokens and {target.name} reads "
            f"{target.context_length:,}: shorten them"
        )
    at, tolerance = first_difference(plain, drafted), TOLERANCES[dtype]
    (first, next_logits), (second, _) = (_read(target, prompt, output, at) for output in (plain, drafted))
    if at == len(plain) == len(drafted):
        return TwoOutputs(first, second, None, IDENTICAL, tolerance)
    best, norm = next_logits.topk(2).values, float(next_logits.logsumexp(-1))
    chances = [math.exp(float(next_logits[ids[at]]) - norm) if at < len(ids) else None for ids in (plain, drafted)]
    verdict = NOT_GREEDY if first.worst > tolerance else verdict_on((0.0, second.worst), tolerance, lossless=lossless)
    return TwoOutputs(first, second, at, verdict, tolerance, float(best[0] - best[1]), *chances)


def _read(target: Target, prompt: Sequence[int], output: Sequence[int], at: int) -> tuple[OutputReading, Tensor]:
    """An output as the model sees it, and the logits [vocab] behind its first ``at`` tokens: of all the others, which
    are large, nothing stays.
    """
    logits = target.reference_logits([*prompt, *output], rows=len(output) + 1)
    rows = logits[: len(output)]
    token_logits = rows.gather(1, rows.new_tensor(output).long()[:, None])[:, 0]
    shortfalls, probs = rows.max(-1).values - token_logits, (token_logits - rows.logsumexp(-1)).exp()
    return OutputReading(tuple(output), tuple(shortfalls.tolist()), tuple(probs.tolist())), logits[at].clone()
