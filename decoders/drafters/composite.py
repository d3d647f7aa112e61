"""Composite: drafts of several registered drafters are merged, and what is likeliest to stand is verified.

Each drafter sees the context that it would have alone. Their drafts are merged into one trie, keyed by parent and
token. A node's chance to stand after its parent is estimated by ``Survival``, from who proposed it beside whom, the
highest probability that any of them gave it, and the tokens that match before its copied place. The estimate is
refitted after every step of the run. Best first, ``rows`` nodes are verified, by matching: the drafters' probabilities
are of several distributions, so that no rule of p and q applies.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Generator, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import reduce
from itertools import pairwise
from operator import or_
from typing import Any, NamedTuple, SupportsFloat

import numpy as np

from decoders.draft.draft import Draft, Later, Learned, Past, Scored, Verdict, reading_of
from decoders.draft.merging import (
    NAN,
    MergedTree,
    copied_matches,
    drafter_share,
    highest,
    merge_trees,
    own_probabilities,
    own_ranks,
)
from decoders.draft.needs import Needs
from decoders.draft.params import param
from decoders.draft.pruning import RANK, pruned_draft
from decoders.draft.survival import COPIED_MATCH, Estimate, Survival
from decoders.draft.terms import Term
from decoders.draft.tree import DraftTree
from decoders.errors import UserError
from decoders.method.drafter import Drafter, StagedDrafter
from decoders.method.method import Method
from decoders.method.registry import REGISTRY
from decoders.model.state.memory import Context
from decoders.model.state.transfer import Span, mark
from decoders.model.target_model.target import SPARE_ROWS, Target
from decoders.names import BASELINE, UNDER
from decoders.verifiers.residual import NODE_TERMS as RATIO_TERMS

NAME = "composite"
DEFAULT = "pld+h,recycling"  # needs no trained part
MOST_DRAFTERS = 3
MOST_ROWS = 256  # nodes that are verified at most, whatever was proposed


@dataclass(frozen=True)
class CompositeParams:
    drafters: str = param(
        DEFAULT, "Drafters", "Two or three lossless methods whose drafts are merged, comma separated, each with its "
        "default parameters: pld+h,eagle3 for example. Of equal nodes the first one's comes first.", text=True,
    )  # fmt: skip
    rows: int | None = param(
        16, "Rows", "Nodes that the target verifies, the root included: those likeliest to be accepted. Off: all that "
        f"is proposed, at most {MOST_ROWS}. With length auto: those that pay, instead.", low=2, high=MOST_ROWS,
    )  # fmt: skip

    def __post_init__(self) -> None:
        if problem := drafters_fault(names_of(self)):
            raise UserError(f"drafters={self.drafters!r} {problem}")


def names_of(params: CompositeParams) -> tuple[str, ...]:
    """The drafters' names, in their order."""
    return tuple(name.strip() for name in params.drafters.split(","))


def drafters_fault(names: Sequence[str]) -> str:
    """The reason why these methods cannot be joined, as the end of a sentence; "" where they can."""
    choices = ", ".join(name for name, method in REGISTRY.items() if not _unfit(name, method))
    if not 2 <= len(names) <= MOST_DRAFTERS:
        return f"names {len(names)}: name two or three methods, comma separated, as in {DEFAULT}"
    for name in names:
        if name not in REGISTRY:
            return f"names {name!r}, which is no method: choose two or three of {choices}"
        if problem := _unfit(name, REGISTRY[name]):
            return f"names {name!r}, which {problem}: choose two or three of {choices}"
    if twice := [name for name, count in Counter(names).items() if count > 1]:
        return f"names {twice[0]!r} twice: each drafter proposes once, name two or three different methods"
    return ""


def _unfit(name: str, method: Method) -> str:
    """The reason why a method cannot be one of several; "" where it can."""
    if UNDER in name:
        return f"has a verifier of its own, and merged drafts are matched (name it without {UNDER}…)"
    if name == BASELINE:
        return "drafts nothing"
    if name == NAME:
        return "merges drafts itself"
    if not method.lossless:
        return "is lossy, and the merged drafts are verified losslessly"
    return "rewrites the prompt" if method.prompt is not None else ""


def find_drafters(params: CompositeParams) -> tuple[tuple[Method, Any], ...]:
    """The drafters' cards, with their default parameters."""
    return tuple((method, method.params()) for method in map(REGISTRY.__getitem__, names_of(params)))


