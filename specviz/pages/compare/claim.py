"""Claim of a comparison: by time and by forwards its sentence, the order and places of its lanes, and the best numbers.

All of it comes from one function (``claim``), so that a headline, a race and a table cannot contradict one another.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from decoders.names import BASELINE
from decoders.trace.trace import Trace
from specviz.groups import group
from specviz.words import enumeration, plural

from .outcome import LEVEL, baseline_key, lane_title, numbers_of

BETTER = {"tokens_per_step": 1, "speedup": 1, "tokens_per_s": 1, "draft_efficiency": 1, "steps": -1}  # -1: fewer is
CLOCK_METRICS = ("speedup", "tokens_per_s")
NEAR = 0.005  # of a number: closer ones look alike where they are shown
NO_METHOD = "No method came to its end: there is nothing to compare."


@dataclass(frozen=True, slots=True)
class Lane:
    """A lane of a comparison: its key, its method's name as it is shown, and its ``lane_numbers``."""

    key: str
    name: str
    numbers: Mapping[str, Any]
    is_plain: bool = False

    def metric(self, key: str) -> float | None:
        return self.numbers["metrics"].get(key)

    @property
    def doubt(self) -> str:
        """The reason why its speedup cannot be right."""
        reason = self.numbers["doubts"].get("speedup", "")
        return "" if reason == self.unsteady else reason

    @property
    def unsteady(self) -> str:
        """The reason why its repeats do not agree: it is marked, and keeps its place."""
        return self.numbers["doubts"].get("tokens_per_s", "")

    @property
    def runs(self) -> int:
        """The times that it was run."""
        return self.numbers.get("runs", 1)

    @property
    def is_whole(self) -> bool:
        """True for a run that came to its own end: one that was cut short takes no place."""
        return self.numbers.get("whole", True)

    @property
    def step_ms(self) -> float | None:
        """Drafting and verifying of a step, in ms; of a lane that was repeated at the pace of its median."""
        draft, verify = self.metric("draft_ms"), self.metric("verify_ms")
        return None if verify is None else (verify + (draft or 0.0)) * self.numbers.get("pace", 1.0)

    def spread(self, key: str) -> tuple[float, float] | None:
        """The quartiles of several runs."""
        bounds = self.numbers.get("spread", {}).get(key)
        return (bounds[0], bounds[1]) if bounds and self.runs > 1 else None


Leaders = tuple[list[Lane], list[Lane]]  # of place 1: clearly faster than plain decoding, and the others


@dataclass(frozen=True, slots=True)
class Place:
    """A lane in an order. ``place`` is 1 + the number of lanes that are clearly faster, None where it takes none
    (``reason``); ``bar`` is what it cost (ms or forwards; per token where the lanes wrote different numbers of them),
    ``low`` and ``high`` the quartiles of its repeats.
    """

    id: str
    place: int | None
    bar: float | None
    low: float | None = None
    high: float | None = None
    reason: str = ""


def claim_of(traces: Mapping[str, Trace], numbers: Mapping[str, Mapping[str, Any]] | None = None) -> dict[str, Any]:
    """``claim`` of runs of one prompt; those of one method have the letters that the page "Compare" gives them.
    ``numbers``: their ``numbers_of``, where these are known.
    """
    titles = {key: lane_title(trace) for key, trace in traces.items()}
    letters = iter("ABCDE")
    marks = {key: "" if trace.run["method"]["name"] == BASELINE else next(letters) for key, trace in traces.items()}
    several = Counter(titles.values())
    plain_key = baseline_key(traces)
    return claim([
        Lane(
            key,
            titles[key] if several[titles[key]] == 1 else f"{titles[key]} {marks[key]}".rstrip(),
            lane_numbers,
            key == plain_key,
        )
        for key, lane_numbers in (numbers or numbers_of(traces)).items()
    ])  # fmt: skip


