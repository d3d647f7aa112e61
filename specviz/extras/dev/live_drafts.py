"""A method that is being written, on recorded runs: every recorded step is drafted anew, as often as its file is saved.

A recorded run's text is what its target writes, so a draft is judged without the target: its accepted path is the path
of the tree that the text takes. That holds where tokens are the target's choice (``MatchVerifier``), for a drafter
whose drafts follow from the context alone. A drafter that observes, or draws, or a method with a verifier of its own,
is asked by *what if* instead (``ReadRun.redraft``), which scores every draft.

>>> drafts = LiveRun(target, trace).draft_with(method)             # doctest: +SKIP
>>> drafts.steps[12].accepted, drafts.steps[12].recorded        # doctest: +SKIP
(7, 3)
"""

from __future__ import annotations

import time
import traceback
from collections.abc import Callable
from dataclasses import dataclass

from decoders.errors import UserError, first_line
from decoders.method.drafter import Drafter
from decoders.method.method import Method
from decoders.model.state.memory import Context
from decoders.model.target_model.target import Target
from decoders.study.look.places import accepted_of, follows_text
from decoders.study.look.run_settings import sampling_of
from decoders.study.look.whatif import ReadRun
from decoders.trace.trace import Trace
from decoders.verifiers.match import MatchVerifier
from decoders.verifiers.sampling import Chooser, Sampling


@dataclass(frozen=True, slots=True)
class LiveStep:
    """A recorded step, drafted anew: tokens that the run had ``recorded`` as accepted, that were ``drafted`` now and
    would be ``accepted``. ``error`` is what the method raised there, in a sentence, and ``details`` its traceback.
    """

    step: int
    recorded: int
    drafted: int = 0
    accepted: int = 0
    reason: str = ""
    error: str = ""
    details: str = ""


@dataclass(frozen=True, slots=True)
class LiveDrafts:
    """All steps of a run, drafted anew in ``ms``. ``scored``: the target judged every draft, which takes its time."""

    steps: tuple[LiveStep, ...]
    ms: float
    scored: bool = False


class LiveRun:
    """A recorded run, read once by its model; raises UserError as ``ReadRun`` does."""

    def __init__(self, target: Target, trace: Trace) -> None:
        self.read, self.trace, self.target = ReadRun(target, trace), trace, target

    @property
    def title(self) -> str:
        return str(self.trace.run.get("title") or self.trace.run.get("id") or "run")

    def draft_with(self, method: Method) -> LiveDrafts:
        """Every step as this method drafts it, with its default parameters. Raises UserError where it cannot be made
        for this run at all; what it raises at a step stands beside the step.
        """
        start_time, sampling = time.perf_counter(), sampling_of(self.trace.run)
        params = method.params()
        stops = self.trace.run.get("stop_ids", self.target.stop_ids)
        parts = method.parts(self.target, params, self.read.prompt, Chooser(sampling), stops, keep_prompt=True)
        by_text = self._by_text(parts.drafter, parts.verifier, sampling)
        if by_text and not self.read.serves(parts.needs):
            raise UserError(f"{self.title} is too long to keep all that {method.name} reads of it")
        if not by_text:
            steps = self._steps(lambda step: self._redraft_step(step, method, params))
        else:
            with self.read.session.at(self.read.session.length, parts.needs) as whole:
                context = whole.context
                parts.drafter.prepare(context.cut(context.prompt_length))
                steps = self._steps(lambda step: self._by_the_text(step, parts.drafter, context))
        return LiveDrafts(tuple(steps), (time.perf_counter() - start_time) * 1e3, not by_text)

    def _steps(self, draft: Callable[[int], LiveStep]) -> list[LiveStep]:
        """Every step."""
        steps: list[LiveStep] = []
        for step, recorded_count in enumerate(self.trace.tables["steps"]["accepted"]):
            try:
                steps.append(draft(step))
            except Exception as problem:
                cause = problem.__cause__ or problem
                lines = "".join(traceback.format_exception(cause))
                steps.append(LiveStep(step, recorded_count, error=first_line(problem), details=lines))
        return steps

    def _redraft_step(self, step: int, method: Method, params: object) -> LiveStep:
        new_step = self.read.redraft(step, method, params)
        table = new_step.trace.tables["steps"]
        return LiveStep(step, new_step.recorded, table["drafted"][0], new_step.accepted, table["reason"][0])

    def _by_text(self, drafter: Drafter, verifier: object, sampling: Sampling) -> bool:
        """True where the run's text alone says what is accepted of this drafter's drafts."""
        chosen_text = sampling.greedy and self.trace.run["method"].get("lossless", False)
        return chosen_text and follows_text(drafter) and isinstance(verifier, MatchVerifier)

    def _by_the_text(self, step: int, drafter: Drafter, whole: Context) -> LiveStep:
        run, steps = self.trace.run, self.trace.tables["steps"]
        length, recorded_count = steps["context"][step], steps["accepted"][step]
        room = min(run["max_new_tokens"], self.target.context_length - run["prompt_length"])
        budget = room - (length - run["prompt_length"]) - 1
        if budget < 1:
            return LiveStep(step, recorded_count, reason="only one more token may be written")
        draft = drafter.propose(whole.cut(length), budget)
        text = self.trace.tables["tokens"]["id"][length:]
        return LiveStep(step, recorded_count, draft.tree.drafted, accepted_of(draft, text), draft.reason)
