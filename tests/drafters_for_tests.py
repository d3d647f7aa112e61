"""Drafters that no paper proposed: they stress the engine rather than speed it up."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from decoders.draft.draft import Draft, Probe, Scored, Verdict
from decoders.draft.needs import Needs
from decoders.draft.params import NoParams
from decoders.draft.tree import DraftTree
from decoders.method.drafter import Drafter
from decoders.method.method import Method
from decoders.model.state.memory import Context
from decoders.verifiers.match import judged
from decoders.verifiers.sampling import Chooser
from decoders.verifiers.verifier import Verifier


@dataclass
class WildTrees(Drafter):
    """Random branching trees that hide the known continuation among distractors, with or without probes."""

    known: list[int]
    vocab: int
    seed: int = 0
    nodes: int = 14
    probes: int = 0

    def __post_init__(self) -> None:
        self.random = np.random.default_rng(self.seed)
        self.seen: list[tuple[Draft, Scored, Verdict]] = []

    def propose(self, context: Context, budget: int) -> Draft:
        at = context.length - context.prompt_length
        chain = self.known[at : at + int(self.random.integers(0, 6))]
        tokens, parents, depths = [context.root], [-1], [0]
        children: list[set[int]] = [set()]

        def add(parent: int, token: int) -> int | None:
            if token in children[parent] or depths[parent] >= budget:
                return None
            tokens.append(token)
            parents.append(parent)
            depths.append(depths[parent] + 1)
            children[parent].add(token)
            children.append(set())
            return len(tokens) - 1

        tip: int | None = 0
        while len(tokens) < self.nodes and budget > 0:
            if chain and tip is not None and self.random.random() < 0.5:
                tip = add(tip, chain.pop(0))
            elif (
                add(int(self.random.integers(0, len(tokens))), int(self.random.integers(3, self.vocab))) is None
                and budget <= 1
            ):
                break
        tree = DraftTree(tuple(tokens), tuple(parents))
        probes = tuple(
            Probe(int(self.random.integers(0, len(tree))), 1, token=7, kind="dummy") for _ in range(self.probes)
        )
        return Draft(tree, ("root",) + ("drafter",) * tree.drafted, (-1,) * len(tree), probes=probes, route="wild")

    def observe(self, draft: Draft, scored: Scored, verdict: Verdict) -> None:
        self.seen.append((draft, scored, verdict))


class Credulous(Verifier):
    """A verifier that claims to be lossless and accepts the whole main chain, whatever the target says."""

    def __init__(self, chooser: Chooser) -> None:
        self.chooser = chooser

    def __call__(self, draft: Draft, scored: Scored) -> Verdict:
        path = [0]
        while draft.tree.children()[path[-1]]:
            path.append(min(draft.tree.children()[path[-1]].values()))
        return judged(draft, path, self.chooser.choices(scored.logits).draw_after(path[-1]))


def credulous(drafter, name: str = "wrong") -> Method:
    """A method that is really wrong: it says that it is lossless, and accepts every drafted token."""
    return replace(method_of(drafter, name=name), verifier=lambda params, chooser, stop_ids: Credulous(chooser))


def method_of(drafter, needs: Needs | None = None, name: str = "wild") -> Method:
    """A method that hands out one prepared drafter."""
    return Method(
        name=name,
        title=name,
        paper="",
        summary="",
        params=NoParams,
        build=lambda target, params: drafter,
        needs=lambda target, params: needs or Needs(),
    )
