"""A GPU that is not there: tensors that say ``cuda:0`` and compute on the CPU, and refuse what a GPU refuses.

Inside ``simulate()``, ``load_target(..., device="cuda")`` and all that follows run as on one. Raised is what would
fail there: operations over tensors of both devices, attention masks whose rows do not begin aligned, grouped attention
that only the kernel with all scores takes. Counted is what costs there: copies to the device and back, each with the
line of the project that made it. What it cannot show: times, kernels, memory.

>>> with simulate() as device, device.counting():
...     host = (torch.ones(2, device="cuda") + 1).tolist()
>>> host, device.copies
([2.0, 2.0], Counter({'back': 1}))
"""

from __future__ import annotations

import contextlib
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any
from unittest import mock

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor
from torch.overrides import TorchFunctionMode
from torch.utils._python_dispatch import TorchDispatchMode

from decoders.model.engines.graphs import GraphForward

from .tape import Tape

PROJECT = str(Path(__file__).resolve().parent.parent / "decoders")
PASSED_ON = ("transfer.py", "capture.py")  # whose callers are told
CUDA = torch.device("cuda", 0)
ALIGNED = 16  # bytes at which a mask begins, numbers between its rows (torch's sdp_utils, cuDNN)
INDEXED = ("aten::index", "aten::index_put", "aten::index_put_", "aten::_index_put_impl_")
SYNCING = ("aten::_local_scalar_dense", "aten::item", "aten::is_nonzero", "aten::equal")
SIZED_BY_VALUES = ("aten::nonzero", "aten::_unique2", "aten::masked_select", "aten::unique_dim")
READ = ("__float__", "__int__", "__bool__", "__index__", "__complex__", "item", "tolist", "cpu")
MADE = (
    "new_zeros", "new_full", "new_empty", "new_ones", "new_tensor", "contiguous", "data_ptr", "detach", "__invert__",
    "nonzero", "pin_memory", "expand",
)  # fmt: skip


