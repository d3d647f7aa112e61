"""Rewirings of a drafting network: the same tensors, joined as another layout or configuration would join them.

A checkpoint or a converter may swap two tensors, order heads or rotary pairs otherwise, or concatenate its inputs in
another order. None of this changes a shape, so nothing refuses it. Each rewiring undoes one such mistake.
"""

from __future__ import annotations

import copy
import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from itertools import combinations
from typing import Any

import torch
from torch import Tensor, nn

from decoders.model.engines.linear import WeightLayer

Tensors = dict[str, Tensor]
ATTENTION = ("q_proj", "k_proj", "v_proj", "o_proj")
BOTH_WAYS = (("forward", 1), ("back", -1))


@dataclass(frozen=True, slots=True)
class Rewiring:
    """A rewiring: its ``cause`` and ``change`` in words, and the ``tensors`` that differ, by their names."""

    cause: str
    change: str
    tensors: Callable[[], Tensors]


def rewire(network: Any, tensors: Mapping[str, Tensor]) -> Any:
    """The network with other tensors under some of its names; all others are shared with it."""
    if isinstance(network, WeightLayer):  # packed: the plain layer has the same numbers
        layer: Any = network
        weight, bias = tensors.get("weight", layer.weight), tensors.get("bias", layer.bias)
        linear: Any = nn.Linear(weight.shape[1], weight.shape[0], bias=bias is not None, device="meta")
        linear.weight = nn.Parameter(weight, requires_grad=False)
        linear.bias = None if bias is None else nn.Parameter(bias, requires_grad=False)
        return linear
    variant = copy.copy(network)
    for store in ("_modules", "_parameters", "_buffers"):
        setattr(variant, store, dict(getattr(network, store)))
    inner = dict[str, Tensors]()
    for name, tensor in tensors.items():
        first, _, tail = name.partition(".")
        if tail:
            inner.setdefault(first, {})[tail] = tensor
        elif first in variant._buffers:
            variant._buffers[first] = tensor
        else:
            variant._parameters[first] = nn.Parameter(tensor, requires_grad=False)
    for first, subtree in inner.items():
        variant._modules[first] = rewire(network._modules[first], subtree)
    if "embed_tokens" in inner:  # a table of its own, which the network reads under its other name
        object.__setattr__(variant, "embedding", variant._modules["embed_tokens"])
    return variant


def rewirings(network: nn.Module) -> Iterator[Rewiring]:
    """All rewirings that a network's tensors allow."""
    yield from _attention(network)
    yield from _qkv_matrix(network)
    yield from _glimpse(network)
    yield from _mlp(network)
    yield from _inputs(network)
    yield from _head_order(network)
    yield from _layer_order(network)
    yield from _transitions(network)
    yield from _norms(network)
    yield from _transposes(network)
    yield from _tables(network)


def orders(count: int) -> Iterator[tuple[int, ...]]:
    """Other orders of a few things: rotations, the reversal, and two of them swapped.

    >>> list(orders(3))
    [(1, 2, 0), (2, 0, 1), (2, 1, 0), (1, 0, 2), (0, 2, 1)]
    """
    first = tuple(range(count))
    candidates = [first[by:] + first[:by] for by in range(1, count)] + [first[::-1]]
    for i, j in combinations(first, 2):
        swapped_order = list(first)
        swapped_order[i], swapped_order[j] = j, i
        candidates.append(tuple(swapped_order))
    yield from (order for order in dict.fromkeys(candidates) if order != first)


def _modules(network: nn.Module, *children: str) -> list[tuple[str, Any]]:
    """Modules that have these children, with the beginning of their tensors' names."""
    return [
        (f"{name}." if name else "", module) for name, module in network.named_modules()
        if all(isinstance(getattr(module, child, None), nn.Module) for child in children)
    ]  # fmt: skip


def _change_modules(modules: list[tuple[str, Any]], change: Callable[[Any], Tensors]) -> Callable[[], Tensors]:
    """The change made in each of the modules."""
    return lambda: {f"{start}{name}": tensor for start, module in modules for name, tensor in change(module).items()}


def _rows(module: Any, child: str, change: Callable[[Tensor], Tensor]) -> Tensors:
    """A linear layer's outputs changed: rows of its weight, and its bias."""
    linear = getattr(module, child)
    tensors = {f"{child}.weight": change(linear.weight)}
    return tensors if linear.bias is None else {**tensors, f"{child}.bias": change(linear.bias)}


