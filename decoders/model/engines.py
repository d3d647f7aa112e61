"""Which engine runs a forward: stock code (eager), compiled layers, or CUDA graphs; all behind ``Engines.run``.

``auto`` takes the faster one for each bucket, by what was measured on this machine: the first step of a bucket runs
both ways, and notes it in the cache folder. What is not compiled yet runs eagerly; compiling begins in the background
when a run has ended.
"""

from __future__ import annotations

import contextlib
import json
import logging
import math
import threading
import time
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor

from decoders.draft.draft import Ran
from decoders.draft.needs import Needs
from decoders.errors import UserError
from decoders.folders import cache_folder, write_json

from .capture import Captured
from .compiled import CompiledForward, why_not
from .compiling import WORKSHOP, Part
from .graphs import GraphForward
from .linear import machine
from .static import Bucket, Rows, StaticForward

log = logging.getLogger(__name__)

ENGINES = ("auto", "eager", "compiled", "graph")
NOTES = "engines.json"  # in the cache folder: what was measured
TRIALS = 3  # forwards of each kind
CLEAR = 0.97  # of eager's time: what a static forward takes at most to be used
TOLERANCE = 1e-3  # of the logits' spread, or 1: how far a static forward's may be from eager's
LARGEST = 1_000_000_000  # parameters: beyond, a CPU's time goes to reading weights, and ``auto`` compiles nothing
EAGER = Ran()
_said: set[str] = set()


def say_once(sentence: str) -> None:
    """Tell the log a sentence, the first time."""
    if sentence not in _said:
        _said.add(sentence)
        log.warning("%s", sentence)


class Engines:
    """A target's ways to run a forward. ``eager`` is its stock forward over rows. Raises UserError for an unknown
    engine, and for ``graph`` without CUDA.
    """

    def __init__(self, target: Any, engine: str = "eager") -> None:
        if engine not in ENGINES:
            raise UserError(f"engine {engine!r} is unknown: use one of {', '.join(ENGINES)}")
        if engine == "graph" and target.device.type != "cuda":
            raise UserError(f"the engine graph captures CUDA graphs, and {target.name} is on the {target.device}")
        self.target, self.engine = target, engine
        self.static: StaticForward | None = None
        self._checked: set[bool] = set()
        self._notes: dict[str, float] = {}  # bucket → static ÷ eager time
        if engine == "eager":
            return
        if engine == "graph" or target.device.type == "cuda":
            self.static = GraphForward(target) if engine == "graph" else None  # not measured yet: auto stays eager
            return
        reason = why_not(target)
        if reason is None:
            self.static = CompiledForward(target)
            self._notes = _noted(self._key())
        elif engine == "compiled":
            say_once(reason)

    @torch.inference_mode()
    def run(self, rows: Rows, needs: Needs, captured: Captured) -> tuple[Float[Tensor, "rows vocab"], Ran]:
        """One forward; what ``needs`` names goes to ``captured``."""
        static = self.static
        bucket = None if static is None else static.bucket(rows)
        if static is None or bucket is None or not static.ready(bucket.rows):
            return self._eager(rows, needs, captured), EAGER
        if bucket.rows == 1 not in self._checked or (self.engine == "auto" and self._name(bucket) not in self._notes):
            return self._tried(static, bucket, rows, needs, captured)
        if self.engine == "auto" and self._notes[self._name(bucket)] > CLEAR:
            return self._eager(rows, needs, captured), EAGER
        return static.run(bucket, rows, needs, captured), static.ran(bucket)

    def _eager(self, rows: Rows, needs: Needs, captured: Captured) -> Tensor:
        with self.target.taps.reading(needs, captured):
            return self.target.forward(
                rows.cache, rows.masks, rows.tokens, rows.positions, rows.sees, embed=rows.embed, prefixes=rows.prefixes
            )

    def _tried(
        self, static: StaticForward, bucket: Bucket, rows: Rows, needs: Needs, captured: Captured
    ) -> tuple[Tensor, Ran]:
        """The step's forward both ways, which a bucket's first step does: compared, and under ``auto`` timed."""
        times: dict[bool, list[float]] = {True: [], False: []}
        trials = TRIALS if self.engine == "auto" and self._name(bucket) not in self._notes else 1
        compiled = Captured()
        ours = static.run(bucket, rows, needs, compiled)  # not timed: the first of a size prepares
        for _ in range(trials):
            started = time.perf_counter()
            stock = self._eager(rows, needs, captured)
            between = time.perf_counter()
            ours = static.run(bucket, rows, needs, compiled)
            times[True].append(time.perf_counter() - between)
            times[False].append(between - started)
        farthest = float((ours - stock).abs().max())
        if not farthest <= TOLERANCE * max(1.0, float(stock.std())):
            say_once(f"{static.engine} forwards of {self.target.name} differ from its own by {farthest:.2g}: not used")
            self.static = None
            return self._eager(rows, needs, captured), EAGER  # which writes its keys over the others
        self._checked.add(bucket.rows == 1)
        if self.engine == "auto":
            ratio = min(times[True]) / min(times[False])
            self._notes[self._name(bucket)] = ratio
            if abs(math.log(ratio)) > 0.1:  # a close one is tried again by the next process
                _note(self._key(), self._name(bucket), ratio)
            if ratio > CLEAR:
                return self._eager(rows, needs, captured), EAGER
        captured.hidden, captured.queries = compiled.hidden, compiled.queries
        return ours, static.ran(bucket)

    def run_ended(self) -> None:
        """Told when a run is over: under ``auto`` what is missing is compiled now, in the background."""
        if self.engine == "auto" and self.target.info["parameters"] <= LARGEST:
            WORKSHOP.make(self.parts)

    def ready(self) -> bool:
        """Whether static forwards are there, or never will be."""
        return self.static is None or all(self.static.ready(rows) for rows in (1, 4))

    def prepare(self, cancel: threading.Event | None = None) -> bool:
        """Compile what is missing now, and wait for it or ``cancel``; whether static forwards are there."""
        WORKSHOP.make(self.parts, urgent=True)
        if not WORKSHOP.wait(self.parts, cancel) and (reason := WORKSHOP.why_not(self.parts)):
            say_once(reason)
        return self.static is not None and self.ready()

    @property
    def parts(self) -> list[Part]:
        """What is compiled for this target, most used first."""
        return list(self.static.parts.values()) if isinstance(self.static, CompiledForward) else []

    def _name(self, bucket: Bucket) -> str:
        """What is measured together: rows, and keys to a power of two."""
        return f"{bucket.rows}x{max(256, 1 << (bucket.keys - 1).bit_length())}"

    def _key(self) -> str:
        """What times depend on besides the bucket."""
        sizes, threads = "|".join(part.shape for part in self.parts), torch.get_num_threads()
        return f"{machine()}, {threads} threads, {self.target.shape.layers} layers, {self.target.shape.vocab}: {sizes}"


def _all_notes() -> dict[str, dict[str, float]]:
    try:
        notes = json.loads((cache_folder() / NOTES).read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return {}
    return notes if isinstance(notes, dict) else {}


def _noted(key: str) -> dict[str, float]:
    """What was measured before; a file that cannot be read counts for nothing."""
    kept = _all_notes().get(key, {})
    return {n: float(r) for n, r in kept.items() if isinstance(r, int | float)} if isinstance(kept, dict) else {}


def _note(key: str, bucket: str, ratio: float) -> None:
    with contextlib.suppress(OSError):  # where nothing can be written, it is tried again
        write_json(cache_folder() / NOTES, {**_all_notes(), key: {**_noted(key), bucket: round(ratio, 3)}})
