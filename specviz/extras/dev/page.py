"""A method that is being written, in the browser: every save of its file is drafted on recorded runs, checked against
the contract, and run on a prompt.

The tab is there only where ``specviz dev FILE --open`` started this server, on the user's own machine. The file is read
and run by this process alone: nothing of it is uploaded, and its words reach the page as data.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from pydantic import Field

from decoders.errors import UserError
from specviz.server.bodies import Body, needs
from specviz.server.desk import Desk, Service, get, post
from specviz.server.runner import QueueFull
from specviz.server.store import EVERYBODY
from specviz.views.examples import check_prompts, titled_prompts
from specviz.words import sentence

if TYPE_CHECKING:
    from decoders import Method, Target, Trace
    from decoders.study.judge.contract import ContractFinding

    from .live_drafts import LiveDrafts, LiveRun
    from .saves import Save, SaveRow

log = logging.getLogger(__name__)

EXAMPLES = 3  # that are run where no run of the model is recorded
MAX_STEPS = 100  # steps listed, the worst first
SETTLE_S = 0.05  # in which a file that was saved does not change again
WAIT_S = 10.0  # a question for news waits as long


class RunChoice(Body):
    """The run whose prompt the method is run on."""

    run: Annotated[int, Field(ge=0, lt=1000), needs("the run is a number of the list; given was {given}")]


class Dev(Service):
    """One file, watched from the server's start to its end; ``news`` is what the page shows."""

    name, order = "dev", 15
    cannot = "A file that is watched cannot be asked to"

    def __init__(self, desk: Desk) -> None:
        super().__init__(desk)
        self._file: Path | None = None
        self._method: str | None = None
        self._against: str | None = None
        self._over = threading.Event()
        self._changed = threading.Condition()
        self._state: dict[str, Any] = {"number": 0, "state": "waiting for the model"}
        self._target: Any = None  # the model that ``_runs`` were read by
        self._runs: list[tuple[str, LiveRun]] = []
        self._other_drafts: list[LiveDrafts] | None = None
        self._earlier_drafts: Sequence[LiveDrafts] | None = None
        self._run_index, self._ran = 0, ""
        self._run_ids: list[str] = []  # the runs that were named, by their ids
        self._rerun_all = False  # drafts anew though the file is as it was
        self._rerun = False  # another prompt was chosen
        self._usable: Method | None = None  # of the last save that could be used

    def watch(
        self, file: Path, *, method: str | None = None, against: str | None = None, traces: Sequence[Path] = ()
    ) -> None:
        """Watch a file from the server's start on; called before the page is put together, which then has the tab.

        ``method``: which one of the file; ``against``: another method to compare with; ``traces``: recorded runs, to
        draft on them (else the gallery's). Raises UserError on a server for other people, and where a file is none.
        """
        if self.desk.rules.is_shared:
            raise UserError("a file is watched on your own machine alone: not on a server for other people")
        if not file.is_file():
            raise UserError(f"there is no file {file}: specviz methods new NAME writes one")
        self._file, self._method, self._against = file, method, against
        self._run_ids = [self.desk.open_file(path, owner=EVERYBODY) for path in traces]
        self.title = "Method"
        self._state |= {"file": str(file), "against": against or ""}

    def begin(self) -> None:
        if self._file is not None:
            threading.Thread(target=self._follow, args=(self._file,), name="watch a method", daemon=True).start()

    def close(self) -> None:
        self._over.set()
        self._tell()

    def model_changed(self) -> None:
        self._rerun_all = True

    @get()
    def news(self, after: int = -1) -> dict[str, Any]:
        """The state of the file as it was saved last, once its number is another than ``after`` (or after a while)."""
        self._check()
        with self._changed:
            self._changed.wait_for(lambda: self._state["number"] != after or self._over.is_set(), WAIT_S)
            return dict(self._state)

    @post("prompt")
    def prompt(self, choice: RunChoice) -> None:
        """Run the method on another run's prompt, now and at every save."""
        self._check()
        if choice.run >= len(self._runs):
            raise UserError(f"there is no run {choice.run + 1}: {len(self._runs)} are drafted on")
        self._run_index, self._rerun = choice.run, True

    def _check(self) -> None:
        if self._file is None:
            raise UserError("no file is watched here: specviz dev FILE --open starts a server that does")

    # --- the watcher's thread ---

    def _tell(self, **news: Any) -> None:
        with self._changed:
            self._state = {**self._state, **news, "number": self._state["number"] + 1}
            self._changed.notify_all()

    def _follow(self, file: Path) -> None:
        while self.desk.loader.target is None and not self._over.wait(0.1):
            if self.desk.loader.state == "failed" and self._state.get("problem") != self.desk.reason():
                self._tell(state="", problem=self.desk.reason())  # another model may be chosen in the header
        from .saves import POLL_S, digest

        last_digest = ""
        while not self._over.is_set():
            file_digest, usable = digest(file) or last_digest, self._usable
            has_changed, is_repeat, rerun = file_digest != last_digest, self._rerun_all, self._rerun
            if has_changed and (self._over.wait(SETTLE_S) or digest(file) != file_digest):
                continue  # an editor empties a file before it writes: what is read later is more than what was seen
            if has_changed or is_repeat or (rerun and usable is not None):
                last_digest, self._rerun_all, self._rerun = file_digest, False, False
                try:
                    if usable is None or has_changed or is_repeat:
                        self._tell_save(file, saves=self._state.get("saves", 0) + has_changed)
                    else:
                        self._ran_on_prompt(usable, self.desk.target())
                except QueueFull:  # the server goes down
                    return
                except Exception as problem:
                    log.exception("%s could not be drafted", file)
                    self._tell(state="", problem=sentence(problem))
            self._over.wait(POLL_S)

    def _tell_save(self, file: Path, saves: int) -> None:
        """All that is told of a save: drafts, the contract, a run; ``saves`` could be used so far, with this one."""
        from .saves import draft_save

        target = self.desk.target()
        if target is not self._target:
            self._tell(state="reading the recorded runs")
            self.desk.on_worker(lambda: self._read(target))
        save: Save = self.desk.on_worker(lambda: draft_save(file, [live for _, live in self._runs], self._method))
        if save.method is None:
            return self._tell(state="", problem=save.problem, details=save.details)
        method = self._usable = save.method
        self._tell(state="checking the contract", problem="", details="", saves=saves,
                   method={"name": method.name, "title": method.title}, **self._describe(save))  # fmt: skip
        self._earlier_drafts = save.drafts
        self._tell(rules=self.desk.on_worker(lambda: _rules(method, target)))
        self._ran_on_prompt(method, target)

    def _ran_on_prompt(self, method: Method, target: Target) -> None:
        """The run on the chosen prompt alone: what was told of the save stays."""
        self._tell(state="running")
        self._tell(state="", **self.desk.on_worker(lambda: self._run(method, target)))

    def _read(self, target: Target) -> None:
        from decoders.drafters import find_method

        from .live_drafts import LiveRun
        from .saves import default_traces

        store = self.desk.store
        keys = self._run_ids or [row["id"] for row in store.listing("") if row["kind"] == "gallery"]
        stored_runs = [store.get(key) for key in keys]
        prompts = titled_prompts(target.tokenizer, EXAMPLES, toy=self.desk.toy)
        traces = stored_runs if self._run_ids else default_traces(target, stored_runs, prompts)
        for trace in traces:
            if trace.run["id"] not in store:
                store.put(trace, kind="opened", owner=EVERYBODY)
        self._runs = [(str(trace.run["id"]), LiveRun(target, trace)) for trace in traces]
        other_method = None if self._against is None else find_method(self._against)
        self._other_drafts = None if other_method is None else [live.draft_with(other_method) for _, live in self._runs]
        self._earlier_drafts, self._target, self._run_index = None, target, 0
        runs = [{"id": key, "title": live.title, "steps": live.trace.rows("steps")} for key, live in self._runs]
        self._tell(runs=runs)

    def _describe(self, save: Save) -> dict[str, Any]:
        from .saves import changes, mean, rows

        previous_drafts, other_drafts = self._earlier_drafts, self._other_drafts
        all_rows = rows(save.drafts, previous_drafts, other_drafts)
        shown_rows = [row for row in all_rows if row.step.error or row.change] or all_rows
        gains, losses = changes(all_rows)
        numbers = {"now": save.drafts, "before": previous_drafts, "against": other_drafts}
        return {
            "rows": [_row(row) for row in shown_rows[:MAX_STEPS]], "steps": len(all_rows), "won": gains, "lost": losses,
            "base": "the last save" if previous_drafts is not None else self._against or "the record",
            "tokens_per_step": {name: _number(mean(d)) for name, d in numbers.items() if d is not None},
            "ms": round(save.ms), "scored": any(d.scored for d in save.drafts),
        }  # fmt: skip

    def _run(self, method: Method, target: Target) -> dict[str, Any]:
        """A run of the method on the chosen prompt, among the runs; the one of the save before goes."""
        from decoders import Run
        from decoders.prompt.codec import of_trace
        from decoders.study.look.run_settings import generation_of, sampling_of

        trace: Trace = self._runs[self._run_index][1].trace
        title = f"{method.title}, save {self._state['saves']}"
        try:
            run = Run(
                target, of_trace(trace), method, sampling=sampling_of(trace.run), title=title,
                max_new_tokens=trace.run["max_new_tokens"], keep_prompt=True, generation=generation_of(trace.run),
            ).finish()  # fmt: skip
        except Exception as problem:  # the method's own: the contract says more
            return {"ran": None, "failed": sentence(problem)}
        old_run, self._ran = self._ran, self.desk.store.put(run, kind="opened", owner=EVERYBODY)
        if old_run:
            self.desk.store.remove(old_run)
        return {"ran": {"id": self._ran, "title": title, "on": self._run_index}, "failed": ""}


def _rules(method: Method, target: Target) -> list[dict[str, Any]]:
    """Every rule of the contract, in words, with what is broken of it."""
    from decoders.study.judge.contract import MEANINGS, check, rules_of

    findings: list[ContractFinding] = check(method, target, check_prompts(target.tokenizer))
    return [
        {
            "rule": MEANINGS[rule],
            "faults": [
                {"words": finding.words, "prompt": finding.prompt, "details": finding.error}
                for finding in findings
                if finding.rule == rule
            ],
        }
        for rule in rules_of(findings)
    ]


def _row(row: SaveRow) -> dict[str, Any]:
    step = row.step
    return {
        "run": row.run, "step": step.step, "recorded": step.recorded, "drafted": step.drafted,
        "accepted": None if step.error else step.accepted, "before": row.accepted_before, "against": row.against,
        "change": None if step.error else row.change, "why": step.error or step.reason, "details": step.details,
    }  # fmt: skip


def _number(value: float) -> float | None:
    return None if value != value else round(value, 3)
