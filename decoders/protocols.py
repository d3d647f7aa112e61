"""What a drafting method is: what it may see, what it proposes, and how the target's answer comes back."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np
from jaxtyping import Bool, Float
from torch import Tensor

from .tree import DraftTree

if TYPE_CHECKING:
    from .memory import Context
    from .prompt import Prompt
    from .reading import Reading
    from .sampling import Chooser
    from .target import Target

ORIGINS = ("root", "main", "branch", "successor", "prompt", "expansion", "datastore", "drafter")


@dataclass(frozen=True, slots=True)
class Needs:
    """What a drafter reads besides the tokens; only this is captured while the target runs.

    ``hidden_layer`` indexes the model's hidden states (0 = embeddings, n = after layer n);
    ``heads`` are (layer, head) pairs whose attention rows are asked for, layers counted from 0;
    ``top_tokens`` next tokens are kept per committed position; ``pool`` says that drafts come from ``Context.pool``.
    ``hidden_layers`` are further layers to keep, for a session that several drafters look at (``Session.at``).
    """

    hidden_layer: int | None = None
    heads: tuple[tuple[int, int], ...] = ()
    top_tokens: int = 0
    pool: bool = False
    hidden_layers: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True)
class Candidates:
    """The ranking that led to a draft, losers included; all arrays have one entry per candidate.

    ``position`` is the anchor: the earlier position that holds the root's token (or stands for it); the draft it
    offers is copied from ``position + 1`` on and has ``length`` tokens. ``pool`` is the anchor's place in the pool,
    where there is one (``position`` is -1 where the pool's text does not stand in the prompt). ``score`` is what the
    method ranks by; ``terms`` are all numbers that went into it. ``chosen`` indexes the winner (-1: none).
    ``excluded`` says why a candidate could not win ("" where it could).
    """

    position: np.ndarray
    score: np.ndarray
    length: np.ndarray
    chosen: int = -1
    terms: dict[str, np.ndarray] = field(default_factory=dict)
    excluded: tuple[str, ...] = ()
    pool: np.ndarray | None = None

    def __len__(self) -> int:
        return len(self.position)


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
    embedding: Float[Tensor, "hidden"] | None = None
    sees: tuple[int, ...] = ()
    kind: str = "probe"
    prefix: tuple[int, ...] = ()
    reading: Reading | None = None


@dataclass(frozen=True, slots=True)
class Layout:
    """What a verify forward needs of a draft besides its tokens: positions behind the root of its rows (nodes, then
    probes), which row sees which (None: a chain), and the probes' embeddings (None: they have tokens).
    """

    offsets: np.ndarray
    sees: Bool[np.ndarray, "rows rows"] | None
    embeddings: Float[Tensor, "probes hidden"] | None


@dataclass(frozen=True, slots=True)
class Looks:
    """Where a draft model, or probes, looked in the target's cache: a row of attention over the positions before the
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
class Draft:
    """A proposal, with its provenance recorded where it was decided.

    ``origins`` and ``sources`` have one entry per node: where the token came from (``ORIGINS``) and the source position
    it was copied from (-1: not copied). ``probabilities`` is the drafter's own probability per node (root 1.0), where
    it has one. ``route`` names the way taken ("lexical", "none", …); ``reason`` says, in plain words, why there is no
    draft. ``pool`` is each node's place in the pool (-1: not from there; empty: none is). ``terms`` are numbers per
    node (nan: not defined), ``notes`` numbers of the step, as the method's ``node_terms`` and ``step_terms`` declare
    them. ``distributions`` are the drafter's own next-token distributions after nodes, where it has them; ``drawn``
    says that the tokens were drawn from them (after the run's warpers), not chosen. ``looks`` is where it looked.
    ``layout`` is the draft's (``decoders.target.layout_of``), where the drafter keeps it for drafts of this shape.
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
    terms: dict[str, np.ndarray] = field(default_factory=dict)
    notes: dict[str, float] = field(default_factory=dict)
    distributions: dict[int, Float[Tensor, "vocab"]] | None = None
    drawn: bool = False
    looks: Looks | None = None
    layout: Layout | None = None

    @classmethod
    def empty(cls, root: int, reason: str, *, route: str = "none", candidates: Candidates | None = None) -> Draft:
        """No draft this step: the target's own next token is taken, and ``reason`` says why."""
        return cls(DraftTree.chain(root), ("root",), (-1,), candidates=candidates, route=route, reason=reason)

    @classmethod
    def copied(
        cls, root: int, tokens: list[int], start: int, *, route: str, candidates: Candidates | None = None
    ) -> Draft:
        """A chain copied from ``start`` on."""
        n = len(tokens)
        return cls(
            DraftTree.chain(root, tokens),
            ("root",) + ("main",) * n,
            (-1, *range(start, start + n)),
            candidates=candidates,
            route=route,
        )


@dataclass(slots=True)
class Scored:
    """What the target says of a draft: logits (fp32), and the queries of the heads that ``Needs`` names, by layer.

    The drafter adds what it made of the probes that it read: where they looked, and what several guess together.
    """

    logits: Float[Tensor, "nodes vocab"]
    probe_logits: Float[Tensor, "probes vocab"] | None = None
    queries: dict[int, Float[Tensor, "heads rows head_dim"]] = field(default_factory=dict)
    looks: Looks | None = None
    joint: tuple[JointGuess, ...] = ()


@dataclass(frozen=True, slots=True)
class Verdict:
    """The accepted path (nodes, root first), the target's token after it, and one reason per node.

    ``bonus`` is None only when a stop token inside the path ended the run. ``status`` per node: root, accepted,
    rejected (its parent was accepted, it was not), unreached (its parent was not accepted). ``terms`` are the
    verifier's own numbers per node (nan: not defined), as the method's ``node_terms`` declare them.
    """

    path: tuple[int, ...]
    bonus: int | None
    status: tuple[str, ...]
    reasons: tuple[str, ...]
    terms: dict[str, np.ndarray] = field(default_factory=dict)

    @property
    def accepted(self) -> int:
        """Accepted draft tokens: the root and the bonus are not among them."""
        return len(self.path) - 1


@dataclass(frozen=True, slots=True)
class Past:
    """A step taken before, as far as it is known later: ``length`` tokens were committed before it.

    ``path`` are the accepted nodes (root first), ``bonus`` the token after them. ``probes`` are the parents of its
    probes, in order; None where the step was not this method's own.
    """

    length: int
    tree: DraftTree
    path: tuple[int, ...]
    bonus: int | None
    probes: tuple[int, ...] | None = None


class Drafter(Protocol):
    """A drafting method at work on one run. Deterministic, given the context and the seed.

    A drafter that builds something for the prompt once (an index, say) may also have ``prepare(context)``, called
    after the prompt was read and before the first step. One that draws its tokens may have ``sample_with(chooser)``,
    called when it was built; it takes the warpers and the seed from there, but leaves the chooser's draws to the
    verifier. One whose drafts have ``looks`` has ``looks_at``: what they are, as {"label", "layers", "heads"}.
    One whose drafts depend on more than the context has ``resume(context, past)``: it takes up the state it would have
    after the steps ``past``, and may give the last one's draft back, to be scored and observed once more.
    """

    def propose(self, context: Context, budget: int) -> Draft:
        """A draft after the context's last token, at most ``budget`` tokens deep."""
        ...

    def observe(self, draft: Draft, scored: Scored, verdict: Verdict) -> None:
        """What became of the draft; called once per step, after the accepted path was committed."""
        ...


class Verifier(Protocol):
    """Decides which drafted tokens stand. One decision per visited node (methods with a chain rule: per token).

    One that draws other than once per emitted token has ``draws(route, drafted, accepted)``: how many of the chooser's
    random numbers a sampled step took.
    """

    lossless: bool

    def __call__(self, draft: Draft, scored: Scored) -> Verdict: ...


@dataclass(frozen=True, slots=True)
class Term:
    """A number that belongs to a candidate, a node or a step, as the views show it."""

    key: str
    label: str
    help: str
    low: float = 0.0
    high: float = 1.0


@dataclass(frozen=True)
class Method:
    """A registry entry. One method, one file; nothing else has to know of it.

    ``params`` is a frozen dataclass made with ``decoders.params.param``: the app's controls, ``--set`` and sweeps are
    made from it. ``terms``, ``node_terms`` and ``step_terms`` declare the numbers that it records per candidate, tree
    node and step. ``verifier`` makes the verifier from the parameters, the chooser and the stop tokens (None: tokens
    must match the target's choice). ``prompt`` may rewrite the prompt before anything is read. ``order`` places the
    method in lists. ``available`` returns None, or one sentence that says what is missing for this target and which
    command makes it (``brings`` says of parameters that they name it, so that nothing is missing); ``applies`` returns
    None, or one sentence that says what a prompt lacks.
    """

    name: str
    title: str
    paper: str
    summary: str
    params: type
    build: Callable[[Target, Any], Drafter]
    needs: Callable[[Target, Any], Needs] = lambda target, params: Needs()
    lossless: bool = True
    terms: tuple[Term, ...] = ()
    node_terms: tuple[Term, ...] = ()
    step_terms: tuple[Term, ...] = ()
    verifier: Callable[[Any, Chooser, frozenset[int]], Verifier] | None = None
    prompt: Callable[[Target, Any, Prompt], Prompt] | None = None
    available: Callable[[Target], str | None] = lambda target: None
    brings: Callable[[Any], bool] = lambda params: False
    applies: Callable[[Prompt], str | None] = lambda prompt: None
    order: int = 50
