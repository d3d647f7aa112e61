"""Speed side by side: every contender on the same prompts in one run, in alternation, with the same tokens.

Tokens per second are of decoding, the prompt excluded, as everywhere (``decoders.trace.metrics``); end to end
includes it. Speedups and ratios are formed between runs of the same prompt in the same round, and given as median and
quartiles.
"""

from __future__ import annotations

import os
import platform
import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any

import numpy as np
import torch

from decoders.draft.settings import FIXED
from decoders.drafters import select_method
from decoders.errors import UserError
from decoders.model.engines.machine import gpu_facts
from decoders.model.target_model.load import versions
from decoders.model.target_model.target import Target
from decoders.prompt.prompt import Prompt
from decoders.study.measure.peers import Peer, PeerLost, peer_pairs
from decoders.verifiers.sampling import Sampling

from .contenders import contenders_of
from .ledger import Ledger
from .plan import PLAIN, TRACED_SUFFIX, Case, Contender, Sample
from .timing import find_disturbed

SCHEMA = "specbench/1"


@dataclass(frozen=True, slots=True)
class SpeedSpread:
    """Median and quartiles of ``count`` numbers."""

    median: float
    low: float
    high: float
    count: int

    @classmethod
    def of(cls, values: Sequence[float | None]) -> SpeedSpread | None:
        """
        >>> SpeedSpread.of([1.0, None, 3.0])
        SpeedSpread(median=2.0, low=1.5, high=2.5, count=2)
        """
        known_values = [v for v in values if v is not None]
        if not known_values:
            return None
        low, median, high = (float(x) for x in np.percentile(known_values, [25, 50, 75]))
        return cls(median, low, high, len(known_values))


Runs = Sequence[Sample]


@dataclass(frozen=True, slots=True)
class BenchColumn:
    """One number of a contender, ``of`` its own runs, those of all contenders, and its name. Where it has a ``head`` it
    is shown under that, its numbers in the form of ``unit``.
    """

    of: Callable[[Runs, Runs, str], Any]
    head: str = ""
    unit: str = ""


def _median(runs: Runs, name: str) -> float | None:
    spread = SpeedSpread.of([getattr(sample, name) for sample in runs])
    return spread and spread.median


def _tokens_per_step(run_samples: Runs) -> float | None:
    """Σ tokens ÷ Σ steps over the prompts, each of which counts once: what was disturbed was run more often."""
    runs = Counter(sample.prompt for sample in run_samples)
    steps, accepted = (
        sum((getattr(sample, name) or 0) / runs[sample.prompt] for sample in run_samples)
        for name in ("steps", "accepted")
    )
    return accepted / steps + 1 if steps else None


def _draft_share(runs: Runs) -> float | None:
    draft, verify = _median(runs, "draft_ms"), _median(runs, "verify_ms")
    return draft / verify if draft is not None and verify else None


COLUMNS: Mapping[str, BenchColumn] = {  # all that is measured of a contender: a new number is a line here
    "tokens": BenchColumn(lambda runs, samples, name: sum(s.tokens for s in runs)),
    "tokens_per_s": BenchColumn(
        lambda runs, samples, name: SpeedSpread.of([s.tokens_per_s for s in runs]), "tokens/s", "tokens/s"
    ),
    "end_to_end": BenchColumn(lambda runs, samples, name: SpeedSpread.of([s.end_to_end for s in runs])),
    "speedup": BenchColumn(lambda runs, samples, name: pair(samples, name, PLAIN), "speedup", "×"),
    "tokens_per_step": BenchColumn(lambda runs, samples, name: _tokens_per_step(runs), "tokens per step", "tokens"),
    "draft_ms": BenchColumn(lambda runs, samples, name: _median(runs, "draft_ms"), "draft ms", "ms"),
    "verify_ms": BenchColumn(lambda runs, samples, name: _median(runs, "verify_ms"), "verify ms", "ms"),
    "commit_ms": BenchColumn(lambda runs, samples, name: _median(runs, "commit_ms")),
    "draft_share": BenchColumn(lambda runs, samples, name: _draft_share(runs), "drafting (%)", "share"),
    "differing": BenchColumn(lambda runs, samples, name: sum(not s.identical for s in runs), "differs"),
}


