"""Draft lengths by the policies of servers, replayed on a recorded run, and their regret against the best lengths.

A replay walks over the text that the run wrote. At a place where a step of the run began, its draft is offered; a
policy that takes a part of it stops inside, and is offered what is left of the same draft. So every policy writes the
same text, in steps of its own; a step with K drafted tokens costs L(rows) and the drafting of K. The oracle knows what
stands, and takes the lengths that cost least.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from decoders.trace.trace import Trace

FROM_CONFIDENCE = "needs the drafter's probabilities, and drafts that are chains"
ORACLE = "The lengths that cost least, as it knows what will be accepted: no policy can be faster."
BEST_FIXED = "The fastest of all fixed lengths, known only afterwards."
SGLANG_TIERS = {1: (1, 3, 5, 7), 8: (0, 1, 3), 32: (0, 1), 64: (0,)}  # SGLang's default file: batch → lengths


@dataclass(frozen=True, slots=True)
class Offer:
    """A draft as a policy sees it: how deep it goes, rows of its first 0, 1, … levels (the root among them), and the
    drafter's probability of each token of a chain (empty: none recorded). ``stands``: for the oracle alone.
    """

    rows: tuple[int, ...]
    q: tuple[float, ...]
    stands: int

    @property
    def depth(self) -> int:
        return len(self.rows) - 1


@dataclass(frozen=True, slots=True)
class Costs:
    """Milliseconds of a step: L by rows, and what drafting costs per token and per draft."""

    ms: Callable[[int], float]
    per_token: float = 0.0
    per_draft: float = 0.0

    def of(self, offer: Offer, length: int) -> float:
        return self.ms(offer.rows[length]) + (self.per_draft + self.per_token * length if length else 0.0)


class Policy:
    """Chooses a length, then is told how many tokens stood. ``rule``: how, as a sentence."""

    name = ""
    rule = ""
    confident = False

    def length(self, offer: Offer, costs: Costs) -> int:
        raise NotImplementedError

    def learn(self, offer: Offer, length: int, accepted_count: int) -> None:
        """Learn from a step: ``accepted_count`` of the tokens taken were accepted."""


@dataclass
class FixedLength(Policy):
    """Always ``k`` tokens, or all that is offered."""

    k: int | None = None

    @property
    def name(self) -> str:  # pyright: ignore[reportIncompatibleVariableOverride]
        return "the run's own length" if self.k is None else f"fixed, {self.k}"

    def length(self, offer: Offer, costs: Costs) -> int:
        return offer.depth if self.k is None else min(self.k, offer.depth)


@dataclass
class Schedule(Policy):
    """transformers' ``num_assistant_tokens_schedule`` "heuristic": two more after a wholly accepted draft, else one
    less, at least 1.
    """

    tokens: int = 20
    name = "transformers, schedule"
    rule = "Two more tokens after a wholly accepted draft, else one fewer (num_assistant_tokens_schedule)."

    def length(self, offer: Offer, costs: Costs) -> int:
        return min(self.tokens, offer.depth)

    def learn(self, offer: Offer, length: int, accepted_count: int) -> None:
        if length:
            self.tokens = self.tokens + 2 if accepted_count == length else max(1, self.tokens - 1)


@dataclass
class Threshold(Policy):
    """transformers' ``assistant_confidence_threshold``: drafting ends behind the first token below it. The threshold
    moves to where false positives + 3 · false negatives are fewest, on all judged tokens.
    """

    threshold: float = 0.4
    q: list[float] = field(default_factory=list)
    verdicts: list[bool] = field(default_factory=list)
    name = "transformers, threshold"
    rule = "Drafts until q is below a threshold, which follows the verdicts (assistant_confidence_threshold)."
    confident = True

    def length(self, offer: Offer, costs: Costs) -> int:
        return next((k for k, q in enumerate(offer.q, 1) if q < self.threshold), offer.depth)

    def learn(self, offer: Offer, length: int, accepted_count: int) -> None:
        verdict_count = min(length, accepted_count + 1)
        self.q += offer.q[:verdict_count]
        self.verdicts += [k < accepted_count for k in range(verdict_count)]
        right, q = np.array(self.verdicts), np.array(self.q)
        if len(q) > 5 and right.any() and not right.all():
            at = np.unique(q)
            passes = q >= at[:, None]
            wrong = (passes & ~right).sum(1) / (~right).sum() + 3 * (~passes & right).sum(1) / right.sum()
            self.threshold = float(at[wrong.argmin()])


@dataclass
class Estimator(Policy):
    """vLLM's adaptive verification for one run: a_k = σ(w·logit(q) + b_k), from w = .5 and b = −.2, refitted every 100
    steps; verified is what makes Σ survival − ρ·L greatest, at the rate ρ so far.
    """

    w: float = 0.5
    b: np.ndarray = field(default_factory=lambda: np.full(64, -0.2))
    observations: list[tuple[int, float, bool]] = field(default_factory=list)
    steps: int = 0
    tokens: float = 0.0
    ms: float = 0.0
    name = "vLLM, estimator"
    rule = "As many of the drafted tokens as pay, by the acceptance estimated so far (OnlineAcceptanceEstimator)."
    confident = True

    def length(self, offer: Offer, costs: Costs) -> int:
        x = _logit(np.array(offer.q))
        a = 1 / (1 + np.exp(-(self.w * x + self.b[np.minimum(np.arange(len(x)), 63)])))
        rate = max(self.tokens / self.ms if self.ms else 0.0, 1 / costs.ms(1))
        worth = np.cumsum(np.append(0.0, np.cumprod(a)))
        step_costs = [costs.of(offer, k) for k in range(offer.depth + 1)]
        best = int(np.argmax(worth - rate * np.array(step_costs)))
        self.ms += step_costs[best]
        return best

    def learn(self, offer: Offer, length: int, accepted_count: int) -> None:
        self.tokens += accepted_count + 1
        self.observations += [
            (k, float(_logit(offer.q[k])), k < accepted_count) for k in range(min(length, accepted_count + 1))
        ]
        self.steps += 1
        if self.steps % 100 == 0 and self.observations:
            self._refit()

    def _refit(self) -> None:
        """Logistic regression with a pull towards where it begins, by gradient steps."""
        place, x, y = (np.array(column, dtype=np.float64) for column in zip(*self.observations, strict=True))
        place = np.minimum(place.astype(int), 63)
        for _ in range(200):
            slope = y - 1 / (1 + np.exp(-(self.w * x + self.b[place])))
            self.w += 0.5 * (float((slope * x).mean()) - 0.01 * (self.w - 0.5))
            count = np.bincount(place, minlength=64)
            self.b += 0.5 * np.bincount(place, slope, 64) / np.maximum(count, 1)


@dataclass
class Tiers(Policy):
    """SGLang's adaptive steps for a batch size: the lengths of its tier, moved along by the running mean of accepted
    tokens (.2 of the last), every 5 steps after 10, down below the next one − .75 (− .5 − hysteresis .25) and up above
    its own − .5.
    """

    batch: int = 1
    mean: float = math.nan
    steps: int = 0
    at: int = -1
    rule = "A few lengths for the batch size; the mean of accepted tokens chooses among them (AdaptiveStepSlot)."

    @property
    def name(self) -> str:  # pyright: ignore[reportIncompatibleVariableOverride]
        return f"SGLang, tier of batch {self.batch}"

    @property
    def lengths(self) -> tuple[int, ...]:
        return SGLANG_TIERS[max(tier for tier in SGLANG_TIERS if tier <= self.batch)]

    def length(self, offer: Offer, costs: Costs) -> int:
        if self.at < 0:
            self.at = len(self.lengths) // 2
            self.mean = self.lengths[self.at] - 1.0
        return min(self.lengths[self.at], offer.depth)

    def learn(self, offer: Offer, length: int, accepted_count: int) -> None:
        lengths, down = self.lengths, -0.25 if self.batch < 8 else 0.0
        if lengths[self.at]:
            self.mean += 0.2 * (accepted_count - self.mean)
        self.steps += 1
        if self.steps <= 10 or (self.steps - 10) % 5:
            return
        if not lengths[self.at]:
            self.at = min(self.at + 1, len(lengths) - 1)
            self.mean = max(self.mean, lengths[self.at] - 1.0)
            return
        old_index = self.at
        while self.at and self.mean <= (lengths[self.at - 1] - 0.5 if lengths[self.at - 1] else 0.5) + down:
            self.at -= 1
        while self.at >= old_index and self.at < len(lengths) - 1 and self.mean > lengths[self.at] - 0.5:
            self.at += 1


def _logit(q: Any) -> Any:
    q = np.clip(q, 1e-4, 1 - 1e-4)
    return np.log(q / (1 - q))


@dataclass(frozen=True, slots=True)
class Replay:
    """A policy on runs: its steps, drafted tokens per step, milliseconds of the model, ``speedup`` over a one-row
    forward per token (by the same times: not over plain decoding that ran), and regret: how much more it cost
    than the oracle. ``why``: it cannot be replayed there, and the numbers are None.
    """

    policy: str
    rule: str
    steps: int | None
    mean_length: float | None
    ms: float | None
    speedup: float | None
    regret: float | None
    why: str = ""


def offers_of(trace: Trace) -> list[list[Offer]]:
    """Per step of a run, what is offered at its place and at each place inside what stood: [steps][accepted + 1]."""
    nodes, steps = trace.tables["nodes"], trace.tables["steps"]
    step, parent = (np.array(nodes[name], dtype=np.int64) for name in ("step", "parent"))
    first = np.searchsorted(step, np.arange(len(steps["drafted"]) + 1))
    offers = []
    for number, drafted in enumerate(steps["drafted"]):
        rows = slice(int(first[number]), int(first[number + 1]))
        parents = parent[rows].tolist()
        path = [i for i, status in enumerate(nodes["status"][rows]) if status in ("root", "accepted")]
        q = [p for p in nodes["draft_prob"][rows][1:] if p is not None]
        chain = all(up == node - 1 for node, up in enumerate(parents))
        q_values = tuple(q) if chain and len(q) == drafted else ()
        offers.append([
            Offer(_levels(parents, node), q_values[place:], len(path) - 1 - place) for place, node in enumerate(path)
        ])  # fmt: skip
    return offers


def _levels(parents: Sequence[int], top: int) -> tuple[int, ...]:
    """Rows of the tree below a node with its first 0, 1, … levels."""
    depth = {top: 0}
    for node in range(top + 1, len(parents)):
        if parents[node] in depth:
            depth[node] = depth[parents[node]] + 1
    counts = np.bincount(list(depth.values()))
    return tuple(np.cumsum(counts).tolist())


def replay(offers: Sequence[Sequence[Offer]], policy: Policy, costs: Costs) -> tuple[int, int, float]:
    """Steps, drafted tokens and milliseconds of a policy on a run."""
    steps = drafted = 0
    ms = 0.0
    for places in offers:
        place = 0
        while place < len(places):
            offer = places[place]
            length = max(0, min(policy.length(offer, costs), offer.depth))
            accepted_count = min(offer.stands, length)
            policy.learn(offer, length, accepted_count)
            steps, drafted, ms = steps + 1, drafted + length, ms + costs.of(offer, length)
            place += accepted_count + 1
    return steps, drafted, ms


def oracle_ms(offers: Sequence[Sequence[Offer]], costs: Costs) -> tuple[int, int, float]:
    """The same of the lengths that cost least, known what stands: dynamic programming from each draft's end."""
    total = np.zeros(3)
    for places in offers:
        best: list[tuple[float, int, int]] = [(0.0, 0, 0)] * (len(places) + 1)
        for place in range(len(places) - 1, -1, -1):
            offer, choices = places[place], []
            for length in range(offer.stands + 1):
                ms, steps, drafted = best[place + length + 1]
                choices.append((costs.of(offer, length) + ms, steps + 1, drafted + length))
            best[place] = min(choices)
        ms, steps, drafted = best[0]
        total += (steps, drafted, ms)
    return int(total[0]), int(total[1]), float(total[2])


