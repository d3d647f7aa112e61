"""The page "Compare" on a server: lanes of one prompt, their numbers, and every run checked against plain decoding."""

from __future__ import annotations

import logging
import threading
from collections.abc import Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from concurrent.futures import TimeoutError as NotYet
from functools import partial
from typing import Annotated, Any

from cachetools import FIFOCache
from pydantic import AfterValidator, Field

from decoders.errors import UserError
from decoders.trace.trace import Trace
from specviz.places import is_id
from specviz.server.bodies import Body, Ids, Listed, PageSession, Params, needs
from specviz.server.desk import Desk, Service, get, post
from specviz.server.forms import PromptForm, Refusal, TypedPrompt
from specviz.server.http import Owner
from specviz.server.runner import Job, QueueFull
from specviz.server.store import UnknownTrace
from specviz.shell.assets import plotly
from specviz.views.prompts import check_tokens
from specviz.words import sentence

from .claim import claim_of
from .difference import difference
from .outcome import BASELINE, MAX_LANES, METRICS, check_output, is_plain, numbers_of, own_reference, plain_key
from .repeats import Repeats
from .stretches import stretches

log = logging.getLogger(__name__)

MAX_OUTPUTS = 64  # outputs of plain decoding, and four times as many verdicts
LENS_WAIT_S = 2.0  # a verdict that takes longer is asked for again


class PromptChoice(TypedPrompt):
    """A prompt as it is typed, or the one of a recorded run."""

    trace: str | None = None


class Lane(Body):
    """A method beside plain decoding."""

    method: Annotated[str, Field(max_length=80)]
    params: Params | None = None


class ComparisonRequest(Body):
    """Methods that are to run on one prompt."""

    prompt: Annotated[PromptChoice, needs("the prompt is given as names and values")]
    lanes: Annotated[list[Lane], needs('lanes are given as a list of {"method", "params"}')]
    settings: Params | None = None
    session: PageSession = None


class Adoption(Body):
    """Runs of a comparison, and the open page that they belong to from now on."""

    ids: list[str]
    session: PageSession = None


def _runs(keys: Sequence[str]) -> Sequence[str]:
    if not all(map(is_id, keys)) or not 0 < len(keys) <= MAX_LANES + 1:
        raise ValueError
    return keys


Runs = Annotated[
    Listed,
    AfterValidator(_runs),
    needs(f"runs are given by their ids with commas between them, {MAX_LANES + 1} at most"),
]