@dataclass(frozen=True)
class BenchRow:
    """All runs of one contender. ``kind`` is method, traced or peer; ``values`` are ``COLUMNS``, which are attributes
    too; ``error`` says why a run failed ("": none did).
    """

    name: str
    kind: str
    lossless: bool
    values: Mapping[str, Any]
    error: str = ""

    def __getattr__(self, name: str) -> Any:
        try:
            return self.__dict__["values"][name]
        except KeyError:
            raise AttributeError(name) from None

    def to_json(self) -> dict[str, Any]:
        row = asdict(self)
        return {**row.pop("values"), **row}


@dataclass(frozen=True, slots=True)
class Ratio:
    """One number a reader looks for, e.g. "plain ÷ generate(), decoding"."""

    name: str
    value: SpeedSpread
    help: str


@dataclass(frozen=True, slots=True)
class BenchReport:
    rows: tuple[BenchRow, ...]
    ratios: tuple[Ratio, ...]
    samples: tuple[Sample, ...]
    model: dict[str, Any]
    machine: dict[str, Any]
    settings: dict[str, Any]

    def to_json(self) -> dict[str, Any]:
        return {"schema": SCHEMA, "created": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()), **asdict(self),
                "rows": [row.to_json() for row in self.rows]}  # fmt: skip


def bench(
    target: Target,
    prompts: Sequence[Prompt],
    methods: Mapping[str, Any],
    *,
    max_new_tokens: int,
    repeats: int = 3,
    with_traces: bool = True,
    peers: Sequence[Peer] = (),
    sampling: Sampling | None = None,
    progress: Callable[[int, int], None] | None = None,
    ledger: Ledger | None = None,
    length: str = FIXED,
) -> BenchReport:
    """Run every method (name → parameters) on every prompt (or turn of one: ``turns_of``), ``repeats`` rounds after a
    warm-up, greedily or by ``sampling``, alike in all runs (others draw otherwise: ``peers`` are for greedy runs).

    Plain decoding always takes part. ``with_traces`` runs each method a second time with recording on. Who was
    disturbed on a prompt (``timing.find_disturbed``) runs it again, with those it is compared with. ``progress(done,
    total)`` counts runs; ``length`` as of ``Decoding.of``; a ``ledger`` of these prompts has their rows. A run that
    fails is counted, and the others go on.
    """
    if not prompts:
        raise UserError("a benchmark needs at least one prompt that fits the model's context")
    taking_part = {PLAIN: methods.get(PLAIN), **methods}
    parameters = {name: asdict(select_method(name, params)[1]) for name, params in taking_part.items()}
    contenders = contenders_of(target, taking_part, max_new_tokens, with_traces, peers, sampling, length)
    total, count = len(contenders) * (1 + len(prompts) * repeats), 0
    if ledger is None:
        ledger = Ledger(target, [Case(str(n), "", prompt) for n, prompt in enumerate(prompts)], {}, sampling=sampling)
    for count, _ in enumerate(ledger.run(contenders, prompts, repeats), 1):
        if progress:
            progress(count, max(count, total))
    samples = ledger.samples
    failures = {
        name: str(failure.problem) if isinstance(failure.problem, PeerLost) else failure.reason
        for name, failure in ledger.reasons.items()
    }
    settings = {
        "max_new_tokens": max_new_tokens, "repeats": repeats, "turns": len(prompts),
        "prompts": sum(prompt.turn == 1 for prompt in prompts),
        "repeated": max(0, count - total), "disturbed": sum(len(names) for names in find_disturbed(samples).values()),
        "lost": failures, "sampling": asdict(sampling or Sampling()), "length": length,
        "prompt_tokens": asdict(SpeedSpread.of([len(p.tokens) for p in prompts])),  # type: ignore[arg-type]
        "methods": parameters,
    }  # fmt: skip
    rows = tuple(summarise(c, samples, failures.get(c.name, "")) for c in contenders)
    return BenchReport(rows, tuple(ratios_of(samples)), tuple(samples), dict(target.info), machine(), settings)