class SimulatedTensor(torch.Tensor):
    """A tensor on the device; ``host`` has its numbers."""

    host: Tensor

    @staticmethod
    def __new__(cls, host: Tensor) -> SimulatedTensor:
        made: Any = torch.Tensor._make_wrapper_subclass(  # type: ignore[attr-defined]
            cls, host.size(), strides=host.stride(), storage_offset=host.storage_offset(), dtype=host.dtype, device=CUDA
        )
        made.host = host
        return made

    def __repr__(self) -> str:  # type: ignore[override]
        return f"cuda:0 {self.host}"

    __torch_function__ = torch._C._disabled_torch_function_impl

    @classmethod
    def __torch_dispatch__(cls, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        assert _current, "a tensor of the simulated device was used outside it"
        return _current[-1].operation(func, args, kwargs or {})


_current: list[SimulatedDevice] = []


def on_device(value: Any) -> bool:
    return isinstance(value, SimulatedTensor)


def host_of(value: Any) -> Any:
    return value.host if isinstance(value, SimulatedTensor) else value


def place(value: Any) -> Any:
    return SimulatedTensor(value) if isinstance(value, Tensor) and not on_device(value) else value


def each(change: Callable[[Any], Any], value: Any) -> Any:
    """Every tensor of nested lists, tuples and dictionaries changed; torch's own way takes ten times as long."""
    if isinstance(value, Tensor):
        return change(value)
    if isinstance(value, dict):
        return {key: each(change, one) for key, one in value.items()}
    if isinstance(value, list | tuple):
        changed = [each(change, one) for one in value]
        return changed if type(value) is list else type(value)(changed)
    return value


def is_cuda(device: Any) -> bool:
    return device is not None and torch.device(device).type == "cuda"


def tensors_of(args: Any, kwargs: dict[str, Any]) -> list[Tensor]:
    found = list[Tensor]()
    for value in (*args, *kwargs.values()):
        if isinstance(value, Tensor):
            found.append(value)
        elif isinstance(value, list | tuple):
            found += [one for one in value if isinstance(one, Tensor)]
    return found


class SimulatedDevice:
    """Events on the device: ``copies`` there and back, and (kind, line of the project) → how often."""

    def __init__(self) -> None:
        self.copies: Counter[str] = Counter()
        self.sites: Counter[tuple[str, str]] = Counter()
        self._counting = False

    @contextlib.contextmanager
    def counting(self) -> Iterator[SimulatedDevice]:
        """Counts anew while it is open."""
        self.copies.clear()
        self.sites.clear()
        self._counting = True
        try:
            yield self
        finally:
            self._counting = False

    def note(self, kind: str) -> None:
        if self._counting:
            self.copies[kind] += 1
            self.sites[kind, _site()] += 1

    # --- operations below Python

    def operation(self, func: Any, args: Any, kwargs: dict[str, Any]) -> Any:
        """One ATen operation, run on the host's numbers."""
        name = func._schema.name
        if name == "aten::_to_copy":
            return self._copy(func, args[0], kwargs)
        tensors = tensors_of(args, kwargs)
        there = any(map(on_device, tensors))
        if there:
            if name in SYNCING or name in SIZED_BY_VALUES:
                self.note("back")
            if name == "aten::copy_":
                if on_device(args[0]) != on_device(args[1]):
                    self.note("there" if on_device(args[0]) else "back")
            elif name in INDEXED:
                self._index(name, args)
            elif any(value.dim() > 0 for value in tensors if not on_device(value)):
                raise RuntimeError(f"tensors of two devices in {name} at {_site()}")
        wanted = kwargs.get("device")
        result_there = is_cuda(wanted) if wanted is not None else there
        options = {key: host_of(value) for key, value in kwargs.items()}
        if wanted is not None:
            options["device"] = "cpu"
        if options.get("generator") is not None and result_there:
            raise RuntimeError(f"a generator of the CPU draws for the device in {name} at {_site()}")
        options.pop("pin_memory", None)
        out = func(*each(host_of, args), **options)
        if not result_there or name in SYNCING:
            return out
        for position, argument in enumerate(func._schema.arguments):
            if argument.alias_info is not None and argument.alias_info.is_write and isinstance(out, Tensor):
                own = args[position] if position < len(args) else kwargs.get(argument.name)
                if on_device(own) and out is own.host:
                    return own
        return each(place, out)

    def _copy(self, func: Any, source: Tensor, kwargs: dict[str, Any]) -> Tensor:
        wanted = kwargs.get("device")
        there = on_device(source) if wanted is None else is_cuda(wanted)
        options = {key: value for key, value in kwargs.items() if key not in ("device", "pin_memory")}
        out = func(host_of(source), **options)
        if there != on_device(source):
            self.note("there" if there else "back")
        return SimulatedTensor(out) if there else out

    def _index(self, name: str, args: Any) -> None:
        if not on_device(args[0]):
            raise RuntimeError(f"a CPU tensor with an index of the device in {name} at {_site()}")
        for index in args[1]:
            if index is not None and not on_device(index):
                self.note("there")
            if index is not None and index.dtype in (torch.bool, torch.uint8):
                self.note("back")  # how many there are decides the shape
        if name != "aten::index" and not on_device(args[2]) and args[2].dim() > 0:
            raise RuntimeError(f"values of the CPU into a tensor of the device in {name} at {_site()}")

    # --- functions of Python

    def function(self, func: Any, args: Any, kwargs: dict[str, Any]) -> Any:
        """One call of torch's Python functions: those that name a device, or leave it."""
        name = getattr(func, "__name__", "")
        if func is F.scaled_dot_product_attention:
            return self._attention(func, args, kwargs)
        first = args[0] if args else None
        if func is torch.Tensor.to:
            return self._to(args, kwargs)
        if func is torch.Tensor.cuda:
            return self._to((first, CUDA), {})
        if is_cuda(kwargs.get("device")):
            if name == "as_tensor" and on_device(first):
                return first
            if kwargs.get("generator") is not None:
                raise RuntimeError(f"a generator of the CPU draws for the device in {name} at {_site()}")
            if name in ("as_tensor", "tensor"):
                self.note("there")
            return each(place, func(*each(host_of, args), **{**each(host_of, kwargs), "device": "cpu"}))
        if func in (torch.Tensor.__getitem__, torch.Tensor.__setitem__):
            return self._item(func, *args)
        if not on_device(first):
            return func(*args, **kwargs)
        if name in READ:
            self.note("back")
            out = func(first.host, *args[1:], **kwargs)
            return out.clone() if isinstance(out, Tensor) else out
        if name == "numpy":
            if not (kwargs.get("force") or args[1:2] == (True,)):
                raise TypeError(f"numpy of a tensor of the device at {_site()}")
            self.note("back")
            return first.host.detach().numpy().copy()
        if name == "__array__":
            raise TypeError(f"an array of a tensor of the device at {_site()}")
        if name in ("__iter__", "unbind"):
            parts = [SimulatedTensor(part) for part in first.host.unbind(*args[1:], **kwargs)]
            return iter(parts) if name == "__iter__" else tuple(parts)
        if name == "untyped_storage":
            return first.host.untyped_storage()
        if name == "copy_":
            if not on_device(args[1]):
                self.note("there")
            first.host.copy_(host_of(args[1]))
            return first
        if name in MADE:
            if name in ("new_tensor", "nonzero"):
                self.note("there" if name == "new_tensor" else "back")
            options = {key: value for key, value in kwargs.items() if key != "device"}
            return place(func(first.host, *each(host_of, args[1:]), **options))
        return func(*args, **kwargs)

    def _to(self, args: Any, kwargs: dict[str, Any]) -> Tensor:
        source, device, dtype = args[0], kwargs.get("device"), kwargs.get("dtype")
        for value in args[1:]:
            if isinstance(value, torch.dtype):
                dtype = value
            elif isinstance(value, torch.device | str):
                device = value
            elif isinstance(value, Tensor):
                device, dtype = value.device, value.dtype
        there = on_device(source) if device is None else is_cuda(device)
        host = host_of(source)
        if there == on_device(source) and dtype in (None, host.dtype):
            return source
        if there != on_device(source):
            self.note("there" if there else "back")
        out = host.to(dtype) if dtype is not None else host
        out = out.clone() if there != on_device(source) and out is host else out
        return SimulatedTensor(out) if there else out

    def _item(self, func: Any, tensor: Tensor, index: Any, *value: Any) -> Any:
        parts = index if isinstance(index, tuple) else (index,)
        if not on_device(tensor):
            if any(map(on_device, parts)):
                raise RuntimeError(f"a CPU tensor with an index of the device at {_site()}")
            if value and on_device(value[0]):
                self.note("back")
            return func(tensor, index, *map(host_of, value))
        for part in parts:
            if isinstance(part, list | np.ndarray) or (isinstance(part, Tensor) and part.dim() and not on_device(part)):
                self.note("there")
            if isinstance(part, Tensor) and part.dtype in (torch.bool, torch.uint8):
                self.note("back")
        if value and isinstance(value[0], Tensor) and not on_device(value[0]) and value[0].dim():
            self.note("there")
        out = func(host_of(tensor), tuple(map(host_of, parts)), *map(host_of, value))
        return None if out is None else SimulatedTensor(out)

    def _attention(self, func: Any, args: Any, kwargs: dict[str, Any]) -> Any:
        query, key = args[:2]
        mask = args[3] if len(args) > 3 else kwargs.get("attn_mask")
        tensors = [*args[:3], *([] if mask is None else [mask])]
        if len({on_device(tensor) for tensor in tensors}) > 1:
            raise RuntimeError(f"attention over tensors of two devices at {_site()}")
        if not on_device(query):
            return func(*args, **kwargs)
        if mask is not None and mask.dtype != torch.bool:
            begins = mask.storage_offset() * mask.element_size()
            apart = [stride for size, stride in zip(mask.shape[:-1], mask.stride()[:-1], strict=True) if size > 1]
            if begins % ALIGNED or any(stride % ALIGNED for stride in apart):
                raise RuntimeError(f"a mask that begins at byte {begins}, rows {apart} apart, at {_site()}")
        grouped = query.shape[1] != key.shape[1]
        if grouped and (mask is not None or query.dtype == torch.float32):
            raise RuntimeError(f"grouped attention that forms all scores at {_site()}")
        return SimulatedTensor(func(*each(host_of, args), **each(host_of, kwargs)))


class _Event:
    """A moment of the device: of the host, as both go on together here."""

    def __init__(self, enable_timing: bool = False) -> None:
        self.at = 0.0

    def record(self, stream: Any = None) -> None:
        self.at = time.perf_counter()

    def synchronize(self) -> None:
        _current[-1].note("wait")

    def elapsed_time(self, end: _Event) -> float:
        return (end.at - self.at) * 1e3


class _Functions(TorchFunctionMode):
    def __torch_function__(self, func: Callable[..., Any], types: Any, args: Any = (), kwargs: Any = None) -> Any:
        return _current[-1].function(func, args, kwargs or {})


class _Operations(TorchDispatchMode):
    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        return _current[-1].operation(func, args, kwargs or {})


@contextlib.contextmanager
def simulate() -> Iterator[SimulatedDevice]:
    """The device, while the block runs; tensors of it are of no use behind it."""
    device = SimulatedDevice()
    _current.append(device)
    cuda = mock.patch.multiple(
        torch.cuda, Event=_Event, current_stream=lambda device=None: None, device_count=lambda: 1,
        synchronize=lambda where=None: device.note("wait"), get_device_name=lambda *where: "simulated",
        mem_get_info=lambda *where: (1 << 40, 1 << 40), memory_reserved=lambda *where: 0,
        memory_allocated=lambda *where: 0, graph_pool_handle=lambda: None,
    )  # fmt: skip
    graphs = mock.patch.multiple(  # nothing is captured in another thread, which is not on this device
        GraphForward, graph=Tape, make=lambda self, busy=None: None, complete=lambda self: True
    )
    overwrite = torch.__future__.get_overwrite_module_params_on_conversion()
    torch.__future__.set_overwrite_module_params_on_conversion(True)
    try:
        with cuda, graphs, _Functions(), _Operations():
            yield device
    finally:
        torch.__future__.set_overwrite_module_params_on_conversion(overwrite)
        _current.pop()


def _site() -> str:
    """The line of the project that asked."""
    frame: Any = sys._getframe(1)
    while frame is not None:
        if frame.f_code.co_filename.startswith(PROJECT) and not frame.f_code.co_filename.endswith(PASSED_ON):
            return f"{frame.f_code.co_filename[len(PROJECT) + 1 :]}:{frame.f_lineno}"
        frame = frame.f_back
    return "?"
