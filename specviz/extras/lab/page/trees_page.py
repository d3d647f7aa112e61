"""PPD's trees on a server: designed for the model's prompt tokens; L(n) of this machine, measured when asked for."""

from __future__ import annotations

import contextlib
import logging
import threading
from dataclasses import dataclass
from functools import lru_cache, partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from decoders.errors import UserError
from decoders.names import PROMPT_TOKENS
from specviz.server.desk import Desk, Service, get, post
from specviz.server.http import problem as refused
from specviz.server.runner import QueueFull
from specviz.shell.assets import plotly
from specviz.words import sentence

if TYPE_CHECKING:
    from decoders.prompt_tokens.latency import Latency

log = logging.getLogger(__name__)

ASSUMED_TOKENS = 3  # prompt tokens per node where none are trained
MEASURED_UP_TO, SHOWN_UP_TO = 64, 128  # rows
FEW_GUESSES = 5  # how often one of so many holds is told, beside how often any does
PATIENCE_S = 5.0  # for a measurement that was told to end

Table = tuple[tuple[float, ...], ...]


@dataclass(frozen=True)
class TreeSource:
    """Measurements to design trees from. ``place`` is the prompt tokens' folder; ``missing`` and ``problem`` are
    sentences, or ""."""

    table: Table
    ensemble: int = 1
    place: Path | None = None
    kept_rows: int = 0  # rows of the trees beside the prompt tokens
    measured: bool = False
    text: str = ""
    missing: str = ""
    problem: str = ""


class _RunFirst(Exception):
    """A run came while latency was measured."""


class Trees(Service):
    """The view of trees: designs of every size and prompt budget, and the machine's latency."""

    name, order = "trees", 60
    tool, about = "Trees of prompt tokens", "PPD's trees of every state: which size pays on this machine"

    def __init__(self, desk: Desk) -> None:
        super().__init__(desk)
        self._change = threading.Lock()
        self._progress: tuple[int, int] | None = None
        self._failed = ""
        self._closing = threading.Event()
        self._measuring: threading.Thread | None = None

    def close(self) -> None:
        """Stop measuring, and wait for the forwards of one size: a process that ends in one is aborted."""
        self._closing.set()
        if self._measuring is not None:
            self._measuring.join(PATIENCE_S)

    @get()
    def show(self) -> dict[str, Any]:
        """All that the page draws, as JSON: acceptance and its source; per prompt budget the trees of every size."""
        from decoders.prompt_tokens.design import trees_for

        target = self.desk.loader.target
        design = source(target)
        latency = _saved_latency(target)
        answer: dict[str, Any] = {
            "model": target.name if target is not None else "",
            "reason": "" if target is not None else self.desk.reason() or "There is no model.",
            "trained": design.place is not None, "missing": design.missing, "problem": design.problem,
            "acceptance": design.table, "within": _within(design.table), "measured": design.measured,
            "source": design.text, "m": len(design.table), "ensemble": design.ensemble, "budgets": {}, "in_use": None,
            "plotly": plotly(),
            **self._state(latency),
        }  # fmt: skip
        try:
            for m in range(1, len(design.table) + 1):
                answer["budgets"][m] = _compare(design.table[:m], design.ensemble, design.kept_rows, latency)
            if design.place is not None and not design.problem:
                active_design = trees_for(design.place, len(design.table), None, latency, design.ensemble)
                answer["in_use"] = {"rows": active_design.size, "tokens_per_step": active_design.tokens_per_step}
        except UserError as problem:
            answer["problem"] = answer["problem"] or sentence(problem)
        return answer

    @get("latency")
    def latency(self) -> dict[str, Any]:
        """The latency kept of this machine, how far a measurement is, and why the last one failed."""
        return self._state(_saved_latency(self.desk.loader.target))

    @post("measure")
    def measure(self) -> Any:
        """``latency`` after ``_begin``; 403 on a server that is everybody's."""
        if self.desk.rules.public:
            return refused(403, "Nothing is measured on a public server: run specviz on a computer of your own.")
        self._begin()
        return self.latency()

    def _begin(self) -> None:
        """Measure L(n) anew, when no run goes on; one measurement at a time. Raises Refusal without a model."""
        target = self.desk.target()
        with self._change:
            begins = self._progress is None
            if begins:
                self._progress, self._failed = (0, 1), ""
        if begins:
            self._measuring = threading.Thread(target=self._measure, args=(target,), name="latency", daemon=True)
            self._measuring.start()

    def _state(self, latency: Latency | None) -> dict[str, Any]:
        progress = self._progress
        return {
            "latency": None if latency is None else {**latency.to_json(), "note": latency.note},
            "measuring": progress and {"done": progress[0], "total": progress[1]},
            "failed": self._failed,
        }

    def _measure(self, target: Any) -> None:
        from decoders.study.measure.latency import latency_for

        runner = self.desk.runner

        def report(count: int, total: int) -> None:
            self._progress = count, total
            if self._closing.is_set() or runner.is_wanted():
                raise _RunFirst

        work = partial(latency_for, target, MEASURED_UP_TO, refresh=True, progress=report)
        try:
            while not self._closing.is_set():
                with contextlib.suppress(_RunFirst):
                    self.desk.on_worker(work)
                    break
        except QueueFull:
            pass  # the server goes down
        except Exception as problem:
            if not isinstance(problem, ValueError):
                log.exception("latency could not be measured")
            self._failed = sentence(problem)
        finally:
            self._progress = None


