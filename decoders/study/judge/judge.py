"""A recorded run judged by every verifier: the same drafts, the same p and q, other verdicts.

The rules' own code judges drafts that are rebuilt from what the trace holds of p and q: the first choices of target and
drafter and every drafted token. What the trace does not hold (``rest``) is put in twice: on as few tokens as the
recorded ranks allow, alike for p and q ("narrow"), and on all other tokens, apart from each other ("wide"). These are
the extremes for a target's entropy and for the residual's mass, so that numbers come as a range: [low, high]. Where
both are one number, the record decides it.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor

from decoders.draft.draft import Draft, Scored
from decoders.draft.params import make_params
from decoders.draft.tree import DraftTree
from decoders.drafters import find_verifier, verifiers
from decoders.errors import UserError
from decoders.trace.decisions import knows_verdicts
from decoders.trace.trace import Trace
from decoders.verifiers.match import cut_at_stop
from decoders.verifiers.sampling import Chooser, Sampling
from decoders.verifiers.verifier import Verifier, VerifierCard

from ..look.rebuilt import Position, rebuilt
from ..look.run_settings import drawn_before

Range = tuple[float, float]
EXTRA_DRAWS = 1000  # random numbers behind the last step's, where a rule takes more than the run's own
MIN_OPEN_MASS = 1e-4  # with less mass than this left out, nothing is left open


@dataclass(frozen=True, slots=True)
class Judgement:
    """One rule's judgement of one step.

    ``expected``: accepted tokens, over the rule's random numbers. ``accepted``: those of one verdict, whose draws are
    the run's own at that step (where it drew) and then the seed's, alike for all rules. ``other``: how many tokens of
    the step the target would have written otherwise, expected (Σ TV of the next token's distribution from p over the
    positions that are reached; greedy: tokens that are not its first choice); None where the rule does not say.
    ``chances`` is how likely each node is to be accepted, ``status`` and ``reasons`` are that verdict's, per node.
    ``bonus`` is the token that follows what it accepts, -1 behind a stop token, None where the record does not settle
    it. ``open``: the record does not settle that verdict.
    """

    expected: Range
    accepted: int
    other: Range | None
    chances: tuple[Range, ...]
    status: tuple[str, ...]
    reasons: tuple[str, ...]
    bonus: int | None
    open: bool

    def differing(self, recorded_status: Sequence[str]) -> list[tuple[int, str]]:
        """Nodes that this rule accepts and the run did not, or the other way round, with its reason."""
        pairs = enumerate(zip(self.status, recorded_status, strict=True))
        return [(node, self.reasons[node]) for node, pair in pairs if pair.count("accepted") == 1]


@dataclass(frozen=True, slots=True)
class StepJudged:
    """A step with a draft: what the run accepted, each rule's judgement, and how much of p and q the record lacks."""

    step: int
    drafted: int
    accepted: int
    status: tuple[str, ...]
    rest: Range
    rules: dict[str, Judgement]

    def to_json(self) -> dict[str, Any]:
        record = {"step": self.step, "drafted": self.drafted, "accepted": self.accepted, "rest": self.rest}
        rules = {
            name: {**asdict(judgement), "differs": judgement.differing(self.status)}
            for name, judgement in self.rules.items()
        }
        return {**record, "rules": rules}


@dataclass(slots=True)
class Total:
    """One rule's sums over steps with a draft, of one run or of several. ``steps`` counts them; ``known`` those whose
    ``other`` tokens the rule says, ``of`` the tokens that these wrote.
    """

    steps: int = 0
    drafted: int = 0
    expected: Range = (0.0, 0.0)
    accepted: int = 0
    known: int = 0
    of: Range = (0.0, 0.0)
    other: Range = (0.0, 0.0)
    differs: int = 0
    open: int = 0

    def add(self, step: StepJudged, judgement: Judgement) -> None:
        self.steps += 1
        self.drafted += step.drafted
        self.expected = _sum(self.expected, judgement.expected)
        self.accepted += judgement.accepted
        self.differs += bool(judgement.differing(step.status))
        self.open += judgement.open
        if judgement.other is not None:
            self.known += 1
            self.of = _sum(self.of, (judgement.expected[0] + 1, judgement.expected[1] + 1))
            self.other = _sum(self.other, judgement.other)

    def __iadd__(self, other_total: Total) -> Total:
        for name in ("steps", "drafted", "accepted", "known", "differs", "open"):
            setattr(self, name, getattr(self, name) + getattr(other_total, name))
        for name in ("expected", "of", "other"):
            setattr(self, name, _sum(getattr(self, name), getattr(other_total, name)))
        return self

    def to_json(self) -> dict[str, Any]:
        """The sums, and what they come to: tokens per step (the target's own included), and the share of tokens that
        the target would have written otherwise.
        """
        per_step = None if not self.steps else [1 + value / self.steps for value in self.expected]
        share = None if not self.known or self.known < self.steps else [
            self.other[0] / self.of[0], self.other[1] / self.of[1]
        ]  # fmt: skip
        return {**asdict(self), "tokens_per_step": per_step, "other_share": share}


