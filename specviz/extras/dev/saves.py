"""A method's file while it is written: read anew at every save, drafted on recorded runs, held against the save before.

The terminal (``specviz dev``) and the page "Method" show what is told here.
"""

from __future__ import annotations

import hashlib
import time
import traceback
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from decoders.drafters import add_plugin, find_method
from decoders.engine.recording import record
from decoders.errors import UserError
from decoders.method.method import Method
from decoders.method.plugins import Unusable
from decoders.model.target_model.target import Target
from decoders.names import QUICK
from decoders.prompt.prompt import Prompt
from decoders.study.look.run_settings import other_model
from decoders.trace.trace import Trace

from .live_drafts import LiveDrafts, LiveRun, LiveStep

POLL_S = 0.1  # between looks at the file
MOST_STEPS = 200  # of the runs that are taken where none are named
MADE_TOKENS = 64  # of a run that is made for want of a recorded one


@dataclass(frozen=True, slots=True)
class SaveRow:
    """One step of one run: the ``step`` now, and accepted tokens by the save ``before`` and by the method ``against``
    (None: there is none).
    """

    run: int
    step: LiveStep
    accepted_before: int | None
    against: int | None

    @property
    def change(self) -> int:
        """Tokens won (lost: below 0) against the save before; in the first one against the other method, or the
        record.
        """
        base = self.accepted_before if self.accepted_before is not None else self.against
        return self.step.accepted - (self.step.recorded if base is None else base)


@dataclass(frozen=True, slots=True)
class Save:
    """The worth of a file as it was saved: its ``method`` with its drafts of every run in ``ms``, or the ``problem``
    that keeps it from being used, with its traceback (``details``).
    """

    method: Method | None = None
    drafts: tuple[LiveDrafts, ...] = ()
    ms: float = 0.0
    problem: str = ""
    details: str = ""


def default_traces(target: Target, recordings: Iterable[Trace], prompts: Sequence[tuple[str, Prompt]]) -> list[Trace]:
    """Of recorded runs those whose text is this target's own choice, one of each prompt and ``MOST_STEPS`` steps in
    all; where there is none, runs of the ``prompts`` (each with a title), made now with PLD.
    """
    picks: list[Trace] = []
    steps = 0
    for trace in recordings:
        fits = other_model(target, trace.run) is None and trace.run["method"].get("lossless")
        temperature = trace.run["sampling"].get("temperature")
        is_repeat = any(pick.prompt_key == trace.prompt_key for pick in picks)
        if fits and not temperature and not is_repeat and (not steps or steps + trace.rows("steps") <= MOST_STEPS):
            steps += trace.rows("steps")
            picks.append(trace)
    return picks or [record(target, ask, QUICK, title=title, max_new_tokens=MADE_TOKENS) for title, ask in prompts]


def digest(file: Path) -> str:
    """A file's content, in short; "" where it is not there: an editor puts the new one in the old one's place."""
    try:
        return hashlib.sha256(file.read_bytes()).hexdigest()
    except OSError:
        return ""


def digests(file: Path, *, one_shot: bool = False) -> Iterator[str]:
    """The file's digest, at once and whenever it changes."""
    last_digest = ""
    while True:
        new_digest = digest(file) or last_digest
        if new_digest != last_digest:
            last_digest = new_digest
            yield new_digest
            if one_shot:
                return
        time.sleep(POLL_S)


def draft_save(file: Path, runs: Sequence[LiveRun], name: str | None = None) -> Save:
    """Every run drafted by the file's method as it is now; ``name`` says which, where it has several."""
    start_time = time.perf_counter()
    try:
        method = _method(file, name)
        drafts = tuple(run.draft_with(method) for run in runs)
    except Unusable as problem:
        cause = problem.__cause__
        is_user_error = cause is None or isinstance(cause, (UserError, SyntaxError))
        return Save(problem=str(problem), details="" if is_user_error else "".join(traceback.format_exception(cause)))
    except UserError as problem:
        return Save(problem=f"{file}: {problem}")
    return Save(method, drafts, (time.perf_counter() - start_time) * 1e3)


def _method(file: Path, name: str | None) -> Method:
    names = [method.name for method in add_plugin(file).methods]
    if name is None and len(names) > 1:
        raise UserError(f"it has several methods: name one with --methods ({', '.join(names)})")
    if name is not None and name not in names:
        raise UserError(f"it has no method {name!r}: {', '.join(names)}")
    return find_method(name or names[0])


def rows(
    current_drafts: Sequence[LiveDrafts],
    earlier_drafts: Sequence[LiveDrafts] | None,
    other_drafts: Sequence[LiveDrafts] | None,
) -> list[SaveRow]:
    """All steps, those that raise first, then by tokens lost."""
    all_rows = [
        SaveRow(
            number,
            step,
            _accepted_tokens(earlier_drafts, number, step.step),
            _accepted_tokens(other_drafts, number, step.step),
        )
        for number, drafts in enumerate(current_drafts)
        for step in drafts.steps
    ]
    return sorted(all_rows, key=lambda row: (not row.step.error, row.change, row.run, row.step.step))


def _accepted_tokens(drafts: Sequence[LiveDrafts] | None, run: int, step: int) -> int | None:
    if drafts is None or step >= len(drafts[run].steps) or drafts[run].steps[step].error:
        return None
    return drafts[run].steps[step].accepted


def changes(all_rows: Sequence[SaveRow]) -> tuple[int, int]:
    """Tokens won and tokens lost over all steps that did not raise."""
    good = [row.change for row in all_rows if not row.step.error]
    return sum(change for change in good if change > 0), -sum(change for change in good if change < 0)


def mean(drafts: Sequence[LiveDrafts]) -> float:
    """Tokens per step over all runs' steps; nan without one."""
    steps = [step.accepted for run in drafts for step in run.steps if not step.error]
    return sum(steps) / len(steps) + 1 if steps else float("nan")
