"""Recurrent states beside the key/value cache: what hybrid models' layers without attention remember of the text.

Such a layer looks back in two ways only: a short convolution over its last inputs, and a state that every row decays
and writes into (gated delta rule: Yang et al. 2024, arXiv:2412.06464; decay per channel: Kimi Linear, arXiv:2510.26692;
Mamba-2: Dao and Gu 2024, arXiv:2405.21060). Both are made to follow a row's path in the draft tree. The state of a row
is a sum over its path, state · exp(along) + Σ exp(along − along_j) · key_j ⊗ value_j, so a tree is scored in one
forward with a mask of ancestors in place of the triangle, and what rows wrote is kept instead of a state per row: to
commit a path is one matrix product, to reject is to forget.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from jaxtyping import Bool, Float, Int
from torch import Tensor
from transformers.activations import ACT2FN

SPACING = 256  # rows of text between the states that are kept to be cut back to
MOST_KEPT = 32  # of them; where there would be more, every second goes
CHUNK, CHUNK_BY_CHANNEL = 64, 32  # rows of text that are read at once
LARGEST = 1 << 24  # numbers of a tensor [heads, rows, rows, channels]; beyond, head by head


class Paths:
    """The rows that each row of a forward continues: that before it, or (``sees``) those it looks at, in the order of
    their ``positions`` in the text.
    """

    def __init__(
        self, positions: Int[np.ndarray, " rows"], sees: Bool[np.ndarray, "rows rows"] | None, device: torch.device
    ) -> None:
        count = self.count = len(positions)
        self.positions, self.device = positions, device
        self.ancestors: Bool[Tensor, "rows rows"] | None = None
        self._windows: dict[int, Tensor] = {}
        if sees is not None:
            self.ancestors = torch.as_tensor(sees, device=device)
            ancestors = sees & ~np.eye(count, dtype=bool)
            order = positions * count + np.arange(count)
            self._parents = np.where(ancestors, order, -1).argmax(1)
            self._parents[~ancestors.any(1)] = -1

    def windows(self, taps: int) -> Int[Tensor, "rows taps"]:
        """The last ``taps`` inputs on each row's path, its own the last: columns of the ``taps`` − 1 inputs before the
        forward followed by its rows.
        """
        if taps not in self._windows:
            history = taps - 1
            up = np.concatenate([np.arange(-1, history - 1), history + self._parents]).clip(0)
            up[history:][self._parents < 0] = history - 1
            columns = [history + np.arange(self.count)]
            for _ in range(history):
                columns.append(up[columns[-1]])
            self._windows[taps] = torch.as_tensor(np.stack(columns[::-1], 1), device=self.device)
        return self._windows[taps]


@dataclass(frozen=True, slots=True)
class Writes:
    """The additions of rows to a state: each ``keys`` ⊗ ``values``, behind a decay of log ``along`` its whole path."""

    keys: Float[Tensor, "heads rows key"]
    values: Float[Tensor, "heads rows value"]
    along: Float[Tensor, "heads rows channels"]  # one channel for all of a key, or each its own

    def absorb(self, state: Float[Tensor, "heads key value"], path: Sequence[int]) -> Tensor:
        """The state behind the rows of a path, in their order."""
        if not len(path):
            return state
        rows = torch.as_tensor(list(path), device=state.device)
        path_decay = self.along[:, rows]
        last = path_decay[:, -1:]
        keys = self.keys[:, rows] * (last - path_decay).exp()
        return torch.baddbmm(state * last.exp().transpose(1, 2), keys.transpose(1, 2), self.values[:, rows])


@dataclass(slots=True)
class LayerState:
    """Of one layer: the last ``inputs`` of its convolution and its ``state``, as committed; and of the forward that ran
    last, those inputs followed by the rows' (``joined``) and what its rows wrote, or the state ``behind`` them all.
    """

    inputs: Float[Tensor, "1 channels before"] | None = None
    state: Float[Tensor, "heads key value"] | None = None
    joined_columns: Float[Tensor, "1 channels columns"] | None = None
    writes: Writes | None = None
    last_state: Tensor | None = None

    def commit(self, path: Sequence[int]) -> None:
        """Keep the rows of ``path``."""
        if self.joined_columns is None or not path:
            return
        assert self.inputs is not None
        history = self.inputs.shape[2]
        last = [*range(history), *(history + row for row in path)][-history:]
        self.inputs = self.joined_columns[:, :, torch.as_tensor(last, device=self.joined_columns.device)]
        if self.last_state is not None:
            self.state = self.last_state
        elif self.writes is not None:
            assert self.state is not None
            self.state = self.writes.absorb(self.state, path)
        self.joined_columns = self.writes = self.last_state = None


LayerStates = dict[int, tuple[Tensor | None, Tensor | None]]  # per layer, convolution inputs and state


class RecurrentStates:
    """The recurrent layers of one run, behind ``length`` committed rows.

    A forward (``following``) leaves them as they were; ``commit`` takes in the accepted path. Tensors are replaced,
    never written over, so that ``keep`` costs no copy; ``cut`` goes back to the nearest kept place, from which the text
    has to be read again: a state cannot be undone. ``prompt`` is how many rows of the text generate() reads at once.
    ``dtype`` is that of sums and states (None: at least fp32); in double, a row is the same whatever is beside it.
    """

    def __init__(self, prompt: int = 0, dtype: torch.dtype | None = None) -> None:
        self.dtype = dtype
        self.layers: dict[int, LayerState] = defaultdict(LayerState)
        self.length, self.prompt = 0, prompt
        self.kept_states: dict[int, LayerStates] = {}
        self.pinned_rows: set[int] = set()
        self.paths: Paths | None = None
        self.whole = False  # the running forward reads text: all of its rows are going to be committed
        self.layer = 0  # the one that computes

    @contextmanager
    def following(self, paths: Paths, whole: bool) -> Iterator[None]:
        """The model's recurrent layers follow these paths while it runs."""
        self.begin(paths, whole)
        reset_token = running.set(self)
        try:
            yield
        finally:
            running.reset(reset_token)

    def begin(self, paths: Paths, whole: bool = False) -> None:
        """Forget the rows of the last forward, and follow these paths in the next."""
        for layer in self.layers.values():
            layer.joined_columns = layer.writes = layer.last_state = None
        self.paths, self.whole = paths, whole

    def commit(self, path: Sequence[int]) -> None:
        """Keep the rows of ``path`` (row numbers of the last forward)."""
        for layer in self.layers.values():
            layer.commit(path)
        self.length += len(path)
        if self.length - max(self.kept_states, default=0) >= SPACING:
            self.keep()

    def keep(self, *, always: bool = False) -> None:
        """Keep the states as they are now, to be cut back to; ``always``: until the run is read anew."""
        self.kept_states[self.length] = {index: (layer.inputs, layer.state) for index, layer in self.layers.items()}
        if always:
            self.pinned_rows.add(self.length)
        loose = sorted(self.kept_states.keys() - self.pinned_rows, reverse=True)
        if len(loose) > MOST_KEPT:
            for place in loose[1::2]:
                del self.kept_states[place]

    def cut(self, length: int) -> int:
        """Go back to the last kept place up to ``length`` rows, and say how many rows it is behind."""
        if length == self.length:
            return length
        self.kept_states = {place: snapshot for place, snapshot in self.kept_states.items() if place <= length}
        self.pinned_rows &= self.kept_states.keys()
        self.length = max(self.kept_states, default=0)
        snapshot = self.kept_states.get(self.length, {})
        self.layers = defaultdict(LayerState, {index: LayerState(*states) for index, states in snapshot.items()})
        return self.length

    def copy(self) -> RecurrentStates:
        """The same states, to be gone on with apart from these."""
        clone = RecurrentStates(self.prompt, self.dtype)
        clone.length, clone.kept_states, clone.pinned_rows = self.length, dict(self.kept_states), set(self.pinned_rows)
        layers = {index: LayerState(layer.inputs, layer.state) for index, layer in self.layers.items()}
        clone.layers = defaultdict(LayerState, layers)
        return clone

    def bytes(self) -> int:
        """Bytes of the committed states, and of those kept beside them."""
        states = [(layer.inputs, layer.state) for layer in self.layers.values()]
        states += [pair for snapshot in self.kept_states.values() for pair in snapshot.values()]
        return sum(t.nbytes for t in {id(t): t for pair in states for t in pair if t is not None}.values())

    def row_bytes(self) -> tuple[int, int]:
        """Bytes of one committed state of all layers, and of what a row of a forward leaves until the verdict; of a
        forward of one row that just ran.
        """
        state = row = 0
        for layer in self.layers.values():
            assert layer.joined_columns is not None
            size = layer.joined_columns.element_size()
            state += layer.joined_columns.shape[1] * (layer.joined_columns.shape[2] - 1) * size
            row += layer.joined_columns.shape[1] * size
            if (w := layer.writes) is not None:
                state += w.keys.shape[0] * w.keys.shape[2] * w.values.shape[2] * w.keys.element_size()
                row += sum(part.nbytes for part in (w.keys, w.values, w.along))
        return state, row

    def enter(self, layer: int) -> None:
        """Layer ``layer`` computes from now on."""
        self.layer = layer

    def convolve(self, x: Tensor, weight: Tensor, bias: Tensor | None, activation: str | None) -> Tensor:
        """A causal convolution [1, channels, rows] over the last inputs on each row's path; weight [channels, taps]."""
        layer, taps = self.layers[self.layer], weight.shape[1]
        assert self.paths is not None
        if layer.inputs is None:
            layer.inputs = x.new_zeros((1, x.shape[1], taps - 1))
        joint_inputs = layer.joined_columns = torch.cat([layer.inputs, x], 2)
        dtype = self.dtype or weight.dtype
        weight, bias = weight.to(dtype), None if bias is None else bias.to(dtype)
        if self.paths.ancestors is None:
            out = F.conv1d(joint_inputs.to(dtype), weight[:, None], bias, groups=x.shape[1])
        else:
            windows = joint_inputs[:, :, self.paths.windows(taps)].to(dtype)
            out = torch.einsum("bcrt,ct->bcr", windows, weight)
            out = out if bias is None else out + bias[None, :, None]
        return (out if activation is None else ACT2FN[activation](out)).to(x.dtype)

    def recur(
        self, rule: Callable[..., tuple[Tensor, Writes]], rows: Sequence[Float[Tensor, "heads rows *sizes"]],
        size: tuple[int, int, int], chunk: int = CHUNK,
    ) -> tuple[Float[Tensor, "heads rows value"], Tensor]:  # fmt: skip
        """Results of a rule for its rows, and the committed state, of ``size`` [heads, key, value], it begins with."""
        layer = self.layers[self.layer]
        assert self.paths is not None
        if layer.state is None:
            layer.state = rows[0].new_zeros(size)
        if not self.whole or self.paths.ancestors is not None:
            out, layer.writes = rule(*rows, layer.state, self.paths.ancestors)
            return out, layer.state
        outs, state = [], layer.state
        for start in range(0, self.paths.count, chunk):
            out, writes = rule(*(part[:, start : start + chunk] for part in rows), state, None)
            state = writes.absorb(state, range(out.shape[1]))
            outs.append(out)
        layer.last_state = state
        return torch.cat(outs, 1), layer.state

    @property
    def reads(self) -> Bool[np.ndarray, " rows"]:
        """The rows of the running forward that are the prompt's."""
        assert self.paths is not None
        return self.paths.positions < self.prompt


