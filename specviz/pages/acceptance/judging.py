"""Recorded runs judged by every verifier in the background, one run at a time, while no run is decoded."""

from __future__ import annotations

import itertools
import logging
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from concurrent.futures import TimeoutError as NotYet
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from cachetools import FIFOCache

from decoders.errors import UserError
from decoders.trace.trace import Trace
from specviz.server.bodies import MOST_TEXTS
from specviz.server.cards import verifier_cards

if TYPE_CHECKING:
    from decoders.study.judge.judge import StepJudged, Total

log = logging.getLogger(__name__)

MAX_JUDGED = MOST_TEXTS  # runs: with fewer, one request's first runs would be judged anew each time it is asked again
MOST_STEPS = 400  # with a draft, of one run
WAIT_S = 2.0  # an answer that takes longer is asked for again
PAUSE_S = 0.1  # between two looks whether a run is decoded


@dataclass(slots=True)
class RunJudgement:
    """A run's judgement: per step and in all, or ``fault``, why there is none. ``of`` counts the steps with a draft."""

    title: str
    of: int = 0
    steps: list[dict[str, Any]] = field(default_factory=list)
    totals: dict[str, Total] = field(default_factory=dict)
    rest: float = 0.0
    fault: str = ""

    @property
    def note(self) -> str:
        """A sentence about what is left out of it; "" where nothing is."""
        if self.fault:
            return f"{self.title} was left out: {self.fault}."
        if self.of > len(self.steps) == MOST_STEPS:
            return f"Of {self.title} the first {MOST_STEPS} of {self.of:,} steps with a draft are judged."
        without = min(self.of, MOST_STEPS) - len(self.steps)
        return f"{without:,} of the steps of {self.title} do not hold the target's probabilities." if without else ""


class Judging:
    """Judges runs, each once; ``busy`` says whether a run is decoded, which then comes first."""

    def __init__(self, busy: Callable[[], bool]) -> None:
        self._busy, self._change, self._closing = busy, threading.Lock(), threading.Event()
        self._worker = ThreadPoolExecutor(1, thread_name_prefix="judge runs")
        self._runs: FIFOCache[str, tuple[RunJudgement, Future[None]]] = FIFOCache(MAX_JUDGED)

    def close(self) -> None:
        """Judge no more."""
        self._closing.set()
        self._worker.shutdown(wait=False, cancel_futures=True)

    def results(
        self, keys: Sequence[str], read: Callable[[str], Trace | RunJudgement], has: Callable[[str], bool]
    ) -> list[RunJudgement] | dict[str, Any]:
        """The runs' judgements, or how far they are after ``WAIT_S``: {"state": "judging", "done", "of"} in steps.

        A run is read where it is not judged yet, or is not there any more (``has``); what ``read`` raises is raised,
        and a judgement that it gives in place of a run is the run's, this time.
        """
        begun = [self._begun(key, read, has) for key in keys]
        ends = time.monotonic() + WAIT_S
        for _, future in begun:
            try:
                future.result(max(0.0, ends - time.monotonic()))
            except NotYet:
                runs = [run for run, _ in begun]
                judged_steps, of = sum(len(run.steps) for run in runs), sum(min(run.of, MOST_STEPS) for run in runs)
                return {"state": "judging", "done": judged_steps, "of": of}
        return [run for run, _ in begun]

    def _begun(
        self, key: str, read: Callable[[str], Trace | RunJudgement], has: Callable[[str], bool]
    ) -> tuple[RunJudgement, Future[None]]:
        with self._change:
            cached_run = self._runs.get(key)
        if cached_run is not None and has(key):  # a run that was deleted is not judged from memory
            return cached_run
        trace = read(key)
        if isinstance(trace, RunJudgement):
            over: Future[None] = Future()
            over.set_result(None)
            return trace, over
        with self._change:
            if key not in self._runs:
                names = (trace.run.get("title") or key, trace.run["method"].get("title"))
                run = new_judgement(trace, " · ".join(str(name) for name in names if name))
                self._runs[key] = run, self._worker.submit(self._judge, trace, run)
            return self._runs[key]

    def _judge(self, trace: Trace, run: RunJudgement) -> None:
        try:
            for _ in judge_steps(trace, run):
                while self._busy() and not self._closing.wait(PAUSE_S):
                    pass
                if self._closing.is_set():
                    return
        except Exception:
            log.exception("run %s could not be judged", trace.run.get("id"))
            run.fault = "it could not be judged, and the server's log says why"


