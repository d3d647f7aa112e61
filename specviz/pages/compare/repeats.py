"""Repeats of a comparison's lanes: the same runs again, in alternation, for the time they take."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from functools import partial
from itertools import chain
from typing import Any

from cachetools import FIFOCache

from decoders.errors import UserError
from decoders.sweep.plan import PLAIN, Contender, Failure, Measurement, Order, Sample, Turn, alternate, execute
from decoders.sweep.timing import MAX_RETRIES
from decoders.trace.baseline import speeds
from decoders.trace.report import payload
from decoders.trace.trace import Trace
from specviz.server.desk import Desk
from specviz.server.forms import PromptForm, Refusal
from specviz.server.job import RunLike
from specviz.server.store import pack
from specviz.views.prompts import check_tokens
from specviz.words import sentence

from .outcome import baseline_key, lane_title, numbers_of, whole

log = logging.getLogger(__name__)

ROUNDS = 2  # beside the recorded run of each lane
MAX_TIMED = 256  # runs of which repeats are remembered


@dataclass(eq=False)
class Rounds:
    """A comparison that is being repeated: its runs, and how far it is."""

    keys: tuple[str, ...]
    total: int
    count: int = 0
    current: str = ""  # the run that goes on
    text: str = ""  # what went wrong
    is_over: bool = False
    cancel: threading.Event = field(default_factory=threading.Event)

    @property
    def state(self) -> dict[str, Any]:
        return {"over": self.is_over, "count": self.count, "of": self.total, "run": self.current, "text": self.text}


class Repeats:
    """Times runs again, one comparison after another, whenever the worker has nothing else to do."""

    def __init__(self, desk: Desk) -> None:
        self.desk = desk
        self._ms: FIFOCache[str, list[float]] = FIFOCache(MAX_TIMED)
        self._rounds: FIFOCache[tuple[str, ...], Rounds] = FIFOCache(MAX_TIMED)
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="repeats of a comparison")

    def close(self) -> None:
        """Repeat nothing more."""
        for rounds in list(self._rounds.values()):
            rounds.cancel.set()
        self._thread.shutdown(wait=False, cancel_futures=True)

    def with_repeats(self, key: str, trace: Trace) -> Trace:
        """A run with the times of its repeats."""
        if self._ms.get(key):
            trace.run["timings"] = {**trace.run.get("timings", {}), "repeats_ms": [*self._ms[key]]}
        return trace

    def start(self, traces: Mapping[str, Trace]) -> Rounds:
        """Repeat the runs of a comparison; where that cannot be done here, ``text`` says why."""
        keys = tuple(traces)
        going = self._rounds.get(keys)
        if going is not None and not going.is_over:
            return going
        if self.desk.rules.public:
            return Rounds(keys, 0, text="On a public server runs are not repeated.", is_over=True)
        plain = baseline_key(traces)
        try:
            contenders = [
                Contender(PLAIN if key == plain else key, "method", True, self._runner(key, trace))
                for key, trace in traces.items()
            ]
        except UserError as problem:
            return Rounds(keys, 0, text=sentence(problem), is_over=True)
        rounds = self._rounds[keys] = Rounds(keys, ROUNDS * len(keys))
        self._thread.submit(self._repeat, rounds, contenders, dict(traces))
        return rounds

    def state(self, keys: Sequence[str]) -> dict[str, Any]:
        """``{"over", "count", "of", "run", "text"}`` of a comparison: how many runs are done, of so many before those
        that are run again as they are in doubt, and which goes on.
        """
        rounds = self._rounds.get(tuple(keys))
        return rounds.state if rounds is not None else Rounds((), 0, is_over=True).state

    def stop(self, keys: Sequence[str]) -> None:
        """End the repeats of a comparison; those that are done count."""
        for rounds in list(self._rounds.values()):
            if set(keys) & set(rounds.keys):
                rounds.cancel.set()

    def _runner(self, key: str, trace: Trace) -> Callable[[Rounds], Measurement]:
        """A function that runs a recorded run again and gives its time. Raises UserError with a sentence."""
        from decoders.study.look.run_settings import check_model, own_params

        run = trace.run
        name = str(run["method"]["name"])
        if run.get("forced") or not whole(trace) or not speeds(trace):
            raise Refusal("runs", "A run that was cut short, or wrote a given answer, cannot be timed again.")
        target = self.desk.target_of(run)
        if target is None or self.desk.uses_backends(target):
            raise Refusal("runs", self.desk.reason() or "The model is in other processes: times cannot be repeated.")
        check_model(target, run, exact=True)
        check_tokens(target, trace)
        sampling, length = run["sampling"], (run.get("length") or {}).get("policy")
        names = ("temperature", "top_k", "top_p", "seed")
        settings: dict[str, Any] = {key: value for key in names if (value := sampling.get(key))}
        settings |= {"max_new_tokens": run["max_new_tokens"], **({"length": length} if length else {})}
        params = own_params(trace, self.desk.params_of(name, {}, target)[0])
        form = PromptForm.of_trace(trace)
        _, prompt, values, common = self.desk.prepare(form, name, params, settings, target)
        begin = partial(self.desk.run_of, target, prompt, name, "", params=values, settings=common)
        return partial(self._time, key, begin)

    def _time(self, key: str, begin: Callable[[threading.Event], RunLike], rounds: Rounds) -> Measurement:
        """Run it once, where the device is free."""
        if rounds.cancel.is_set():
            raise UserError("the repeats were stopped")
        rounds.current = key

        def work() -> Trace:
            run = begin(rounds.cancel)
            for _ in run:
                pass
            return run.trace

        trace = self.desk.on_worker(work)
        if rounds.cancel.is_set():
            raise UserError("the repeats were stopped")
        return Measurement(_sample(key, trace), [*trace.output_ids], trace)

    def _repeat(self, rounds: Rounds, contenders: Sequence[Contender], traces: Mapping[str, Trace]) -> None:
        """Two more rounds; then lanes whose times do not agree, or cannot be, again beside plain decoding; then plain
        decoding by itself where it still makes a lane faster than can be.
        """
        from decoders.sweep.ledger import retries

        keys = dict(zip((contender.name for contender in contenders), traces, strict=True))
        for key, trace in traces.items():  # those of an earlier time stay
            self._ms.setdefault(key, [*(trace.run["timings"].get("repeats_ms") or ())])
        samples = [_sample(name, traces[key]) for name, key in keys.items()]
        rerun_order = chain(
            retries(samples, contenders, [rounds], ROUNDS), self._plain_again(traces, contenders, rounds)
        )
        try:
            for turn, outcome in execute(chain(alternate(contenders, [rounds], ROUNDS, warm=True), rerun_order)):
                if isinstance(outcome, Failure):
                    rounds.text = "" if rounds.cancel.is_set() else outcome.reason
                    return
                assert isinstance(outcome, Measurement)
                rounds.count += 1
                name = turn.contender.name
                key, trace = keys[name], traces[keys[name]]
                rounds.text = _difference(trace, outcome)
                if rounds.text:
                    return
                samples.append(replace(outcome.sample, name=name, round=turn.round + 1))
                self._ms[key] = [*self._ms[key], 1000 * outcome.sample.decode_s]
        except Exception as problem:
            log.exception("a comparison could not be repeated")
            rounds.text = sentence(problem)
        finally:
            try:
                for key in traces:
                    self._store(key)
            finally:
                rounds.is_over = True  # the runs have them now

    def _plain_again(self, traces: Mapping[str, Trace], contenders: Sequence[Contender], rounds: Rounds) -> Order:
        """Plain decoding alone, as long as it is in doubt, as often as ``retries`` would at most."""
        plain = next((contender for contender in contenders if contender.name == PLAIN), None)
        first = ROUNDS * (1 + MAX_RETRIES)
        for number in range(first, first + ROUNDS * MAX_RETRIES):
            numbers = numbers_of({key: self.with_repeats(key, trace) for key, trace in traces.items()})
            key = baseline_key(traces)
            if plain is None or not numbers[key]["doubts"]:
                return
            yield Turn(number, 0, plain, True), rounds

    def _store(self, key: str) -> None:
        """Write the repeats into the run itself, where it is a user's own."""
        entry, library = self.desk.store.entry(key), self.desk.library
        if entry is None or entry.kind == "gallery" or not self._ms[key]:
            return
        trace = self.with_repeats(key, self.desk.store.get(key))
        self.desk.store.keep(replace(entry, blob=pack(payload(trace))))
        if library is not None and key in library:
            library.finish(trace)


def _difference(trace: Trace, repeat: Measurement) -> str:
    """The reason why the time of a repeat says nothing of a run, in a sentence; "" where there is none."""
    title = lane_title(trace)
    if repeat.trace is not None and repeat.trace.run.get("machine") != trace.run.get("machine"):
        return f"{title} was recorded on another machine or engine: run the methods here to have them repeated."
    if (repeat.output, repeat.sample.steps) != (trace.output_ids, trace.rows("steps")):
        return f"{title} took other steps than when it was recorded: its repeats do not count."
    return ""


def _sample(name: str, trace: Trace) -> Sample:
    """A recorded run as the first of its repeats."""
    steps, speed, output = trace.tables["steps"], speeds(trace), trace.output_ids
    seconds = len(output) / speed[0] if speed else 0.0
    return Sample(name, 0, 0, len(output), len(output), trace.rows("steps"), sum(steps["accepted"]), seconds, seconds)
