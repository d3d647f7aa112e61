"""This project's own kernels for weights of four, eight and 32 bits: C++, compiled once for this machine, for
processors with AVX-512 and its VNNI instructions.

On rounded weights, rows are rounded to eight bits, ``GROUP`` numbers sharing a scale, as llama.cpp does (Q8_1), and
multiplied in whole numbers; fp32 weights are read as oneDNN packs them. Besides linear layers there are norms, SiLU,
attention and whole forwards of Llama's build; a row's result is the same bit for bit whatever stands beside it, and
whichever of them computes it.
"""

from __future__ import annotations

import contextlib
import ctypes
import functools
import hashlib
import logging
import platform
import subprocess
import sys
import tempfile
import threading
from collections.abc import Sequence
from ctypes import POINTER, Structure, c_double, c_float, c_int64, c_void_p
from pathlib import Path
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor, nn

from decoders.folders import cache_folder, write_bytes
from decoders.model.engines.linear import PackedLinear, packed_views
from decoders.model.engines.machine import compiler, cpu_fact, machine

from .compiling import FOLDER, CompiledPart

log = logging.getLogger(__name__)

SOURCES = tuple(Path(__file__).with_name(name) for name in ("kernel.cpp", "kernel_attention.h"))
INSTRUCTIONS = ("avx512f", "avx512bw", "avx512vl", "avx512dq", "avx512_vnni", "fma")  # as Linux names them
FLAGS = (
    "-std=c++17", "-O3", "-w", "-fPIC", "-shared", "-ffp-contract=off",
    *(f"-m{name.replace('_', '')}" for name in INSTRUCTIONS),
)  # fmt: skip
MOST_S = 120  # that compiling may take
GROUP, OUT = 32, 16  # inputs that share a scale, and outputs that are computed side by side
LOOKED_AT = 8  # inputs by which the place of packed weights is told
INSTEAD = "torch's own kernels compute"


class LinearPointers(Structure):
    """A linear layer as the kernels take it."""

    _fields_ = (
        ("numbers", c_void_p), ("scale", c_void_p), ("bias", c_void_p), ("outputs", c_int64), ("inputs", c_int64),
        ("bits", c_int64), ("block", c_int64), ("first", c_int64),
    )  # fmt: skip


class LayerPointers(Structure):
    """A decoder layer's norms and linear layers."""

    _fields_ = (
        *((name, c_void_p) for name in ("norm", "after", "query_norm", "key_norm")),
        ("qkv", LinearPointers * 3), ("out", LinearPointers), ("gate_up", LinearPointers * 2), ("down", LinearPointers),
    )


class StackPointers(Structure):
    """All decoder layers of a model, and its sizes."""

    _fields_ = (
        *((name, c_int64) for name in ("layers", "hidden", "heads", "kv_heads", "head_dim", "mlp", "capacity")),
        ("eps", c_double), ("layer", POINTER(LayerPointers)),
    )  # fmt: skip


class AttentionPointers(Structure):
    """Rows, and the keys and values that they attend to, with strides in numbers."""

    _fields_ = (
        *((name, c_void_p) for name in ("query", "key", "value", "mask", "out")),
        *((name, c_int64) for name in ("rows", "keys", "heads", "kv_heads", "dims")),
        *((f"{name}_{by}", c_int64) for name in ("query", "key", "value", "out") for by in ("head", "row")),
        ("mask_row", c_int64), ("scale", c_float),
    )  # fmt: skip


@functools.cache
def _instructions() -> frozenset[str]:
    """The processor's instruction sets, as Linux lists them."""
    return frozenset(cpu_fact("flags").split())