class JointStates:
    """The states of several runs in one forward, of which run i has ``counts[i]`` rows."""

    def __init__(self, states: Sequence[RecurrentStates], counts: Sequence[int]) -> None:
        self.states, self.counts, self.dtype = states, list(counts), states[0].dtype

    @contextmanager
    def following(self, paths: Sequence[Paths]) -> Iterator[None]:
        """Each run's rows follow its own paths while the model runs."""
        for states, run_paths in zip(self.states, paths, strict=True):
            states.begin(run_paths)
        reset_token = running.set(self)
        try:
            yield
        finally:
            running.reset(reset_token)

    def enter(self, layer: int) -> None:
        for states in self.states:
            states.enter(layer)

    @property
    def reads(self) -> Bool[np.ndarray, " rows"]:
        return np.concatenate([states.reads for states in self.states])

    def convolve(self, x: Tensor, *filters: Any) -> Tensor:
        runs = zip(self.states, x.split(self.counts, 2), strict=True)
        return torch.cat([states.convolve(run_rows, *filters) for states, run_rows in runs], 2)

    def recur(self, rule: Any, rows: Sequence[Tensor], *sizes: Any) -> tuple[Tensor, Tensor]:
        runs = zip(self.states, *(part.split(self.counts, 1) for part in rows), strict=True)
        results = [states.recur(rule, run_inputs, *sizes) for states, *run_inputs in runs]
        return torch.cat([out for out, _ in results], 1), results[0][1]