class Part(NamedTuple):
    """One of the drafters, with the parts of the target that it reads."""

    name: str
    drafter: Drafter
    needs: Needs

    def view(self, context: Context) -> Context:
        """The context that the drafter would have alone."""
        needs = self.needs
        memory = context.memory.seen_by(needs, context.needs)
        return replace(context, needs=needs, memory=memory, pool=context.pool if needs.pool else None)

    @property
    def observes(self) -> bool:
        return type(self.drafter).observe is not Drafter.observe


class Proposal(NamedTuple):
    """A step's merged tree and its ``draft``, whose ``nodes`` are numbered as in that tree, and ``places`` as in the
    estimate.
    """

    tree: MergedTree
    draft: Draft
    nodes: Sequence[int]
    estimate: Estimate
    places: Sequence[int]


class Merge(NamedTuple):
    """A step's drafts as one tree, the estimate of its nodes, each drafter's own probabilities, and the highest."""

    tree: MergedTree
    estimate: Estimate
    own_q: Sequence[Sequence[float]]
    q: Sequence[float]

    def with_empty(self, draft: Draft) -> Merge:
        """The same with another drafter, who drafted nothing."""
        return self._replace(tree=self.tree.with_empty(draft), own_q=(*self.own_q, own_probabilities(draft)))