def _sum(a: Range, b: Range) -> Range:
    return a[0] + b[0], a[1] + b[1]


def chosen_rules(
    names: Sequence[str] = (), sets: Mapping[str, Mapping[str, Any]] | None = None
) -> dict[str, tuple[VerifierCard, Any]]:
    """Verifiers by name with their parameters; no ``names``: all. Raises UserError for one that there is not, and
    ValueError for a parameter.
    """
    cards = [find_verifier(name) for name in names] or [*verifiers().values()]
    return {card.name: (card, make_params(card.params, (sets or {}).get(card.name, {}))) for card in cards}


def fault(trace: Trace) -> str:
    """The reason why a run cannot be judged again, in a sentence; "" where it can."""
    nodes = trace.tables["nodes"]
    if trace.run.get("forced"):
        return "its answer was given, so no rule decided on its drafts"
    if trace.run.get("processing") or trace.run["method"].get("params", {}).get("logits_processors"):
        return "logits processors chose among its tokens, and the recorded probabilities are those before them"
    unknown = set(trace.run.get("unknown", ()))
    if not knows_verdicts(trace) or unknown & {"nodes.prob", "nodes.rank"}:
        return "its source does not say what the target's probabilities of the drafted tokens were"
    drafted = [p for p, parent in zip(nodes["prob"], nodes["parent"], strict=True) if parent >= 0]
    if not drafted:
        return "it drafted nothing"
    if all(p is None for p in drafted):
        return "it holds no probability of the target's"
    return ""


def judge_steps(
    trace: Trace, rules: Mapping[str, tuple[VerifierCard, Any]] | None = None, *, sampled: bool | None = None,
    steps: Sequence[int] | None = None, offset: int = 0,
) -> Iterator[StepJudged]:  # fmt: skip
    """Every step with a draft under every rule. ``sampled`` judges a greedy run as if its tokens were drawn, at
    temperature 1; None: as the run did. Undrawn runs are judged at temperature 1, at which their p is recorded.
    ``steps`` picks some. ``before``: random numbers that were taken before the trace's first step, where that is not
    the run's.

    Raises UserError for a run that cannot be judged (``fault``).
    """
    if problem := fault(trace):
        raise UserError(f"this run cannot be judged again: {problem}")
    rules = chosen_rules() if rules is None else rules
    sampling = trace.run.get("sampling") or {}
    greedy = not sampling.get("temperature") if sampled is None else not sampled
    seed = int(sampling.get("seed") or 0)
    draw_counts = [] if greedy or not sampling.get("temperature") else _numbers_taken(trace)
    numbers = np.random.default_rng(seed).random(offset + draw_counts[-1] + EXTRA_DRAWS if draw_counts else 0)[offset:]
    stops = frozenset(trace.run.get("stop_ids", ()))
    for at in rebuilt(trace, steps):
        if at.missing:
            continue
        draws = numbers[draw_counts[at.step] :][: len(at.tokens) + 2].tolist() if draw_counts else at.draws
        yield _step(at, rules, greedy, draws, (seed, at.step), stops)


def _numbers_taken(trace: Trace) -> list[int]:
    """Random numbers that a sampled run's own verifier had taken before each step, and in all; none where its method is
    not here to say.
    """
    try:
        return drawn_before(trace)
    except (UserError, ValueError):
        return []


def totals(judgements: Iterable[StepJudged]) -> dict[str, Total]:
    """Each rule's sums over the steps."""
    sums: dict[str, Total] = {}
    for step in judgements:
        add_step(sums, step)
    return sums


def add_step(sums: dict[str, Total], step: StepJudged) -> None:
    """Take a step into each rule's sums."""
    for name, judgement in step.rules.items():
        sums.setdefault(name, Total()).add(step, judgement)


class Draws:
    """A run's own numbers at a step, in order, then others: what ``Chooser`` draws from."""

    def __init__(self, recorded: Sequence[float], seed: tuple[int, int]) -> None:
        self.draws_left, self.generator = list(recorded), np.random.default_rng(seed)

    def random(self, count: int | None = None) -> Any:
        if count is not None:
            return np.asarray([self.random() for _ in range(count)])
        return self.draws_left.pop(0) if self.draws_left else float(self.generator.random())


