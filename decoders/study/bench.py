"""Speed side by side: every contender on the same prompts in one run, in alternation, with the same tokens.

Tokens per second are of decoding, the prompt excluded, as everywhere (``decoders.trace.metrics``); end to end
includes it. Speedups and ratios are formed between runs of the same prompt in the same round, and given as median and
quartiles.
"""

from __future__ import annotations

import functools
import gc
import os
import platform
import statistics
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any

import numpy as np
import torch

from decoders.drafters import chosen, find_method
from decoders.engine.decoding import Decoding
from decoders.engine.recording import record
from decoders.errors import UserError
from decoders.model.load import versions
from decoders.model.target import Target
from decoders.model.transfer import Span, wait
from decoders.names import BASELINE
from decoders.prompt.prompt import Prompt
from decoders.prompt_tokens.latency import WIDEST
from decoders.trace.trace import Trace
from decoders.verifiers.sampling import Sampling

from .llama_cpp import PeerLost
from .peers import BESIDE, Peer

SCHEMA = "specbench/1"
PLAIN = BASELINE
TRACED = " traced"
REPEATED = 2  # times that what was disturbed is measured again, each time with as many rounds as at first


@dataclass(frozen=True, slots=True)
class Sample:
    """One run of one contender. ``decode_s`` covers ``decoded`` of the ``tokens``: a peer's first forward reads the
    prompt and emits tokens too. Milliseconds are medians over the run's steps, None for peers."""

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

    @property
    def tokens_per_s(self) -> float | None:
        return self.decoded / self.decode_s if self.decoded and self.decode_s > 0 else None

    @property
    def end_to_end(self) -> float:
        return self.tokens / self.seconds


@dataclass(frozen=True, slots=True)
class Spread:
    """Median and quartiles of ``count`` numbers."""

    median: float
    low: float
    high: float
    count: int

    @classmethod
    def of(cls, values: Sequence[float | None]) -> Spread | None:
        """
        >>> Spread.of([1.0, None, 3.0])
        Spread(median=2.0, low=1.5, high=2.5, count=2)
        """
        measured = [v for v in values if v is not None]
        if not measured:
            return None
        low, median, high = (float(x) for x in np.percentile(measured, [25, 50, 75]))
        return cls(median, low, high, len(measured))


@dataclass(frozen=True, slots=True)
class Row:
    """All runs of one contender. ``kind`` is method, traced or peer; ``differing`` counts outputs unlike plain's."""

    name: str
    kind: str
    lossless: bool
    tokens: int
    differing: int
    tokens_per_s: Spread | None
    end_to_end: Spread | None
    speedup: Spread | None
    tokens_per_step: float | None
    draft_ms: float | None
    verify_ms: float | None
    commit_ms: float | None
    draft_share: float | None


@dataclass(frozen=True, slots=True)
class Ratio:
    """One number a reader looks for, e.g. "plain ÷ generate(), decoding"."""

    name: str
    value: Spread
    help: str


@dataclass(frozen=True, slots=True)
class Report:
    rows: tuple[Row, ...]
    ratios: tuple[Ratio, ...]
    samples: tuple[Sample, ...]
    model: dict[str, Any]
    machine: dict[str, Any]
    settings: dict[str, Any]

    def to_json(self) -> dict[str, Any]:
        return {"schema": SCHEMA, "created": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()), **asdict(self)}


@dataclass(frozen=True, slots=True)
class Made:
    """What one run gave; ``trace`` is that of a recorded one."""

    sample: Sample
    output: list[int]
    trace: Trace | None = None


@dataclass(frozen=True, slots=True)
class Contender:
    """Who takes part. ``run`` decodes one prompt. ``rounds``: it takes part in the first so many alone, and not in the
    warm-up.
    """

    name: str
    kind: str
    lossless: bool
    run: Callable[[Any], Made]
    rounds: int | None = None


@dataclass(frozen=True, slots=True)
class Turn:
    """One run among the others. ``round`` -1 is the warm-up; ``last`` of its prompt and round."""

    round: int
    prompt: int
    contender: Contender
    last: bool