class CompositeDrafter(StagedDrafter):
    """Merges the ``parts``' drafts; ``rows`` nodes are verified (None: all). ``shared`` are keys of step numbers that
    several parts give, so that none of them is recorded.
    """

    def __init__(self, parts: Sequence[Part], rows: int | None, shared: frozenset[str] = frozenset()) -> None:
        self.parts, self.rows, self.shared = tuple(parts), rows, shared
        self.survival = Survival()
        self.survival.begin()
        self.state = 0  # how the last step ended
        self.is_active: list[bool] = []  # of the parts in this step
        self.expectations: list[float] = []  # of the parts: tokens expected of the ones before it
        self.proposal: Proposal | None = None
        self.past: Sequence[Past] = ()  # steps to take in again before the next draft
        drafters = [part.drafter for part in parts]
        keeper = next((drafter for drafter in drafters if drafter.keeps is not None), self)
        self.keeps, self.warm = keeper.keeps, keeper.warm
        self.looks_at = next((drafter.looks_at for drafter in drafters if drafter.looks_at), None)

    def prepare(self, context: Context) -> None:
        for part in self.parts:
            part.drafter.prepare(part.view(context))

    def propose(self, context: Context, budget: int) -> Draft:
        past, self.past = self.past, ()
        for step in past:
            self._replay(step, context.cut(step.length), budget + context.length - step.length)
        drafts, marks = list[Draft](), [mark(context.device)]
        for part in self.parts:
            drafts.append(part.drafter.propose(part.view(context), budget))
            marks.append(mark(context.device))
        self.is_active, self.expectations = [True] * len(self.parts), []
        return self._merge(drafts, marks, context, self.rows or MOST_ROWS)

    def draft_stages(self, context: Context, budget: int) -> Generator[Sequence[float], int, Draft]:
        drafts, marks, survival, merge = list[Draft](), [mark(context.device)], [1.0], None
        self.is_active, self.expectations = [], []
        for place, part in enumerate(self.parts):
            depth = yield survival
            self.expectations.append(sum(survival) - 1)
            self.is_active.append(depth > 0)
            if depth > 0:
                drafts.append(part.drafter.propose(part.view(context), min(budget, depth)))
                merge = None
            else:
                reason = f"not asked: {self.expectations[-1]:.2f} tokens are expected without it"
                drafts.append(Draft.empty(context.root, reason))
                merge = merge and merge.with_empty(drafts[-1])
            marks.append(mark(context.device))
            if place + 1 < len(self.parts):
                merge = merge or self._join(drafts, context)
                survival = merge.estimate.survival
        return self._merge(drafts, marks, context, MOST_ROWS, merge)

    def later_stages(self) -> Iterable[tuple[int, int, Sequence[float]]]:
        assert self.proposal is not None
        tree = self.proposal.tree
        depths, survival = tree.tree.depths, self.estimate.survival
        for place, draft in enumerate(tree.drafts):
            if place and self.is_active[place]:
                worth = [0.0] * max(depths)
                for node, mask in enumerate(tree.masks):
                    if mask & (1 << place + 1) - 1 == 1 << place:
                        worth[depths[node] - 1] = max(worth[depths[node] - 1], survival[node])
                yield place, max(draft.tree.depths), worth

    def _merge(
        self, drafts: Sequence[Draft], marks: Sequence[Any], context: Context, rows: int, merge: Merge | None = None
    ) -> Draft:
        """The drafts as one, of so many rows at most; ``merge`` where they are that already."""
        flags, expectations = tuple(self.is_active), tuple(self.expectations)
        spans = {f"ms{i}": Span(pair) for i, pair in enumerate(pairwise(marks), 1)}
        notes = Later(lambda: {**self._notes(drafts, flags, expectations), **spans})
        draft = self._cut(merge or self._join(drafts, context), notes, rows)
        if not draft.tree.drafted:
            reasons = (f"{part.name}: {draft.reason}" for part, draft in zip(self.parts, drafts, strict=True))
            draft = replace(draft, route="none", reason="; ".join(reasons))
        assert self.proposal is not None
        self.proposal = self.proposal._replace(draft=draft)
        return draft

    def _join(self, drafts: Sequence[Draft], context: Context) -> Merge:
        union = merge_trees(drafts)
        own_q = [own_probabilities(draft) for draft in union.drafts]
        matches = [copied_matches(draft, context.tokens) for draft in union.drafts]
        q, match = highest(union.per_drafter(own_q)), highest(union.per_drafter(matches))
        copied_depths = [NAN if math.isnan(n) else depth for n, depth in zip(match, union.tree.depths, strict=True)]
        columns = {"q": q, COPIED_MATCH: match, "copied_depth": copied_depths}
        numbers = {name: np.asarray(values) for name, values in columns.items()}
        classes = union.classes
        if sum(self.is_active) < len(self.parts):  # a token that nobody contradicted, as nobody else was asked
            mask = sum(1 << place for place, flag in enumerate(self.is_active) if flag)
            classes = tuple(f"{name}, asked {mask}" for name in classes)
        joint_draft = Draft(union.tree, classes, terms=numbers)
        return Merge(union, self.survival.estimate(joint_draft, context.tokens, self.state), own_q, q)

    def _cut(self, merge: Merge, notes: Mapping[str, SupportsFloat], rows: int) -> Draft:
        """The draft of the nodes that are likeliest to stand, and the record of those that were left out."""
        union, estimate, own_q, q = merge
        tree, order = union.depth_first(estimate.survival)
        survival = [estimate.survival[node] for node in order]
        self.estimate, self.staged_survival = estimate.of_nodes(order, tree.tree.parents), estimate.survival
        whole = tree.draft([q[node] for node in order])
        try:
            reading_of(whole)
        except ValueError as problem:
            names = ",".join(part.name for part in self.parts)
            raise UserError(f"drafters={names} cannot draft together: {problem}; choose another of them") from None
        limit = max(1, min(rows, SPARE_ROWS - len(whole.probes)))

        def terms() -> dict[str, np.ndarray]:
            ranks = [own_ranks(draft) for draft in union.drafts]
            columns = {"who": [NAN, *tree.masks[1:]], "estimate": [NAN, *survival[1:]]}
            for name, values in (("q", own_q), ("rank", ranks)):
                columns |= {f"{name}{i}": column for i, column in enumerate(tree.per_drafter(values), 1)}
            return {**tree.terms(), **{key: np.asarray(column) for key, column in columns.items()}}

        draft, nodes = replace(whole, terms=Later(terms), notes=notes), range(len(order))
        if len(order) > limit:
            nodes = sorted(sorted(nodes, key=survival.__getitem__, reverse=True)[:limit])
            draft = replace(pruned_draft(draft, nodes, survival, cause=RANK), nodes=())
        self.proposal = Proposal(tree, draft, nodes, estimate, [order[node] for node in nodes])
        return draft

    def _notes(
        self, drafts: Sequence[Draft], flags: Sequence[bool], expectations: Sequence[float]
    ) -> dict[str, SupportsFloat]:
        notes = {key: value for draft in drafts for key, value in draft.notes.items() if key not in self.shared}
        counts = {f"proposed{i}": float(draft.tree.drafted) for i, draft in enumerate(drafts, 1)}
        counts |= {f"without{i}": value for i, value in enumerate(expectations, 1) if i > 1}
        return {**notes, **counts, **{f"asked{i}": float(flag) for i, flag in enumerate(flags, 1)}}

    def observe(self, draft: Draft, scored: Scored, verdict: Verdict) -> Learned | None:
        observations = self._observe(draft, scored, verdict, [part for part in self.parts if part.observes])
        notes = {
            key: value for learned in observations for key, value in learned.notes.items() if key not in self.shared
        }
        joint = tuple(guess for learned in observations for guess in learned.joint)
        return Learned(joint=joint, notes={**notes, **self._learn(draft, verdict)})

    def _observe(self, draft: Draft, scored: Scored, verdict: Verdict, parts: Sequence[Part]) -> list[Learned]:
        """Have drafters observe a step: those that learn from any draft all of it, others their share of it."""
        proposal, observations, probe_start = self._proposal_of(draft), list[Learned](), 0
        verified = draft.proposed_nodes(range(len(draft.tree)))
        at = {} if proposal is None else {proposal.nodes[node]: place for place, node in enumerate(verified)}
        for i, part in enumerate(self.parts):
            learned, observes = None, part in parts and (proposal is None or self.is_active[i])
            if part in parts and part.drafter.learns_from_any_draft:
                learned, observes = part.drafter.observe(draft, scored, verdict), False
            if proposal is not None and (observes or proposal.tree.drafts[i].probes):
                own_draft = proposal.tree.drafts[i]
                places = [at.get(proposal.tree.places[i][node], -1) for node in range(len(own_draft.tree))]
                share = drafter_share(own_draft, places, probe_start, draft, scored, verdict)
                probe_start += len(share[0].probes)
                learned = part.drafter.observe(*share) if observes else learned
                if observes and learned is not None and learned.joint:
                    rows = [place for place in places if place >= 0]  # guesses name nodes of the whole draft
                    joint = tuple(replace(guess, parent=rows[guess.parent]) for guess in learned.joint)
                    learned = replace(learned, joint=joint)
            if learned is not None:
                observations.append(learned)
        return observations

    def _proposal_of(self, draft: Draft) -> Proposal | None:
        """The proposal that a verified draft is of; None for another one's."""
        proposal = self.proposal
        return proposal if proposal is not None and draft.proposed is proposal.draft else None

    def _learn(self, draft: Draft, verdict: Verdict) -> dict[str, float]:
        """Refit the estimate by a verdict; each drafter's verified and accepted nodes."""
        accepted, deepest = verdict.accepted, max(draft.tree.depths)
        self.state = 0 if not deepest else 1 if not accepted else 3 if accepted == deepest else 2
        if (proposal := self._proposal_of(draft)) is None:
            return {}
        nodes = draft.proposed_nodes(range(len(draft.tree)))
        places = tuple(proposal.places[node] for node in nodes)
        self.survival.fit(proposal.estimate, replace(draft, nodes=places), verdict)
        masks = [proposal.tree.masks[proposal.nodes[node]] for node in nodes]
        notes: dict[str, float] = {}
        for i in range(len(self.parts)):
            own_nodes = [bool(mask & 1 << i) for mask in masks]
            notes[f"verified{i + 1}"] = float(sum(own_nodes))
            notes[f"accepted{i + 1}"] = float(sum(own_nodes[node] for node in verdict.path))
        return notes

    def resume(self, context: Context, past: Sequence[Past]) -> None:
        """Take in the steps again, each drafted anew where it was, once the next draft's budget is known. Of another
        method's steps the drafters take up what they can, and the estimate begins anew.
        """
        if past and past[0].probes is not None:
            self.past = past
            return
        for part in self.parts:
            part.drafter.resume(part.view(context), past)

    def _replay(self, step: Past, context: Context, budget: int) -> None:
        draft = subdraft(self.propose(context, budget), step.draft.tree)
        learners = [part for part in self.parts if part.observes and part.drafter.learns]
        if draft is None:
            draft, self.proposal = step.draft, None
        if learners:
            self._observe(draft, step.score(draft), step.verdict, learners)
        self._learn(draft, step.verdict)


