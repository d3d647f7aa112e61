"""Lanes of a comparison, for the page and for ``specviz compare``: a run's numbers beside plain decoding's, and whether
the outputs agree. ``claim`` says who won.
"""

from __future__ import annotations

import hashlib
import json
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from math import isclose
from statistics import median
from typing import Any

from decoders.names import BASELINE
from decoders.sweep.timing import Timing
from decoders.trace import metrics, report
from decoders.trace.baseline import baseline, speeds
from decoders.trace.trace import Trace

MAX_LANES = 4  # methods beside the baseline
LEVEL = 0.03  # speeds that lie no further apart cannot be told apart, nor can lanes whose repeats overlap
OUTLIER = 0.5  # of every other lane's forward: a shorter one is itself wrong, as no other run bears it out
# numbers of the table, in its order: all of them are defined in decoders.trace.metrics
TABLE = (
    "tokens_per_step", "speedup", "tokens_per_s", "steps", "tokens", "drafted", "accepted", "draft_efficiency",
    "depth_efficiency", "ranking_cost", "draft_ms", "verify_ms", "decide_ms", "draft_share", "prefill_ms", "prepare_ms",
    "kv_mb", "draft_mb", "differs", "other_share", "divergence",
)  # fmt: skip
_BY_KEY = {metric.key: metric for metric in metrics.METRICS}
METRICS = [{name: getattr(_BY_KEY[key], name) for name in _BY_KEY[key].__slots__} for key in TABLE]


def whole(trace: Trace) -> bool:
    """True for a run that came to its own end, and an imported one of which no other is known."""
    from decoders.study.judge.divergences import CUT_SHORT

    stop = trace.run.get("stop", "")
    return stop not in CUT_SHORT or (not stop and "imported" in trace.run)


def is_plain(trace: Trace) -> bool:
    """True for plain decoding that came to its own end."""
    return trace.run["method"]["name"] == BASELINE and whole(trace)


def baseline_key(traces: Mapping[str, Trace]) -> str:
    """Key of the run of plain decoding among these; "" where there is none."""
    return next((key for key, trace in traces.items() if is_plain(trace)), "")


def own_reference(trace: Trace) -> list[int] | None:
    """Plain decoding's output as a run itself has it: the run's own, or recorded beside it; None where there is none.
    Tokens that were drawn are not held against it.
    """
    if is_plain(trace):
        return trace.output_ids
    return None if trace.run["sampling"].get("temperature") else trace.tables["plain"]["id"] or None


def plain_key(trace: Trace) -> str:
    """The same where plain decoding writes the same: model, dtype, weights, prompt, sampling, length, stop tokens,
    logits processors and grammar.
    """
    run = trace.run
    model = [run["model"].get(name) for name in ("name", "parameters", "dtype", "weights", "activations")]
    settings = [model, trace.prompt_ids, run["sampling"], run["max_new_tokens"], run.get("stop_ids")]
    grammar = {name: value for name, value in run.get("grammar", {}).items() if name != "drafts"}
    settings += [run.get("processing"), grammar] if grammar or "processing" in run else []
    return hashlib.sha256(json.dumps(settings, sort_keys=True).encode()).hexdigest()


def numbers_of(traces: Mapping[str, Trace]) -> dict[str, dict[str, Any]]:
    """``lane_numbers`` of each run; speedups are formed with the run of plain decoding among them."""
    base = traces.get(baseline_key(traces))
    return doubt_plain(traces, {key: lane_numbers(trace, base) for key, trace in traces.items()})


def doubt_plain(traces: Mapping[str, Trace], numbers: Mapping[str, Mapping[str, Any]]) -> dict[str, dict[str, Any]]:
    """Numbers of lanes (``lane_numbers``), all speedups in doubt where plain decoding among them was disturbed."""
    key = baseline_key(traces)
    lane = _too_fast(numbers, key) if key else ""
    if not lane:
        return {key: {**lane_numbers} for key, lane_numbers in numbers.items()}
    values = numbers[lane]["metrics"]
    reason = (
        f"plain decoding was disturbed, as against it {lane_title(traces[lane])} comes to {values['speedup']:.2f}× at "
        f"{values['tokens_per_step']:.2f} tokens per step, which cannot be"
    )
    return {
        lane: {**values, "doubts": values["doubts"] | ({"speedup": reason} if _divides(values, numbers[key]) else {})}
        for lane, values in numbers.items()
    }


def _divides(numbers: Mapping[str, Any], plain: Mapping[str, Any]) -> bool:
    """True where a lane's speedup is formed with this run of plain decoding, not with one recorded beside it."""
    speedup, speed, plain_speed = (
        side["metrics"].get(key)
        for side, key in ((numbers, "speedup"), (numbers, "tokens_per_s"), (plain, "tokens_per_s"))
    )
    return bool(speedup and speed and plain_speed and isclose(speedup * plain_speed, speed, rel_tol=1e-6))