def alternated(
    contenders: Sequence[Contender], prompts: Sequence[Any], repeats: int, call: Callable[[Callable[[], Any]], Any],
    *, warm: bool = False,
) -> Iterator[tuple[Turn, Any]]:  # fmt: skip
    """Every contender on every prompt, ``repeats`` rounds after a warm-up on the first one (unless it is ``warm``):
    turns and what they gave.

    The order rotates from prompt to prompt and from round to round, so that no contender always runs first. ``call``
    makes a run by calling what it is given, and its result is handed on.
    """
    gc.collect()
    thaws = not gc.get_freeze_count()  # what somebody else froze would be thawed with ours
    gc.freeze()  # what is there already need not be looked through before every run
    try:
        for number in range(0 if warm else -1, repeats):
            taking = [c for c in contenders if c.rounds is None or 0 <= number < c.rounds]
            for index, prompt in enumerate(prompts[: 1 if number < 0 else None]):
                shift = (index + max(number, 0)) % len(taking)
                for place, contender in enumerate(taking[shift:] + taking[:shift], 1):
                    turn = Turn(number, index, contender, place == len(taking))
                    yield turn, call(functools.partial(_swept, contender.run, prompt))
    finally:
        if thaws:
            gc.unfreeze()


def _swept(run: Callable[[Any], Made], prompt: Any) -> Made:
    """A run after what earlier ones left behind was cleared away."""
    gc.collect()
    return run(prompt)


def bench(
    target: Target,
    prompts: Sequence[Prompt],
    methods: Mapping[str, Any],
    *,
    max_new_tokens: int,
    repeats: int = 3,
    traced: bool = True,
    peers: Sequence[Peer] = (),
    sampling: Sampling | None = None,
    progress: Callable[[int, int], None] | None = None,
    keep: Callable[[Turn, Made], None] | None = None,
) -> Report:
    """Run every method (name → parameters) on every prompt (or turn of one: ``turns_of``), ``repeats`` rounds after a
    warm-up, greedily or by ``sampling``, alike in all runs (others draw otherwise: ``peers`` are for greedy runs).

    Plain decoding always takes part. ``traced`` runs each method a second time with recording on. Whoever was disturbed
    on a prompt (quartiles more than a quarter of the median apart) runs it again, with those it is compared with.
    ``progress(done, total)`` counts runs; ``keep`` gets all but the warm-up.
    """
    if not prompts:
        raise UserError("a benchmark needs at least one prompt that fits the model's context")
    taking_part = {PLAIN: methods.get(PLAIN), **methods}
    contenders = contenders_of(target, taking_part, max_new_tokens, traced, peers, sampling)
    total = len(contenders) * (1 + len(prompts) * repeats)
    samples: list[Sample] = []
    outputs: dict[str, list[int]] = {}
    group: list[Sample] = []
    lost, done = dict[str, str](), 0
    for done, (turn, made) in enumerate(_until_quiet(contenders, prompts, repeats, samples), 1):
        if isinstance(made, PeerLost):
            lost[turn.contender.name] = str(made)
        elif turn.round >= 0:
            outputs[turn.contender.name] = made.output
            group.append(replace(made.sample, prompt=turn.prompt, round=turn.round))
            if keep:
                keep(turn, made)
        if turn.last:
            samples += [replace(s, identical=outputs[s.name] == outputs[PLAIN]) for s in group]
            outputs, group = {}, []
        if progress:
            progress(done, max(done, total))
    unquiet = sum(len(names) for names in disturbed(samples).values())
    settings = {
        "max_new_tokens": max_new_tokens, "repeats": repeats, "turns": len(prompts),
        "prompts": sum(prompt.turn == 1 for prompt in prompts),
        "repeated": max(0, done - total), "disturbed": unquiet, "lost": lost,
        "sampling": asdict(sampling or Sampling()),
        "prompt_tokens": asdict(Spread.of([len(p.tokens) for p in prompts])),  # type: ignore[arg-type]
        "methods": {name: asdict(chosen(name, params)[1]) for name, params in taking_part.items()},
    }  # fmt: skip
    rows = tuple(summarise(c, samples) for c in contenders)
    return Report(rows, tuple(ratios_of(samples)), tuple(samples), dict(target.info), machine(), settings)


def _until_quiet(
    contenders: Sequence[Contender], prompts: Sequence[Any], repeats: int, samples: Sequence[Sample]
) -> Iterator[tuple[Turn, Made]]:
    """All turns, then those of what was disturbed, by the ``samples`` that were made of them until then."""
    yield from alternated(contenders, prompts, repeats, lambda run: run())
    for more in range(1, REPEATED + 1):
        for place, names in disturbed(samples).items():
            pairs = [{ours, peer} for ours, peer, _ in BESIDE]
            pairs += [{name.removesuffix(TRACED), name.removesuffix(TRACED) + TRACED} for name in names]
            wanted = {PLAIN, *names}.union(*(pair for pair in pairs if pair & names))
            again = [contender for contender in contenders if contender.name in wanted]
            for turn, made in alternated(again, [prompts[place]], repeats, lambda run: run(), warm=True):
                yield replace(turn, prompt=place, round=turn.round + more * repeats), made


