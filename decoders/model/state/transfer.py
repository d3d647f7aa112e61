"""Between host and device: arrays that belong together in one copy, times without waiting, rows without an index.

On a GPU, a copy from the device waits for all that runs there, so a step makes one, and sends one. On a CPU nothing is
copied, and every function here is what it stands for.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from itertools import accumulate
from typing import Any

import numpy as np
import torch
from torch import Tensor

MAX_SLICES = 4  # slices that are joined sooner than rows are copied by index


def send(device: torch.device, *arrays: np.ndarray) -> list[Tensor]:
    """Arrays as tensors on a device: one copy for all, which nobody waits for.

    >>> [part.tolist() for part in send(torch.device("cpu"), np.asarray([1, 2]), np.asarray([True]))]
    [[1, 2], [True]]
    """
    if device.type == "cpu" or not arrays:
        return [torch.from_numpy(array) for array in arrays]
    starts = [0, *accumulate(map(_room, arrays))]
    device_bytes = packed_on_host(device, *arrays).to(device, non_blocking=True)
    parts = list[Tensor]()
    for array, start in zip(arrays, starts, strict=False):
        kind = torch.from_numpy(np.empty(0, array.dtype)).dtype
        part = device_bytes[start : start + array.nbytes] if array.nbytes else torch.empty(0, dtype=kind, device=device)
        parts.append(part.view(kind).view(array.shape))
    return parts


def packed_on_host(device: torch.device, *arrays: np.ndarray) -> Tensor:
    """Arrays behind one another as bytes, each at a multiple of eight, where a device copies from without waiting."""
    starts = [0, *accumulate(map(_room, arrays))]
    packed = np.zeros(starts.pop(), dtype=np.uint8)
    for array, start in zip(arrays, starts, strict=True):
        packed[start : start + array.nbytes] = np.ascontiguousarray(array).reshape(-1).view(np.uint8)
    host = torch.from_numpy(packed)
    # else the copy is made twice, and waited for
    return host.pin_memory() if device.type == "cuda" and torch.cuda.is_available() else host


def _room(array: np.ndarray) -> int:
    return -(-array.nbytes // 8) * 8  # where any dtype may begin


class Passenger:
    """A tensor that the next copy from its device brings along (``taking_along``)."""

    def __init__(self, tensor: Tensor) -> None:
        self.tensor = tensor
        self._array: np.ndarray | None = None

    @property
    def array(self) -> np.ndarray:
        """The tensor's numbers; a copy of its own where none took it along."""
        if self._array is None:
            (self._array,) = fetch(self.tensor)
        return self._array


_waiting: ContextVar[Passenger | None] = ContextVar("waiting", default=None)


@contextmanager
def taking_along(tensor: Tensor) -> Iterator[Passenger]:
    """Have the first ``fetch`` inside the block bring a tensor, too: no copy is made for it alone.

    >>> with taking_along(torch.tensor([0.5])) as passenger:
    ...     _ = fetch(torch.tensor([1, 2]))
    >>> passenger.array.tolist()
    [0.5]
    """
    passenger = Passenger(tensor)
    reset_token = _waiting.set(passenger)
    try:
        yield passenger
    finally:
        _waiting.reset(reset_token)


def fetch(*tensors: Tensor) -> list[np.ndarray]:
    """Tensors of one device as arrays: one copy for all, which is waited for. Half precision comes as float32.

    >>> [part.tolist() for part in fetch(torch.tensor([1, 2]), torch.tensor(0.5), torch.tensor([True]))]
    [[1, 2], 0.5, [True]]
    """
    passenger = _waiting.get()
    if passenger is not None and passenger._array is None and tensors and passenger.tensor.device == tensors[0].device:
        _waiting.set(None)
        *arrays, passenger._array = fetch(*tensors, passenger.tensor)
        return arrays
    whole = [tensor.float() if tensor.dtype in (torch.bfloat16, torch.float16) else tensor for tensor in tensors]
    if not whole or whole[0].device.type == "cpu":
        return [tensor.numpy(force=True) for tensor in whole]
    order = sorted(range(len(whole)), key=lambda i: -whole[i].element_size())  # so that every part is aligned
    packed = torch.cat([whole[i].reshape(-1).view(torch.uint8) for i in order]).cpu().numpy()
    parts: list[Any] = [None] * len(whole)
    start = 0
    for i in order:
        stop = start + whole[i].numel() * whole[i].element_size()
        kind = np.dtype(str(whole[i].dtype).removeprefix("torch."))
        parts[i] = packed[start:stop].view(kind).reshape(tuple(whole[i].shape))
        start = stop
    return parts


def rows_of(tensor: Tensor, rows: Sequence[int], dim: int = 0) -> Tensor:
    """Some rows of a tensor, joined from slices, so that no index is sent: rows of a path mostly follow one another. A
    view where all of them do.

    >>> rows_of(torch.arange(9), [0, 1, 4, 5]).tolist()
    [0, 1, 4, 5]
    """
    runs = [tensor.narrow(dim, start, stop - start) for start, stop in stretches(rows)]
    if len(runs) == 1:
        return runs[0]
    if len(runs) > MAX_SLICES and tensor.device.type == "cpu":
        return tensor.index_select(dim, torch.tensor(rows))
    return torch.cat(runs, dim) if runs else tensor.narrow(dim, 0, 0)


def stretches(rows: Sequence[int]) -> Iterator[tuple[int, int]]:
    """Runs of numbers that follow one another, as [start, stop).

    >>> list(stretches([0, 1, 4, 5, 3]))
    [(0, 2), (4, 6), (3, 4)]
    """
    start = stop = None
    for row in rows:
        if start is None or stop is None:
            start = row
        elif row != stop:
            yield start, stop
            start = row
        stop = row + 1
    if start is not None and stop is not None:
        yield start, stop


Mark = Any  # a moment: seconds of the host's clock, or an event of a GPU's stream


def mark(device: torch.device) -> Mark:
    """This moment, as the device will know it: nobody waits."""
    if device.type != "cuda":
        return time.perf_counter()
    event = torch.cuda.Event(enable_timing=True)
    event.record(torch.cuda.current_stream(device))
    return event


class Span:
    """Milliseconds between marks, (start, stop) after (start, stop); asked for its number, it waits until the device
    has come to the last of them.

    >>> float(Span((1.0, 1.5), (2.0, 2.25)))
    750.0
    """

    __slots__ = ("_ms", "_pairs")

    def __init__(self, *pairs: tuple[Mark, Mark]) -> None:
        self._pairs: tuple[tuple[Mark, Mark], ...] = pairs
        self._ms = 0.0

    def __float__(self) -> float:
        for start, stop in self._pairs:
            if isinstance(start, float):
                self._ms += (stop - start) * 1e3
            else:
                stop.synchronize()
                self._ms += start.elapsed_time(stop)
        self._pairs = ()
        return self._ms

    def __lt__(self, value: float) -> bool:
        return float(self) < float(value)

    def __gt__(self, value: float) -> bool:
        return float(self) > float(value)


def wait(device: torch.device) -> None:
    """Until a device has done all that was asked of it."""
    if device.type == "cuda":
        torch.cuda.synchronize(device)


def median_ms(call: Callable[[], Any], device: torch.device, calls: int = 11) -> float:
    """Milliseconds of a call, each waited for: the median of so many, behind one that warms."""
    times = list[float]()
    for _ in range(calls + 1):
        wait(device)
        start_time = time.perf_counter()
        call()
        wait(device)
        times.append((time.perf_counter() - start_time) * 1e3)
    return statistics.median(times[1:])