def claim(lanes: Sequence[Lane]) -> dict[str, Any]:
    """``{"time", "step", "stars", "repeats"}``: by time and by forwards ``{"sentence", "number", "lanes"}``
    (``number`` stands above the sentence, ``lanes`` has a ``Place`` per lane, the first on top), per metric the lanes
    that are best of the methods, and a sentence on how often each was run.

    >>> def lane(name, speedup, per_step, why=""):
    ...     values = {"speedup": speedup, "tokens_per_step": per_step, "steps": 40, "draft_ms": 1.0, "verify_ms": 50.0}
    ...     return Lane(name, name, {"metrics": values, "doubts": {}, "notes": {"speedup": why} if why else {}})
    >>> claim([lane("PLD", 2.0, 2.5), lane("PLD+ (h)", 3.0, 3.5)])["time"]["sentence"]
    'PLD+ (h) comes first in one run of each: 3.00× plain decoding, 1.50× PLD; it writes more tokens per step (3.50 \
against 2.50).'
    >>> claim([lane("PLD", 0.8, 1.1)])["time"]["sentence"]
    'No method is faster than plain decoding: PLD comes nearest at 0.80×; its 1.10 tokens per step do not pay for its \
steps of 51.0 ms.'
    """
    places = places_of(lanes)
    leaders = clear, _ = _leaders(lanes, places)
    by_time = {
        "sentence": _time_sentence(lanes, places, leaders),
        "number": _times(clear[0].metric("speedup") if len(clear) == 1 else None),  # of one alone
        "lanes": [asdict(place) for place in _places_by_time(lanes, places)],
    }
    by_forwards = {"sentence": _forwards_sentence(lanes), "number": "", "lanes": [
        asdict(place) for place in _places_by_forwards(lanes)
    ]}  # fmt: skip
    best = max(_finished_methods(lanes), key=_per_step, default=None)
    if best is not None and _per_step(best):
        by_forwards["number"] = f"{_per_step(best):.2f} tokens per step"
    return {
        "time": by_time, "step": by_forwards, "stars": _stars(lanes, places, clear), "repeats": _repeats(lanes)
    }  # fmt: skip


def places_of(lanes: Iterable[Lane]) -> list[tuple[int, Lane]]:
    """Lanes with their places, the first in front: a place is 1 + the number of lanes that are clearly faster, those of
    one stand by their speed. Without lanes that have no speedup, one that cannot be right, or no end.
    """
    fit = [lane for lane in lanes if lane.metric("speedup") and not lane.doubt and lane.is_whole]
    places = [(1 + sum(_is_faster(rival, lane) for rival in fit), lane) for lane in fit]
    return sorted(places, key=lambda row: (row[0], -(row[1].metric("speedup") or 0.0)))


def _baseline(lanes: Iterable[Lane]) -> Lane | None:
    return next((lane for lane in lanes if lane.is_plain), None)


def _same_length(lanes: Iterable[Lane]) -> bool:
    return len({lane.metric("tokens") for lane in lanes}) == 1


def _per_step(lane: Lane) -> float:
    return lane.metric("tokens_per_step") or 0.0


def _is_faster(lane: Lane, rival: Lane | None) -> bool:
    """True where a lane is clearly faster than another (None: plain decoding): by more than ``LEVEL``, and the repeats
    of the two do not overlap.
    """
    speed, rival_speed = lane.metric("speedup") or 0.0, 1.0 if rival is None else rival.metric("speedup") or 0.0
    low = (lane.spread("speedup") or [speed])[0]
    high = rival_speed if rival is None else (rival.spread("speedup") or [rival_speed])[-1]
    return speed - rival_speed > LEVEL * rival_speed and low > high


def _leaders(lanes: Sequence[Lane], places: Sequence[tuple[int, Lane]]) -> Leaders:
    """The methods that have place 1: those clearly faster than plain decoding, and the others."""
    plain = _baseline(lanes)
    first = [lane for place, lane in places if place == 1 and not lane.is_plain]
    clear = [lane for lane in first if _is_faster(lane, plain)]
    return clear, [lane for lane in first if lane not in clear]