def subdraft(draft: Draft, tree: DraftTree) -> Draft | None:
    """The draft as far as ``tree`` goes: of a draft that was cut. None where it has nodes that the draft has not."""
    if tree == draft.tree:
        return draft
    children, nodes = draft.tree.children(), [0]
    for token, parent in zip(tree.tokens[1:], tree.parents[1:], strict=True):
        node = children[nodes[parent]].get(token)
        if node is None:
            return None
        nodes.append(node)
    if nodes != sorted(nodes):
        return None
    return pruned_draft(draft, nodes, [0.0] * len(draft.tree), proposal=draft)


def needs_of(target: Target, params: CompositeParams) -> Needs:
    """All that the drafters read. Raises UserError where a trained part is missing."""
    if missing := METHOD.missing(target, params):
        raise UserError(missing)
    return reduce(or_, (method.needs(target, values) for method, values in find_drafters(params)))


def build(target: Target, params: CompositeParams) -> CompositeDrafter:
    entries = find_drafters(params)
    parts = [
        Part(method.name, method.build(target, values), method.needs(target, values)) for method, values in entries
    ]
    return CompositeDrafter(parts, params.rows, _shared_step_terms([method for method, _ in entries]))


def _shared_step_terms(entries: Sequence[Method]) -> frozenset[str]:
    """Keys of step numbers that several methods declare, each of its own work."""
    counts = Counter(term.key for method in entries for term in method.step_terms)
    return frozenset(key for key, count in counts.items() if count > 1)


