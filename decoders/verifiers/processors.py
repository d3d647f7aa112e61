"""Logits processors of a run, asked at every node of a draft with the text that leads to it: as generate() asks them.

A processor is a function of the text so far and the scores after it, so a node's scores are processed behind the node's
own path. One with a state of its own would mix up the branches of a tree: it is asked once per node if it says how to
``fork()`` (give a copy that goes on by itself), and refused if it does not.
"""

from __future__ import annotations

import copy
from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor
from transformers import LogitsProcessor, LogitsProcessorList
from transformers.generation import logits_process

from decoders.draft.draft import Draft, Scored, Verdict
from decoders.draft.settings import Sampling
from decoders.draft.terms import Term
from decoders.draft.tree import DraftTree
from decoders.errors import UserError
from decoders.model.state.transfer import fetch
from decoders.prompt.grammar import Matcher

from .sampling import Chooser

FORBIDDEN = -1e8  # a score below it: the token cannot be written
# of transformers: they cut a distribution by its scores alone, so that a whole row is processed whatever its text
WARPERS = {
    "TemperatureLogitsWarper", "TopHLogitsWarper", "TopKLogitsWarper", "TopPLogitsWarper", "MinPLogitsWarper",
    "TypicalLogitsWarper", "EpsilonLogitsWarper", "EtaLogitsWarper", "LogitNormalization",
}  # fmt: skip
# of transformers: a second forward with a cache of its own, and scores that depend on earlier calls
STATEFUL = {"UnbatchedClassifierFreeGuidanceLogitsProcessor", "SynthIDTextWatermarkLogitsProcessor"}
NODE_TERMS = (
    Term("p_after", "p after processors", "The target's probability of the token, after the logits processors.", 0, 1),
    Term("forbidden", "forbidden", "1: a logits processor forbids the token here.", 0, 1),
)
STEP_TERMS = (Term("forbidden", "forbidden", "Drafted tokens that a logits processor forbids where they stand.", 0, 0),)


class Processing:
    """The processors of one run, in the order of generate().

    ``by_text`` are asked node by node. ``warpers``, the last ones of a sampled run, read scores alone: a chooser
    applies them. ``in_order``: processors that cannot be forked are asked all the same, once per token of the text.
    Raises UserError for such a one where the run is not ``in_order``.
    """

    def __init__(
        self, processors: Sequence[Any], sampling: Sampling, vocab: int, prompt: Sequence[int], device: torch.device,
        *, in_order: bool = False,
    ) -> None:  # fmt: skip
        split = len(processors)
        while not sampling.greedy and split and type(processors[split - 1]).__name__ in WARPERS:
            split -= 1
        self.by_text, self.warpers = list(processors[:split]), LogitsProcessorList(processors[split:])
        keeps_state = [has_state(processor, vocab, prompt, device) for processor in self.by_text]
        can_fork = [callable(getattr(processor, "fork", None)) for processor in self.by_text]
        self.forks = [state and fork for state, fork in zip(keeps_state, can_fork, strict=True)]
        self.anywhere = self.forks == keeps_state  # whether nodes off the text may be asked about
        if not self.anywhere and not in_order:
            rows = zip(self.by_text, keeps_state, self.forks, strict=True)
            names = _names(processor for processor, state, fork in rows if state and not fork)
            raise UserError(
                f"{names} keeps a state between its calls, and a draft asks about several texts in turn: give it a "
                "method fork() that returns a copy which goes on by itself (itself, where the state changes no scores)"
            )
        self.state = self._fork(self.by_text)  # as the next step's root finds them

    @property
    def matcher(self) -> Matcher | None:
        """The grammar's, where one is among them."""
        return next((p.matcher for p in self.by_text if isinstance(p, GrammarProcessor)), None)

    @property
    def names(self) -> list[str]:
        return [type(processor).__name__ for processor in (*self.by_text, *self.warpers)]

    def changes(self, sampling: Sampling) -> bool:
        """True where there is more than the run's own temperature, top-k and top-p."""
        usual, warpers = ([(type(p), vars(p)) for p in group] for group in (Chooser(sampling).warpers, self.warpers))
        return bool(self.by_text) or warpers != usual

    def step(self, tokens: np.ndarray, tree: DraftTree, logits: Float[Tensor, "nodes vocab"]) -> ProcessedStep:
        """The scores of a draft after ``tokens``."""
        return ProcessedStep(self, torch.from_numpy(tokens.copy())[None].to(logits.device), tree, logits)

    def advance(self, step: ProcessedStep, verdict: Verdict) -> None:
        """Go on from what a step wrote."""
        if any(self.forks):
            step.row(verdict.path[-1])
            self.state = step.states[verdict.path[-1]]

    def _fork(self, processors: Sequence[Any]) -> list[Any]:
        return [p.fork() if fork else p for p, fork in zip(processors, self.forks, strict=True)]