def _too_fast(numbers: Mapping[str, Mapping[str, Any]], plain: str) -> str:
    """The lane that shows best that plain decoding was disturbed: its speedup is furthest above its tokens per step.
    Work beside a run makes it slower, never faster; so the lane itself is wrong only if its forwards are far shorter
    than those of all others.
    """
    forwards = {key: _forward_ms(lane_numbers["metrics"]) for key, lane_numbers in numbers.items()}

    def excess(key: str) -> float:
        values = numbers[key]["metrics"]
        return (values.get("speedup") or 0.0) / (values.get("tokens_per_step") or float("inf"))

    def is_alone(key: str) -> bool:
        rivals = [ms for rival, ms in forwards.items() if rival != key and ms is not None]
        own_ms = forwards[key]
        return len(rivals) > 1 and own_ms is not None and own_ms < OUTLIER * min(rivals)

    whole_lanes = [key for key in numbers if key != plain and numbers[key]["whole"]]  # others had less context to read
    lanes = [key for key in whole_lanes if _divides(numbers[key], numbers[plain])]
    witnesses = [key for key in lanes if excess(key) > 1 + LEVEL and not is_alone(key)]
    return max(witnesses, key=excess, default="")


def _forward_ms(values: Mapping[str, float | None]) -> float | None:
    """Time of a step without its drafting, by the clock of the whole run."""
    speed, tokens_per_step = values.get("tokens_per_s"), values.get("tokens_per_step")
    return 1000 * tokens_per_step / speed - (values.get("draft_ms") or 0.0) if speed and tokens_per_step else None


def lane_numbers(trace: Trace, base: Trace | None) -> dict[str, Any]:
    """Every metric of a run, acceptance by depth, accepted lengths (length, steps with a draft that accepted so many,
    their share of those steps), where the time went (ms), and the replay under a perfect ranking.

    ``base`` is the run of plain decoding that the speedup is formed with, where the two are alike (``baseline``);
    ``notes`` say why there is none. Of a run that was repeated, speed and speedup are medians; ``spread`` has the
    quartiles of each, ``runs`` how many there were, ``pace`` the median time over the recorded one's;
    ``whole`` says whether the run came to its own end.
    """
    lengths, plain = Counter(metrics.accepted_lengths(trace)), baseline(trace, base)
    values, run_speeds = metrics.compute(trace, plain.tokens_per_s), speeds(trace)
    spread: dict[str, list[float]] = {}
    doubts: dict[str, str] = {}
    if run_speeds:
        timing = Timing.of(run_speeds)
        values["tokens_per_s"] = timing.median
        if timing.unsteady:
            doubts = dict.fromkeys(("tokens_per_s", "speedup"), _unsteady(timing))
        if timing.low is not None and timing.high is not None:
            spread["tokens_per_s"] = [timing.low, timing.high]
    if run_speeds and plain.tokens_per_s:
        values["speedup"] = median(run_speeds) / plain.tokens_per_s
        if spread:
            spread["speedup"] = [speed / plain.tokens_per_s for speed in spread["tokens_per_s"]]
    return {
        "whole": whole(trace),
        "runs": len(run_speeds),
        "pace": run_speeds[0] / median(run_speeds) if run_speeds else 1.0,
        "spread": spread,
        "metrics": values,
        "doubts": {**doubts, **metrics.doubts(values)},
        "notes": {**metrics.notes(trace), **({"speedup": plain.why} if plain.why else {})},
        "depths": metrics.acceptance_by_depth(trace),
        "lengths": [(n, steps, steps / lengths.total()) for n, steps in sorted(lengths.items())],
        "times": metrics.time_parts(trace),
        "oracle": report.oracle_of(trace),
    }


def _unsteady(timing: Timing) -> str:
    share = ((timing.high or 0.0) - (timing.low or 0.0)) / (timing.median or 1.0)
    return (
        f"the speeds of its {timing.count} runs differ widely: their middle half spans {100 * share:.0f} % of the "
        "median, as where other work runs beside them"
    )


def lane_title(trace: Trace) -> str:
    """Name of a run's method in a sentence; one that may change the text says so."""
    method = trace.run["method"]
    lossy = " (teacher-forced)" if trace.run.get("forced") else "" if method.get("lossless", True) else " (lossy)"
    return f"{str(method.get('title') or method['name']).partition(':')[0]}{lossy}"


def check_output(trace: Trace, plain: Sequence[int], judge: Callable[[], Any] | None = None) -> dict[str, Any]:
    """Compare a run's output with plain decoding's tokens: {"state": "identical" or "differs"}, with the divergence.
    ``judge`` reads the place again with the model, where there is one; else what the run recorded of it decides.
    ``calls`` is what the difference is to a program that reads tool calls or JSON ("" where a token's text was not
    recorded).
    """
    from decoders.study.judge.divergences import recorded_divergence
    from decoders.study.judge.tool_calls import judged_calls

    difference = recorded_divergence(trace, plain)
    if difference is not None and judge is not None:
        difference = judge() or difference
    if difference is None and not trace.output_ids:
        return {"state": "unknown", "text": "This run has written no token that could be compared."}
    if difference is None:
        return {"state": "identical", "tokens": len(trace.output_ids)}
    pieces, output = trace.tables["pieces"], trace.output_ids
    hexes = dict(zip(pieces["id"], pieces["hex"], strict=True))  # special tokens too: tags of tool calls may be some
    calls = ""
    if hexes.keys() >= {*plain, *output}:
        byte_texts = (bytes.fromhex("".join(hexes[token] for token in ids)) for ids in (plain, output))
        calls = judged_calls(*(text.decode("utf-8", "replace") for text in byte_texts))
    return {"state": "differs", **difference.to_json(), "plain": list(plain), "calls": calls}