def _columns(module: Any, child: str, change: Callable[[Tensor], Tensor]) -> Tensors:
    """A linear layer's inputs changed: columns of its weight."""
    return {f"{child}.weight": change(getattr(module, child).weight.mT).mT.contiguous()}


def _exchange(module: Any, left_name: str, right_name: str) -> Tensors:
    """Two linear layers, each with the other's tensors."""
    layers = {left_name: getattr(module, right_name), right_name: getattr(module, left_name)}
    tensors = {f"{name}.weight": layer.weight for name, layer in layers.items()}
    has_biases = all(layer.bias is not None for layer in layers.values())
    return {**tensors, **{f"{name}.bias": layer.bias for name, layer in layers.items() if has_biases}}


def _roll(size: int, by: int) -> Callable[[Tensor], Tensor]:
    return lambda rows: rows.roll(by * size, 0)


def _reverse(size: int) -> Callable[[Tensor], Tensor]:
    return lambda rows: rows.unflatten(0, (-1, size)).flip(0).flatten(0, 1)


def _regroup(first: int, second: int, size: int) -> Callable[[Tensor], Tensor]:
    """Rows that lie as [first, second, size] as [second, first, size]."""
    return lambda rows: rows.unflatten(0, (-1, first, second, size)).transpose(1, 2).flatten(0, 3)