def disturbed(samples: Sequence[Sample]) -> dict[int, set[str]]:
    """Contenders whose runs of one prompt do not agree, by the prompt's number."""
    speeds: dict[tuple[int, str], list[float | None]] = {}
    for sample in samples:
        speeds.setdefault((sample.prompt, sample.name), []).append(sample.tokens_per_s)
    found: dict[int, set[str]] = {}
    for (prompt, name), values in speeds.items():
        spread = Spread.of(values)
        if spread is not None and spread.high - spread.low > WIDEST * spread.median:
            found.setdefault(prompt, set()).add(name)
    return found


def contenders_of(
    target: Target, methods: Mapping[str, Any], max_new_tokens: int, traced: bool, peers: Sequence[Peer] = (),
    sampling: Sampling | None = None,
) -> list[Contender]:  # fmt: skip
    """Who runs: each method, each traced (if asked for), and the peers."""
    result = []
    for name, params in methods.items():
        lossless = find_method(name).lossless
        unseen = timed(target, name, params, max_new_tokens, sampling=sampling)
        result.append(Contender(name, "method", lossless, unseen))
        if traced:
            recorded = _traced(target, name, params, max_new_tokens, sampling)
            result.append(Contender(name + TRACED, "traced", lossless, recorded))
    result += [Contender(peer.name, "peer", peer.lossless, _peer(peer, target, max_new_tokens)) for peer in peers]
    return result


def timed(
    target: Target,
    method: str,
    params: Any,
    max_new_tokens: int,
    *,
    name: str = "",
    cancel: threading.Event | None = None,
    sampling: Sampling | None = None,
) -> Callable[[Prompt], Made]:
    """Decoding by a method with nothing recorded, as ``Contender.run``; ``name``: what its samples are called."""
    options = {"max_new_tokens": max_new_tokens, "cancel": cancel, "sampling": sampling}
    return lambda prompt: unrecorded(name or method, lambda: Decoding.of(target, prompt, method, params, **options))


def unrecorded(name: str, decoding: Callable[[], Decoding]) -> Made:
    """One run with nothing recorded; ``decoding`` begins it, ``name`` is what the sample is called."""
    started = time.perf_counter()
    run = decoding()
    run.prefill()
    filled = time.perf_counter()
    output: list[int] = []
    times: list[tuple[Span, Span, Span]] = []
    accepted = 0
    for step in run:
        output += step.emitted
        accepted += step.accepted
        times.append((step.draft_ms, step.verify_ms, step.commit_ms))
    wait(run.target.device)
    ended = time.perf_counter()
    medians: list[Any] = [statistics.median(map(float, column)) for column in zip(*times, strict=True)] or [None] * 3
    n = len(output)
    seconds, decode_s = ended - started, ended - filled
    return Made(Sample(name, 0, 0, n, n, len(times), accepted, seconds, decode_s, *medians), output)


def _traced(
    target: Target, name: str, params: Any, max_new_tokens: int, sampling: Sampling | None
) -> Callable[[Prompt], Made]:
    def run(prompt: Prompt) -> Made:
        started = time.perf_counter()
        trace = record(target, prompt, name, params, max_new_tokens=max_new_tokens, sampling=sampling)
        seconds = time.perf_counter() - started
        output, accepted = trace.output_ids, trace.tables["steps"]["accepted"]
        before = sum(trace.run["timings"][name] for name in ("prefill_ms", "prepare_ms")) / 1e3
        decode_s, n = seconds - before, len(output)  # recording included
        sample = Sample(name + TRACED, 0, 0, n, n, len(accepted), sum(accepted), seconds, decode_s)
        return Made(sample, output, trace)

    return run


def _peer(peer: Peer, target: Target, most: int) -> Callable[[Prompt], Any]:
    def run(prompt: Prompt) -> Made | PeerLost:
        try:
            made = peer.generate(prompt.tokens, most, target.stop_ids)
        except PeerLost as problem:  # the others go on
            return problem
        n, decode_s = len(made.tokens), made.seconds - made.first_s
        return Made(Sample(peer.name, 0, 0, n, n - made.first_tokens, None, None, made.seconds, decode_s), made.tokens)

    return run


