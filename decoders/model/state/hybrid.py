"""transformers' own recurrent layers, made to follow the paths of a draft tree: their code runs as it is, with the
functions replaced through which it looks back (``recurrent``). Outside of this engine's forwards they are its own.
"""

from __future__ import annotations

import types
from collections.abc import Callable, Sequence
from typing import Any

import torch
import torch.nn.functional as F
from jaxtyping import Float
from torch import Tensor, nn

from ..files.shape import refusal
from .recurrent import CHUNK, CHUNK_BY_CHANNEL, delta_rule, running, scan_rule

CONVOLUTION, SCAN = "causal_conv1d_fn", "mamba2_chunk_scan"
DELTA = ("torch_chunk_gated_delta_rule", "chunk_kimi_delta_attention")
MEMORY = ("update_conv_state", "update_recurrent_state")  # of transformers' cache: who calls them has a state
NO_LIMIT = (0.0, float("inf"))


def _convolution(stock_convolution: Callable[..., Any]) -> Callable[..., Any]:
    def convolution(
        hidden_states: Tensor, weight: Tensor, bias: Tensor | None = None, activation: str | None = None, **options: Any
    ) -> Tensor:
        if (states := running.get()) is None:
            return stock_convolution(hidden_states, weight, bias, activation=activation, **options)
        return states.convolve(hidden_states, weight, bias, activation)

    return convolution


def _delta(stock_rule: Callable[..., Any]) -> Callable[..., Any]:
    def rule(query: Tensor, key: Tensor, value: Tensor, g: Tensor, beta: Tensor, **options: Any) -> Any:
        if (states := running.get()) is None:
            return stock_rule(query, key, value, g=g, beta=beta, **options)
        heads, by_channel = value.shape[2], g.ndim == 4
        queries, keys, values, decay, betas = (
            _by_head(rows, heads, states.dtype)
            for rows in (query, key, value, g if by_channel else g[..., None], beta[..., None])
        )
        if options.get("use_qk_l2norm_in_kernel"):
            queries, keys = (x * torch.rsqrt(x.square().sum(-1, keepdim=True) + 1e-6) for x in (queries, keys))
        rows = queries * queries.shape[2] ** -0.5, keys, values, decay, betas
        size, chunk = (heads, keys.shape[2], values.shape[2]), CHUNK_BY_CHANNEL if by_channel else CHUNK
        out, state = states.recur(delta_rule, rows, size, chunk)
        return out.transpose(0, 1)[None].to(query.dtype), state

    return rule


def _scan(stock_scan: Callable[..., Any]) -> Callable[..., Any]:
    def scan(
        hidden_states: Tensor, dt: Tensor, A: Tensor, B: Tensor, C: Tensor, chunk_size: int, D: Tensor | None = None,
        dt_bias: Tensor | None = None, dt_softplus: bool = False, dt_limit: Sequence[float] = NO_LIMIT, **options: Any,
    ) -> Any:  # fmt: skip
        if (states := running.get()) is None:
            return stock_scan(
                hidden_states, dt, A, B, C, chunk_size, D=D, dt_bias=dt_bias, dt_softplus=dt_softplus,
                dt_limit=dt_limit, **options,
            )  # fmt: skip
        heads, dt = hidden_states.shape[2], dt if dt_bias is None else dt + dt_bias.to(dt.dtype)
        steps = _by_head((F.softplus(dt) if dt_softplus else dt)[..., None], heads, states.dtype)
        if tuple(dt_limit) != NO_LIMIT:  # transformers limits the steps of a prompt's rows, not those of later ones
            reads = torch.as_tensor(states.reads, device=steps.device)[None, :, None]
            steps = torch.where(reads, steps.clamp(*dt_limit), steps)
        values, keys, queries = (_by_head(rows, heads, states.dtype) for rows in (hidden_states, B, C))
        rows = queries, keys, values * steps, A.to(steps)[:, None, None] * steps
        out, state = states.recur(scan_rule, rows, (heads, keys.shape[2], values.shape[2]))
        out = out if D is None else out + D.to(out)[:, None, None] * values
        out = out if states.dtype is None else out.to(hidden_states.dtype)
        return out.transpose(0, 1)[None].contiguous(), state

    return scan


def _by_head(
    rows: Float[Tensor, "1 rows groups size"], heads: int, dtype: torch.dtype | None
) -> Float[Tensor, "heads rows size"]:
    """Rows of each head in ``dtype`` (None: fp32, or fp64 as they are); a group serves heads that follow each other."""
    head_rows = rows[0].to(dtype or (torch.float64 if rows.dtype == torch.float64 else torch.float32)).transpose(0, 1)
    return head_rows if len(head_rows) == heads else head_rows.repeat_interleave(heads // len(head_rows), 0)


FOLLOWING = {CONVOLUTION: _convolution, SCAN: _scan, **dict.fromkeys(DELTA, _delta)}


def has_state(module: nn.Module) -> bool:
    """True where a module's own code keeps a recurrent state in the cache."""
    return any(name in _names(_own_forward(module)) for name in MEMORY)


def _names(function: Any) -> Sequence[str]:
    """Names that a function's code refers to."""
    return getattr(getattr(function, "__code__", None), "co_names", ())


def _own_forward(module: nn.Module) -> Any:
    forward: Any = type(module).forward
    while hasattr(forward, "__wrapped__"):
        forward = forward.__wrapped__
    return forward


def replace_in_forward(module: nn.Module, **names: Any) -> None:
    """Have a module's own forward run with other objects in the place of these globals of its code."""
    forward = _own_forward(module)
    namespace = {**forward.__globals__, **names}
    function = types.FunctionType(
        forward.__code__, namespace, forward.__name__, forward.__defaults__, forward.__closure__
    )
    function.__kwdefaults__ = forward.__kwdefaults__
    module.forward = types.MethodType(function, module)


def follow_paths(layers: nn.ModuleList, family: str) -> tuple[int, ...]:
    """Have the recurrent layers of a model follow the paths of the running forward, and say which they are.

    Raises UserError for a layer with a state that is not updated by one of the rules here.
    """
    recurrent = []
    for index, layer in enumerate(layers):
        for module in filter(has_state, layer.modules()):
            forward = _own_forward(module)
            names = _names(forward)
            used_names = [name for name in FOLLOWING if name in names]
            if CONVOLUTION not in used_names or (MEMORY[1] in names and len(used_names) < 2):
                reason = f"its {type(module).__name__} keeps a state by a rule that cannot follow a draft tree"
                raise refusal(family, reason)
            replace_in_forward(module, **{name: FOLLOWING[name](forward.__globals__[name]) for name in used_names})
            recurrent.append(index)
    return tuple(dict.fromkeys(recurrent))
