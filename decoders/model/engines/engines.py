"""The engine of a forward: stock code (eager), CUDA graphs, or one that an annex or a plug-in brings; all behind
``Engines.run``.

``auto`` takes what is there, and runs eagerly what is not. No step is ever run twice.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor

from decoders.draft.draft import Ran
from decoders.draft.needs import Needs
from decoders.errors import UserError
from decoders.extra import module_of, names_of
from decoders.names import AUTO, EAGER, GRAPH, engine_names

from ..state.attention import Masks
from ..state.cache import TreeCache
from ..state.capture import Capture
from ..state.stores import Stores
from ..state.transfer import median_ms
from .graphs import CaptureError, GraphForward
from .static import ROWS, Bucket, StaticForward, StaticRows, difference

log = logging.getLogger(__name__)

CHECKED_KEYS = 128  # of the forward by which static ones are compared with stock code
STOCK = Ran()
_messages: set[str] = set()


def say_once(sentence: str) -> None:
    """Tell the log a sentence, the first time."""
    if sentence not in _messages:
        _messages.add(sentence)
        log.warning("%s", sentence)


class Engines:
    """A target's ways to run a forward. ``eager`` is its stock forward over rows.

    A server has what is missing made in the background (``begin``); a command waits for it where it names the engine
    (``prepare``), under ``auto`` it takes what is there. Raises UserError for an unknown engine, and for ``graph``
    without CUDA.
    """

    def __init__(self, target: Any, engine: str = EAGER) -> None:
        if engine not in engine_names():
            raise UserError(f"engine {engine!r} is unknown: use one of {', '.join(engine_names())}")
        if engine == GRAPH and target.device.type != "cuda":
            raise UserError(f"the engine graph captures CUDA graphs, and {target.name} is on the {target.device}")
        self.target, self.engine = target, engine
        self.busy: Callable[[], bool] | None = None  # of a server: whether anything runs
        self.static: StaticForward | None = None
        self._is_checked = False
        if engine == EAGER:
            return
        if target.device.type == "cuda":
            graphs = GraphForward(target)
            if reason := graphs.why_not():
                say_once(f"forwards of {target.name} are not captured as CUDA graphs: {reason}")
            else:
                self.static = graphs
            return
        for name in names_of("engines"):
            if engine in (AUTO, name) and (module := module_of("engines", name)) is not None:
                forward = module.forward_of(target)
                if isinstance(forward, StaticForward):
                    self.static = forward
                    break
                if engine == name:
                    say_once(forward)
        if self.static is not None and self.ready():
            self.check()

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
        return self.eager(rows, needs, captured), STOCK

    def _usable(self) -> bool:
        """True if steps run through static forwards: all of them are there, and give the same as stock code."""
        return self.ready() and (self._is_checked or self.check())

    @property
    def runs_drafts(self) -> bool:
        """True if forwards of draft networks may run by this engine, too."""
        return self.static is not None and self.static.runs_drafts

    def draft(self, network: Any) -> Any:
        """Forwards of a draft network by this engine; None where it has none."""
        return None if self.static is None else self.static.draft(network)

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
            rows: StaticRows | None = None  # whose store the next ones take
            bucket, rows = example(self.target, count, CHECKED_KEYS, static.stores)
            stock = self.eager(rows, Needs(), Capture())
            try:
                engine_logits = static.run(bucket, rows, Needs(), Capture())
            except RuntimeError as error:
                reason = f"{static.engine} forwards of {name} fail ({str(error).strip()[:120]}): not used"
                break
            distance = difference(engine_logits, stock, self.target.dtype)
            if distance is not None:
                reason = f"{static.engine} forwards of {name} differ from its own by {distance:.2g}: not used"
                break
            if count == 1 and self.engine == AUTO and isinstance(static, GraphForward):
                reason = self._slower(static, bucket, rows)
                if reason is not None:
                    break
        self._is_checked = reason is None
        if reason is not None:
            say_once(reason)
            self.static = None
        return self._is_checked

    def _slower(self, static: StaticForward, bucket: Bucket, rows: StaticRows) -> str | None:
        """The reason why stock code is taken, where it needs less time for these rows on this device."""

        device = self.target.device
        stock = median_ms(lambda: self.eager(rows, Needs(), Capture()), device)
        static_ms = median_ms(lambda: static.run(bucket, rows, Needs(), Capture()), device)
        if static_ms <= stock:
            return None
        return f"{static.engine} forwards of {self.target.name} take {static_ms:.1f} ms, its own {stock:.1f}: not used"

    def ready(self) -> bool:
        """True if static forwards are there, or never will be."""
        return self.static is None or all(self.static.ready(rows) for rows in (1, 4))

    @property
    def state(self) -> tuple[str, bool]:
        """The engine, and whether its static forwards are there: what a forward's time depends on."""
        return self.engine, self.static is not None and self.ready()

    def complete(self) -> bool:
        """True if all that is made for this target is there, or cannot be had."""
        return self.static is None or self.static.complete()

    @property
    def pending(self) -> str:
        """The thing that is made in the background for a server, in a clause; "" where nothing is."""
        is_made = self.busy is not None and self.static is not None and not self.complete()
        return self.static.notice if is_made and self.static is not None else ""

    @property
    def waits(self) -> bool:
        """True if a command has to wait for what is missing: it names this engine, and no server makes it meanwhile."""
        return self.engine != AUTO and self.busy is None and not self.complete()

    def begin(self, busy: Callable[[], bool]) -> None:
        """For a server: have what is missing made in the background. Under ``auto`` while nothing runs (not
        ``busy()``); where the engine is named at once, beside whatever goes on.
        """
        self.busy = busy
        if self.static is not None and not self.complete():
            reason = self.static.make(busy if self.engine == AUTO else None)
            if reason is not None:
                say_once(reason)

    def prepare(self, cancel: threading.Event | None = None) -> bool:
        """Make what is missing now, and wait for it or ``cancel``; whether static forwards are there."""
        if self.static is not None and not (self.ready() and self.complete()):
            self.static.make()
            if (reason := self.static.wait(cancel)) is not None:
                say_once(reason)
        return self.static is not None and self.ready()

    @property
    def stores(self) -> Stores | None:
        """The memory that a run's keys and values go to, where it has to outlive the run."""
        return None if self.graphs is None else self.graphs.stores

    @property
    def graphs(self) -> GraphForward | None:
        """The engine that captures CUDA graphs, where forwards run through it."""
        if isinstance(self.static, GraphForward) and not self._is_checked:
            with self.target.lock:
                self.check()
        return self.static if isinstance(self.static, GraphForward) else None

    def resume(self) -> None:
        """Have made what a draft model needs besides, as the target's own was: by a server, or a command that waits."""
        if self.busy is not None:
            self.begin(self.busy)
        elif self.waits:
            self.prepare()


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