def _step(
    at: Position, rules: Mapping[str, tuple[VerifierCard, Any]], greedy: bool, draws: Sequence[float],
    seed: tuple[int, int], stops: frozenset[int],
) -> StepJudged:  # fmt: skip
    is_sampled = at.is_drawn and not greedy
    ids, reach = at.token_ids, _mask_stops(at, stops)
    judgements: dict[str, Judgement] = {}
    is_two_sided = max(at.rest_mass) > MIN_OPEN_MASS and not (
        greedy and all(card.greedy_match for card, _ in rules.values())
    )
    sides = [at.rows(wide) for wide in ((False, True) if is_two_sided else (False,))]
    scored_sides = [Scored(_logarithms(p)) for p, _, _ in sides]  # rules read it, and change nothing
    match_judgement: Judgement | None = None
    for name, (card, params) in rules.items():
        if greedy and card.greedy_match and match_judgement is not None:
            judgements[name] = match_judgement
            continue
        results = []
        for side, (p, q, tokens) in enumerate(sides[: 1 if greedy and card.greedy_match else 2]):
            draft = Draft(
                DraftTree(tokens, at.parents), distributions=dict(q) if is_sampled else None, drawn=is_sampled
            )
            scored, chooser = scored_sides[side], Chooser(Sampling(temperature=0.0 if greedy else 1.0))
            chooser.random = Draws(draws, seed)  # type: ignore[assignment]
            first_column = p.shape[1] - len(ids) if side else 0  # the first column of a token that has one
            ends = frozenset(first_column + i for i, token in enumerate(ids) if token in stops)
            verifier = card.build(params, chooser, ends)
            verdict = cut_at_stop(draft, verifier(draft, scored), ends)
            chooser.random = np.random.default_rng(seed)
            chances = verifier.chances(draft, scored) * reach
            deviations = _deviations(at, verifier, draft, scored, chances, greedy, verdict.path, reach)
            bonus = -1 if verdict.bonus is None else at.token_at(verdict.bonus, p.shape[1], bool(side))
            results.append((verdict, chances, deviations, bonus))
        (verdict, chances, _, bonus), (other_verdict, other_chances, _, other_bonus) = results[0], results[-1]
        expected = sorted(float(side_chances[1:].sum()) for side_chances in (chances, other_chances))
        deviations = [deviation for _, _, deviation, _ in results]
        other_values = [deviation for deviation in deviations if deviation is not None]
        judgements[name] = Judgement(
            (expected[0], expected[-1]), verdict.accepted,
            (min(other_values), max(other_values)) if other_values else None,
            tuple((min(pair), max(pair)) for pair in zip(chances.tolist(), other_chances.tolist(), strict=True)),
            verdict.status, verdict.reasons, bonus if bonus == other_bonus else None,
            verdict.status != other_verdict.status,
        )  # fmt: skip
        if greedy and card.greedy_match:
            match_judgement = judgements[name]
    return StepJudged(at.step, len(at.parents) - 1, at.accepted, at.status, at.rest_mass, judgements)


def _logarithms(p: Float[Tensor, "nodes tokens"]) -> Float[Tensor, "nodes tokens"]:
    """The logarithms of probabilities. Most nodes of a tree are leaves, after which one token is certain."""
    highest, tokens = p.max(1)
    logs = torch.full_like(p, -torch.inf)
    certain = highest == 1
    logs[~certain] = p[~certain].log()
    logs[certain, tokens[certain]] = 0.0
    return logs


def _mask_stops(at: Position, stops: frozenset[int]) -> np.ndarray:
    """1 for each node that can be accepted, 0 for those behind a stop token, at which a run ends."""
    stop_flags = [False]
    for parent in at.parents[1:]:
        stop_flags.append(stop_flags[parent] or (parent > 0 and at.tokens[parent] in stops))
    return 1.0 - np.asarray(stop_flags)


def _deviations(
    at: Position, verifier: Verifier, draft: Draft, scored: Scored, chances: np.ndarray, greedy: bool,
    path: Sequence[int], reach: np.ndarray,
) -> float | None:  # fmt: skip
    """Number of a step's tokens that the target would have written otherwise; None where the verifier does not say."""
    if greedy:
        return float(sum(at.ranks[node] > 0 for node in path[1:]))
    if verifier.lossless:
        return 0.0
    distances = verifier.distances(draft, scored)
    return None if distances is None else float(chances[:-1] @ (distances * reach)[1:])
