"""The rows and samples of a timed sweep: runs are entered as they come, and judged against plain decoding's output."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from itertools import chain
from typing import TYPE_CHECKING, Any, TypeAlias

from decoders.study.judge.divergences import divergence
from decoders.study.measure.peers import peer_pairs

from .plan import PLAIN, TRACED_SUFFIX, Contender, Failure, Measurement, Outcome, Row, Sample, Turn, alternate, execute
from .timing import MAX_RETRIES, find_disturbed

if TYPE_CHECKING:
    from decoders.model.target_model.target import Target
    from decoders.trace.trace import Trace
    from decoders.verifiers.sampling import Sampling

    from .plan import Case, Order

FileRow: TypeAlias = Callable[["Trace", "Case", str], Row]  # keeps the trace of a line's run; the columns of its row


@dataclass
class Ledger:
    """Makes rows of the runs as they come in: those of a prompt and a round together, when the last of them is there.

    ``methods`` has the method of every line, ``lossy`` the lines whose output need not be plain decoding's. ``filed``
    keeps the recorded run of a line's first round. ``on_device`` calls a function where the device is free. The outputs
    of all rounds are compared with plain decoding's first one; where ``sampling`` has tokens drawn, a method that does
    not match the target's own draws writes others, which is no fault. ``samples`` are all runs that count, ``reasons``
    why a contender's last failure was one.
    """

    target: Target
    cases: Sequence[Case]
    methods: Mapping[str, str]
    lossy: Collection[str] = ()
    file_row: FileRow | None = None
    on_device: Callable[[Callable[[], Any]], Any] = lambda work: work()
    sampling: Sampling | None = None
    rows: list[Row] = field(default_factory=list)
    samples: list[Sample] = field(default_factory=list)
    reasons: dict[str, Failure] = field(default_factory=dict)
    places: list[int] = field(init=False)
    _group: dict[str, dict[str, Outcome]] = field(default_factory=dict)
    _plain: dict[int, list[int]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        place, self.places = -1, []
        for case in self.cases:
            place += case.prompt.turn == 1
            self.places.append(place)

    def run(
        self,
        contenders: Sequence[Contender],
        prompts: Sequence[Any],
        repeats: int,
        *,
        warm: bool = False,
        **options: Any,
    ) -> Iterator[tuple[Turn, list[Row]]]:
        """Make all runs (``alternate``), then again those of what was disturbed, beside those it is compared with, at
        most ``MAX_RETRIES`` times with as many rounds as at first: turns, and the rows that are complete by each.
        ``options`` as of ``execute``.
        """
        rerun_order = retries(self.samples, contenders, prompts, repeats)
        order = chain(alternate(contenders, prompts, repeats, warm=warm), rerun_order)
        for turn, outcome in execute(order, **options, tidy=True):
            yield turn, self.add(turn, outcome)

    def add(self, turn: Turn, outcome: Outcome) -> list[Row]:
        """Enter a run; the rows that are complete by it."""
        if isinstance(outcome, Failure):
            self.reasons[turn.contender.name] = outcome
        if turn.round < 0:
            return []
        kind, name = turn.contender.kind, turn.contender.name
        self._group.setdefault(name.removesuffix(TRACED_SUFFIX), {})[kind] = outcome
        if not turn.last:
            return []
        group, self._group = self._group, {}
        plain = group.get(PLAIN, {}).get("method")
        if isinstance(plain, Measurement):
            self._plain.setdefault(turn.prompt, plain.output)
        for runs in group.values():
            for kind, run in runs.items():
                if isinstance(run, Measurement):
                    is_identical = run.output == self._plain.get(turn.prompt, run.output)
                    sample = replace(run.sample, prompt=turn.prompt, round=turn.round, identical=is_identical)
                    runs[kind] = replace(run, sample=sample)
                    self.samples.append(sample)
        speed = plain.sample.tokens_per_s if isinstance(plain, Measurement) else None
        new = [self._row(turn, line, group[line], speed) for line in self.methods if line in group]
        self.rows += new
        return new

    def _row(self, turn: Turn, line: str, runs: Mapping[str, Outcome], plain_speed: float | None) -> Row:
        case, first = self.cases[turn.prompt], turn.round == 0
        errors = [outcome.reason for outcome in runs.values() if isinstance(outcome, Failure)]
        measurements = {kind: outcome for kind, outcome in runs.items() if isinstance(outcome, Measurement)}
        row: Row = {
            "series": line, "prompt": case.id, "category": case.category, "method": self.methods[line], "trace": "",
            "role": "run", "error": errors[0] if errors else "", "verdict": "", "place": self.places[turn.prompt],
            "turn": float(case.prompt.turn), "repeat": turn.round + 1,
        }  # fmt: skip
        traced_run = measurements.pop("traced", None)
        timed_run = next(iter(measurements.values()), None)
        sample = timed_run.sample if timed_run is not None else None
        if first and traced_run is not None and traced_run.trace is not None and self.file_row is not None:
            row |= self.file_row(traced_run.trace, case, line)
        elif first and sample is not None:
            row |= {name: getattr(sample, name) for name in ("tokens", "steps", "accepted", "tokens_per_step")}
        speed = sample.tokens_per_s if sample is not None else None
        row |= {"tokens_per_s": speed, "speedup": speed / plain_speed if speed and plain_speed else None}
        outputs = [measurement.output for measurement in (traced_run, timed_run) if measurement is not None]
        return row | self._check(turn.prompt, line, outputs)

    def _check(self, prompt: int, line: str, outputs: Sequence[list[int]]) -> Row:
        """Compare all outputs with plain decoding's; of the first that differs, its place and the verdict."""
        plain = self._plain.get(prompt)
        if plain is None or not outputs:
            return {"same": None, "differs_at": None}
        for output in outputs:
            if output != plain:
                case, lossless = self.cases[prompt].prompt, line not in self.lossy
                judge = partial(divergence, self.target, output, case, plain=plain, lossless=lossless)
                difference = self.on_device(partial(judge, sampling=self.sampling))
                if difference:
                    return {"same": 0.0, "differs_at": difference.position, "verdict": difference.verdict}
        return {"same": 1.0, "differs_at": None}


def retries(
    samples: Sequence[Sample], contenders: Sequence[Contender], prompts: Sequence[Any], repeats: int
) -> Order:
    """Runs that repeat what was disturbed among ``samples``, which grow meanwhile, beside those it is compared with."""
    timers = [contender for contender in contenders if contender.rounds is None]
    for extra_round in range(1, MAX_RETRIES + 1):
        for place, names in find_disturbed(samples).items():
            retried = [contender for contender in timers if contender.name in _with_peers(names)]
            for turn, prompt in alternate(retried, [prompts[place]], repeats, warm=True):
                yield replace(turn, prompt=place, round=turn.round + extra_round * repeats), prompt


def _with_peers(names: set[str]) -> set[str]:
    """Contenders, and those that their numbers are formed with."""
    lines = {name.removesuffix(TRACED_SUFFIX) for name in names}
    pairs = [{method, peer} for method, peer, _ in peer_pairs()] + [{line, line + TRACED_SUFFIX} for line in lines]
    return {PLAIN, *names}.union(*(pair for pair in pairs if pair & names))