def _times(value: float | None) -> str:
    return "" if value is None else f"{value:.2f}×"


# --- order and places ---


def _places_by_time(lanes: Sequence[Lane], ranked: Sequence[tuple[int, Lane]]) -> list[Place]:
    tokens = lanes[0].metric("tokens") if _same_length(lanes) else None
    # against plain runs of their own times say nothing; but all lanes have one unit
    is_relative = all(lane.metric("speedup") and not lane.is_plain for lane in lanes)
    key = "speedup" if is_relative else "tokens_per_s"

    def cost(speed: float | None) -> float | None:
        return (1 if is_relative else 1000 * (tokens or 1)) / speed if speed else None

    unfit = [lane for lane in lanes if lane not in [fit for _, fit in ranked]]
    places: list[Place] = []
    for number, lane in [*ranked, *((None, lane) for lane in unfit)]:
        low, high = lane.spread(key) or (None, None)
        reason = _no_place(lane) if number is None else ""
        places.append(Place(lane.key, number, cost(lane.metric(key)), cost(high), cost(low), reason))
    return places


def _no_place(lane: Lane) -> str:
    if not lane.is_whole:
        return "it did not come to its end"
    return lane.doubt or lane.numbers["notes"].get("speedup") or "no speedup was formed"


def _places_by_forwards(lanes: Sequence[Lane]) -> list[Place]:
    same_length = _same_length(lanes)

    def cost(lane: Lane) -> float | None:
        steps, per_step = lane.metric("steps"), _per_step(lane)
        return steps if same_length else 1 / per_step if per_step else None

    fit = sorted((lane for lane in lanes if lane.is_whole and cost(lane)), key=lambda lane: cost(lane) or 0.0)
    places = [
        Place(lane.key, next(n for n, rival in enumerate(fit, 1) if cost(rival) == cost(lane)), cost(lane))
        for lane in fit
    ]
    return [*places, *(Place(lane.key, None, cost(lane), reason=_no_place(lane)) for lane in lanes if lane not in fit)]


def _stars(
    lanes: Sequence[Lane], places: Sequence[tuple[int, Lane]], clear: Sequence[Lane]
) -> dict[str, list[str]]:
    """Per metric the best of the methods that came to their end, by time those with place 1 that are clearly faster
    than plain decoding; of two that cannot be told apart both are. Where all are, none has a star, nor for the forwards
    of texts of different length.
    """
    methods = _finished_methods(lanes)
    same_length = _same_length([lane for lane in lanes if lane.is_whole])
    ranked = [lane for _, lane in places if not lane.is_plain]
    stars = {}
    for key, sign in BETTER.items():
        if key == "steps" and not same_length:
            continue
        is_timed = key in CLOCK_METRICS
        rivals = [lane for lane in (ranked if is_timed else methods) if lane.metric(key) is not None]
        values = [sign * (lane.metric(key) or 0.0) for lane in rivals]
        best = clear if is_timed else [
            lane for lane, value in zip(rivals, values, strict=True) if max(values) - value < NEAR * abs(max(values))
        ]  # fmt: skip
        if best and len(best) < len(rivals):
            stars[key] = [lane.key for lane in best]
    return stars


# --- sentences ---


def _time_sentence(lanes: Sequence[Lane], places: Sequence[tuple[int, Lane]], leaders: Leaders) -> str:
    """The winner, the factor and the reason; lanes whose speedup cannot be right take no part, and are named."""
    if all(lane.is_plain for _, lane in places):
        return _no_winner(lanes)
    left_out = [lane for lane in lanes if lane.doubt and lane.is_whole]
    words = _by_speed([lane for _, lane in places if not lane.is_plain], leaders, _baseline(lanes), bool(left_out))
    if not left_out:
        return words
    names = enumeration([lane.name for lane in left_out])
    speeds = enumeration([_times(lane.metric("speedup")) for lane in left_out])
    rates = enumeration([f"{_per_step(lane):.2f}" for lane in left_out])
    take = "takes" if len(left_out) == 1 else "take"
    return f"{words} {names} {take} no place (‡): {speeds} at {rates} tokens per step cannot be."