def costs_of(trace: Trace, ms: Callable[[int], float] | None = None) -> Costs:
    """The costs that a run's replay counts with: L (default: its own verify and commit times by rows), and its own
    drafting time, per token where a draft model writes. Raises ValueError where it recorded no times.
    """
    steps = trace.tables["steps"]
    depth, drafting = np.array(steps["depth"]), np.array([v or 0.0 for v in steps["draft_ms"]])
    writes = any(v is not None for v in steps.get("term:forward_ms", ()))
    draft_mask = depth > 0
    draft_ms, tokens, drafts = float(drafting[draft_mask].sum()), int(depth[draft_mask].sum()), int(draft_mask.sum())
    per_token, per_draft = (draft_ms / max(1, tokens), 0.0) if writes else (0.0, draft_ms / max(1, drafts))
    return Costs(ms or _own_times(trace), per_token, per_draft)


def _own_times(trace: Trace) -> Callable[[int], float]:
    steps = trace.tables["steps"]
    rows = np.array([n or 0 for n in steps["engine_rows"]])
    ms = np.array([(v or 0.0) + (c or 0.0) for v, c in zip(steps["verify_ms"], steps["commit_ms"], strict=True)])
    sizes = sorted({int(n) for n, t in zip(rows, ms, strict=True) if n > 0 and t > 0})
    if not sizes:
        raise ValueError("this run recorded no times of its steps: give L(n), as in 1:30, 8:34, 32:52")
    medians = [float(np.median(ms[rows == n])) for n in sizes]
    if sizes[0] != 1:
        one_row_ms = trace.run.get("timings", {}).get("one_row_ms")
        sizes, medians = [1, *sizes], [min(float(one_row_ms), medians[0]) if one_row_ms else medians[0], *medians]
    rising = np.maximum.accumulate(medians)
    slope = (rising[-1] - rising[0]) / max(1, sizes[-1] - sizes[0])
    return lambda n: float(np.interp(n, sizes, rising) + slope * max(0, n - sizes[-1]))


