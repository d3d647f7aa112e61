"""A draft, its verdict, and everything that is recorded of both (pure records: no model, no method)."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any, SupportsFloat

import numpy as np
import torch
from jaxtyping import Bool, Float
from torch import Tensor

from decoders.prompt.prompt import Pool

from .lattice import Lattice
from .tree import DraftTree


@dataclass(frozen=True, slots=True)
class Candidates:
    """The ranking that led to a draft, losers included; all arrays have one entry per candidate.

    ``position`` is the anchor: the earlier position that holds the root's token (or stands for it); the draft it
    offers is copied from ``position + 1`` on and has ``length`` tokens. ``pool`` is the anchor's place in the pool,
    where there is one (``position`` is -1 where the pool's text does not stand in the prompt). ``score`` is what the
    method ranks by; ``terms`` are all numbers that went into it. ``chosen`` indexes the winner (-1: none).
    ``excluded`` says why a candidate could not win ("" where it could). ``unlisted`` counts those that were ranked and
    are not listed here.
    """

    position: np.ndarray
    score: np.ndarray
    length: np.ndarray
    chosen: int = -1
    terms: dict[str, np.ndarray] = field(default_factory=dict)
    excluded: tuple[str, ...] = ()
    pool: np.ndarray | None = None
    unlisted: int = 0

    def __len__(self) -> int:
        return len(self.position)

    def best(self, count: int) -> tuple[Candidates, np.ndarray]:
        """The chosen one and the ``count`` best others, in the order they have here, and the rank of each among all."""
        total, score = len(self), np.asarray(self.score, dtype=np.float64)
        order = np.argsort(-score, kind="stable")
        rank = np.empty(total, dtype=np.int64)
        rank[order] = np.arange(total)
        if total <= count + 1:
            return self, rank
        top_mask = rank < count
        if self.chosen >= 0:
            top_mask[self.chosen] = True
        places = np.flatnonzero(top_mask)
        return Candidates(
            np.asarray(self.position)[places], score[places], np.asarray(self.length)[places],
            int(np.searchsorted(places, self.chosen)) if self.chosen >= 0 else -1,
            {key: np.asarray(values)[places] for key, values in self.terms.items()},
            tuple([self.excluded[place] for place in places.tolist()]) if self.excluded else (),
            None if self.pool is None else np.asarray(self.pool)[places], self.unlisted + total - len(places),
        ), rank[places]  # fmt: skip


@dataclass(frozen=True, slots=True)
class Probe:
    """An extra input row whose logits come back but which is never committed (PPD's prompt tokens, Lookahead's window).

    It sees the committed prefix, the tree nodes on the path to ``parent`` (``parent`` included), and the earlier probes
    listed in ``sees``; no node ever sees a probe. Its position id is that of ``parent`` + ``offset``. Give a ``token``
    or an ``embedding`` ``[hidden]``. ``reading`` says how it is read, where not in the target's own way (the same one
    for all probes of a draft), and ``prefix`` which of that reading's prefix tokens it sees.
    """

    parent: int
    offset: int
    token: int | None = None
    embedding: Float[Tensor, " hidden"] | None = None
    sees: tuple[int, ...] = ()
    kind: str = "probe"
    prefix: tuple[int, ...] = ()
    reading: Reading | None = None


@dataclass(frozen=True, slots=True)
class Layout:
    """Input of a verify forward besides the draft's tokens: positions behind the root of its rows (nodes, then
    probes), which row sees which (None: a chain), and the probes' embeddings (None: they have tokens).
    """

    offsets: np.ndarray
    sees: Bool[np.ndarray, "rows rows"] | None
    embeddings: Float[Tensor, "probes hidden"] | None


@dataclass(frozen=True, slots=True)
class Looks:
    """Attention of a draft model, or of probes, to the target's cache: a row of attention over the positions before the
    root (probes: up to the last accepted token) for each of ``nodes``, at each of the target's ``layers``. Probe i of a
    draft counts as node ``len(tree) + i``.

    ``weights()`` computes them, ``[layers, heads, nodes, positions]``, when it is asked for: only a traced run asks.
    """

    nodes: tuple[int, ...]
    layers: tuple[int, ...]
    weights: Callable[[], Float[Tensor, "layers heads nodes positions"]]


@dataclass(frozen=True, slots=True)
class JointGuess:
    """The first guess that several probes of one node make together, ``offset`` positions behind it."""

    parent: int
    offset: int
    token: int
    probability: float


@dataclass(frozen=True, slots=True)
class PrunedNodes:
    """Nodes that were left out of a draft, best first; the target never sees them.

    ``parents`` are nodes of the draft's tree or, from the tree's size on, earlier entries here. ``scores`` are what the
    drafter ranked by, ``probabilities`` its own of each token after its parent. ``reasons`` says of the first ones why
    they were left out: "cost" (more than they bring, ``--length auto``: their score is the estimated survival) or
    "grammar"; all others were ranked too low.
    """

    tokens: tuple[int, ...]
    parents: tuple[int, ...]
    probabilities: tuple[float, ...]
    scores: tuple[float, ...]
    reasons: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Translation:
    """Text of a draft model with another vocabulary, and its use: its ``tokens``, their bytes and its
    probabilities, and for each the ``first`` and the ``last`` node of the draft that carry some of its text (-1: none).
    """

    tokens: tuple[int, ...]
    pieces: tuple[bytes, ...]
    probabilities: tuple[float, ...]
    first: tuple[int, ...]
    last: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Draft:
    """A proposal, with its provenance recorded where it was decided.

    ``origins`` and ``sources`` have one entry per node: where the token came from ("root", or the name of one of the
    method's ``origins``) and the source position it was copied from (-1: not copied). ``probabilities`` is the
    drafter's own probability per node (root 1.0), where it has one. ``route`` names the way taken ("lexical", "none",
    …); ``reason`` says, in plain words, why there is no draft. ``pool`` is each node's place in the pool (-1: not from
    there; empty: none is). ``terms`` are numbers per node (nan: not defined), ``notes`` numbers of the step, as the
    method's ``node_terms`` and ``step_terms`` declare them. ``distributions`` are the drafter's own next-token
    distributions after nodes, where it has them; ``drawn`` says that the tokens were drawn from them (after the run's
    warpers), not chosen. ``looks`` is where it looked. ``pruned`` are nodes that it thought of and left out.
    ``translated`` is what a draft model wrote in a vocabulary of its own.
    ``layout`` is the draft's (``decoders.draft.draft.layout_of``), where the drafter keeps it for drafts of this shape.
    ``proposal`` is the drafter's own draft, where the engine changed it, and ``nodes`` are the nodes' numbers in it, if
    some were left out.
    ``lattice`` computes the candidates that a block was walked through, when a traced run asks.
    """

    tree: DraftTree
    origins: tuple[str, ...] = ()
    sources: tuple[int, ...] = ()
    probabilities: tuple[float, ...] | None = None
    candidates: Candidates | None = None
    probes: tuple[Probe, ...] = ()
    route: str = ""
    reason: str = ""
    pool: tuple[int, ...] = ()
    terms: Mapping[str, np.ndarray] = field(default_factory=dict)
    notes: Mapping[str, SupportsFloat] = field(default_factory=dict)
    distributions: Mapping[int, Float[Tensor, " vocab"]] | None = None
    drawn: bool = False
    looks: Looks | None = None
    pruned: PrunedNodes | None = None
    translated: Translation | None = None
    layout: Layout | None = None
    lattice: Callable[[], Lattice] | None = None
    proposal: Draft | None = None
    nodes: tuple[int, ...] = ()
    pruned_later: Callable[[], PrunedNodes | None] | None = None  # what makes ``left_out``, where the engine pruned

    @property
    def left_out(self) -> PrunedNodes | None:
        """All that was left out, by the drafter and by the engine; made when it is asked for."""
        return self.pruned if self.pruned_later is None else self.pruned_later()

    @property
    def proposed(self) -> Draft:
        """The draft as its drafter gave it: its own one again."""
        return self.proposal or self

    def proposed_nodes(self, nodes: Sequence[int]) -> Sequence[int]:
        """Nodes of this draft, by their numbers in the proposal."""
        return [self.nodes[node] for node in nodes] if self.nodes else nodes

    @classmethod
    def empty(cls, root: int, reason: str, *, route: str = "none", candidates: Candidates | None = None) -> Draft:
        """No draft this step: the target's own next token is taken, and ``reason`` says why."""
        return cls(DraftTree.chain(root), ("root",), (-1,), candidates=candidates, route=route, reason=reason)

    @classmethod
    def copy_from(
        cls, root: int, tokens: list[int], start: int, *, route: str, candidates: Candidates | None = None
    ) -> Draft:
        """A chain copied from ``start`` on."""
        origins, sources = ("root",) + ("main",) * len(tokens), (-1, *range(start, start + len(tokens)))
        return cls(DraftTree.chain(root, tokens), origins, sources, candidates=candidates, route=route)

    @classmethod
    def copy_from_pool(
        cls, root: int, pool: Pool, start: int, count: int, *, route: str, candidates: Candidates | None = None,
        notes: Mapping[str, SupportsFloat] | None = None,
    ) -> Draft:  # fmt: skip
        """A chain of ``count`` tokens, copied from a pool's place ``start`` on."""
        places = (-1, *range(start, start + count))
        return cls(
            DraftTree.chain(root, pool.tokens[start : start + count].tolist()), ("root",) + ("datastore",) * count,
            tuple(pool.in_prompt(places).tolist()), candidates=candidates, route=route, pool=places, notes=notes or {},
        )  # fmt: skip


