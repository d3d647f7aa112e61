"""Outcome of a comparison, for the page and for ``specviz compare``: a run's numbers beside plain decoding's, whether
the outputs agree, and one sentence about who won, by how much and why.
"""

from __future__ import annotations

import hashlib
import json
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from decoders.names import BASELINE
from decoders.trace import metrics, report
from decoders.trace.baseline import baseline
from decoders.trace.trace import Trace

LEVEL = 0.03  # single runs whose speeds lie no further apart cannot be told apart

# numbers of the table, in its order: all of them are defined in decoders.trace.metrics
TABLE = (
    "tokens_per_step", "speedup", "tokens_per_s", "steps", "tokens", "drafted", "accepted", "draft_efficiency",
    "depth_efficiency", "ranking_cost", "draft_ms", "verify_ms", "decide_ms", "draft_share", "prefill_ms", "prepare_ms",
    "kv_mb", "draft_mb", "differs", "other_share", "divergence",
)  # fmt: skip
_BY_KEY = {metric.key: metric for metric in metrics.METRICS}
METRICS = [{name: getattr(_BY_KEY[key], name) for name in _BY_KEY[key].__slots__} for key in TABLE]


def whole(trace: Trace) -> bool:
    """True for a run that came to its own end."""
    from decoders.study.judge.divergences import CUT_SHORT

    return trace.run.get("stop", "") not in CUT_SHORT


def is_plain(trace: Trace) -> bool:
    """True for plain decoding that came to its own end."""
    return trace.run["method"]["name"] == BASELINE and whole(trace)


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


def reference_among(trace: Trace, candidates: Iterable[Trace]) -> list[int] | None:
    """Plain decoding's output of the same model, prompt and settings: another run's, else ``own_reference``."""
    alike = (
        candidate.output_ids
        for candidate in candidates
        if is_plain(candidate) and plain_key(candidate) == plain_key(trace)
    )
    return next(alike, own_reference(trace))


def numbers_of(traces: Mapping[str, Trace]) -> dict[str, dict[str, Any]]:
    """``lane_numbers`` of each run; speedups are formed with the run of plain decoding among them."""
    base = next(filter(is_plain, traces.values()), None)
    return {key: lane_numbers(trace, base) for key, trace in traces.items()}


def outcome_of(traces: Mapping[str, Trace]) -> str:
    """``outcome`` of runs of one prompt; those of one method have the letters that the page "Compare" gives them."""
    titles = {key: lane_title(trace) for key, trace in traces.items()}
    letters = iter("ABCDE")
    marks = {key: "" if trace.run["method"]["name"] == BASELINE else next(letters) for key, trace in traces.items()}
    several = Counter(titles.values())
    lanes = {}
    for key, numbers in numbers_of(traces).items():
        title = titles[key] if several[titles[key]] == 1 else f"{titles[key]} {marks[key]}".rstrip()
        plain = not marks[key] and BASELINE not in lanes and whole(traces[key])
        lanes[BASELINE if plain else key] = title, numbers
    return outcome(lanes)


def lane_numbers(trace: Trace, base: Trace | None) -> dict[str, Any]:
    """Every metric of a run, acceptance by depth, accepted lengths (length, steps with a draft that accepted so many,
    their share of those steps), where the time went (ms), and the replay under a perfect ranking.

    ``base`` is the run of plain decoding that the speedup is formed with, where the two are alike (``baseline``);
    ``notes`` say why there is none.
    """
    lengths, plain = Counter(metrics.accepted_lengths(trace)), baseline(trace, base)
    values = metrics.compute(trace, plain.tokens_per_s)
    return {
        "metrics": values,
        "doubts": metrics.doubts(values),
        "notes": {**metrics.notes(trace), **({"speedup": plain.why} if plain.why else {})},
        "depths": metrics.acceptance_by_depth(trace),
        "lengths": [(n, steps, steps / lengths.total()) for n, steps in sorted(lengths.items())],
        "times": metrics.time_parts(trace),
        "oracle": report.oracle_of(trace),
    }


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


def outcome(lanes: Mapping[str, tuple[str, Mapping[str, Any]]]) -> str:
    """The sentence about the lanes, each key → (method's name as it is shown, ``lane_numbers``); plain decoding's lane,
    where there is one, is keyed ``BASELINE``. Faster is who has the higher speedup (``sort_by_speedup``); one that
    cannot be right takes no part, and the sentence says so. Where no speedup can be formed, forwards are compared.

    >>> def lane(speedup, per_step, why=""):
    ...     values = {"speedup": speedup, "tokens_per_step": per_step, "steps": 40, "draft_ms": 1.0, "verify_ms": 50.0}
    ...     return {"metrics": values, "doubts": {}, "notes": {"speedup": why} if why else {}}
    >>> outcome({"a": ("PLD", lane(2.0, 2.5)), "b": ("PLD+ (h)", lane(3.0, 3.5))})
    'PLD+ (h) wins: 3.00× plain decoding, 1.50× PLD; it writes more tokens per step (3.50 against 2.50).'
    >>> outcome({"a": ("PLD", lane(0.8, 1.1))})
    'No method is faster than plain decoding: PLD comes nearest at 0.80×; its 1.10 tokens per step do not pay for its \
steps of 51.0 ms.'
    """
    methods = {key: lane for key, lane in lanes.items() if key != BASELINE}
    fit = sort_by_speedup({key: numbers for key, (_, numbers) in methods.items()})
    if not fit:
        return _by_forwards(methods)
    return " ".join([_by_speed([methods[key] for key in fit], lanes.get(BASELINE)), *_left_out(methods.values())])


