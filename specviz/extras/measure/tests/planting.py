"""Faults planted in drafters, for the doctor to find: one thing wrong in a part's file, in its setup or in a server."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from decoders.model.target_model.target import Target
from decoders.parts import find_part, part_weights, read_part, save_part
from decoders.prompt.prompt import Prompt

from ..doctor.doctor import Report, examine
from ..doctor.forced_drafts import Drafting
from ..doctor.server import ServerNumbers
from ..doctor.setup import drafting_of

Weights = dict[str, Tensor]
Change = Callable[[Target, Any, Weights], tuple[Any, Weights]]


@dataclass(frozen=True)
class Fault:
    """A fault to plant in a part of the ``kind``, in words, and the ``causes`` of which the doctor has to name one.

    ``change``: of the part's configuration and weights. ``reads``: of the states that the engine hands over.
    ``server``: the cause of the control whose acceptance a server reports.
    """

    kind: str
    words: str
    causes: tuple[str, ...]
    change: Change | None = None
    reads: Mapping[str, Any] | None = None
    server: str = ""


def setting(**changes: Any) -> Change:
    return lambda target, config, weights: (replace(config, **changes), weights)


def reversed_features(target: Target, config: Any, weights: Weights) -> tuple[Any, Weights]:
    return replace(config, features=config.features[::-1]), weights


def earlier_layer(target: Target, config: Any, weights: Weights) -> tuple[Any, Weights]:
    return replace(config, features=tuple(layer - 1 for layer in config.features)), weights


def dropped_head(target: Target, config: Any, weights: Weights) -> tuple[Any, Weights]:
    """Without the first head: each of the others guesses a token further than its place says."""
    first = (["heads", "0"], ["outputs", "0"])
    left = {name: tensor for name, tensor in weights.items() if name.split(".")[:2] not in first}
    for name in list(left):
        group, _, place = name.partition(".")
        if group in ("heads", "outputs"):
            number, *rest = place.split(".")
            left[".".join((group, str(int(number) - 1), *rest))] = left.pop(name)
    return replace(config, heads=config.heads - 1), left


def rare_vocabulary(target: Target, config: Any, weights: Weights) -> tuple[Any, Weights]:
    """A draft vocabulary of the tokens that are not in the part's own, or of the last ones."""
    drafted, vocab = weights["drafted"], config.vocab
    others = sorted({*range(vocab)} - {*drafted.tolist()})[-len(drafted) :]
    return replace(config, draft_vocab=len(others)), {**weights, "drafted": torch.tensor(others, dtype=drafted.dtype)}


def own_embedding(target: Target, config: Any, weights: Weights) -> tuple[Any, Weights]:
    """An embedding of its own: the target's with the rows of other tokens, as another checkpoint's would be."""
    table: Any = target.embeddings
    rows = table.weight.detach().float().roll(1, 0)
    return replace(config, own_embedding=True), {**weights, "embed_tokens.weight": rows}


def own_head(target: Target, config: Any, weights: Weights) -> tuple[Any, Weights]:
    """An output layer of its own, whose rows are those of other tokens."""
    head: Any = target.head.weight
    rows = head.detach().float()[weights["drafted"].long()] if "drafted" in weights else head.detach().float()
    return replace(config, shared=False), {**weights, "lm_head.weight": rows.roll(1, 0)}


def features(*layers: int) -> Change:
    """Other layers' states: counted from the model's last one where they are negative."""
    def change(target: Target, config: Any, weights: Weights) -> tuple[Any, Weights]:
        last = target.shape.layers
        return replace(config, features=tuple(layer + last + 1 if layer < 0 else layer for layer in layers)), weights
    return change


def first_kv_layer(target: Target, config: Any, weights: Weights) -> tuple[Any, Weights]:
    """Keys and values of another layer: the first one, or the last where that is the part's own."""
    last = target.shape.layers - 1
    return replace(config, kv_layers=tuple(0 if layer else last for layer in config.kv_layers)), weights


def exchange(one: str, other: str) -> Change:
    """Tensors whose names differ in this alone, each under the other's."""
    def change(target: Target, config: Any, weights: Weights) -> tuple[Any, Weights]:
        names = {name: name.replace(one, other) if one in name else name.replace(other, one) for name in weights}
        return config, {name: weights[source] for name, source in names.items()}
    return change


def of_tensors(ending: str, move: Callable[[Any, Tensor], Tensor]) -> Change:
    """Tensors whose names end so, changed."""
    def change(target: Target, config: Any, weights: Weights) -> tuple[Any, Weights]:
        changed = {name: move(config, rows).contiguous() for name, rows in weights.items() if name.endswith(ending)}
        assert changed, f"there is no tensor {ending}"
        return config, {**weights, **changed}
    return change