running: ContextVar[RecurrentStates | JointStates | None] = ContextVar("states of the running forward", default=None)


# the rules: rows [heads, rows, size] over a state [heads, key, value] ------------------------------------------------


def delta_rule(
    query: Tensor, key: Tensor, value: Tensor, decay: Tensor, beta: Tensor, state: Tensor,
    ancestors: Bool[Tensor, "rows rows"] | None,
) -> tuple[Tensor, Writes]:  # fmt: skip
    """Gated delta rule: a row writes beta · (value − what the decayed state holds for its key). ``decay`` is a row's
    own log decay, [heads, rows, 1] or by channel of the key. What the rows of a path write depends on each other: a
    unitriangular system, as in the chunked form (Yang et al. 2024, §3.3), of ancestors instead of all rows before.
    """
    path_decay, between = _decays(decay, ancestors)
    writes = torch.linalg.solve_triangular(
        _products(key * beta, key, between), beta * (value - (key * path_decay.exp()) @ state),
        upper=False, unitriangular=True,
    )  # fmt: skip
    out = torch.baddbmm((query * path_decay.exp()) @ state, _products(query, key, between), writes)
    return out, Writes(key, writes, path_decay)


def scan_rule(
    query: Tensor, key: Tensor, value: Tensor, decay: Tensor, state: Tensor, ancestors: Bool[Tensor, "rows rows"] | None
) -> tuple[Tensor, Writes]:
    """Mamba-2: a row writes its key ⊗ value (B ⊗ Δx), and reads with its query (C)."""
    path_decay, between = _decays(decay, ancestors)
    out = torch.baddbmm((query * path_decay.exp()) @ state, _products(query, key, between), value)
    return out, Writes(key, value, path_decay)


def _decays(decay: Float[Tensor, "heads rows channels"], ancestors: Tensor | None) -> tuple[Tensor, Tensor]:
    """The log decay along each row's path, and the decay between a row and each one on its path, 0 elsewhere."""
    if ancestors is None:
        rows = decay.shape[1]
        path_decay, ancestors = decay.cumsum(1), torch.ones((rows, rows), dtype=torch.bool, device=decay.device).tril()
    else:
        path_decay = ancestors.to(decay) @ decay
    between = (path_decay[:, :, None] - path_decay[:, None]).clamp(max=0).exp()
    return path_decay, between * ancestors[None, :, :, None]


def _products(left: Tensor, right: Tensor, between: Float[Tensor, "heads rows rows channels"]) -> Tensor:
    """left_i · right_j, decayed between the two: [heads, rows, rows]."""
    if between.shape[3] == 1:
        return left @ right.transpose(1, 2) * between[..., 0]
    if between.numel() <= LARGEST:
        return torch.einsum("hid,hijd,hjd->hij", left, between, right)
    return torch.stack([torch.einsum("id,ijd,jd->ij", *of) for of in zip(left, between, right, strict=True)])
