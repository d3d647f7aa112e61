"""One step of generate(), as it was seen from outside, and the engine's step that it becomes."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor

from decoders.draft.draft import Draft, Later, Scored, Verdict
from decoders.draft.tree import DraftTree
from decoders.engine.decoding import Step
from decoders.model.state.transfer import Mark, Span, fetch
from decoders.names import AFTER_STOP, BEHIND_END
from decoders.verifiers.diverse import DiverseVerifier
from decoders.verifiers.match import judged
from decoders.verifiers.residual import ResidualVerifier
from decoders.verifiers.sampling import Chooser, Sampling

from .kinds import LOOKUP, CallKind
from .lookup import rank

BETAS = Later(dict)  # the overlap of both distributions is computed with the table guesses


@dataclass(slots=True)
class ObservedStep:
    """Observations of one step of one output: the draft (``drafted``, with the drafter's logits where it has any), the
    model's raw logits ``[drafted + 1, vocab]`` and those after the run's processors (kept where tokens were drawn), and
    what was ``emitted``. ``marks``: begun, drafted, verified, ended.
    """

    drafted: Tensor | None
    draft_logits: Float[Tensor, "drafted vocab"] | None
    logits: Float[Tensor, "nodes vocab"]
    processed: Float[Tensor, "nodes vocab"] | None
    emitted: Tensor
    marks: tuple[Mark, Mark, Mark, Mark]

    @property
    def nbytes(self) -> int:
        """Bytes of the logits that it keeps."""
        tensors = (self.logits, self.draft_logits, self.processed)
        return sum(tensor.numel() * tensor.element_size() for tensor in tensors if tensor is not None)


class AsProcessed(Chooser):
    """The distributions that tokens were drawn from, as generate() made them: its processors are not run again."""

    def __init__(self, sampling: Sampling) -> None:
        super().__init__(sampling)
        self.rows: list[Float[Tensor, "nodes vocab"]] = []

    def probabilities(self, logits: Float[Tensor, "rows vocab"]) -> Float[Tensor, "rows vocab"]:
        """Of the rows that are recorded now, in their order."""
        return torch.cat(self.rows).softmax(-1)


class Steps:
    """Turns what was seen of one output into steps; ``tokens`` is the text so far, which grows with them."""

    def __init__(
        self, kind: CallKind, params: dict[str, Any], prompt: Sequence[int], stop_ids: Collection[int]
    ) -> None:
        self.kind, self.params, self.stop_ids = kind, params, frozenset(stop_ids)
        self.buffer = np.array(prompt, dtype=np.int64)
        self.length = len(prompt)
        self.count = 0

    @property
    def tokens(self) -> np.ndarray:
        return self.buffer[: self.length]

    def of(self, observation: ObservedStep, emitted: Sequence[int]) -> Step:
        """The step; ``emitted`` is what stands in the output, which may be less than was seen."""
        context, start_length = self.tokens, self.length
        drafted: list[int] = [] if observation.drafted is None else fetch(observation.drafted)[0].tolist()
        draft = self._draft(context, drafted, observation)
        verdict = self._verdict(draft, emitted)
        if draft.drawn:
            draft, verdict = self._by_ratio(draft, verdict, observation)
        elif draft.distributions:
            verdict = replace(verdict, terms=BETAS)
        self._append(emitted)
        begun, proposed, verified, end_mark = observation.marks
        times = Span((begun, proposed)), Span((proposed, verified)), Span((verified, end_mark))
        self.count += 1
        return Step(self.count - 1, start_length, draft, Scored(observation.logits), verdict, tuple(emitted), *times)

    def _draft(self, context: np.ndarray, drafted: list[int], observation: ObservedStep) -> Draft:
        root, count = int(context[-1]), len(drafted)
        candidates, start = None, -1
        if self.kind is LOOKUP:
            max_tokens, longest = (
                self.params.get("prompt_lookup_num_tokens", 10),
                self.params.get("max_matching_ngram_size"),
            )
            candidates, start = rank(context, drafted, max_tokens, longest or 2)
        if not drafted:
            return Draft.empty(root, self.kind.empty, candidates=candidates)
        sources = (-1, *range(start, start + count)) if start >= 0 else (-1,) * (count + 1)
        q = None if observation.draft_logits is None else observation.draft_logits.float().softmax(-1)
        probabilities: tuple[float, ...] | None = None
        if q is not None and observation.drafted is not None:
            (q_values,) = fetch(q.gather(1, observation.drafted[:, None].to(q.device))[:, 0])
            probabilities = (1.0, *map(float, q_values))
        is_drawn = q is not None and observation.processed is not None
        return Draft(
            DraftTree.chain(root, drafted), ("root",) + (self.kind.origin.name,) * count, sources, probabilities,
            candidates,
            route="drawn" if is_drawn else self.kind.name.rpartition(":")[2], drawn=is_drawn,
            distributions=None if q is None else dict(enumerate(q)),
        )  # fmt: skip

    def _verdict(self, draft: Draft, emitted: Sequence[int]) -> Verdict:
        """The accepted tokens: all that was emitted, but for the model's own token at the end. Where that was drafted,
        too, the output ended inside the draft.
        """
        drafted = draft.tree.tokens[1:]
        cut = 0 < len(emitted) <= len(drafted) and emitted[-1] == drafted[len(emitted) - 1]
        path = [*range(len(emitted) + 1)] if cut else [*range(len(emitted))]
        verdict = judged(draft, path, None if cut else emitted[-1])
        if not cut:
            return verdict
        reason = AFTER_STOP if emitted[-1] in self.stop_ids else BEHIND_END
        remainder = len(draft.tree) - len(path)
        status, reasons = verdict.status[: len(path)], verdict.reasons[: len(path)]
        return replace(verdict, status=(*status, *["unreached"] * remainder), reasons=(*reasons, *[reason] * remainder))

    def _by_ratio(self, draft: Draft, verdict: Verdict, observation: ObservedStep) -> tuple[Draft, Verdict]:
        """The reasons of a draft whose tokens were drawn, and accepted with min(1, p/q); of an ensemble of weight w,
        with min(1, 1 - w + w p/q).
        """
        assert observation.processed is not None and observation.drafted is not None and draft.probabilities is not None
        count, weight = len(draft.tree), float(self.params.get("assistant_ensemble_weight", 1.0))
        p = observation.processed[: count - 1].softmax(-1).gather(1, observation.drafted[:, None])[:, 0]
        q = np.asarray(draft.probabilities[1:], dtype=np.float64)
        with np.errstate(divide="ignore", invalid="ignore"):
            ratio = np.minimum(1.0, 1 - weight + weight * fetch(p)[0].astype(np.float64) / q)
        ratio = np.append(np.nan, np.where(np.isfinite(ratio), ratio, np.nan))
        name = (ResidualVerifier if weight == 1 else DiverseVerifier).ratio_words
        words = {"accepted": "{} = {:.3g}: stands", "rejected": "{} = {:.3g}: redrawn from the residual"}
        reasons = [
            words[s].format(name, ratio[n]) if s in words else verdict.reasons[n] for n, s in enumerate(verdict.status)
        ]
        terms = {**draft.terms, "accept_ratio": ratio}
        return replace(draft, terms=terms), replace(verdict, reasons=tuple(reasons), terms=BETAS)

    def _append(self, emitted: Sequence[int]) -> None:
        end = self.length + len(emitted)
        if end > len(self.buffer):
            self.buffer = np.append(self.buffer, np.zeros(max(end, 256), dtype=np.int64))
        self.buffer[self.length : end] = emitted
        self.length = end
