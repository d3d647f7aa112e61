"""The drafters that are asked in a step, under draft length auto: those whose drafts bring more than they take.

A drafter that joins several makes its draft in stages (``StagedDrafter``). Before a later one is asked, the survival of
what the earlier ones drafted is known, and with it which of it pays. Once it was asked, the survival of all is known,
and with it the surplus of what pays now over that of what would have been verified: what the drafter brought, whatever
then stood. (Both by what is known at the end: that two drafters agree makes a token likelier, and is no gain where it
would have been verified all the same.) Its running mean over steps in which the earlier drafts promised as much decides
whether the drafter is asked again: if it is more than ρ · its time. Where it is not, it is asked now and then, so that
the mean does not grow old.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from decoders.draft.draft import Draft
from decoders.method.drafter import StagedDrafter
from decoders.model.state.memory import Context

RECENT = 0.15  # weight of the last draft in running means
EXPECTED = (0.25, 0.5, 1, 2, 4, 8)  # bounds of like expectations of the earlier drafts, in tokens
LAST_STEP = 0.05  # weight of the last step of its kind
TRY = 16  # steps of a like expectation in which a drafter is not asked, until it is
GUESS = 1.5  # tokens that a drafter is expected to bring before it was ever asked
SHARE = 0.4  # of a plain step: what its draft is expected to take then


class DraftingTime:
    """Drafting time: the running mean of a draft's milliseconds, and what one level more of depth takes.

    A draft model's forwards take so much each; a copy takes as long however deep it is. Where all drafts are equally
    deep the two cannot be told apart, and all of the time counts as the levels'.
    """

    def __init__(self) -> None:
        self.ms = self.depth = self._spread = self._covariance = 0.0
        self.count = 0

    def observe(self, depth: int, ms: float) -> None:
        """Take in a draft as it was proposed."""
        self.count += 1
        share = max(RECENT, 1 / self.count)
        deeper, longer = depth - self.depth, ms - self.ms
        self.depth += share * deeper
        self.ms += share * longer
        self._spread = (1 - share) * (self._spread + share * deeper * deeper)
        self._covariance = (1 - share) * (self._covariance + share * deeper * longer)

    @property
    def level_ms(self) -> float:
        if self._spread > 0.25:
            return max(0.0, self._covariance / self._spread)
        return self.ms / max(1.0, self.depth)

    def expected_ms(self, depth: int) -> float:
        """Milliseconds of a draft so deep."""
        return max(0.0, self.ms + self.level_ms * (depth - self.depth))


@dataclass(slots=True)
class Gain:
    """Running mean of the surplus that a drafter brought, and the steps since it was asked."""

    tokens: float = GUESS
    count: int = 0
    skips: int = 0

    def learn(self, tokens: float) -> None:
        self.count, self.skips = self.count + 1, 0
        self.tokens += max(LAST_STEP, 1 / self.count) * (tokens - self.tokens)


@dataclass(slots=True)
class StageTimes:
    """Times of a later drafter's drafts, and by depth (from 1) the best survival of what it alone proposed."""

    drafting: DraftingTime = field(default_factory=DraftingTime)
    worth: list[float] = field(default_factory=list)
    counts: list[int] = field(default_factory=list)  # of the drafts that reached each depth

    def observe(self, depth: int, ms: float, worth: Sequence[float]) -> None:
        self.drafting.observe(depth, ms)
        self.worth += [0.0] * (depth - len(self.worth))
        self.counts += [0] * (depth - len(self.counts))
        for place in range(depth):  # deeper levels were not drafted
            self.counts[place] += 1
            value = worth[place] if place < len(worth) else 0.0
            self.worth[place] += max(RECENT, 1 / self.counts[place]) * (value - self.worth[place])


class StageHistory:
    """Gains and times of the later drafters, which go on from run to run; ``len`` counts the drafts."""

    unit = "drafts of later drafters"

    def __init__(self) -> None:
        self.gains: dict[tuple[int, int], Gain] = {}
        self.times: dict[int, StageTimes] = {}

    def __len__(self) -> int:
        return sum(times.drafting.count for times in self.times.values())


class Asking:
    """Decides which stages of a draft are made. ``gain`` is the surplus that a stage adds, by the nodes' survival
    before it and after; ``depth`` the depth to which a stage's draft pays; ``history`` what earlier runs learnt.
    """

    def __init__(
        self, gain: Callable[[Sequence[float], Sequence[float]], float],
        depth: Callable[[int, Sequence[float], float], int], history: StageHistory | None = None,
    ) -> None:  # fmt: skip
        self.gain, self.depth = gain, depth
        self.history = StageHistory() if history is None else history
        self._drafter: StagedDrafter | None = None  # whose stages were asked in this step

    def draft(self, drafter: StagedDrafter, context: Context, budget: int, rate: float, plain_ms: float) -> Draft:
        """The draft of the first stage, and of those later ones that pay at ``rate`` tokens per millisecond."""
        stages = drafter.draft_stages(context, budget)
        survival, number, depth, gain = next(stages), 0, budget, Gain()
        while True:
            draft: Draft | None = None
            try:
                later_survival = stages.send(depth)
            except StopIteration as end:
                later_survival, draft = drafter.staged_survival, end.value
            if number and depth:
                gain.learn(self.gain(survival, later_survival))
            if draft is not None:
                self._drafter = drafter
                return draft
            survival, number = later_survival, number + 1
            gain = self.history.gains.setdefault((number, bisect_right(EXPECTED, sum(survival) - 1)), Gain())
            times = self.history.times.setdefault(number, StageTimes())
            depth = self.depth(budget, times.worth, times.drafting.level_ms)
            draft_ms = times.drafting.expected_ms(depth) if times.drafting.count else SHARE * plain_ms
            if not self.pays(gain, rate * draft_ms):
                depth, gain.skips = 0, gain.skips + 1

    def pays(self, gain: Gain, cost: float) -> bool:
        """True where a drafter that costs so many tokens is asked."""
        return gain.tokens >= cost or gain.skips >= TRY

    def learn(self, draft: Draft) -> None:
        """Take in what the stages of a step's draft took."""
        if self._drafter is not None:
            for number, depth, worth in self._drafter.later_stages():
                self.history.times[number].observe(depth, self.stage_ms(draft, number, depth), worth)
        self._drafter = None

    def stage_ms(self, draft: Draft, number: int, depth: int) -> float:
        """Milliseconds of a stage that drafted so deep."""
        return float(draft.notes[f"ms{number + 1}"])