def summarise(contender: Contender, samples: Sequence[Sample]) -> Row:
    """All runs of one contender in one row."""
    mine = [s for s in samples if s.name == contender.name]
    steps = sum(s.steps or 0 for s in mine)
    spreads = (Spread.of([getattr(s, f"{part}_ms") for s in mine]) for part in ("draft", "verify", "commit"))
    draft, verify, commit = (spread and spread.median for spread in spreads)
    return Row(
        name=contender.name,
        kind=contender.kind,
        lossless=contender.lossless,
        tokens=sum(s.tokens for s in mine),
        differing=sum(not s.identical for s in mine),
        tokens_per_s=Spread.of([s.tokens_per_s for s in mine]),
        end_to_end=Spread.of([s.end_to_end for s in mine]),
        speedup=paired(samples, contender.name, PLAIN),
        tokens_per_step=sum(s.accepted or 0 for s in mine) / steps + 1 if steps else None,
        draft_ms=draft,
        verify_ms=verify,
        commit_ms=commit,
        draft_share=draft / verify if draft is not None and verify else None,
    )


def _speeds(samples: Sequence[Sample], name: str, end_to_end: bool) -> dict[tuple[int, int], float | None]:
    """tokens/s of a contender's runs, by prompt and round."""
    return {(s.prompt, s.round): s.end_to_end if end_to_end else s.tokens_per_s for s in samples if s.name == name}


def paired(samples: Sequence[Sample], above: str, below: str, *, end_to_end: bool = False) -> Spread | None:
    """tokens/s of ``above`` ÷ tokens/s of ``below``, formed run by run: same prompt, same round."""
    a, b = (_speeds(samples, name, end_to_end) for name in (above, below))
    return Spread.of([one / other for key, one in a.items() if one and (other := b.get(key))])


def tracing(samples: Sequence[Sample], name: str, *, end_to_end: bool = False) -> Spread | None:
    """Seconds per token with recording on ÷ off: ratio of the medians, with quartiles of the run-by-run ratios."""
    runs = paired(samples, name, name + TRACED, end_to_end=end_to_end)
    off, on = (Spread.of([*_speeds(samples, each, end_to_end).values()]) for each in (name, name + TRACED))
    return replace(runs, median=off.median / on.median) if runs and off and on else None


def ratios_of(samples: Sequence[Sample]) -> list[Ratio]:
    """The ratios readers ask for, as far as their two sides took part."""
    decoding, whole = "tokens/s of decoding, the prompt excluded", "output tokens ÷ all seconds, the prompt included"
    ratios: list[tuple[str, Spread | None, str]] = []
    for ours, peer, label in BESIDE:
        ratios.append((label, paired(samples, ours, peer), decoding))
        ratios.append((f"{label}, end to end", paired(samples, ours, peer, end_to_end=True), whole))
    for name in sorted({s.name.removesuffix(TRACED) for s in samples if s.name.endswith(TRACED)}):
        for basis in (False, True):
            label = f"{name}: tracing on ÷ off{', end to end' if basis else ''}"
            ratios.append((label, tracing(samples, name, end_to_end=basis), "seconds per token, ratio of the medians"))
    return [Ratio(label, value, help) for label, value, help in ratios if value]


def machine() -> dict[str, Any]:
    """What the numbers were measured on: facts that matter for speed, no names of hosts."""
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
        facts["gpu"] = torch.cuda.get_device_name(0)
    return facts


def lengthened(prompts: Sequence[Prompt], length: int) -> list[Prompt]:
    """Each prompt with the file's others in front, cut to the last ``length`` tokens: the same work at a set context.

    >>> [p.tokens for p in lengthened([Prompt.from_ids([1, 2, 3]), Prompt.from_ids([4])], 5)]
    [(4, 4, 1, 2, 3), (3, 1, 2, 3, 4)]
    """
    result = []
    for index, prompt in enumerate(prompts):
        before = [t for p in (*prompts[index + 1 :], *prompts[:index]) for t in p.tokens] or list(prompt.tokens)
        tokens = list(prompt.tokens)
        while len(tokens) < length:
            tokens = before + tokens
        result.append(Prompt.from_ids(tokens[-length:]))
    return result