def _layouts(size: int) -> Iterator[tuple[str, Callable[[Tensor], Tensor]]]:
    """Both ways between rotary pairs side by side and in halves, in words."""
    yield "pairs side by side to halves", _regroup(size // 2, 2, 1)
    yield "halves to pairs side by side", _regroup(2, size // 2, 1)


def _attention(network: nn.Module) -> Iterator[Rewiring]:
    modules = _modules(network, *ATTENTION)
    if not modules:
        return
    sample = modules[0][1]
    shapes = {name: getattr(sample, name).weight.shape for name in ATTENTION}
    size = getattr(sample, "size", None) or getattr(sample, "head_dim", 0)
    if not size:
        return
    for first_part, second_part in (("k", "v"), ("q", "k"), ("q", "v")):
        if shapes[f"{first_part}_proj"] == shapes[f"{second_part}_proj"]:
            names = f"{first_part}_proj", f"{second_part}_proj"
            yield Rewiring(
                f"{first_part} and {second_part}", f"{first_part}_proj and {second_part}_proj exchanged",
                _change_modules(modules, lambda module, names=names: _exchange(module, *names)),
            )  # fmt: skip
    for words, layout in _layouts(size):
        for names in (("q_proj", "k_proj"), ("q_proj",), ("k_proj",)):
            yield Rewiring("rotary layout", f"rows of {' and '.join(names)} from {words}", _change_modules(
                modules, lambda module, names=names, layout=layout: {
                    key: rows for name in names for key, rows in _rows(module, name, layout).items()
                },
            ))  # fmt: skip
    heads, kv_heads = shapes["q_proj"][0] // size, shapes["k_proj"][0] // size
    moves = [(f"one head {words}", _roll(size, by)) for words, by in BOTH_WAYS]
    moves.append(("in reverse", _reverse(size)))
    if 1 < kv_heads < heads:
        sizes = kv_heads, heads // kv_heads
        moves += [("from the other grouping", _regroup(a, b, size)) for a, b in (sizes, sizes[::-1])]
    for names in (("q_proj",), ("k_proj", "v_proj"), ("k_proj",), ("v_proj",), ("o_proj",), ("q_proj", "o_proj")):
        count = kv_heads if names[0][0] in "kv" else heads
        for words, move in moves if count == heads else moves[:3]:
            if count > 1:
                yield Rewiring("head order", f"heads of {' and '.join(names)} {words}", _change_modules(
                    modules, lambda module, names=names, move=move: {
                        key: tensor for name in names
                        for key, tensor in (_columns if name == "o_proj" else _rows)(module, name, move).items()
                    },
                ))  # fmt: skip


def _qkv_matrix(network: nn.Module) -> Iterator[Rewiring]:
    """A draft model's layers, whose queries, keys and values are one matrix, and gate and up another."""
    modules = _modules(network, "qkv", "gate_up")
    if not modules:
        return
    sample = modules[0][1]
    width, heads = sample.out.weight.shape[0], sample.heads
    size = width // heads

    def change(part: slice, move: Callable[[Tensor], Tensor]) -> Callable[[Any], Tensors]:
        def of(module: Any) -> Tensors:
            rows = module.qkv.weight.unflatten(0, (3, width)).clone()
            rows[part] = torch.stack([move(matrix) for matrix in rows[part]])
            return {"qkv.weight": rows.flatten(0, 1)}

        return of

    for order in orders(3):
        names = ", ".join("qkv"[place] for place in order)
        yield Rewiring("q, k, v", f"rows of qkv read as {names}", _change_modules(
            modules, lambda module, order=order: _rows(
                module, "qkv", lambda rows: rows.unflatten(0, (3, width))[list(order)].flatten(0, 1))))  # fmt: skip
    for first, second, words in ((heads, 3, "head by head"), (3, heads, "matrix by matrix")):
        yield Rewiring("q, k, v", f"rows of qkv, which lie {words}, regrouped", _change_modules(
            modules, lambda module, sizes=(first, second, size): _rows(module, "qkv", _regroup(*sizes))))  # fmt: skip
    for words, layout in _layouts(size):
        for name, part in (("q and k", slice(0, 2)), ("q", slice(0, 1)), ("k", slice(1, 2))):
            reading = _change_modules(modules, change(part, layout))
            yield Rewiring("rotary layout", f"rows of {name} from {words}", reading)
    for words, move in (*((f"one head {way}", _roll(size, by)) for way, by in BOTH_WAYS),
                        ("in reverse", _reverse(size))):  # fmt: skip
        for name, part in (("q", slice(0, 1)), ("k", slice(1, 2)), ("v", slice(2, 3)), ("k and v", slice(1, 3))):
            yield Rewiring("head order", f"heads of {name} {words}", _change_modules(modules, change(part, move)))
        yield Rewiring("head order", f"heads of the output matrix {words}", _change_modules(
            modules, lambda module, move=move: _columns(module, "out", move)))  # fmt: skip
    ways: tuple[tuple[str, Callable[[Tensor], Tensor]], ...] = (
        ("exchanged", lambda rows: rows.roll(len(rows) // 2, 0)),
        ("from row by row to halves", lambda rows: _regroup(len(rows) // 2, 2, 1)(rows)),
    )
    for words, move in ways:
        yield Rewiring("gate and up", f"gate and up {words}", _change_modules(
            modules, lambda module, move=move: _rows(module, "gate_up", move)))  # fmt: skip


def _glimpse(network: nn.Module) -> Iterator[Rewiring]:
    """GLIDE's queries to the target's keys: heads and rotary pairs are the target's."""
    modules = [(start, module) for start, module in _modules(network, "query", "out") if hasattr(module, "heads")]
    if not modules:
        return
    size = modules[0][1].query.weight.shape[0] // modules[0][1].heads
    for words, layout in _layouts(size):
        yield Rewiring("glimpse's rotary layout", f"rows of its queries from {words}", _change_modules(
            modules, lambda module, layout=layout: _rows(module, "query", layout)))  # fmt: skip
    for words, move in (*((f"one head {way}", _roll(size, by)) for way, by in BOTH_WAYS),
                        ("in reverse", _reverse(size))):  # fmt: skip
        yield Rewiring("glimpse's heads", f"heads of its queries {words}", _change_modules(
            modules, lambda module, move=move: _rows(module, "query", move)))  # fmt: skip
        yield Rewiring("glimpse's heads", f"heads of its output matrix {words}", _change_modules(
            modules, lambda module, move=move: _columns(module, "out", move)))  # fmt: skip
        yield Rewiring("glimpse's heads", f"heads of its queries and of its output matrix {words}", _change_modules(
            modules, lambda module, move=move: {**_rows(module, "query", move), **_columns(module, "out", move)},
        ))  # fmt: skip


def _mlp(network: nn.Module) -> Iterator[Rewiring]:
    if modules := _modules(network, "gate_proj", "up_proj", "down_proj"):
        change = _change_modules(modules, lambda module: _exchange(module, "gate_proj", "up_proj"))
        yield Rewiring("gate and up", "gate_proj and up_proj exchanged", change)


def _blocks(count: int, order: tuple[int, ...]) -> Callable[[Tensor], Tensor]:
    """The ``count`` parts that inputs are joined of, in another order."""
    return lambda rows: rows.unflatten(0, (count, -1))[list(order)].flatten(0, 1)


def _inputs(network: nn.Module) -> Iterator[Rewiring]:
    """Orders in which token and state, or the tokens of a grounded head, are joined."""
    words, halves = "input order", _blocks(2, (1, 0))
    for start, module in _modules(network, "fc", "layers"):
        if not start and getattr(module.config, "third", None) is False:
            change = "state and token in the other order"
            yield Rewiring(words, change, lambda module=module: _columns(module, "fc", halves))
    pairs = [(start, module) for start, module in _modules(network, "self_attn") if getattr(module, "pairs", False)]
    if pairs:
        yield Rewiring(words, "token and state in the other order", _change_modules(pairs, lambda layer: {
            f"self_attn.{key}": tensor for name in ATTENTION[:3]
            for key, tensor in _columns(layer.self_attn, name, halves).items()
        }))  # fmt: skip
    if modules := _modules(network, "eh_proj"):
        change = "token and state in the other order"
        yield Rewiring(words, change, _change_modules(modules, lambda module: _columns(module, "eh_proj", halves)))
    input_linears = [(f"{start}linear.", module, module.linear.in_features // module.hidden)
              for start, module in _modules(network, "linear") if hasattr(module, "hidden")]  # fmt: skip
    if any(count > 1 for _, _, count in input_linears):
        ways: tuple[tuple[str, Callable[[int], tuple[int, ...]]], ...] = (
            ("the tokens last to first", lambda count: (0, *range(count - 1, 0, -1))),
            ("the state last", lambda count: (count - 1, *range(count - 1))),
            ("the state first", lambda count: (*range(1, count), 0)),
            ("everything in reverse", lambda count: tuple(range(count - 1, -1, -1))),
        )
        for change, way in ways:
            yield Rewiring(words, change, lambda way=way: {
                f"{start[:-7]}{key}": tensor for start, module, count in input_linears if count > 1
                for name in ("linear", "skip") if getattr(module, name, None) is not None
                for key, tensor in _columns(module, name, _blocks(count, way(count))).items()
            })  # fmt: skip


def _head_order(network: nn.Module) -> Iterator[Rewiring]:
    """Parallel heads, of which each guesses another distance."""
    heads, outputs = getattr(network, "heads", None), getattr(network, "outputs", None)
    if not isinstance(heads, nn.ModuleList) or not isinstance(outputs, nn.ModuleList) or len(heads) < 2:
        return

    def reorder(group: str, modules: nn.ModuleList, order: tuple[int, ...]) -> Tensors:
        shapes = {name: tensor.shape for name, tensor in modules[0].state_dict().items()}
        return {
            f"{group}.{place}.{name}": tensor for place, source in enumerate(order)
            for name, tensor in modules[source].state_dict().items() if tensor.shape == shapes[name]
        }  # fmt: skip

    alike = len({tuple(tensor.shape for tensor in head.state_dict().values()) for head in heads}) == 1
    groups = {"heads": heads, "outputs": outputs}
    ways = [("heads", "outputs"), ("heads",), ("outputs",)] if alike else [("outputs",)]
    for names in ways:
        for order in orders(len(heads)):
            order_text = ", ".join(str(place + 1) for place in order)
            change = f"{' and '.join(names)} in the order {order_text}"
            yield Rewiring("head order", change, lambda names=names, order=order: {
                key: tensor for name in names for key, tensor in reorder(name, groups[name], order).items()
            })  # fmt: skip


def _layer_order(network: nn.Module) -> Iterator[Rewiring]:
    """Layers of one form, each at another's place."""
    layers = getattr(network, "layers", None)
    if not isinstance(layers, nn.ModuleList):
        return
    states = [{name: tensor.shape for name, tensor in layer.state_dict().items()} for layer in layers]
    if len(layers) > 1 and all(state == states[0] for state in states):
        for order in orders(len(layers)):
            order_text = ", ".join(map(str, order))
            yield Rewiring("order of its layers", f"its layers in the order {order_text}", lambda order=order: {
                f"layers.{place}.{name}": tensor for place, source in enumerate(order)
                for name, tensor in layers[source].state_dict().items()
            })  # fmt: skip


def _transitions(network: nn.Module) -> Iterator[Rewiring]:
    """A block drafter's tables between neighbouring tokens, and its kernels."""
    for first_name, second_name in (
        ("markov_head.markov_w1.weight", "markov_head.markov_w2.weight"),
        ("candidate_selector.predecessor_codebook", "candidate_selector.successor_codebook"),
    ):  # fmt: skip
        if hasattr(network, first_name.partition(".")[0]):
            tensors = _tensor(network, first_name), _tensor(network, second_name)
            if tensors[0].shape == tensors[1].shape:
                change = partial(_swap_weights, network, first_name, second_name)
                yield Rewiring("transition", f"{first_name} and {second_name} exchanged", change)
    kernels = [f"{path}.base_kernel" for path, module in network.named_modules() if hasattr(module, "base_kernel")]
    for words, dim in (("in front and behind exchanged", 0), ("in reverse", 1)):
        if kernels:
            yield Rewiring("convolution", f"taps {words}" if dim else f"kernels {words}", lambda dim=dim: {
                name: _tensor(network, name).flip(dim) for name in kernels})  # fmt: skip


def _swap_weights(network: nn.Module, first_name: str, second_name: str) -> dict[str, Tensor]:
    """Two weights, each in the place of the other."""
    return {first_name: _tensor(network, second_name), second_name: _tensor(network, first_name)}


def _groups(network: nn.Module, condition: Callable[[str, Any], bool]) -> dict[str, list[str]]:
    """Names of weights that are wanted, by what they are called in any layer."""
    groups = dict[str, list[str]]()
    for path, module in network.named_modules():
        if isinstance(getattr(module, "weight", None), Tensor) and condition(path, module):
            groups.setdefault(re.sub(r"\.\d+(?=\.|$)", "", path), []).append(f"{path}.weight")
    return groups


def _tensor(network: nn.Module, name: str) -> Tensor:
    path, _, last = name.rpartition(".")
    return getattr(network.get_submodule(path), last)


def _norms(network: nn.Module) -> Iterator[Rewiring]:
    """Two norms exchanged; weights that are stored less 1, or with 1 added to them."""
    groups = _groups(network, lambda path, module: "norm" in path and module.weight.ndim == 1)
    for first_group, second_group in combinations(groups, 2):
        names = [*groups[first_group], *groups[second_group]], [*groups[second_group], *groups[first_group]]
        sizes = {_tensor(network, name).shape for name in names[0]}
        if len(groups[first_group]) == len(groups[second_group]) and len(sizes) == 1:
            yield Rewiring("norms", f"{first_group} and {second_group} exchanged", lambda names=names: {
                name: _tensor(network, source) for name, source in zip(*names, strict=True)})  # fmt: skip
    norm_names = [name for names in groups.values() for name in names]
    for words, by in (("1 added to", 1.0), ("1 taken from", -1.0)):
        if norm_names:
            yield Rewiring("norms", f"{words} the weights of all norms", lambda by=by: {
                name: _tensor(network, name) + by for name in norm_names})  # fmt: skip


def _transposes(network: nn.Module) -> Iterator[Rewiring]:
    """Square matrices the other way round: those of one name in all layers, or all at once."""

    def square(path: str, module: Any) -> bool:
        shape = module.weight.shape
        return module.weight.ndim == 2 and shape[0] == shape[1] and "embed" not in path

    groups = _groups(network, square)
    matrix_names = [name for names in groups.values() for name in names]
    name_groups = [*groups.items(), *([("all square matrices", matrix_names)] if len(groups) > 1 else [])]
    for words, names in name_groups:
        yield Rewiring("transposed", f"{words} transposed", lambda names=names: {
            name: _tensor(network, name).mT.contiguous() for name in names})  # fmt: skip
    if fused := _modules(network, "qkv"):
        yield Rewiring("transposed", "q, k and v transposed", _change_modules(fused, lambda module: {
            "qkv.weight": module.qkv.weight.unflatten(0, (3, -1)).mT.flatten(0, 1)}))  # fmt: skip


def _tables(network: nn.Module) -> Iterator[Rewiring]:
    """An embedding or output layer of its own whose rows are those of the tokens before or behind, or exchanged."""
    names = {child: path for path, child in (
        ("embed_tokens.weight", "embed_tokens"), ("embedding.weight", "embedding"),
        ("lm_head.weight", "lm_head"), ("head.weight", "head"),
    ) if child in network._modules}  # fmt: skip
    for child, path in names.items():
        cause = "embedding" if "embed" in child else "output layer"
        for words, by in BOTH_WAYS:
            yield Rewiring(cause, f"its rows one token {words}", lambda path=path, by=by: {
                path: _tensor(network, path).roll(by, 0)})  # fmt: skip
    shapes = {path: _tensor(network, path).shape for path in names.values()}
    if len(names) == 2 and len(set(shapes.values())) == 1:
        embedding, head = names.values()
        tables: tuple[tuple[str, str, dict[str, str]], ...] = (
            ("embedding", "embedding and output layer exchanged", {embedding: head, head: embedding}),
            ("output layer", "the embedding as output layer (tied)", {head: embedding}),
            ("embedding", "the output layer as embedding (tied)", {embedding: head}),
        )
        for cause, change, sources in tables:
            yield Rewiring(cause, change, lambda sources=sources: {
                path: _tensor(network, source) for path, source in sources.items()})  # fmt: skip
