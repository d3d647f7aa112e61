"""The engine of a forward: stock code (eager), what is compiled, or CUDA graphs; all behind ``Engines.run``.

``auto`` takes what is compiled, and runs eagerly what is not. No step is ever run twice.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Iterable
from typing import Any

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor

from decoders.draft.draft import Ran
from decoders.draft.needs import Needs
from decoders.errors import UserError

from ..state.attention import Masks
from ..state.cache import TreeCache
from ..state.capture import Capture
from ..state.stores import Stores
from .compiled_layers import CompiledForward, why_not
from .compiling import WORKSHOP, CompiledPart
from .graphs import CaptureError, GraphForward
from .kernel_forward import KernelForward
from .static import ROWS, Bucket, StaticForward, StaticRows

log = logging.getLogger(__name__)

ENGINES = ("auto", "eager", "compiled", "graph")
DEFAULT = "auto"
CHECKED_KEYS = 128  # of the forward by which static ones are compared with stock code
TOLERANCE = 1e-3  # of the logits' spread, or 1: how far a static forward's may be from eager's
LARGEST = 1_000_000_000  # parameters: beyond, a CPU's time goes to reading weights, and ``auto`` compiles nothing
EAGER = Ran()
_messages: set[str] = set()


def say_once(sentence: str) -> None:
    """Tell the log a sentence, the first time."""
    if sentence not in _messages:
        _messages.add(sentence)
        log.warning("%s", sentence)


class Engines:
    """A target's ways to run a forward. ``eager`` is its stock forward over rows.

    A server has what is missing compiled in the background (``begin``); a command under ``compiled`` waits for it
    (``prepare``), under ``auto`` it takes what is there. Raises UserError for an unknown engine, and for ``graph``
    without CUDA.
    """

    def __init__(self, target: Any, engine: str = "eager") -> None:
        if engine not in ENGINES:
            raise UserError(f"engine {engine!r} is unknown: use one of {', '.join(ENGINES)}")
        if engine == "graph" and target.device.type != "cuda":
            raise UserError(f"the engine graph captures CUDA graphs, and {target.name} is on the {target.device}")
        self.target, self.engine = target, engine
        self.busy: Callable[[], bool] | None = None  # of a server: whether anything runs
        self.static: StaticForward | None = None
        self._is_checked = False
        self._added_parts = list[CompiledPart]()  # of draft models
        if engine == "eager":
            return
        if target.device.type == "cuda":
            graphs = GraphForward(target)
            if reason := graphs.why_not():
                say_once(f"forwards of {target.name} are not captured as CUDA graphs: {reason}")
            else:
                self.static = graphs
            return
        if target.by_kernels:
            self.static = KernelForward(target)
            self.check()
            return
        reason = why_not(target)
        if reason is None:
            self.static = CompiledForward(target)
            if self.ready():
                self.check()
        elif engine == "compiled":
            say_once(reason)

    @torch.inference_mode()
    def run(self, rows: StaticRows, needs: Needs, captured: Capture) -> tuple[Float[Tensor, "rows vocab"], Ran]:
        """One forward; what ``needs`` names goes to ``captured``."""
        bucket = None if self.static is None else self.static.bucket(rows)
        if bucket is not None and self._usable():
            assert self.static is not None
            try:
                return self.static.run(bucket, rows, needs, captured), self.static.ran(bucket)
            except CaptureError as error:
                say_once(f"forwards of {self.target.name} run eagerly, as capturing {bucket.rows} rows fails: {error}")
        return self.eager(rows, needs, captured), EAGER

    def _usable(self) -> bool:
        """True if steps run through static forwards: all of them are there, and give the same as stock code."""
        return self.ready() and (self._is_checked or self.check())

    def add(self, parts: Iterable[CompiledPart]) -> None:
        """Have parts of a draft model compiled as the target's are; a command under ``compiled`` waits here."""
        self._added_parts += parts
        if self.busy is not None:
            self.begin(self.busy)
        elif self.engine == "compiled" and not self.complete():
            log.warning("compiling a draft model, once for this machine")
            self.prepare()

    def eager(self, rows: StaticRows, needs: Needs, captured: Capture) -> Float[Tensor, "rows vocab"]:
        with self.target.taps.reading(needs, captured):
            return self.target.forward(
                rows.cache, rows.masks, rows.tokens, rows.positions, rows.sees, embed=rows.embed, prefixes=rows.prefixes
            )

    @torch.inference_mode()
    def check(self) -> bool:
        """Compare static forwards with stock ones, once; from then on they are used, or never."""
        static, name, reason = self.static, self.target.name, None
        if self._is_checked or static is None:
            return self._is_checked
        for count in (1, ROWS[1]):
            bucket, rows = example(self.target, count, CHECKED_KEYS, static.stores)
            stock = self.eager(rows, Needs(), Capture())
            try:
                engine_logits = static.run(bucket, rows, Needs(), Capture())
            except RuntimeError as error:
                reason = f"{static.engine} forwards of {name} fail ({str(error).strip()[:120]}): not used"
                break
            distance = float((engine_logits - stock).abs().max())
            if not distance <= TOLERANCE * max(1.0, float(stock.std())):
                reason = f"{static.engine} forwards of {name} differ from its own by {distance:.2g}: not used"
                break
        self._is_checked = reason is None
        if reason is not None:
            say_once(reason)
            self.static = None
        return self._is_checked

    def ready(self) -> bool:
        """True if static forwards are there, or never will be."""
        return self.static is None or all(self.static.ready(rows) for rows in (1, 4))

    @property
    def state(self) -> tuple[str, bool]:
        """The engine, and whether its static forwards are there: what a forward's time depends on."""
        return self.engine, self.static is not None and self.ready()

    def complete(self) -> bool:
        """True if all that is compiled for this target is there, or cannot be had."""
        return all(WORKSHOP.open(part) is not None or part.package in WORKSHOP.failed for part in self.parts)

    def begin(self, busy: Callable[[], bool]) -> None:
        """For a server: have what is missing compiled in the background. Under ``auto`` while nothing runs (not
        ``busy()``), at the lowest priority; under ``compiled`` at once, beside whatever goes on.
        """
        self.busy = busy
        at_once = self.engine == "compiled"
        if self.complete() or (not at_once and self.target.info["parameters"] > LARGEST):
            return
        WORKSHOP.make(self.parts, None if at_once else busy)
        if reason := WORKSHOP.why_not(self.parts):
            say_once(reason)

    def prepare(self, cancel: threading.Event | None = None) -> bool:
        """Compile what is missing now, and wait for it or ``cancel``; whether static forwards are there."""
        if not self.ready() or not self.complete():
            WORKSHOP.make(self.parts)
            if not WORKSHOP.wait(self.parts, cancel) and (reason := WORKSHOP.why_not(self.parts)):
                say_once(reason)
        return self.static is not None and self.ready()

    @property
    def stores(self) -> Stores | None:
        """The memory that a run's keys and values go to, where it has to outlive the run."""
        return None if self.graphs is None else self.graphs.stores

    @property
    def graphs(self) -> GraphForward | None:
        """The engine that captures CUDA graphs, where forwards run through it."""
        return self.static if isinstance(self.static, GraphForward) and self._usable() else None

    @property
    def parts(self) -> list[CompiledPart]:
        """Compilations for this target, most used first."""
        return [] if self.static is None else [*self.static.parts.values(), *self._added_parts]


def example(target: Any, count: int, keys: int, stores: Stores | None = None) -> tuple[Bucket, StaticRows]:
    """A forward of ``count`` rows at the end of a cache of ``keys``, which holds random numbers."""
    rows = next(rows for rows in ROWS if rows >= count)
    shape, length = target.shape, keys - rows
    cached = target.cached_as or target.dtype
    cache = TreeCache(shape, keys, cached, stores)
    keys_like = torch.zeros((1, shape.kv_heads, 1, shape.head_dim), dtype=cached)
    cache.store = cache.open(keys_like.to(target.device), keys_like.to(target.device))
    numbers = torch.randn(cache.store[:, :, :, :keys].shape, generator=torch.Generator().manual_seed(0))
    cache.store[:, :, :, :keys] = numbers.to(cache.store)
    cache.length = length
    tokens = [n * 37 % shape.vocab for n in range(count)]
    masks = Masks(cached, target.device)
    return Bucket(rows, keys), StaticRows(cache, masks, tokens, np.arange(length, length + count), None)