def compare(runs: Sequence[tuple[list[list[Offer]], Costs]], batch: int = 1) -> list[Replay]:
    """Every policy on some runs, the oracle first, the others by regret; those that cannot be replayed at the end."""
    plain = sum(costs.ms(1) * sum(map(len, offers)) for offers, costs in runs)

    def of(name: str, rule: str, replays: Sequence[tuple[int, int, float]], best: float | None) -> Replay:
        steps, drafted, ms = (sum(column) for column in zip(*replays, strict=True))
        regret = 0.0 if best is None else ms / best - 1
        return Replay(name, rule, int(steps), drafted / max(1, steps), ms, plain / ms if ms else None, regret)

    perfect = of("oracle", ORACLE, [oracle_ms(offers, costs) for offers, costs in runs], None)
    deepest = max((offer.depth for offers, _ in runs for places in offers for offer in places), default=0)
    confident = all(len(offer.q) == offer.depth for offers, _ in runs for places in offers for offer in places)
    makers: list[Callable[[], Policy]] = [FixedLength, Schedule, Threshold, Estimator, lambda: Tiers(batch)]
    fixed = [(lambda k=k: FixedLength(k)) for k in range(deepest + 1)]
    results, sweep = [], []
    for make in (*makers, *fixed):
        policy = make()
        if policy.confident and not confident:
            results.append(Replay(policy.name, policy.rule, *[None] * 5, why=FROM_CONFIDENCE))  # type: ignore[arg-type]
            continue
        replays = [replay(offers, make(), costs) for offers, costs in runs]
        (sweep if isinstance(policy, FixedLength) and policy.k is not None else results).append(
            of(policy.name, policy.rule, replays, perfect.ms)
        )
    if sweep:
        best = min(sweep, key=lambda row: row.ms or 0.0)
        results.append(replace(best, policy=f"best {best.policy}", rule=BEST_FIXED))
    order = sorted(results, key=lambda row: math.inf if row.regret is None else row.regret)
    return [perfect, *order]
