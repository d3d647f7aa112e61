"""Forwards of fixed sizes: rows are padded to a bucket, keys to another, and what a forward gets lies in buffers that
stay. So one compiled or captured forward serves all steps of its size.

A padded row sees nothing of the text, and nothing sees it: its keys lie behind those of the real rows, in slots that
the next forward writes over, and every mask hides them. A hidden slot has the weight 0, exactly, whatever lies in it.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from jaxtyping import Float, Int
from torch import Tensor

from decoders.draft.draft import Ran
from decoders.draft.needs import Needs

from ..state.attention import Masks
from ..state.cache import TreeCache
from ..state.capture import Capture
from ..state.stores import Stores

ROWS = (1, 4, 8, 16, 32, 64, 128)  # row buckets; larger forwards run eagerly
TOLERANCE = 1e-3  # of the logits' spread, or 1: how far a static forward's may be from eager's
HALF_TOLERANCE = 0.1  # the same in half precision, where sums that are formed in another order differ as much


@dataclass(frozen=True, slots=True)
class StaticRows:
    """Request of one forward: rows behind the cache, as ``Target.forward`` takes them. ``special``: some are
    read in a way of their own (``reading``), which stock code alone does.
    """

    cache: TreeCache
    masks: Masks
    tokens: Any
    positions: np.ndarray
    sees: np.ndarray | None
    embed: Callable[[Int[Tensor, " rows"]], Float[Tensor, "1 rows hidden"]] | None = None
    prefixes: np.ndarray | None = None
    special: bool = False

    @property
    def count(self) -> int:
        return len(self.positions)


@dataclass(frozen=True, slots=True)
class Bucket:
    """The size of a static forward."""

    rows: int
    keys: int


def bucket_of(
    count: int, length: int, capacity: int, step: int, *, doubling: bool = False, sizes: Sequence[int] = ROWS
) -> Bucket | None:
    """The smallest bucket for ``count`` rows behind ``length`` others in a cache of ``capacity``; None where no bucket
    is large enough, or the cache has no room for the padded rows. Rows come in ``sizes``, keys in steps, or
    (``doubling``) in powers of two from ``step`` on.

    >>> bucket_of(5, 300, 1024, 128), bucket_of(1, 127, 1024, 128), bucket_of(17, 0, 30, 128)
    (Bucket(rows=8, keys=384), Bucket(rows=1, keys=128), None)
    >>> bucket_of(1, 300, 1024, 128, doubling=True), bucket_of(1, 300, 400, 128, doubling=True)
    (Bucket(rows=1, keys=512), Bucket(rows=1, keys=400))
    """
    rows = next((rows for rows in sizes if rows >= count), None)
    if rows is None or length + rows > capacity:
        return None
    keys = -(-(length + rows) // step) * step
    if doubling:
        keys = step << max(0, (keys // step - 1).bit_length())
    return Bucket(rows, min(keys, capacity))


def difference(
    logits: Float[Tensor, "rows vocab"], stock: Float[Tensor, "rows vocab"], dtype: torch.dtype
) -> float | None:
    """The largest distance of logits from those of stock code, where it is more than rounding brings."""
    distance = float((logits - stock).abs().max())
    tolerance = TOLERANCE if dtype in (torch.float32, torch.float64) else HALF_TOLERANCE
    return None if distance <= tolerance * max(1.0, float(stock.std())) else distance


class StaticForward:
    """A target's forwards of fixed sizes; subclasses run them. ``sizes`` are the row buckets, keys of a bucket are a
    multiple of ``step``, and ``notice`` is for those who wait for what has to be made first.
    """

    engine = ""
    sizes: Sequence[int] = ROWS
    step = 128
    doubling = False
    stores: Stores | None = None  # of the caches that it reads, where their memory has to stay
    notice = ""
    runs_drafts = False  # it has forwards of draft networks, too

    def __init__(self, target: Any) -> None:
        self.target = target
        self.windows = frozenset(window for window in target.shape.layer_windows if window)

    def bucket(self, rows: StaticRows) -> Bucket | None:
        """The bucket of these rows; None where they run eagerly."""
        if rows.special or rows.prefixes is not None or rows.cache.store is None:
            return None
        return bucket_of(
            rows.count, rows.cache.length, rows.cache.capacity, self.step, doubling=self.doubling, sizes=self.sizes
        )

    def ready(self, rows: int) -> bool:
        """True if forwards of so many rows can run now."""
        raise NotImplementedError

    def complete(self) -> bool:
        """True if nothing is missing that can be had."""
        return True

    def make(self, busy: Callable[[], bool] | None = None) -> str | None:
        """Begin to make what is missing, with ``busy`` in the background while that is False; the reason why something
        cannot be had.
        """

    def wait(self, cancel: threading.Event | None = None) -> str | None:
        """Return when what is missing was made, or ``cancel`` is set; the reason why something cannot be had."""

    def draft(self, network: Any) -> Any:
        """Forwards of a draft network; None where this engine has none."""

    def run(self, bucket: Bucket, rows: StaticRows, needs: Needs, captured: Capture) -> Float[Tensor, "rows vocab"]:
        """Logits of the rows, in fp32; what ``needs`` names goes to ``captured``."""
        raise NotImplementedError

    def ran(self, bucket: Bucket) -> Ran:
        return Ran(self.engine, bucket.rows, bucket.keys)