def new_judgement(trace: Trace, title: str) -> RunJudgement:
    """A run of which nothing is judged yet."""
    return RunJudgement(title, sum(count > 0 for count in trace.tables["steps"]["drafted"]))


def judge_steps(trace: Trace, run: RunJudgement) -> Iterator[None]:
    """Judge a run step by step; it stands in ``run``, and a fault too."""
    from decoders.study.judge.judge import fault, judge_steps

    if problem := fault(trace):
        run.fault = problem
        return
    drafted = [step for step, count in enumerate(trace.tables["steps"]["drafted"]) if count]
    try:
        for judged_step in judge_steps(trace, steps=drafted[:MOST_STEPS]):
            add(run, judged_step)
            yield
    except UserError as problem:
        run.fault = str(problem)
    if not run.steps and not run.fault:
        run.fault = "no drafted token's probability is recorded"


def steps_document(run: RunJudgement) -> dict[str, Any]:
    """One run's steps as its page shows them, with ``pool_runs``; or the ``reason`` why it cannot be judged."""
    if run.fault:
        return {"state": "ready", "reason": f"This run cannot be judged again: {run.fault}."}
    return {**pool_runs([run]), "reason": "", "steps": run.steps}


def add(run: RunJudgement, judged_step: StepJudged) -> None:
    """Add a step to a run's judgement."""
    from decoders.study.judge.judge import add_step

    run.steps.append(step_json(judged_step))
    run.rest = max(run.rest, *judged_step.rest)
    add_step(run.totals, judged_step)


def step_json(judged_step: StepJudged) -> dict[str, Any]:
    """A step as the pages draw it: of each rule its verdict on the nodes it came to, [node, stands, chance, why], and
    the chance of others that it could have come to.
    """
    rules = {
        name: {
            "expected": _round(rule.expected), "accepted": rule.accepted, "bonus": rule.bonus, "open": rule.open,
            "other": None if rule.other is None else _round(rule.other),
            "differs": [node for node, _ in rule.differing(judged_step.status)],
            "nodes": [
                [node, rule.status[node] == "accepted", _round(rule.chances[node]), rule.reasons[node]]
                for node in range(1, len(rule.status)) if rule.status[node] != "unreached"
            ],
            "unreached": {
                node: _round(chance) for node, chance in enumerate(rule.chances)
                if rule.status[node] == "unreached" and chance[1] > 0
            },
        }
        for name, rule in judged_step.rules.items()
    }  # fmt: skip
    return {"step": judged_step.step, "rest": _round(judged_step.rest), "rules": rules}


def pool_runs(runs: Sequence[RunJudgement]) -> dict[str, Any]:
    """Runs that were judged, together: each rule's card and sums, how much of p or q is not recorded at most, and a
    sentence for each run of which something is left out.
    """
    from decoders.study.judge.judge import Total

    sums: dict[str, Total] = {}
    for name, total in itertools.chain.from_iterable(run.totals.items() for run in runs):
        sums[name] = sums.get(name, Total())
        sums[name] += total
    return {
        "state": "ready", "runs": sum(not run.fault for run in runs), "rest": max(run.rest for run in runs),
        "rules": [{**card, **sums[card["name"]].to_json()} for card in verifier_cards([*sums])],
        "faults": [run.note for run in runs if run.note],
    }  # fmt: skip


def _round(bounds: tuple[float, float]) -> list[float]:
    return [round(bound, 4) for bound in bounds]