@dataclass(frozen=True, slots=True)
class Ran:
    """A forward's way: by which engine (eager, compiled, graph), and the rows and keys of its bucket (0: none)."""

    engine: str = "eager"
    rows: int = 0
    keys: int = 0


@dataclass(frozen=True, slots=True)
class Scored:
    """The target's scores of a draft: logits (fp32), the queries of the heads that ``Needs`` names, by layer, and how
    the forward ran.
    """

    logits: Float[Tensor, "nodes vocab"]
    probe_logits: Float[Tensor, "probes vocab"] | None = None
    queries: dict[int, Float[Tensor, "heads rows head_dim"]] = field(default_factory=dict)
    ran: Ran = Ran()


@dataclass(frozen=True, slots=True)
class Learned:
    """A drafter's notes on a step, for the record: where the probes that it read looked, guesses of several of them
    together, and numbers of the step that only its verdict settles (``notes``, beside the draft's own).
    """

    looks: Looks | None = None
    joint: tuple[JointGuess, ...] = ()
    notes: dict[str, float] = field(default_factory=dict)


class Later(Mapping[str, Any]):
    """A mapping that is computed when something is asked of it: an untraced step never asks.

    >>> Later(lambda: {"overlap": 0.5})["overlap"]
    0.5
    """

    def __init__(self, compute: Callable[[], Mapping[str, Any]]) -> None:
        self._compute = compute

    @cached_property
    def _value(self) -> Mapping[str, Any]:
        return self._compute()

    def __getitem__(self, key: str) -> Any:
        return self._value[key]

    def __iter__(self) -> Iterator[str]:
        return iter(self._value)

    def __len__(self) -> int:
        return len(self._value)