class ProcessedStep:
    """The processed scores of a step's nodes, computed when they are asked for."""

    def __init__(self, run: Processing, text: Tensor, tree: DraftTree, logits: Float[Tensor, "nodes vocab"]) -> None:
        self.run, self.text, self.tree, self.logits = run, text, tree, logits
        self.children = tree.children()
        self.rows: dict[int, Float[Tensor, "1 vocab"]] = {}
        self.states: dict[int, list[Any]] = {}  # processors that were asked at a node
        self.forbidders: dict[int, str] = {}  # of nodes whose token a processor forbids, the first that does

    def row(self, node: int) -> Float[Tensor, "1 vocab"]:
        """The processed scores after a node; the target's own behind a token that is forbidden. Raises UserError where
        no token is left.
        """
        if node in self.rows:
            return self.rows[node]
        parent = self.tree.parents[node]
        if node:
            self.row(parent)
        if self._is_dead(node):
            return self.logits[node : node + 1]
        state = self.run.state if not node or not any(self.run.forks) else self.states[parent]
        processors = self.states[node] = self.run._fork(state)
        path = [self.tree.tokens[n] for n in self.tree.path(node)[1:]]
        ids = torch.cat([self.text, torch.tensor([path], dtype=torch.long, device=self.text.device)], 1)
        tokens = [*self.children[node]]
        scores = self.logits[node : node + 1].clone()
        marks = [scores[0, tokens]]
        for processor in processors:
            scores = processor(ids, scores)  # type: ignore[call-arg]
            marks.append(scores[0, tokens])
        if bool(scores.amax() <= FORBIDDEN):
            grammars = [f" ({p.matcher.standing})" for p in processors if isinstance(p, GrammarProcessor)]
            raise UserError(
                f"{_names(processors)}: every token is forbidden behind {ids.shape[1]} tokens, so nothing can be "
                f"written: loosen what is forbidden{''.join(grammars)}"
            )
        self.rows[node] = scores
        if tokens:
            (is_forbidden,) = fetch(torch.stack(marks) <= FORBIDDEN)
            for child, column in zip(self.children[node].values(), is_forbidden.T, strict=True):
                if column[-1] and not column[0]:
                    self.forbidders[child] = type(processors[int(column[1:].argmax())]).__name__
        return scores

    def _is_dead(self, node: int) -> bool:
        return any(ancestor in self.forbidders for ancestor in self.tree.path(node))

    def knows(self, node: int) -> bool:
        """True where the scores after a node are known, or may be asked for."""
        return node in self.rows or (self.run.anywhere and not self._is_dead(node))

    def process(self, scored: Scored) -> Scored:
        """The target's scores with all nodes processed."""
        return replace(scored, logits=torch.cat([self.row(node) for node in range(len(self.tree))]))

    def explain(self, draft: Draft, verdict: Verdict) -> Verdict:
        """The verdict, whose reasons name the processor that forbade a rejected token."""
        reasons = [
            f"forbidden by {self.forbidders[node]}" if status == "rejected" and node in self.forbidders else reason
            for node, (status, reason) in enumerate(zip(verdict.status, verdict.reasons, strict=True))
        ]
        return replace(verdict, reasons=tuple(reasons))


def has_state(processor: Any, vocab: int, prompt: Sequence[int], device: torch.device) -> bool:
    """True where a processor's calls change it, or what it gives next: copies are asked about a few texts. The first
    call may prepare what later ones use.
    """
    if type(processor).__module__ == logits_process.__name__ or isinstance(processor, GrammarProcessor):
        return type(processor).__name__ in STATEFUL
    texts = [[*prompt, *tail] for tail in ((0,), (1, 2), (3, 4, 5))]
    scores = torch.linspace(-1, 1, vocab, device=device)[None]

    def ask(copied: Any, text: list[int]) -> Tensor:
        return copied(torch.tensor([text], device=device), scores.clone())

    try:
        copies = [copy.deepcopy(processor) for _ in range(2)]
        ask(copies[1], texts[0])
        attributes = copy.deepcopy(vars(copies[1]))
        ask(copies[1], texts[1])
        answer = ask(copies[1], texts[2])
        return not (_equal_parts(ask(copies[0], texts[2]), answer) and _equal_parts(attributes, vars(copies[1])))
    except Exception:  # it cannot be copied, or not be asked out of turn
        return True


class GrammarProcessor(LogitsProcessor):
    """Forbids every token that a grammar does not allow. Its scores follow from the text, whatever it keeps."""

    def __init__(self, matcher: Matcher) -> None:
        self.matcher = matcher

    def __call__(self, input_ids: Tensor, scores: Float[Tensor, "1 vocab"]) -> Float[Tensor, "1 vocab"]:  # type: ignore
        mask = torch.from_numpy(self.matcher.mask(input_ids[0].tolist())).to(scores.device)
        return scores.masked_fill(~mask, -torch.inf)


def _equal_parts(a: Any, b: Any) -> bool:
    """True where two values hold the same, looked at part by part."""
    if isinstance(a, Tensor):
        return isinstance(b, Tensor) and a.shape == b.shape and bool(((a == b) | ((a != a) & (b != b))).all())
    if isinstance(a, np.ndarray):
        return isinstance(b, np.ndarray) and np.array_equal(a, b)
    if isinstance(a, torch.Generator):
        return torch.equal(a.get_state(), b.get_state())
    if isinstance(a, dict):
        return a.keys() == b.keys() and all(_equal_parts(value, b[key]) for key, value in a.items())
    if isinstance(a, list | tuple):
        return len(a) == len(b) and all(map(_equal_parts, a, b))
    if hasattr(a, "__dict__") and type(a).__eq__ is object.__eq__ and not callable(a):
        return type(a) is type(b) and _equal_parts(vars(a), vars(b))
    return a is b or bool(a == b)


def _names(processors: Iterable[Any]) -> str:
    return " and ".join(type(processor).__name__ for processor in processors)
