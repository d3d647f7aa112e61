"""Every contender on every prompt, one run after another: plans (``in_order``, ``alternate``) give the order of runs,
``execute`` makes them.

A run that fails is a ``Failure`` in its place, and the others go on.
"""

from __future__ import annotations

import functools
import gc
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, TypeAlias

from decoders.errors import sentence
from decoders.names import BASELINE

if TYPE_CHECKING:
    from decoders.prompt.prompt import Prompt
    from decoders.study.attribute.quotes import QuotedAnswer
    from decoders.trace.trace import Trace

PLAIN, TRACED_SUFFIX = BASELINE, " traced"  # the baseline's name; behind a method's name: with recording on
Row = dict[str, Any]


@dataclass(frozen=True, slots=True)
class Case:
    """A prompt of a sweep: its tokens, its task, and the words it is listed under."""

    id: str
    category: str
    prompt: Prompt
    gold: QuotedAnswer | None = None  # the answer with its known quotes

    def next_turn(self, prompt: Prompt) -> Case:
        """A further user turn of it, under a name of its own."""
        return replace(self, id=turn_id(self.id, prompt), prompt=prompt)


def turn_id(name: str, prompt: Prompt) -> str:
    """A prompt turn's name: that of the prompt, with the turn's number from the second on."""
    return name if prompt.turn == 1 else f"{name}, turn {prompt.turn}"


@dataclass(frozen=True, slots=True)
class Sample:
    """One run of one contender. ``decode_s`` covers ``decoded`` of the ``tokens``: a peer's first forward reads the
    prompt and emits tokens too. Milliseconds are medians over the run's steps, None for peers.
    """

    name: str
    prompt: int
    round: int
    tokens: int
    decoded: int
    steps: int | None
    accepted: int | None
    seconds: float
    decode_s: float
    draft_ms: float | None = None
    verify_ms: float | None = None
    commit_ms: float | None = None
    identical: bool = True

    @classmethod
    def without_time(cls, name: str, output: Sequence[int]) -> Sample:
        """Of a run whose time means nothing."""
        return cls(name, 0, 0, len(output), 0, None, None, 0.0, 0.0)

    @property
    def tokens_per_s(self) -> float | None:
        return self.decoded / self.decode_s if self.decoded and self.decode_s > 0 else None

    @property
    def end_to_end(self) -> float:
        return self.tokens / self.seconds

    @property
    def tokens_per_step(self) -> float | None:
        return self.accepted / self.steps + 1 if self.steps and self.accepted is not None else None


@dataclass(frozen=True, slots=True)
class Measurement:
    """A run's numbers and output. ``trace`` is that of a recorded one; ``engines`` counts steps by the engine that ran
    the target's forward (``draft.Ran``).
    """

    sample: Sample
    output: list[int]
    trace: Trace | None = None
    engines: Mapping[str, int] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Failure:
    """A run that ended with a ``problem`` in place of numbers."""

    problem: Exception

    @property
    def reason(self) -> str:
        """The problem as one sentence."""
        return sentence(self.problem)


Outcome: TypeAlias = Measurement | Failure | list[Row]  # the last: rows of what is measured otherwise
Call: TypeAlias = Callable[[Callable[[], Outcome]], Outcome]  # makes a run where the device is free


@dataclass(frozen=True, slots=True)
class Contender:
    """One line of a sweep. ``run`` decodes one prompt; ``kind`` is method, traced or peer. ``rounds``: it takes part in
    the first so many alone, and not in the warm-up.
    """

    name: str
    kind: str
    lossless: bool
    run: Callable[[Any], Outcome]
    rounds: int | None = None


@dataclass(frozen=True, slots=True)
class Turn:
    """One run among the others. ``round`` -1 is the warm-up; ``last`` of its prompt and round."""

    round: int
    prompt: int
    contender: Contender
    last: bool


Order: TypeAlias = Iterator[tuple[Turn, Any]]  # turns, each with its prompt


def attempt(run: Callable[[Any], Any], prompt: Any) -> Any:
    """The result of a run, or the Failure that it ended with."""
    try:
        return run(prompt)
    except Exception as problem:
        return Failure(problem)


def in_order(contenders: Sequence[Contender], prompts: Iterable[Any], rounds: int = 1) -> Order:
    """All contenders prompt by prompt, always in the same order: what is done is balanced wherever it ends."""
    for index, prompt in enumerate(prompts):
        for number in range(rounds):
            for place, contender in enumerate(contenders, 1):
                yield Turn(number, index, contender, place == len(contenders)), prompt


def alternate(contenders: Sequence[Contender], prompts: Sequence[Any], repeats: int, *, warm: bool = False) -> Order:
    """Every contender on every prompt, ``repeats`` rounds after a warm-up on the first one (unless it is ``warm``).

    The order rotates from prompt to prompt and from round to round, so that no contender always runs first.
    """
    for number in range(0 if warm else -1, repeats):
        taking = [c for c in contenders if c.rounds is None or 0 <= number < c.rounds]
        for index, prompt in enumerate(prompts[: 1 if number < 0 else None]):
            shift = (index + max(number, 0)) % len(taking)
            for place, contender in enumerate(taking[shift:] + taking[:shift], 1):
                yield Turn(number, index, contender, place == len(taking)), prompt


def execute(
    order: Order, call: Call = lambda run: run(), cancel: threading.Event | None = None, *, tidy: bool = False
) -> Iterator[tuple[Turn, Outcome]]:
    """Make the runs of a plan, one after another, until ``cancel`` is set: a run in which it was is left out. ``tidy``:
    before each run the garbage of earlier ones is collected, so that it is in nobody's time.
    """
    if tidy:
        gc.collect()
    thaws = tidy and not gc.get_freeze_count()  # what somebody else froze would be thawed with ours
    if tidy:
        gc.freeze()  # what is there already need not be looked through before every run
    try:
        for turn, prompt in order:
            if cancel is not None and cancel.is_set():
                return
            outcome = call(functools.partial(_run_tidily if tidy else attempt, turn.contender.run, prompt))
            if cancel is not None and cancel.is_set():
                return
            yield turn, outcome
    finally:
        if thaws:
            gc.unfreeze()


def _run_tidily(run: Callable[[Any], Outcome], prompt: Any) -> Outcome:
    gc.collect()
    return attempt(run, prompt)
