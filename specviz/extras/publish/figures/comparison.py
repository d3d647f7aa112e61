"""Runs of one prompt as a figure: a lane per method, along the output, a cell per forward of the target."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import count

from decoders.errors import UserError
from decoders.names import BASELINE
from decoders.trace.metrics import first_difference, measure
from decoders.trace.trace import Trace
from specviz.words import decimals, plural

from .sheet import ACCEPTED, INK, PAPER, RULE, SMALL, SOFT, Sheet, shorten, width

LANE, GAP = 8.0, 5.0  # heights of a lane, and of the space below it
FEWEST_FORWARDS = 0.35  # points: a thinner cell has no outline of its own
MAX_LANES = 6


def comparison_figure(traces: Sequence[Trace]) -> Sheet:
    """Runs, drawn for one column. Raises UserError for one run, too many, or runs of different prompts."""
    check_comparable(traces)
    longest = max(len(trace.output_ids) for trace in traces) or 1
    base = next((trace for trace in traces if trace.run["method"]["name"] == BASELINE), None)
    sheet = Sheet(str(traces[0].run.get("title") or "comparison"), comparison_sentence(traces))
    y = SMALL
    for trace in traces:
        _heading(sheet, trace, y)
        y = _lane(sheet, trace, base, y + 3.5, sheet.width / longest)
    _axis(sheet, longest, y - GAP + 2)
    _legend(sheet, sheet.height + SMALL + 3)
    return sheet


def check_comparable(traces: Sequence[Trace]) -> None:
    """Raise UserError unless these are a few finished runs of one model on one prompt."""
    if not 2 <= len(traces) <= MAX_LANES:
        raise UserError(f"a comparison has 2 to {MAX_LANES} runs, and {len(traces)} were given")
    if len({trace.prompt_key for trace in traces}) > 1:
        raise UserError("these runs are not of one model and prompt: choose runs that Compare would show together")
    if empty := [trace for trace in traces if not trace.output_ids]:
        raise UserError(f"the run {empty[0].run['id']} has no output: choose runs that wrote something")


def comparison_sentence(traces: Sequence[Trace]) -> str:
    """A sentence on the steps that the runs needed."""
    forward_counts = [
        f"{trace.run['method'].get('title') or trace.run['method']['name']} {plural(trace.rows('steps'), 'forward')}"
        for trace in traces
    ]  # fmt: skip
    return f"Forwards of the target for the answer: {', '.join(forward_counts)}."


def _heading(sheet: Sheet, trace: Trace, y: float) -> None:
    method, steps = trace.run["method"], trace.rows("steps")
    per_step = measure(trace)["tokens_per_step"].value
    numbers = f"{plural(steps, 'forward')}, {decimals(per_step, 2)} tokens per step"
    room = sheet.width - width(numbers, SMALL) - 8
    forced_note = " (teacher-forced)" if trace.run.get("forced") else ""
    lossy = forced_note or ("" if method.get("lossless", True) else " (lossy)")
    sheet.text(0, y, shorten(f"{method.get('title') or method['name']}{lossy}", room, face="bold"), face="bold")
    sheet.text(sheet.width, y, numbers, SMALL, right=True, color=SOFT)


def _lane(sheet: Sheet, trace: Trace, base: Trace | None, top: float, scale: float) -> float:
    """A cell per forward: what it accepted is filled, the target's own token is not."""
    steps = trace.tables["steps"]
    at = 0
    for emitted, accepted in zip(steps["emitted"], steps["accepted"], strict=True):
        draft_tokens = min(accepted, emitted)
        if draft_tokens:
            sheet.box(at * scale, top, draft_tokens * scale, LANE, fill=ACCEPTED)
        at += emitted
        if scale >= FEWEST_FORWARDS:
            sheet.line((at * scale, top), (at * scale, top + LANE), stroke=PAPER if draft_tokens else RULE, line=0.4)
    sheet.box(0, top, max(1, at) * scale, LANE, stroke=INK, line=0.5)
    run_ids, plain = trace.output_ids, [] if base is None else base.output_ids
    if (first := first_difference(run_ids, plain)) < min(len(run_ids), len(plain)):
        x = first * scale
        sheet.line((x - 2, top + LANE + 3.5), (x, top + LANE + 0.5), (x + 2, top + LANE + 3.5), stroke=INK, line=0.8)
    return top + LANE + GAP + SMALL


def _axis(sheet: Sheet, longest: int, y: float) -> None:
    step = next(n * 10**power for power in count() for n in (1, 2, 5) if longest / (n * 10**power) <= 6)
    sheet.line((0, y), (sheet.width, y), stroke=SOFT, line=0.5)
    for place in range(0, longest + 1, step):
        x = place * sheet.width / longest
        sheet.line((x, y), (x, y + 2.5), stroke=SOFT, line=0.5)
        wide = width(str(place), SMALL)
        sheet.text(min(max(0.0, x - wide / 2), sheet.width - wide), y + 3.5 + SMALL, str(place), SMALL, color=SOFT)
    sheet.text(sheet.width, y + 4.5 + 2 * SMALL, "output token", SMALL, right=True, color=SOFT)


def _legend(sheet: Sheet, y: float) -> None:
    y -= SMALL + 3  # beside the axis' name
    sheet.box(0, y - 6.3, 9, 6, fill=ACCEPTED)
    x = 12 + sheet.text(12, y - 0.6, "accepted in one forward", SMALL, color=SOFT) + 8
    sheet.box(x, y - 6.3, 5, 6, stroke=INK, line=0.5)
    sheet.text(x + 8, y - 0.6, "target’s own", SMALL, color=SOFT)