def _by_speed(order: Sequence[Lane], leaders: Leaders, plain: Lane | None, brief: bool) -> str:
    """The methods with place 1, what is sure of them and why (``brief``: of two reasons the first); ``order`` has the
    methods, the fastest in front.
    """
    (clear, unclear), first = leaders, order[0]
    best, per_step, step_ms = first.metric("speedup") or 0.0, _per_step(first), first.step_ms
    if not clear and best > 1 + LEVEL:
        return (
            f"No method is clearly faster than plain decoding: the repeats of {first.name} (median {best:.2f}×) "
            f"overlap plain decoding's, so no order can be told."
        )
    if not clear:
        costs = "" if step_ms is None else f" of {step_ms:.1f} ms"
        words = f"; its {per_step:.2f} tokens per step do not pay for its steps{costs}" if per_step else ""
        clearly = "faster" if best <= 1 else "clearly faster"
        return f"No method is {clearly} than plain decoding: {first.name} comes nearest at {best:.2f}×{words}."
    if len(order) > 1 and (unclear or clear[1:]):
        return _shared_place(clear, unclear)
    if len(order) == 1:
        return f"{first.name} is {best:.2f}× as fast as plain decoding{_because(first, plain, brief)}."
    second, speed = order[1], order[1].metric("speedup") or 0.0
    runs = {lane.runs > 1 for lane in (*order, plain or first)}
    wins = "wins" if runs == {True} else "comes first" if len(runs) > 1 else "comes first in one run of each"
    reason = _because(first, second, brief)
    return f"{first.name} {wins}: {best:.2f}× plain decoding, {best / speed:.2f}× {second.name}{reason}."


def _shared_place(clear: Sequence[Lane], unclear: Sequence[Lane]) -> str:
    """The sentence on methods that share place 1: only some may be clearly faster than plain decoding."""
    names, rivals = (enumeration([lane.name for lane in lanes]) for lanes in (clear, unclear))
    speeds = enumeration([_times(lane.metric("speedup")) for lane in clear])
    verb, share = ("are", "share") if clear[1:] else ("is", "shares")
    words = f"{names} {verb} {speeds} as fast as plain decoding, and {share} place 1"
    reason = "one run of each cannot tell them apart"
    if any(lane.spread("speedup") for lane in (*clear, *unclear)):
        reason = "their repeats overlap, so no order can be told among them"
    if not unclear:
        return f"{words}: {reason}."
    is_not = "are not" if unclear[1:] else "is not"
    return f"{words} with {rivals}: {reason}. {rivals} {is_not} clearly faster than plain decoding."


def _because(lane: Lane, rival: Lane | None, brief: bool) -> str:
    """The two factors of a speed, tokens per step and time per step, against another lane's: first the one in favour,
    then the other; "" where none is in favour, or they are not known. What differs by ``LEVEL`` at most is no reason.
    """
    if rival is None:
        return ""
    good, bad = [], []
    value, rival_value = _per_step(lane), _per_step(rival)
    if value and rival_value and abs(value / rival_value - 1) > LEVEL:
        is_higher = value > rival_value
        words = f"it writes {'more' if is_higher else 'fewer'} tokens per step ({value:.2f} against {rival_value:.2f})"
        (good if is_higher else bad).append(words)
    step_ms, rival_ms = lane.step_ms, rival.step_ms
    if step_ms and rival_ms and abs(step_ms / rival_ms - 1) > LEVEL:
        is_shorter = step_ms < rival_ms
        words = f"its steps take {'less' if is_shorter else 'more'} time ({step_ms:.1f} against {rival_ms:.1f} ms each)"
        (good if is_shorter else bad).append(words)
    if brief and good:
        return f"; {good[0]}"
    return f"; {' and '.join(good)}{f', though {bad[0]}' if bad else ''}" if good else ""