def summarise(contender: Contender, samples: Runs, error: str = "") -> BenchRow:
    """All runs of one contender in one row."""
    name = contender.name
    runs = [sample for sample in samples if sample.name == name]
    values = {key: column.of(runs, samples, name) for key, column in COLUMNS.items()}
    return BenchRow(name, contender.kind, contender.lossless, values, error)


def _speeds(samples: Sequence[Sample], name: str, end_to_end: bool) -> dict[tuple[int, int], float | None]:
    """tokens/s of a contender's runs, by prompt and round."""
    return {(s.prompt, s.round): s.end_to_end if end_to_end else s.tokens_per_s for s in samples if s.name == name}


def pair(
    samples: Sequence[Sample], numerator: str, denominator: str, *, end_to_end: bool = False
) -> SpeedSpread | None:
    """tokens/s of ``numerator`` ÷ tokens/s of ``denominator``, formed run by run: same prompt, same round."""
    a, b = (_speeds(samples, name, end_to_end) for name in (numerator, denominator))
    return SpeedSpread.of([speed / base_speed for key, speed in a.items() if speed and (base_speed := b.get(key))])


def tracing(samples: Sequence[Sample], name: str, *, end_to_end: bool = False) -> SpeedSpread | None:
    """Seconds per token with recording on ÷ off: ratio of the medians, with quartiles of the run-by-run ratios."""
    runs = pair(samples, name, name + TRACED_SUFFIX, end_to_end=end_to_end)
    names = name, name + TRACED_SUFFIX
    off, on = (SpeedSpread.of([*_speeds(samples, run_name, end_to_end).values()]) for run_name in names)
    return replace(runs, median=off.median / on.median) if runs and off and on else None


def ratios_of(samples: Sequence[Sample]) -> list[Ratio]:
    """The ratios readers ask for, as far as their two sides took part."""
    decoding, whole = "tokens/s of decoding, the prompt excluded", "output tokens ÷ all seconds, the prompt included"
    ratios: list[tuple[str, SpeedSpread | None, str]] = []
    for method, peer, label in peer_pairs():
        ratios.append((label, pair(samples, method, peer), decoding))
        ratios.append((f"{label}, end to end", pair(samples, method, peer, end_to_end=True), whole))
    for name in sorted({s.name.removesuffix(TRACED_SUFFIX) for s in samples if s.name.endswith(TRACED_SUFFIX)}):
        for basis in (False, True):
            label = f"{name}: tracing on ÷ off{', end to end' if basis else ''}"
            ratios.append((label, tracing(samples, name, end_to_end=basis), "seconds per token, ratio of the medians"))
    return [Ratio(label, value, help) for label, value, help in ratios if value]


def machine() -> dict[str, Any]:
    """The machine that the numbers were measured on: facts that matter for speed, no names of hosts."""
    try:
        cores = len(os.sched_getaffinity(0))
    except AttributeError:  # not on every system
        cores = os.cpu_count() or 1
    facts: dict[str, Any] = {
        "cores": cores,
        "torch_threads": torch.get_num_threads(),
        "processor": platform.machine(),
        "python": platform.python_version(),
        **{k: v for k, v in versions().items() if k != "made"},
    }
    if torch.cuda.is_available():
        facts["gpu"] = gpu_facts()
    return facts


def lengthen(prompts: Sequence[Prompt], length: int) -> list[Prompt]:
    """Each prompt with the file's others in front, cut to the last ``length`` tokens: the same work at a set context.

    >>> [p.tokens for p in lengthen([Prompt.from_ids([1, 2, 3]), Prompt.from_ids([4])], 5)]
    [(4, 4, 1, 2, 3), (3, 1, 2, 3, 4)]
    """
    result = []
    for index, prompt in enumerate(prompts):
        filler = [t for p in (*prompts[index + 1 :], *prompts[:index]) for t in p.tokens] or list(prompt.tokens)
        tokens = list(prompt.tokens)
        while len(tokens) < length:
            tokens = filler + tokens
        result.append(Prompt.from_ids(tokens[-length:]))
    return result