def declares(params: CompositeParams) -> dict[str, tuple]:
    """The origins and numbers of a run with these drafters: theirs, and those of the merge."""
    entries = [method for method, _ in find_drafters(params)]
    names, shared = [method.name for method in entries], _shared_step_terms(entries)

    def unique(field: str, key: str) -> tuple:
        cards = [card for method in entries for card in getattr(method, field)]
        return tuple({getattr(card, key): card for card in reversed(cards)}.values())[::-1]

    masks = ", ".join(f"{1 << i}: {name}" for i, name in enumerate(names))
    node_terms, step_terms = [_mask_term(f"{masks}; of a node that several proposed, their sum", len(names))], []
    for i, name in enumerate(names, 1):
        node_terms += [
            Term(f"q{i}", f"{name} q", f"The probability that {name} gave the token after its parent.", 0, 1),
            Term(f"rank{i}", f"{name} rank", f"Its rank among its siblings in the draft of {name} (0: first).", 0, 0),
        ]  # fmt: skip
        step_terms += [
            Term(f"asked{i}", f"{name}: asked", "0 where --length auto left it out: others' drafts are enough.", 0, 1),
            Term(f"proposed{i}", f"{name}: proposed", f"Tokens that {name} drafted.", 0, 0),
            Term(f"verified{i}", f"{name}: verified", f"Of the verified tokens, those that {name} drafted.", 0, 0),
            Term(f"accepted{i}", f"{name}: accepted", f"Of the accepted tokens, those that {name} drafted.", 0, 0),
            Term(f"ms{i}", f"{name} ms", f"Milliseconds that {name} took to draft.", 0, 0),
        ]  # fmt: skip
    step_terms += [
        Term(f"without{i}", f"{name}: expected without", f"Tokens expected of the drafts before {name}.", 0, 0)
        for i, name in enumerate(names[1:], 2)
    ]
    return {
        "origins": unique("origins", "name"),
        "terms": unique("terms", "key"),
        "node_terms": (*node_terms, ESTIMATE, *(t for t in unique("node_terms", "key") if t not in RATIO_TERMS)),
        "step_terms": (*step_terms, *(term for term in unique("step_terms", "key") if term.key not in shared)),
    }


def _mask_term(masks: str, count: int) -> Term:
    return Term("who", "proposed by", f"{masks}.", 1, 2**count - 1)


ESTIMATE = Term(
    "estimate", "estimated survival",
    "Estimated before the target saw it: the probability that the node and all above it are accepted.", 0, 1,
)  # fmt: skip
METHOD = Method(
    name=NAME,
    title="Composite",
    paper="",
    summary="Merges the drafts of two or three methods into one tree and verifies what is likeliest to be accepted.",
    params=CompositeParams,
    build=build,
    needs=needs_of,
    joins=find_drafters,
    declares=declares,
    order=47,
)