@dataclass(frozen=True, slots=True)
class Verdict:
    """The accepted path (nodes, root first), the target's token after it, and one reason per node.

    ``bonus`` is None only when a stop token inside the path ended the run. ``status`` per node: root, accepted,
    rejected (its parent was accepted, it was not), unreached (its parent was not accepted). ``terms`` are the
    verifier's own numbers per node (nan: not defined), as the method's ``node_terms`` declare them; where only the
    record wants them, they are computed when they are asked for (``Later``).
    """

    path: tuple[int, ...]
    bonus: int | None
    status: tuple[str, ...]
    reasons: tuple[str, ...]
    terms: Mapping[str, np.ndarray] = field(default_factory=dict)

    @property
    def accepted(self) -> int:
        """Accepted draft tokens: the root and the bonus are not among them."""
        return len(self.path) - 1


@dataclass(frozen=True, slots=True)
class Past:
    """A recorded step, as a drafter may look back on it: ``length`` tokens were committed before it.

    ``draft`` has its tree, origins and route. ``probes`` are the parents of its probes, in order; None where the step
    was not this method's own. ``score`` asks the target what it says of a draft at that place.
    """

    length: int
    draft: Draft
    verdict: Verdict
    score: Callable[[Draft], Scored]
    probes: tuple[int, ...] | None = None

    def scored(self, probes: tuple[Probe, ...] = ()) -> Scored:
        """The target's scores of the draft: one forward, made when asked for. ``probes`` are hung on its nodes."""
        return self.score(replace(self.draft, probes=probes))


