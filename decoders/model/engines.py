"""Which engine runs a forward: stock code (eager), compiled layers, or CUDA graphs; all behind ``Engines.run``.

``auto`` takes the faster one for each bucket, by what ``Trials`` measured on this machine while nothing ran; what was
not measured yet runs eagerly. No step is ever run twice.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Iterable
from functools import partial
from typing import Any

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor

from decoders.draft.draft import Ran
from decoders.draft.needs import Needs
from decoders.errors import UserError

from .activity import ACTIVITY
from .attention import Masks
from .cache import TreeCache
from .capture import Captured
from .compiled import CompiledForward, why_not
from .compiling import WORKSHOP, Part
from .graphs import GraphForward
from .linear import machine
from .static import ROWS, Bucket, Rows, StaticForward
from .trials import Pair, Trials

log = logging.getLogger(__name__)

ENGINES = ("auto", "eager", "compiled", "graph")
DEFAULT = "auto"
CHECKED_KEYS = 128  # of the forward by which static ones are compared with stock code
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
    """A target's ways to run a forward. ``eager`` is its stock forward over rows.

    With ``learns``, which a server sets, ``auto`` compiles and measures while nothing runs; without it, it takes what
    was measured before it was opened, so that all runs of a command run alike. Raises UserError for an unknown engine,
    and for ``graph`` without CUDA.
    """

    def __init__(self, target: Any, engine: str = "eager") -> None:
        if engine not in ENGINES:
            raise UserError(f"engine {engine!r} is unknown: use one of {', '.join(ENGINES)}")
        if engine == "graph" and target.device.type != "cuda":
            raise UserError(f"the engine graph captures CUDA graphs, and {target.name} is on the {target.device}")
        self.target, self.engine, self.learns = target, engine, False
        self.static: StaticForward | None = None
        self.trials: Trials | None = None
        self._checked = False
        self._added = list[Part]()  # of draft models
        if engine == "eager":
            return
        if engine == "graph" or target.device.type == "cuda":
            self.static = GraphForward(target) if engine == "graph" else None  # not measured yet: auto stays eager
            self._checked = True
            return
        reason = why_not(target)
        if reason is None:
            self.static = CompiledForward(target)
            if engine == "auto":
                self.trials = Trials(self, self._key())
            if self.ready() and (self.trials is None or self.trials.notes):
                self.check()
        elif engine == "compiled":
            say_once(reason)

    @torch.inference_mode()
    def run(self, rows: Rows, needs: Needs, captured: Captured) -> tuple[Float[Tensor, "rows vocab"], Ran]:
        """One forward; what ``needs`` names goes to ``captured``."""
        bucket = None if self.static is None else self.static.bucket(rows)
        try:
            if bucket is not None and self._takes(bucket):
                assert self.static is not None
                return self.static.run(bucket, rows, needs, captured), self.static.ran(bucket)
            return self.eager(rows, needs, captured), EAGER
        finally:
            ACTIVITY.told()

    def _takes(self, bucket: Bucket) -> bool:
        """Whether a step runs through a static forward of this size."""
        size = tried_size(bucket)
        if not self.faster(f"{size.rows}x{size.keys}", partial(self._pair, size)):
            return False
        return self.static is not None and self.static.ready(bucket.rows) and (self._checked or self.check())

    def faster(self, size: str, pair: Callable[[], Pair | None]) -> bool:
        """Whether static forwards are wanted for a size of the target's or of a draft model's: under ``auto`` where
        they were measured to be faster (``Trials.faster``), else always.
        """
        if self.static is None:
            return False
        return self.trials is None or self.trials.faster(size, pair)

    def add(self, parts: Iterable[Part]) -> None:
        """Have parts of a draft model compiled with the target's; the engine ``compiled`` waits for them here."""
        self._added += parts
        if self.engine == "compiled" and not self.complete():
            log.warning("compiling a draft model, once for this machine")
            self.prepare()

    def _pair(self, size: Bucket) -> Pair | None:
        """A static and an eager forward of a size, to try which is faster."""
        if not self.check():
            return None
        keys = min(size.keys, self.target.context_length + size.rows)
        bucket, rows = example(self.target, size.rows, keys)
        static: Any = self.static
        return partial(static.run, bucket, rows, Needs(), Captured()), partial(self.eager, rows, Needs(), Captured())

    def eager(self, rows: Rows, needs: Needs, captured: Captured) -> Float[Tensor, "rows vocab"]:
        with self.target.taps.reading(needs, captured):
            return self.target.forward(
                rows.cache, rows.masks, rows.tokens, rows.positions, rows.sees, embed=rows.embed, prefixes=rows.prefixes
            )

    @torch.inference_mode()
    def check(self) -> bool:
        """Compare static forwards with stock ones, once; from then on they are used, or never."""
        static, name, reason = self.static, self.target.name, None
        if self._checked or static is None:
            return self._checked
        for count in (1, ROWS[1]):
            bucket, rows = example(self.target, count, CHECKED_KEYS)
            stock = self.eager(rows, Needs(), Captured())
            try:
                ours = static.run(bucket, rows, Needs(), Captured())
            except RuntimeError as error:
                reason = f"{static.engine} forwards of {name} fail ({str(error).strip()[:120]}): not used"
                break
            apart = float((ours - stock).abs().max())
            if not apart <= TOLERANCE * max(1.0, float(stock.std())):
                reason = f"{static.engine} forwards of {name} differ from its own by {apart:.2g}: not used"
                break
        self._checked = reason is None
        if reason is not None:
            say_once(reason)
            self.static = self.trials = None
        return self._checked

    def run_ended(self) -> None:
        """Told when a run is over: what is missing is compiled and measured while nothing runs."""
        if self.learns and self.trials is not None and self.target.info["parameters"] <= LARGEST:
            self.trials.begin()
            for companion in self.target.companions.values():
                if (theirs := getattr(companion, "engines", None)) is not None and theirs is not self:
                    theirs.learns = True  # a draft model that is a target itself
                    theirs.run_ended()

    def ready(self) -> bool:
        """Whether static forwards are there, or never will be."""
        return self.static is None or all(self.static.ready(rows) for rows in (1, 4))

    @property
    def state(self) -> tuple[str, bool, int]:
        """What changes where forwards of a size come to run another way."""
        return self.engine, self.static is not None and self.ready(), len(self.trials.notes) if self.trials else 0

    def complete(self) -> bool:
        """Whether all that is compiled for this target is there, or cannot be had."""
        return all(WORKSHOP.open(part) is not None or part.package in WORKSHOP.failed for part in self.parts)

    def begin(self) -> None:
        """For a server: the engine ``compiled`` has what is missing compiled now, beside whatever goes on."""
        if self.engine == "compiled" and not self.complete():
            WORKSHOP.make(self.parts, urgent=True)
            if reason := WORKSHOP.why_not(self.parts):
                say_once(reason)

    def prepare(self, cancel: threading.Event | None = None, *, urgent: bool = True) -> bool:
        """Compile what is missing now, and wait for it or ``cancel``; whether static forwards are there."""
        if not self.ready() or not self.complete():
            WORKSHOP.make(self.parts, urgent=urgent)
            if not WORKSHOP.wait(self.parts, cancel) and (reason := WORKSHOP.why_not(self.parts)):
                say_once(reason)
        return self.static is not None and self.ready()

    @property
    def parts(self) -> list[Part]:
        """What is compiled for this target, most used first."""
        return [*self.static.parts.values(), *self._added] if isinstance(self.static, CompiledForward) else []

    def _key(self) -> str:
        """What times depend on besides the bucket."""
        sizes, threads = "|".join(part.shape for part in self.parts), torch.get_num_threads()
        return f"{machine()}, {threads} threads, {self.target.shape.layers} layers, {self.target.shape.vocab}: {sizes}"