def _no_winner(lanes: Sequence[Lane]) -> str:
    """The sentence where no speedup can be formed: forwards, and why there is nothing to say by time."""
    finished_lanes = _finished_methods(lanes)
    if not finished_lanes:
        return NO_METHOD
    first = max(finished_lanes, key=_per_step)
    reason = _no_place(first).rstrip(".")
    mark = " (‡)" if first.doubt else ""
    return f"{_fewest(finished_lanes, _baseline(lanes))}; by time nobody can be said to win: {reason}{mark}."


def _fewest(lanes: Sequence[Lane], plain: Lane | None, *, beside_plain: bool = False) -> str:
    """The lanes with the fewest forwards, as a clause; none of them where plain decoding needs as few. Where they wrote
    different numbers of tokens, those with the most tokens per step. ``beside_plain``: with plain decoding's number.
    """
    if not _same_length([*lanes, *([plain] if plain else [])]):
        most, plain_rate = max(map(_per_step, lanes)), _per_step(plain) if plain else 0.0
        if plain_rate >= most:
            return f"No method writes more tokens per step than plain decoding, {plain_rate:.2f}"
        level = [lane.name for lane in lanes if _per_step(lane) == most]
        rival = f"; plain decoding writes {plain_rate:.2f}" if plain_rate and beside_plain else ""
        return f"{enumeration(level)} {'write' if level[1:] else 'writes'} the most tokens per step, {most:.2f}{rival}"
    fewest, plain_steps = min(lane.metric("steps") or 0.0 for lane in lanes), plain and plain.metric("steps")
    if plain_steps and plain_steps <= fewest:
        return f"No method needs fewer forwards than plain decoding, {int(plain_steps):,}"
    level = [lane for lane in lanes if lane.metric("steps") == fewest]
    rate = f" ({_per_step(level[0]):.2f} tokens per step)" if _per_step(level[0]) else ""
    subject = f"{enumeration([lane.name for lane in level])} need" if len(level) > 1 else f"{level[0].name} needs"
    rival = f"; plain decoding needs {int(plain_steps):,}" if plain_steps and beside_plain else ""
    return f"{subject} the fewest forwards, {int(fewest):,}{rate}{rival}"


def _finished_methods(lanes: Sequence[Lane]) -> list[Lane]:
    return [lane for lane in lanes if not lane.is_plain and lane.is_whole and lane.metric("steps")]


def _forwards_sentence(lanes: Sequence[Lane]) -> str:
    finished_lanes = _finished_methods(lanes)
    return f"{_fewest(finished_lanes, _baseline(lanes), beside_plain=True)}." if finished_lanes else NO_METHOD


def _repeats(lanes: Sequence[Lane]) -> str:
    """A sentence on the number of runs of every lane."""
    timed_lanes = [lane for lane in lanes if lane.runs]
    if not timed_lanes:
        return ""
    names = group((lane.runs, "plain decoding" if lane.is_plain else lane.name) for lane in timed_lanes)
    usual, *counts = sorted(names)
    if usual == 1 and not counts:
        return "One run of each: nothing is known of the spread."
    words = f"{plural(usual, 'run')} of {enumeration(names[usual]) if counts else 'each'}"
    words += "".join(f", {count} of {enumeration(names[count])}" for count in counts)
    unsteady = ["plain decoding" if lane.is_plain else lane.name for lane in timed_lanes if lane.unsteady]
    names_of = "all" if len(unsteady) == len(timed_lanes) else enumeration(unsteady)
    note = f" The times of {names_of} differ widely from run to run (‡)." if unsteady else ""
    return f"Median of {words}, in alternation.{note}"