@dataclass(frozen=True, slots=True, eq=False)
class Reading:
    """The way the probes of a draft are read, where it is not the target's own way.

    ``prefix`` is keys (after rotary) and values ``[layers, kv_heads, prefixes, head_dim]`` of prefix tokens, which
    stand before the text; a probe sees the ones it names (``Probe.prefix``), whatever the layer's window. ``exits``:
    the weights of the last layers' states, the last layer at the end, whose sum the target's final norm reads.
    ``head`` makes logits of what that norm gives.
    """

    prefix: tuple[Tensor, Tensor] | None = None
    exits: Float[Tensor, "exits"] | None = None
    head: Float[Tensor, "vocab hidden"] | None = None

    @property
    def prefixes(self) -> int:
        """Prefix tokens."""
        return 0 if self.prefix is None else self.prefix[0].shape[2]

    def visibility(self, draft: Draft) -> Bool[np.ndarray, "rows prefixes"]:
        """The prefix tokens that each row sees: nodes none."""
        nodes = len(draft.tree)
        sees = np.zeros((nodes + len(draft.probes), self.prefixes), dtype=bool)
        for row, probe in enumerate(draft.probes, nodes):
            sees[row, list(probe.prefix)] = True
        return sees


def reading_of(draft: Draft) -> Reading | None:
    """The reading of a draft's probes; None for the target's own. Raises ValueError where they have several."""
    readings = {id(probe.reading): probe.reading for probe in draft.probes}
    if len(readings) > 1:
        raise ValueError(f"the probes of a draft are read in {len(readings)} ways; all must be read in the same way")
    return next(iter(readings.values()), None)


def emitted_tokens(tokens: Sequence[int], verdict: Verdict) -> list[int]:
    """Tokens that a step adds to the output: the accepted ones and, unless one of them ended the run, the bonus."""
    emitted = [tokens[node] for node in verdict.path[1:]]
    return emitted if verdict.bonus is None else [*emitted, verdict.bonus]


def layout_of(draft: Draft) -> Layout:
    """Positions and visibility of a draft's rows; embeddings are 0 for probes that have a token instead."""
    depths, probes = draft.tree.depths, draft.probes
    embeddings = [p.embedding for p in probes]
    offsets = np.asarray([*depths, *(depths[p.parent] + p.offset for p in probes)])
    sees = _visibility(draft) if probes or not draft.tree.is_chain else None
    example = next((e for e in embeddings if e is not None), None)
    if example is None:
        return Layout(offsets, sees, None)
    return Layout(offsets, sees, torch.stack([torch.zeros_like(example) if e is None else e for e in embeddings]))


def _visibility(draft: Draft) -> np.ndarray:
    """Boolean [rows, rows], nodes then probes: nodes see ancestors, probes see their path and the probes they name."""
    nodes, probes = len(draft.tree), len(draft.probes)
    sees = np.zeros((nodes + probes, nodes + probes), dtype=bool)
    sees[:nodes, :nodes] = draft.tree.ancestors()
    for i, probe in enumerate(draft.probes):
        row = nodes + i
        sees[row, :nodes] = sees[probe.parent, :nodes]
        sees[row, [nodes + index for index in probe.sees]] = True
        sees[row, row] = True
    return sees