class Compare(Service):
    """Runs lanes side by side and says what became of them."""

    name, title, order = "compare", "Compare", 20
    cannot = "A comparison cannot"

    def __init__(self, desk: Desk) -> None:
        super().__init__(desk)
        self._plain: FIFOCache[str, tuple[int, ...]] = FIFOCache(
            MAX_OUTPUTS
        )  # plain decoding's output by what it depends on
        self._verdicts: FIFOCache[tuple[str, str], Future[dict[str, Any]]] = FIFOCache(4 * MAX_OUTPUTS)
        self._change = threading.Lock()
        self._checker = ThreadPoolExecutor(1, thread_name_prefix="check against plain decoding")
        self._closing = threading.Event()
        self.repeats = Repeats(desk)

    def close(self) -> None:
        """Check and repeat no more."""
        self._closing.set()
        self.repeats.close()
        self._checker.shutdown(wait=False, cancel_futures=True)

    @get()
    def show(self) -> dict[str, Any]:
        """The page's first state: how many lanes there may be, and the rows of its table."""
        return {"most": MAX_LANES, "metrics": METRICS, "plotly": plotly()}

    # --- running lanes ---

    @post("start")
    def start(self, request: ComparisonRequest, owner: Owner) -> dict[str, Any]:
        """Queue plain decoding and every lane on one prompt: ``{"lanes": [{"method", "id" or "error"}]}``.

        A lane that cannot run says why and leaves the others. Raises Refusal where none can.
        """
        lanes = [lane for lane in request.lanes if lane.method != BASELINE]
        if not 1 <= len(lanes) <= MAX_LANES:
            raise Refusal(
                "method", f"{len(lanes)} methods were asked for: choose 1 to {MAX_LANES}; plain decoding runs too."
            )
        form, title, target = self._form(request.prompt)
        settings = {**(request.settings or {}), "compare": False}
        # on one backend, so that speedups are formed of runs of the same device
        registry = self.desk.methods()
        seat = self.desk.seat_of([registry[lane.method] for lane in lanes if lane.method in registry], owner)
        begun: list[dict[str, Any]] = []
        first: Refusal | None = None
        for lane in (Lane(method=BASELINE), *lanes):
            try:
                job = self.desk.submit(
                    form, lane.method, lane.params or {}, settings, title=title, owner=owner,
                    session=request.session or "", target=target, seat=seat,
                )  # fmt: skip
                begun.append({"method": lane.method, "id": job.id})
            except Refusal as problem:
                first = first or problem
                begun.append({"method": lane.method, "error": str(problem), "place": problem.place})
        if first is not None and not any("id" in lane for lane in begun):
            raise first
        return {"lanes": begun}

    def _form(self, prompt_request: PromptChoice) -> tuple[PromptForm, str, Any]:
        """The prompt as ``desk.submit`` takes it, the runs' title ("" for its first words), and a recorded run's model
        (None: the loaded one).
        """
        if prompt_request.trace is None:
            return prompt_request.form(), prompt_request.title, None
        if not is_id(prompt_request.trace) or self.desk.runner.job(prompt_request.trace) is not None:
            raise Refusal("prompt", "The run open on Inspect is not over yet: wait for its end, or type a prompt.")
        try:
            trace = self.desk.trace(prompt_request.trace)
        except UnknownTrace as problem:
            raise Refusal("prompt", str(problem)) from None
        target = self.desk.loader.target
        if target is not None:
            target = self.desk.target_of(trace.run)
            check_tokens(target, trace)
        return PromptForm.of_trace(trace), str(trace.run.get("title") or "Recorded prompt"), target

    @post("stop")
    def stop(self, ids: Ids, owner: Owner) -> int:
        """End those of the runs that are ``owner``'s, and the repeats of all; how many runs there were."""
        self.repeats.stop(ids)
        jobs = self._own_jobs(ids, owner)
        for job in jobs:
            self.desk.runner.cancel(job)
        return len(jobs)

    @post("adopt")
    def adopt(self, request: Adoption, owner: Owner) -> int:
        """The page was loaded again: its runs now end with that page."""
        jobs = self._own_jobs(request.ids, owner)
        for job in jobs:
            job.session = request.session or ""
        return len(jobs)

    def _own_jobs(self, keys: Sequence[str], owner: str) -> list[Job]:
        return self.desk.runner.jobs_of_owner(keys[: MAX_LANES + 1], owner) if owner else []

    # --- what came of them ---

    @get("numbers")
    def numbers(self, runs: Runs) -> dict[str, Any]:
        """Per run that is over its numbers (``lane_numbers``). The baseline of the speedup is the plain run among
        ``runs``, else what a run recorded of plain decoding.
        """
        return numbers_of(self.ended_runs(runs))

    @get("claim")
    def claim(self, runs: Runs) -> dict[str, Any]:
        """Of the runs that are over, who won, by how much and why, by time and by forwards (``claim.claim``)."""
        return claim_of(self.ended_runs(runs))

    @post("repeat")
    def repeat(self, ids: Ids, owner: Owner) -> dict[str, Any]:
        """Run recorded runs again in alternation, for their times; how far that is."""
        return self.repeats.start(self.ended_runs(_runs(ids))).state

    @get("repeats")
    def rounds(self, runs: Runs) -> dict[str, Any]:
        """Progress of the repeats of these runs: {"over", "count", "of", "run", "text"}."""
        return self.repeats.state(tuple(self.ended_runs(runs)))

    @get("stretches")
    def stretches(self, runs: Runs) -> dict[str, Any]:
        """``{"stretches"}``: where one of the runs that are over needs fewer forwards than all others."""
        return {"stretches": stretches(self.ended_runs(runs), BASELINE)}

    @get("difference")
    def difference(self, runs: Listed) -> dict[str, Any]:
        """Places where one of two runs of a prompt accepted drafted tokens alone. Raises UnknownTrace, UserError."""
        if len(runs) != 2:
            raise Refusal("runs", f"{len(runs)} runs are given: two are compared step by step, choose two.")
        return difference(*(self.desk.trace(key) for key in runs))

    @get("lens")
    def lens(self, runs: Runs) -> dict[str, Any]:
        """Per run that is over, whether it equals plain decoding: {"state": identical, differs, checking or unknown}.

        ``differs`` brings the divergence and plain decoding's ids; ``unknown`` says in ``text`` what is missing. Plain
        decoding is computed once for a prompt, model and settings, and kept.
        """
        traces = self.ended_runs(runs)
        for key, trace in traces.items():
            if is_plain(trace) and self._is_trusted(key):
                self._keep(plain_key(trace), trace.output_ids)
        waiting = {key: self._verdict(key, trace) for key, trace in traces.items()}
        verdicts = {}
        for key, future in waiting.items():
            try:
                verdicts[key] = future.result(LENS_WAIT_S / max(1, len(waiting)))
            except NotYet:
                verdicts[key] = {"state": "checking"}
            except Exception as problem:
                if not isinstance(problem, ValueError | QueueFull):
                    log.exception("run %s could not be checked", key)
                verdicts[key] = {"state": "unknown", "text": sentence(problem)}
        missing_ids = [key for key in runs if not self.desk.has(key) and self.desk.runner.job(key) is None]
        return {**verdicts, **{key: {"state": "unknown", "text": str(UnknownTrace(key))} for key in missing_ids}}

    def _is_trusted(self, key: str) -> bool:
        """True where others' runs may be compared with this one: a file that somebody opened may say anything."""
        entry = self.desk.store.entry(key)
        return self.desk.loader.target is None or entry is None or entry.kind != "opened"

    def _verdict(self, key: str, trace: Trace) -> Future[dict[str, Any]]:
        """The check of a run, begun at most once; one that found no reference is begun again."""
        target = self.desk.loader.target
        place = (key, "" if target is None else target.key)
        with self._change:
            check = self._verdicts.get(place)
            is_retry = (
                check is not None and check.done() and (check.exception() or check.result()["state"] == "unknown")
            )
            if check is None or (is_retry and self._reference(trace) is not None):
                check = self._verdicts[place] = self._checker.submit(self._check, trace, target)
            return check

    def _check(self, trace: Trace, target: Any) -> dict[str, Any]:
        if trace.run.get("forced"):
            return {"state": "unknown", "text": "This run wrote a given answer: there is nothing to compare it with."}
        plain, verdict = self._reference(trace), None
        if target is not None:
            target = self.desk.target_of(trace.run)
            from decoders.study.look.run_settings import check_model

            try:
                check_model(target, trace.run, exact=True)
                check_tokens(target, trace)
            except UserError as problem:
                target, verdict = None, sentence(problem)
        if plain is None:
            if target is None:
                text = verdict or self.desk.reason() or "There is no model."
                return {"state": "unknown", "text": f"Plain decoding of this prompt was not recorded. {text}"}
            limit = self.desk.rules.new_tokens  # a trace may come from anybody
            if trace.run["max_new_tokens"] > limit:
                text = (
                    f"This run may write {trace.run['max_new_tokens']:,} tokens, and at most {limit:,} are made here."
                )
                return {"state": "unknown", "text": f"Plain decoding of this prompt was not recorded. {text}"}
            try:
                plain = self._decode(trace, target)
            except UserError as problem:
                return {"state": "unknown", "text": f"Plain decoding was not recorded. {sentence(problem)}"}
        return check_output(trace, plain, target and (lambda: self._judge(trace, plain, target)))

    def _reference(self, trace: Trace) -> Sequence[int] | None:
        """Plain decoding's output for a run's prompt and settings, where it is known already."""
        output_ids = self._plain.get(plain_key(trace))
        return own_reference(trace) if output_ids is None else output_ids

    def _decode(self, trace: Trace, target: Any) -> tuple[int, ...]:
        from decoders.study.judge.divergences import plain_of_run

        return self._keep(plain_key(trace), self.desk.on_worker(partial(plain_of_run, target, trace, self._closing)))

    def _judge(self, trace: Trace, plain: Sequence[int], target: Any) -> Any:
        from decoders.study.judge.divergences import divergence

        return self.desk.on_worker(lambda: divergence(target, trace, plain=plain))

    def _keep(self, key: str, ids: Sequence[int]) -> tuple[int, ...]:
        with self._change:
            self._plain[key] = tuple(ids)
        return self._plain[key]

    def ended_runs(self, keys: Sequence[str]) -> dict[str, Trace]:
        """The runs that are over, in the order given; one that was deleted under an open page leaves the others. Raises
        UnknownTrace where that leaves none.
        """
        traces, error = {}, None
        for key in dict.fromkeys(keys):
            if self.desk.runner.job(key) is None:
                try:
                    trace = self.desk.trace(key)
                except UnknownTrace as problem:
                    error = problem
                    continue
                if trace.run.get("prompt_length") and "method" in trace.run:
                    traces[key] = self.repeats.with_repeats(key, trace)
        if error is not None and not traces:
            raise error
        return traces