class Kernels:
    """The compiled kernels of this process, once they are wanted."""

    def __init__(self) -> None:
        self.library: Any = None
        self.failed: str | None = None  # why they cannot be had
        self._lock = threading.Lock()
        self._last_reason: str | None = None

    @property
    def path(self) -> Path:
        """The file that holds them: another processor, torch or source has another file."""
        text = "\n".join([machine(), *FLAGS, *(file.read_text(encoding="utf-8") for file in SOURCES)])
        return cache_folder() / FOLDER / f"kernel-{hashlib.sha256(text.encode()).hexdigest()[:20]}.so"

    def why_not(self) -> str | None:
        """The reason why this machine has none and cannot compile them, in one sentence."""
        if sys.platform != "linux" or platform.machine() != "x86_64":
            return f"the kernels for rounded weights are for Linux on x86-64: {INSTEAD}"
        if missing := sorted(set(INSTRUCTIONS) - _instructions()):
            return f"the kernels for rounded weights need {missing[0]}, which this processor lacks: {INSTEAD}"
        if self.library is None and not self.path.is_file() and compiler() is None:
            return f"no C++ compiler for the kernels for rounded weights (g++, clang++, or what CXX names): {INSTEAD}"
        return self.failed

    def usable(self, engine: str) -> bool:
        """True where they compute on rounded weights: under ``compiled``, which compiles them where they are missing,
        and under ``auto`` where they are there. Under ``compiled`` a reason why not goes to the log, once.
        """
        if engine not in ("auto", "compiled"):
            return False
        with self._lock:
            reason = self.why_not()
            if reason is None and self.library is None:
                if engine == "auto" and not self.path.is_file():
                    return False
                reason = self.failed = self._open()
        if reason is not None and engine == "compiled" and reason != self._last_reason:
            self._last_reason = reason
            log.warning("%s", reason)
        return reason is None

    def can_compute(self, engine: str) -> bool:
        """``usable``, without compiling or opening anything: a library that cannot be opened counts, too."""
        if engine not in ("auto", "compiled") or self.why_not() is not None:
            return False
        return engine == "compiled" or self.library is not None or self.path.is_file()

    def _open(self) -> str | None:
        """Compile what is missing and open it; what went wrong, in one sentence."""
        path = self.path
        try:
            if path.is_file():
                with contextlib.suppress(OSError, AttributeError):  # it is damaged: made anew
                    self.library = open_library(path)
            if self.library is None:
                _compile(path)
                self.library = open_library(path)
            if _right():
                return None
            message = "a product came out wrong"
        except (OSError, AttributeError, subprocess.SubprocessError) as error:
            message = str(getattr(error, "stderr", None) or error).strip() or type(error).__name__
        self.library = None
        path.unlink(missing_ok=True)
        return f"the kernels for rounded weights cannot be used ({message.splitlines()[0][:160]}): {INSTEAD}"


KERNELS = Kernels()


class KernelPart(CompiledPart):
    """The kernels as something that is compiled in the background; opened, they are ``KERNELS.library``."""

    def __init__(self) -> None:
        super().__init__(__name__, "{}")

    @property
    def package(self) -> Path:
        return KERNELS.path

    def load(self) -> Any:
        if not KERNELS.usable("auto"):
            raise OSError(KERNELS.failed or "it is not there")
        return KERNELS.library


def build(shape: dict[str, Any], package: str) -> None:
    """Compile the kernels into a file. Takes some ten seconds and a C++ compiler."""
    _compile(Path(package))


def _compile(path: Path) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    command = compiler()
    assert command is not None
    with tempfile.TemporaryDirectory(prefix="specviz-compiling-", ignore_cleanup_errors=True) as scratch:
        library = Path(scratch) / path.name
        subprocess.run(
            [command, *FLAGS, str(SOURCES[0]), "-o", str(library), "-ldl"], check=True, capture_output=True, text=True,
            timeout=MOST_S, stdin=subprocess.DEVNULL,
        )  # fmt: skip
        write_bytes(path, library.read_bytes())


def open_library(path: Path) -> Any:
    """The library in a file, its functions with the types of what they take."""
    library, number, pointer = ctypes.CDLL(str(path)), c_int64, c_void_p
    for name, kinds in {
        "linear": [POINTER(LinearPointers), pointer, pointer, number, number],
        "norm": [pointer, pointer, pointer, number, number, c_double],
        "silu": [pointer, pointer, number],
        "attention": [POINTER(AttentionPointers), number],
        "forward": [
            POINTER(StackPointers), *[pointer] * 3, POINTER(pointer), *[number] * 3, pointer, POINTER(pointer),
            POINTER(pointer), number,
        ],
    }.items():  # fmt: skip
        function = getattr(library, f"kernel_{name}")
        function.argtypes, function.restype = kinds, None
    library.kernel_begin()
    return library


def _right() -> bool:
    """True if a product is what its weights say."""
    generator = torch.Generator().manual_seed(0)
    weight, rows = (torch.randn(size, 96, generator=generator) for size in (48, 3))
    for bits in (4, 8):
        numbers, scale = pack(weight, bits)
        out = linear(rows, numbers, scale, None, 48, bits)
        if not float((out - rows @ unpack(numbers, scale, 48, 96, bits).T).abs().max()) < 0.5:
            return False
    return True


