"""Acceptance by every definition, calibration, two outputs beside each other, and a calculator of speedups."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable
from dataclasses import asdict
from typing import Annotated, Any, Literal

from cachetools import LRUCache
from pydantic import Field

from decoders.errors import UserError
from decoders.trace.acceptance import DEFINITIONS
from decoders.trace.speedup import RowTimes, forecasts
from decoders.trace.trace import Trace
from specviz.server.bodies import Body, Ids, SentFile, Texts, needs
from specviz.server.desk import Service, get, post
from specviz.server.forms import PromptForm, Refusal
from specviz.shell.assets import plotly
from specviz.views.prompts import short_name
from specviz.words import sentence

from . import judging
from .claim import FEWEST, calibration_claim, claim_of_runs
from .judging import Judging, RunJudgement, pool_runs, steps_document
from .sets import SetCounts, counts_of_log, pooled_by_method

MAX_SUMS = 2000  # runs whose sums are kept
MOST_FILES = 20  # of servers, in one request
LONGEST = 32  # drafted tokens that the calculator goes up to

Share = Annotated[float, Field(ge=0, le=1), needs("the acceptance is {given}: a number from 0 to 1")]
Cost = Annotated[float, Field(ge=0, le=10), needs("the cost of a draft forward is {given}: a number from 0 to 10")]


class ForecastRequest(Body):
    """The parts of a forecast. ``rows`` is L(n) as text, "" for a verify forward that costs as much as one row."""

    acceptance: Share
    cost: Cost
    rows: Annotated[str, Field(max_length=2000)] = ""


class Counting(Body):
    """Runs, and servers' files beside them; ``by`` "cached" splits sets by the server's cached tokens of the prompt."""

    ids: Texts = Field(default_factory=list)
    files: Annotated[list[SentFile], Field(max_length=MOST_FILES)] = Field(default_factory=list)
    by: Literal["", "cached"] = ""


class Outputs(Body):
    """A prompt, and what was written for it without drafting and with it."""

    mode: Literal["text", "chat"] = "text"
    prompt: str
    plain: str
    drafted: str
    lossless: bool = True
    dtype: str = "bfloat16"


class AcceptancePage(Service):
    """Acceptance of chosen runs, on the page "Compare"; expected speedups; two outputs for Compare."""

    name, order = "acceptance", 55
    cannot = "Acceptance cannot"

    def __init__(self, desk: Any) -> None:
        super().__init__(desk)
        self._change = threading.Lock()
        self._counts: LRUCache[tuple[str, str], SetCounts] = LRUCache(MAX_SUMS)
        self._judging = Judging(lambda: desk.runner.busy())

    def close(self) -> None:
        """Judge no more runs."""
        self._judging.close()

    @get()
    def show(self) -> dict[str, Any]:
        """The definitions, this machine's L(n) where measured, and the ``fewest`` tested tokens with a bar."""
        return {
            "definitions": [asdict(definition) for definition in DEFINITIONS], "plotly": plotly(),
            "fewest": FEWEST, "rows": self._row_times(),
            "model": self.desk.loader.target.name if self.desk.loader.target is not None else "",
        }  # fmt: skip

    @post("runs")
    def runs(self, request: Counting) -> dict[str, Any]:
        """Of runs that are over, and of servers' files, a set per method, most tokens per step first: acceptance by
        every definition, and each confidence's reliability; ``sentence`` says who has more accepted, and why,
        ``calibration`` which confidence is worth more.

        Runs of given answers are left out: ``forced`` is how many. Raises Refusal where neither is chosen, or a file
        has nothing to count; UnknownTrace for a run that is not there.
        """
        ids = request.ids if request.files else require_runs(request.ids, "pool them by method")
        run_counts = [self._count(key, request.by) for key in dict.fromkeys(ids)]
        run_counts += [run for file in request.files for run in _counts_of_file(file, request.by)]
        sets = pooled_by_method(run_counts)
        return {
            "sets": sets, "sentence": claim_of_runs(run_counts), "calibration": calibration_claim(sets),
            "forced": sum(run.forced for run in run_counts),
        }  # fmt: skip

    @post("judge")
    def judge(self, ids: Ids) -> dict[str, Any]:
        """The drafts of runs that are over under every verifier (``judging.pool_runs``), or how far that is: it is done
        in the background, and the page asks again.

        Raises Refusal where no run is chosen, or none can be judged; UnknownTrace for one that is not there.
        """
        answer = self.pool(require_runs(ids, "judge their drafts together"), self.desk.trace, self.desk.has)
        if answer["state"] == "ready" and not answer["runs"]:
            raise Refusal("runs", " ".join(answer["faults"]))
        return answer

    def pool(
        self, ids: Iterable[str], read: Callable[[str], Trace | RunJudgement], has: Callable[[str], bool]
    ) -> dict[str, Any]:
        """The drafts of runs under every verifier, or how far that is; runs are read by their ids."""
        keys, limit = [*dict.fromkeys(ids)], judging.MAX_JUDGED
        runs = self._judging.results(keys[:limit], read, has)
        if isinstance(runs, dict):
            return runs
        pooled = pool_runs(runs)
        if len(keys) > limit:
            fault = f"The first {limit:,} of {len(keys):,} runs are judged; left out: {len(keys) - limit:,}."
            pooled["faults"].append(fault)
        return pooled

    @get("judged/{key}")
    def steps(self, key: str) -> dict[str, Any]:
        """One run's steps under every verifier: what ``judge`` says of the run, and its ``steps``; ``reason`` says why
        it cannot be judged. Raises UnknownTrace.
        """
        runs = self._judging.results([key], self.desk.trace, self.desk.has)
        return runs if isinstance(runs, dict) else steps_document(runs[0])

    @post("forecast")
    def forecast(self, request: ForecastRequest) -> dict[str, Any]:
        """Expected tokens per step and speedup of each draft length. Raises ValueError for an L(n) that is none."""
        times = RowTimes.read(request.rows) if request.rows.strip() else None
        predictions = forecasts(
            request.acceptance, request.cost, range(LONGEST + 1), times.relative if times else lambda _: 1.0
        )
        best = max(predictions, key=lambda prediction: prediction.speedup)
        is_extrapolated = times is not None and times.rows[-1] < LONGEST + 1
        return {
            "forecasts": [asdict(prediction) for prediction in predictions], "best": best.gamma,
            "measured_to": times.rows[-1] if times is not None and is_extrapolated else None,
        }  # fmt: skip

    @post("outputs")
    def outputs(self, request: Outputs) -> dict[str, Any]:
        """The place where two outputs part and its meaning, by the model in use. Raises UserError without one."""
        from decoders.study.judge.tool_calls import judged_calls
        from decoders.study.judge.two_outputs import two_outputs

        target = self.desk.target()
        for text in (request.prompt, request.plain, request.drafted):
            self.desk.check_size(text)
        prompt = PromptForm(mode=request.mode, text=request.prompt).prompt(target.tokenizer).tokens
        plain, drafted = (
            target.tokenizer(text, add_special_tokens=False)["input_ids"] for text in (request.plain, request.drafted)
        )
        comparison = self.desk.on_worker(
            lambda: two_outputs(target, prompt, plain, drafted, lossless=request.lossless, dtype=request.dtype)
        )
        decode = target.tokenizer.decode
        texts = {"plain": [decode([token]) for token in plain], "drafted": [decode([token]) for token in drafted]}
        calls = judged_calls(request.plain, request.drafted)
        return {**comparison.to_json(), "texts": texts, "model": target.name, "calls": calls}

    def _count(self, key: str, by: str) -> SetCounts:
        with self._change:
            if (key, by) in self._counts and self.desk.has(key):  # a run that was deleted is not counted from memory
                return self._counts[key, by]
        counts = SetCounts.of(self.desk.trace(key), by)
        with self._change:
            self._counts[key, by] = counts
        return counts

    def _row_times(self) -> str:
        """This machine's L(n) as ``RowTimes.read`` takes it; "" where none was measured."""
        target = self.desk.loader.target
        if target is None:
            return ""
        from decoders.prompt_tokens.latency import load_latency

        latency = load_latency(target)
        if latency is None:
            return ""
        return ", ".join(f"{n}:{ms:.4g}" for n, ms in zip(latency.rows, latency.median, strict=True))


def _counts_of_file(file: SentFile, by: str) -> list[SetCounts]:
    """Counts of a server's answer or log. Raises Refusal."""
    from decoders.importers import ImportFault, NotALog, open_log

    try:
        return counts_of_log(open_log(file.text.encode(), short_name(file.name)), by)
    except (NotALog, ImportFault, UserError) as problem:
        raise Refusal("file", sentence(problem)) from None


def require_runs(ids: Iterable[str], purpose: str) -> list[str]:
    """Runs that were chosen, each once. Raises Refusal where there is none."""
    if not (keys := [*dict.fromkeys(ids)]):
        raise Refusal("runs", f"No run is chosen: choose one, or several to {purpose}.")
    return keys