def tried_size(bucket: Bucket) -> Bucket:
    """What stands for a bucket in trials: rows and keys to a power of two.

    >>> tried_size(Bucket(12, 384)), tried_size(Bucket(1, 128))
    (Bucket(rows=16, keys=512), Bucket(rows=1, keys=256))
    """
    return Bucket(next(rows for rows in ROWS if rows >= bucket.rows), max(256, 1 << (bucket.keys - 1).bit_length()))


def example(target: Any, count: int, keys: int) -> tuple[Bucket, Rows]:
    """A forward of ``count`` rows at the end of a cache of ``keys``, which holds random numbers."""
    rows = next(rows for rows in ROWS if rows >= count)
    shape, length = target.shape, keys - rows
    cache = TreeCache(shape, keys)
    cache.length, cache.sizes = length, (shape.head_dim, shape.head_dim)
    sizes = (2 * shape.layers, 1, shape.kv_heads, keys, shape.head_dim)
    generator = torch.Generator().manual_seed(0)
    cache.store = torch.zeros(sizes, dtype=target.dtype, device=target.device).normal_(generator=generator)
    tokens = [n * 37 % shape.vocab for n in range(count)]
    masks = Masks(target.dtype, target.device)
    return Bucket(rows, keys), Rows(cache, masks, tokens, np.arange(length, length + count), None)