def both(*changes: Change) -> Change:
    def change(target: Target, config: Any, weights: Weights) -> tuple[Any, Weights]:
        for step in changes:
            config, weights = step(target, config, weights)
        return config, weights
    return change


def halves(dim: int) -> Callable[[Any, Tensor], Tensor]:
    """The two halves that a tensor is joined of, in the other order."""
    return lambda config, rows: torch.cat(rows.chunk(2, dim)[::-1], dim)


def a_head_on(dim: int, by: int = 1) -> Callable[[Any, Tensor], Tensor]:
    """Every head's rows or columns at the next head's place."""
    return lambda config, rows: rows.roll(by * _head_size(config), dim)


def pair_rows(config: Any, rows: Tensor) -> Tensor:
    """Rotary pairs side by side, where they were in halves."""
    return rows.unflatten(0, (-1, 2, _head_size(config) // 2)).transpose(1, 2).flatten(0, 2)


def _head_size(config: Any) -> int:
    return getattr(config, "head_dim", 0) or config.hidden // config.heads


def qkv_order(*order: int) -> Callable[[Any, Tensor], Tensor]:
    """The parts of q, k and v in another order."""
    return lambda config, rows: torch.cat([rows.chunk(3)[place] for place in order])


def qkv_pairs(config: Any, rows: Tensor) -> Tensor:
    query, keys, values = rows.chunk(3)
    return torch.cat([pair_rows(config, query), pair_rows(config, keys), values])


def rotated_heads(by: int) -> Change:
    """Parallel heads, each at another's place."""
    def change(target: Target, config: Any, weights: Weights) -> tuple[Any, Weights]:
        moved = {}
        for name, tensor in weights.items():
            group, _, rest = name.partition(".")
            if group in ("heads", "outputs"):
                place, _, rest = rest.partition(".")
                name = f"{group}.{(int(place) + by) % config.heads}.{rest}"
            moved[name] = tensor
        return config, moved
    return change


def rotated_outputs(target: Target, config: Any, weights: Weights) -> tuple[Any, Weights]:
    """Output layers of parallel heads, each at the next one's place."""
    names = {f"outputs.{place}.weight": f"outputs.{(place + 1) % config.heads}.weight" for place in range(config.heads)}
    return config, {**weights, **{name: weights[source] for name, source in names.items()}}


def tokens_reversed(target: Target, config: Any, weights: Weights) -> tuple[Any, Weights]:
    """A grounded head's tokens joined last to first."""
    changed = {}
    for name, rows in weights.items():
        if name.endswith(".0.linear.weight") and (count := rows.shape[1] // config.hidden) > 1:
            parts = rows.chunk(count, 1)
            changed[name] = torch.cat([parts[0], *parts[:0:-1]], 1)
    return config, {**weights, **changed}


def transpose(config: Any, rows: Tensor) -> Tensor:
    return rows.mT


FAULTS = (
    Fault("eagle3", "its three states joined in the other order", ("layer order",), reversed_features),
    Fault("eagle3", "norm_before_residual set", ("residual",), setting(norm_before_residual=True)),
    Fault("eagle3", "norm_output set: other states are fed back", ("state fed back",), setting(norm_output=True)),
    Fault(
        "eagle3", "rotary base 10", ("rotary base",), setting(rope={"rope_type": "default", "rope_theta": 10.0}),
    ),
    Fault("eagle3", "an output layer of another checkpoint", ("output layer",), own_head),
    Fault("eagle3", "states after the norm, which it never saw", ("norm",), reads={"norm": True}),
    Fault("eagle", "the state one layer earlier", ("layer ids",), earlier_layer),
    Fault("eagle", "an embedding of another checkpoint", ("embedding",), own_embedding),
    Fault("eagle", "the last state before the norm", ("norm",), reads={"norm": True}),
    Fault("eagle", "states from one position earlier", ("anchor",), reads={"shift": -1}),
    Fault("hydra", "hidden_state_offset 1", ("layer ids",), setting(hidden_state_offset=1)),
    Fault("medusa", "without its first head", ("anchor", "record"), dropped_head),
    Fault("drafter", "a draft vocabulary of rare tokens", ("draft vocabulary",), rare_vocabulary),
    Fault("glide", "keys and values of another layer", ("kv layer",), first_kv_layer),
    Fault("glide", "gate and up exchanged", ("gate and up",), of_tensors("gate_up.weight", halves(0))),
    Fault("glide", "k and v exchanged", ("q, k, v",), of_tensors("qkv.weight", qkv_order(0, 2, 1))),
    Fault("glide", "its glimpse's queries a head on", ("glimpse's heads",),
          of_tensors("glimpse.query.weight", a_head_on(0))),
    Fault("glide", "its glimpse's rotary pairs side by side", ("glimpse's rotary layout",),
          of_tensors("glimpse.query.weight", pair_rows)),
    Fault("drafter", "gate and up exchanged", ("gate and up",), of_tensors("gate_up.weight", halves(0))),
    Fault("drafter", "k and v exchanged", ("q, k, v",), of_tensors("qkv.weight", qkv_order(0, 2, 1))),
    Fault("drafter", "q and k exchanged", ("q, k, v",), of_tensors("qkv.weight", qkv_order(1, 0, 2))),
    Fault("drafter", "rotary pairs side by side", ("rotary layout",), of_tensors("qkv.weight", qkv_pairs)),
    Fault("drafter", "its output matrix transposed", ("transposed",), of_tensors("layers.0.out.weight", transpose)),
    Fault("drafter", "heads of its output matrix a head on", ("head order",),
          of_tensors("layers.0.out.weight", a_head_on(1))),
    Fault("eagle3", "gate and up exchanged", ("gate and up",), exchange("gate_proj", "up_proj")),
    Fault("eagle3", "k and v exchanged", ("k and v",), exchange("k_proj", "v_proj")),
    Fault("eagle3", "rotary pairs side by side", ("rotary layout",),
          both(of_tensors("q_proj.weight", pair_rows), of_tensors("k_proj.weight", pair_rows))),
    Fault("eagle3", "state and token joined in the other order", ("input order",), both(
        *(of_tensors(f"{name}_proj.weight", halves(1)) for name in "qkv"))),
    Fault("eagle3", "norms stored less 1", ("norms",), of_tensors("norm.weight", lambda config, rows: rows - 1)),
    Fault("eagle3", "its queries a head on", ("head order",), of_tensors("q_proj.weight", a_head_on(0))),
    Fault("eagle3", "its output matrix a head on", ("head order",), of_tensors("o_proj.weight", a_head_on(1))),
    Fault("eagle3", "the last states of the model", ("layer ids",), features(-3, -2, -1)),
    Fault("eagle", "state and token joined in the other order", ("input order",), of_tensors("fc.weight", halves(1))),
    Fault("eagle", "gate and up exchanged", ("gate and up",), exchange("gate_proj", "up_proj")),
    Fault("eagle", "its output matrix transposed", ("transposed",), of_tensors("o_proj.weight", transpose)),
    Fault("eagle", "a state from the middle of the model", ("layer ids",), features(3)),
    Fault("medusa", "heads rotated by one", ("head order", "anchor"), rotated_heads(1)),
    Fault("medusa", "heads rotated back by one", ("head order", "anchor"), rotated_heads(-1)),
    Fault("medusa", "its heads' matrices transposed", ("transposed",), of_tensors(".linear.weight", transpose)),
    Fault("hydra", "output layers rotated by one", ("head order",), rotated_outputs),
    Fault("hydra", "tokens joined last to first", ("input order",), tokens_reversed),
    Fault("eagle3", "a server whose prompts come from a prefix cache unread", ("server",), server="prompt unread"),
)  # fmt: skip


def is_possible(fault: Fault, target: Target) -> bool:
    """True where the target's part has what the fault is planted in."""
    place = find_part(target.key, fault.kind)
    return place is not None and (fault.change is not rare_vocabulary or read_part(place).config.draft_vocab > 0)


def plant(fault: Fault, target: Target, folder: Path) -> str:
    """The name of the part with the fault in it: a folder, or the kind where its file is as it was."""
    if fault.change is None:
        return fault.kind
    place = find_part(target.key, fault.kind)
    assert place is not None, f"there is no {fault.kind} for {target.name}"
    part = read_part(place)
    config, weights = fault.change(target, part.config, part_weights(place))
    return str(save_part(replace(part, config=config), weights, folder))


def drafting_with(fault: Fault, target: Target, folder: Path) -> Drafting:
    """The drafter with the fault."""
    drafting = drafting_of(target, plant(fault, target, folder))
    return drafting if fault.reads is None else drafting.with_reads(**fault.reads)


def examine_fault(
    fault: Fault, target: Target, prompts: Sequence[Prompt], healthy: Report, folder: Path, **settings: Any
) -> Report:
    """The doctor's report on a drafter with the fault; ``healthy`` is the one on the part without it."""
    server = None
    if fault.server:
        like = next(one for one in healthy.controls if one.cause == fault.server)
        server = ServerNumbers(like.length, tuple(like.by_position))
    drafting = drafting_with(fault, target, folder)
    return examine(drafting, prompts, part=fault.kind, server=server, **settings)


def finds(fault: Fault, report: Report) -> bool:
    """True where the report's first fault is the one that was planted."""
    if not report.faults or report.faults[0].cause not in fault.causes:
        return False
    return not fault.server or fault.server in report.faults[0].control