def sort_by_speedup(numbers: Mapping[str, Mapping[str, Any]]) -> list[str]:
    """The keys of lanes by speedup, the highest first; without those that have none, or one that cannot be right."""
    fit = [
        key
        for key, run_numbers in numbers.items()
        if run_numbers["metrics"].get("speedup") and "speedup" not in run_numbers["doubts"]
    ]
    return sorted(fit, key=lambda key: -numbers[key]["metrics"]["speedup"])


def _left_out(lanes: Iterable[tuple[str, Mapping[str, Any]]]) -> Iterable[str]:
    """A sentence per lane whose speedup cannot be right, which takes no place."""
    for name, numbers in lanes:
        if doubt := numbers["doubts"].get("speedup"):
            yield f"{name} takes no place (‡): its {numbers['metrics']['speedup']:.2f}× is {doubt.rstrip('.')}."


def _by_speed(order: Sequence[tuple[str, Mapping[str, Any]]], plain: tuple[str, Mapping[str, Any]] | None) -> str:
    """The sentence about lanes of which each has a speedup, in their order."""
    (name, numbers), best = order[0], _speed(order[0]) or 0.0
    per_step, step_ms = _per_step(numbers), _step_ms(numbers)
    if best <= 1 + LEVEL:
        costs = "" if step_ms is None else f" of {step_ms:.1f} ms"
        words = f"; its {per_step:.2f} tokens per step do not pay for its steps{costs}" if per_step else ""
        clearly = "faster" if best <= 1 else "clearly faster"
        return f"No method is {clearly} than plain decoding: {name} comes nearest at {best:.2f}×{words}."
    if len(order) == 1:
        return f"{name} is {best:.2f}× as fast as plain decoding{_because(numbers, plain)}."
    second, speed = order[1], _speed(order[1]) or 0.0
    if best / speed - 1 <= LEVEL:
        return (
            f"{name} and {second[0]} are level at {best:.2f}× and {speed:.2f}× plain decoding: "
            f"one run of each cannot tell them apart."
        )
    return f"{name} wins: {best:.2f}× plain decoding, {best / speed:.2f}× {second[0]}{_because(numbers, second)}."


def _speed(lane: tuple[str, Mapping[str, Any]]) -> float | None:
    return lane[1]["metrics"].get("speedup")


def _per_step(numbers: Mapping[str, Any]) -> float | None:
    return numbers["metrics"].get("tokens_per_step")


def _step_ms(numbers: Mapping[str, Any]) -> float | None:
    """Drafting and verifying of a step, in ms."""
    draft, verify = (numbers["metrics"].get(name) for name in ("draft_ms", "verify_ms"))
    return None if verify is None else verify + (draft or 0.0)


def _because(numbers: Mapping[str, Any], rival: tuple[str, Mapping[str, Any]] | None) -> str:
    """The two factors of a speed, tokens per step and time per step, against another lane's: first the one in favour,
    then the other; "" where none is in favour, or they are not known. What differs by ``LEVEL`` at most is no reason.
    """
    if rival is None:
        return ""
    good, bad = [], []
    value, rival_value = _per_step(numbers), _per_step(rival[1])
    if value and rival_value and abs(value / rival_value - 1) > LEVEL:
        is_higher = value > rival_value
        words = f"it writes {'more' if is_higher else 'fewer'} tokens per step ({value:.2f} against {rival_value:.2f})"
        (good if is_higher else bad).append(words)
    value, rival_value = _step_ms(numbers), _step_ms(rival[1])
    if value and rival_value and abs(value / rival_value - 1) > LEVEL:
        less = value < rival_value
        words = f"its steps take {'less' if less else 'more'} time ({value:.1f} against {rival_value:.1f} ms)"
        (good if less else bad).append(words)
    return f"; {' and '.join(good)}{f', though {bad[0]}' if bad else ''}" if good else ""


def _by_forwards(methods: Mapping[str, tuple[str, Mapping[str, Any]]]) -> str:
    entries = [(entry[1]["metrics"]["steps"], entry) for entry in methods.values() if entry[1]["metrics"].get("steps")]
    if not entries:
        return "No run is over that could be compared."
    fewest, (name, numbers) = min(entries, key=lambda pair: pair[0])
    reason = numbers["doubts"].get("speedup") or numbers["notes"].get("speedup") or "no speedup was formed"
    per_step = _per_step(numbers)
    rate = f" ({per_step:.2f} tokens per step)" if per_step else ""
    level = [entry[0] for count, entry in entries if count == fewest]
    subject = f"{' and '.join(level)} need" if len(level) > 1 else f"{name} needs"
    return f"{subject} the fewest forwards, {fewest:,}{rate}; by time nobody can be said to win: {reason.rstrip('.')}."