def pack(weight: Float[Tensor, "out in"], bits: int) -> tuple[Tensor, Tensor]:
    """Weights as the kernels read them, and their scales in half precision: groups of ``GROUP`` inputs of an output
    share a scale (int8), or a scale and an offset (int4: w = q · scale + offset, q from 0 to 15).
    """
    outputs, inputs = weight.shape
    blocks, groups = -(-outputs // OUT), -(-inputs // GROUP)
    whole = nn.functional.pad(weight.float(), (0, groups * GROUP - inputs, 0, blocks * OUT - outputs))
    parts = whole.view(blocks, OUT, groups, GROUP)
    if bits == 8:
        scale = (parts.abs().amax(-1) / 127).clamp_min(1e-7).half()
        q = (parts / scale.float()[..., None]).round().clamp(-127, 127) + 128
        scales = scale.transpose(1, 2)
    else:
        lowest, highest = parts.amin(-1), parts.amax(-1)
        scale, offset = ((highest - lowest) / 15).clamp_min(1e-7).half(), lowest.half()
        q = ((parts - offset.float()[..., None]) / scale.float()[..., None]).round().clamp(0, 15)
        scales = torch.stack([scale, offset], -1).permute(0, 2, 3, 1)
    # block, group, step, output, four inputs
    numbers = q.to(torch.uint8).view(blocks, OUT, groups, 8, 4).permute(0, 2, 3, 1, 4)
    if bits == 4:
        numbers = numbers[:, :, :4] | numbers[:, :, 4:] << 4
    return numbers.contiguous(), scales.contiguous()


def unpack(numbers: Tensor, scale: Tensor, outputs: int, inputs: int, bits: int) -> Float[Tensor, "out in"]:
    """The weights that ``pack`` made, in fp32."""
    if bits == 4:
        numbers = torch.cat([numbers & 15, numbers >> 4], 2)
        factor, offset = (part.transpose(1, 2)[..., None].float() for part in scale.unbind(2))
    else:
        factor, offset = scale.transpose(1, 2)[..., None].float(), torch.zeros(())
    blocks, groups = numbers.shape[:2]
    q = numbers.permute(0, 3, 1, 2, 4).reshape(blocks, OUT, groups, GROUP).float()
    weight = ((q - 128 if bits == 8 else q) * factor + offset).reshape(blocks * OUT, groups * GROUP)
    return weight[:outputs, :inputs].contiguous()


def pointers(
    numbers: Tensor, scale: Tensor, bias: Tensor | None, outputs: int, inputs: int, bits: int
) -> LinearPointers:
    """A linear layer's tensors, which have to stay."""
    bias_address = None if bias is None else bias.data_ptr()
    return LinearPointers(numbers.data_ptr(), scale.data_ptr(), bias_address, outputs, inputs, bits, OUT, 0)


def packed_block(layer: PackedLinear) -> int | None:
    """Outputs that lie side by side in a layer's packed copy; None where it lies in another way than the kernels read.
    Inputs of its own product that are 1 and else 0 give columns of its weight, to the bit: those are compared.
    """
    inputs = layer.in_features
    columns = torch.linspace(0, inputs - 1, min(inputs, LOOKED_AT)).long()
    rows = torch.zeros(len(columns), inputs)
    rows[torch.arange(len(columns)), columns] = 1
    weight = torch.ops.mkldnn._linear_pointwise(rows, layer.packed, None, "none", [], "")
    for raw in packed_views(layer):
        lying = raw[:, columns].transpose(0, 1).flatten(1)[:, : layer.out_features]
        if raw.shape[2] % OUT == 0 and torch.equal(lying, weight):
            return raw.shape[2]
    return None


def packed_pointers(layer: PackedLinear, start: int = 0, stop: int | None = None) -> LinearPointers:
    """A packed fp32 layer's tensors, which have to stay, or some of its outputs, from a multiple of ``OUT`` on.

    Raises AttributeError where its weights lie in another way than the kernels read.
    """
    block = packed_block(layer)
    if block is None or start % OUT:
        raise AttributeError("its packed weights lie in another way")
    outputs = (layer.out_features if stop is None else stop) - start
    bias = None if layer.bias is None else layer.bias.data_ptr() + 4 * start
    address = torch.ops.mkldnn.data_ptr(layer.packed)
    return LinearPointers(address, None, bias, outputs, layer.in_features, 32, block, start // OUT)


def linear(
    rows: Float[Tensor, "rows in"], numbers: Tensor, scale: Tensor, bias: Tensor | None, outputs: int, bits: int
) -> Float[Tensor, "rows out"]:
    """Rows times the weights that ``pack`` made, and their bias."""
    return product(rows.float(), pointers(numbers, scale, bias, outputs, rows.shape[1], bits))


def product(rows: Float[Tensor, "rows in"], layer: LinearPointers) -> Float[Tensor, "rows out"]:
    """Rows through a linear layer."""
    rows, out = rows.contiguous(), torch.empty(len(rows), layer.outputs)
    KERNELS.library.kernel_linear(layer, rows.data_ptr(), out.data_ptr(), len(rows), torch.get_num_threads())
    return out


def rms_norm(x: Float[Tensor, "*rows width"], weight: Tensor, eps: float) -> Float[Tensor, "*rows width"]:
    """``weight * x / rms(x)`` over the last dimension, computed in double."""
    x, out = x.contiguous(), torch.empty(x.shape)
    width = x.shape[-1]
    KERNELS.library.kernel_norm(x.data_ptr(), weight.data_ptr(), out.data_ptr(), x.numel() // width, width, eps)
    return out


class KernelSiLU(nn.Module):
    """SiLU whose result for a number does not depend on how many there are."""

    def forward(self, x: Tensor) -> Tensor:
        x, out = x.contiguous(), torch.empty(x.shape)
        KERNELS.library.kernel_silu(x.data_ptr(), out.data_ptr(), x.numel())
        return out


def attention(
    query: Float[Tensor, "1 heads rows head_dim"], key: Float[Tensor, "1 kv_heads keys head_dim"],
    value: Float[Tensor, "1 kv_heads keys head_dim"], mask: Float[Tensor, "1 1 rows keys"] | None, scale: float,
) -> Float[Tensor, "1 rows heads head_dim"]:  # fmt: skip
    """Attention in fp32. A mask hides keys where it is not 0 (or False); without one, the rows are the last keys."""
    _, heads, rows, dims = query.shape
    if mask is not None:
        mask = mask[0, 0].float().log() if mask.dtype == torch.bool else mask[0, 0].float()
        mask = mask if mask.stride(-1) == 1 else mask.contiguous()
    query, key, value = (tensor if tensor.stride(-1) == 1 else tensor.contiguous() for tensor in (query, key, value))
    out = torch.empty(1, rows, heads, dims)
    all_of = AttentionPointers(
        query.data_ptr(), key.data_ptr(), value.data_ptr(), None if mask is None else mask.data_ptr(), out.data_ptr(),
        rows, key.shape[2], heads, key.shape[1], dims, query.stride(1), query.stride(2), key.stride(1), key.stride(2),
        value.stride(1), value.stride(2), dims, heads * dims, 0 if mask is None else mask.stride(0), scale,
    )  # fmt: skip
    KERNELS.library.kernel_attention(all_of, torch.get_num_threads())
    return out


def forward(
    stack: StackPointers, x: Float[Tensor, "rows hidden"], cos: Float[Tensor, "rows head_dim"],
    sin: Float[Tensor, "rows head_dim"], masks: Sequence[Float[Tensor, "rows keys"]], length: int, store: Tensor,
    hidden: Sequence[Tensor | None], queries: Sequence[Tensor | None],
) -> None:  # fmt: skip
    """All layers over rows behind ``length`` others: ``x`` becomes the last layer's output, ``store`` gets the rows'
    keys and values. Per layer, ``masks``, and what its input [rows, hidden] and its queries after rotary
    [heads, rows, head_dim] are written into, where they are wanted.
    """
    rows, keys = masks[0].shape
    KERNELS.library.kernel_forward(
        stack, x.data_ptr(), cos.data_ptr(), sin.data_ptr(), _addresses(masks), keys, length, rows, store.data_ptr(),
        _addresses(hidden), _addresses(queries), torch.get_num_threads(),
    )  # fmt: skip


def _addresses(tensors: Sequence[Tensor | None]) -> ctypes.Array[c_void_p]:
    return (c_void_p * len(tensors))(*(None if tensor is None else tensor.data_ptr() for tensor in tensors))