def source(target: Any) -> TreeSource:
    """Find the measurements for a target's trees: what was measured with its prompt tokens, else an assumption."""
    from decoders.prompt_tokens.design import assumed_acceptance
    from decoders.prompt_tokens.trees import FILE, load_trees, trained_acceptance

    guess = "assumed: .35 for the first guess next to the root, halved per distance, falling by rank"
    if target is None:
        return TreeSource(assumed_acceptance(ASSUMED_TOKENS), text=guess)
    from decoders.parts import find_part, missing_part, read_part

    place = find_part(target.key, PROMPT_TOKENS)
    if place is None:
        missing = sentence(UserError(missing_part(target, PROMPT_TOKENS) or ""))
        return TreeSource(assumed_acceptance(ASSUMED_TOKENS), text=guess, missing=missing)
    config: Any = read_part(place).config
    m, ensemble = config.tokens, config.vectors
    problem = ""
    if (place / FILE).is_file():
        try:
            saved_trees = load_trees(place / FILE)
            if saved_trees.m >= m:
                text = "measured with these prompt tokens, by `specviz tree design`"
                return TreeSource(saved_trees.acceptance[:m], ensemble, place, saved_trees.size, True, text)
            problem = f"The kept trees have {saved_trees.m} of {m} prompt tokens: `specviz tree design` makes new ones."
        except UserError as error:
            problem = sentence(error)
    if not problem and (table := trained_acceptance(place, m)):
        text = "measured on held-out text while they were trained; `specviz tree design` measures it in answers"
        return TreeSource(table, ensemble, place, measured=True, text=text)
    text = f"{guess}; `specviz tree design` measures it with these prompt tokens"
    return TreeSource(assumed_acceptance(m), ensemble, place, text=text, problem=problem)


def _saved_latency(target: Any) -> Latency | None:
    if target is None:
        return None
    from decoders.prompt_tokens.latency import load_latency

    return load_latency(target)


@lru_cache(maxsize=32)
def _compare(table: Table, ensemble: int, kept_size: int, latency: Latency | None) -> dict[str, Any]:
    """Points of every size for one prompt budget with their trees, and the best size ("chosen" without a latency: the
    one a run would take)."""
    from decoders.prompt_tokens.design import DEFAULT_SIZE, best_size, compare_sizes, sizes_up_to
    from decoders.prompt_tokens.trees import MOST_ROWS, least_size

    m = len(table)
    min_size = least_size(m, ensemble)
    max_size = min(latency.largest, SHOWN_UP_TO) if latency is not None else MEASURED_UP_TO
    max_size = min(MOST_ROWS, max(max_size, 2 * min_size))
    sizes = {*sizes_up_to(max_size, m, ensemble), *([kept_size] if min_size <= kept_size <= max_size else [])}
    points = compare_sizes(table, sorted(sizes), ensemble, latency)
    best = None
    if latency is not None and any(point.ms is not None for point in points):
        best = best_size({point.size: point.trees for point in points}, latency)
    target_size = best or kept_size or DEFAULT_SIZE
    pairs = [(point.to_json(), point.trees.to_json()) for point in points]
    return {
        "points": [
            {**point_json, **{name: trees[name] for name in ("states", "transitions")}} for point_json, trees in pairs
        ],
        "best": best,
        "chosen": min((point.size for point in points), key=lambda size: abs(size - target_size)),
    }


def _within(table: Table) -> list[dict[str, Any]]:
    """Shares of first guesses that hold, per distance: {"guesses": how many, "shares": [...]}.

    >>> _within(((0.5, 0.25),))
    [{'guesses': 2, 'shares': [0.75]}]
    """
    counts = sorted({min(FEW_GUESSES, len(table[0])), len(table[0])})
    return [{"guesses": count, "shares": [sum(row[:count]) for row in table]} for count in counts]
