"""Controls of the drafter doctor: a drafter as it is, with one thing changed that a wrong setup has otherwise.

Where acceptance rises with the change, the setup lacks it. Each control isolates one cause; which ones there are
depends on the network. The same changes, made to a healthy drafter, say what acceptance a server would have with that
fault.
"""

from __future__ import annotations

import copy
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import nn

from decoders.draft_models.eagle_head import EagleHead
from decoders.draft_models.heads import ParallelHeads
from decoders.draft_models.network import DraftModel

from .forced_drafts import Drafting

ROTARY_BASES = (10_000.0,)  # tried beside the target's own


@dataclass(frozen=True, slots=True)
class Control:
    """A drafter with one thing changed: its ``cause`` in a word or two, the change in a clause, and what to do where it
    helps.
    """

    cause: str
    change: str
    advice: str
    drafting: Drafting


@dataclass(frozen=True, slots=True)
class ControlOutcome:
    """A control's outcome: acceptance length, acceptance per position (``conditional``: behind the text's own tokens;
    ``by_position``: of all drafts), and by how many nats more the drafter expects the text's tokens, with its z.
    """

    cause: str
    change: str
    length: float
    conditional: list[float]
    by_position: list[float]
    gain: float
    z: float
    unit: str = "nats"


def controls(drafting: Drafting) -> Iterator[Control]:
    """All that make sense for a network and its target, in the order in which they are reported."""
    yield from _layers(drafting)
    yield from _states(drafting)
    if isinstance(drafting.network, EagleHead):
        yield from _eagle_options(drafting)
        yield from _rotary(drafting)
    yield from _borrow(drafting)
    yield from _vocabulary(drafting)
    network = drafting.network
    if not (isinstance(network, DraftModel) and network.config.kv_layers) and _reads_text(network):
        yield Control(
            "prompt unread", "without the prompt, but for its last tokens",
            "the drafter is better without the prompt: what it has of it is wrong. Check what fills its cache when the "
            "prompt comes from a prefix cache, and its positions there", drafting.with_reads(unread=True),
        )  # fmt: skip


def _layers(drafting: Drafting) -> Iterator[Control]:
    """Every state from a layer before or behind, and several in the other order."""
    layers, last = drafting.layers, drafting.target.shape.layers
    now = drafting.reads.layers
    for by, side in ((-1, "before"), (1, "behind")):
        moved = {layer: now.get(layer, layer) + by for layer in layers}
        if layers and all(0 <= place <= last for place in moved.values()):
            names = ", ".join(str(place) for place in moved.values())
            yield Control(
                "layer ids", f"states {names}: one layer {side}",
                f"take the states {names} (0 is the embeddings, {last} the last one after the norm): engines count "
                "layers from different ends, so look for an offset of one where the ids are read",
                drafting.with_reads(layers=moved),
            )  # fmt: skip
    if len(layers) > 1:
        order = dict(zip(layers, (now.get(layer, layer) for layer in reversed(layers)), strict=True))
        yield Control(
            "layer order", "the states in the other order",
            "join the states in the other order: the head was trained with the "
            + ("shallowest" if layers[0] > layers[-1] else "deepest") + " first",
            drafting.with_reads(layers=order),
        )  # fmt: skip


def _states(drafting: Drafting) -> Iterator[Control]:
    """The states of other positions, and with the last norm or without."""
    if not drafting.layers:
        return
    for by, side in ((-1, "earlier"), (1, "later")):
        if drafting.reads.shift + by <= 0:  # the root's own state is not there when a draft is made
            yield Control(
                "anchor", f"states from one position {side}",
                f"pair each token with the state one position {side}: the head was trained with another anchor",
                drafting.with_reads(shift=drafting.reads.shift + by),
            )  # fmt: skip
    places = [drafting.reads.layers.get(layer, layer) for layer in drafting.layers]
    raw = places == [drafting.target.shape.layers] and not drafting.reads.norm
    yield Control(
        "norm", "the last state before the final norm" if raw else "states after the final norm",
        f"hand over the state {'before' if raw else 'after'} the target's final norm: the head was trained on that",
        drafting.with_reads(norm=not drafting.reads.norm),
    )  # fmt: skip


def _eagle_options(drafting: Drafting) -> Iterator[Control]:
    """Switches of an EAGLE-3 head that change no shape."""
    head: EagleHead = drafting.network
    if not head.config.third:
        return
    state = not head.config.norm_output
    yield Control(
        "state fed back", f"what goes back in is the state {'after' if state else 'before'} the last norm",
        f"set norm_output to {str(state).lower()} in the head's description: its later tokens read its own states, and "
        "those it was trained with are the others", replace(drafting, network=_with(head, norm_output=state)),
    )  # fmt: skip
    residual = not head.config.norm_before_residual
    changed = _with(head, norm_before_residual=residual)
    changed._modules["layers"] = layers = nn.ModuleList(list(head.layers))
    first: Any = copy.copy(head.layers[0])
    first.norm_before_residual = residual
    layers[0] = first
    yield Control(
        "residual", f"attention is added to the state {'after' if residual else 'before'} its norm",
        f"set norm_before_residual to {str(residual).lower()} in the head's description",
        replace(drafting, network=changed),
    )  # fmt: skip


def _rotary(drafting: Drafting) -> Iterator[Control]:
    """Other bases of an EAGLE head's rotary positions."""
    head: EagleHead = drafting.network
    config = head.config
    own = float(config.rope.get("rope_theta", 0.0))
    theirs = getattr(drafting.target.config, "rope_parameters", None) or {}
    theta = theirs.get("rope_theta") if isinstance(theirs, dict) else None
    bases = [float(theta)] if isinstance(theta, int | float) else []
    for base in dict.fromkeys([*bases, *ROTARY_BASES]):
        if base != own:
            whose = "the target's, " if base in bases else ""
            yield Control(
                "rotary base", f"rotary base {base:,.0f} ({whose}not {own:,.0f})",
                f"set rope_theta to {base:,.0f} in the head's description",
                replace(drafting, network=_with(head, rope={"rope_type": "default", "rope_theta": base})),
            )  # fmt: skip


def _borrow(drafting: Drafting) -> Iterator[Control]:
    """The target's embedding and head in place of the network's own."""
    network, target = drafting.network, drafting.target
    if not isinstance(network, EagleHead) or network.config.hidden != target.shape.hidden:
        return
    like = network.fc.weight
    if network.config.own_embedding:
        changed = copy.copy(network)
        table: Any = target.embeddings
        rows = nn.Embedding.from_pretrained(table.weight.detach().to(like))
        object.__setattr__(changed, "embedding", rows)
        yield Control(
            "embedding", "the target's embedding in place of its own",
            "the embedding in the head's file is not this target's: share the target's, or take the head of this very "
            "checkpoint", replace(drafting, network=changed),
        )  # fmt: skip
    if not network.config.shared:
        changed = _with(network)
        weight: Any = target.head.weight
        rows = weight.detach() if network.drafted is None else weight.detach()[network.drafted.long()]
        changed._modules["lm_head"] = head = nn.Linear(*rows.mT.shape, bias=False, device="meta")
        head.weight = nn.Parameter(rows.to(like), requires_grad=False)
        yield Control(
            "output layer", "the target's head in place of its own",
            "the output layer in the head's file is not this target's: share the target's, or take the head of this "
            "very checkpoint", replace(drafting, network=changed),
        )  # fmt: skip


def _vocabulary(drafting: Drafting) -> Iterator[Control]:
    """A draft vocabulary's map read as ids where it holds offsets, and the other way round."""
    network = drafting.network
    drafted = getattr(network, "drafted", None)
    if drafted is None or network.config.shared:
        return
    count = torch.arange(len(drafted), device=drafted.device, dtype=drafted.dtype)
    for ids, change in ((drafted + count, "offsets"), (drafted - count, "ids")):
        whole = int(ids.min()) >= 0 and int(ids.max()) < network.config.vocab
        if whole and bool((ids.diff() > 0).all()):
            changed = copy.copy(network)
            changed._buffers = {**network._buffers, "drafted": ids}
            yield Control(
                "vocabulary map", f"the draft vocabulary's map holds {change}",
                f"read the draft vocabulary's map (d2t) as {change}: its tokens are others",
                replace(drafting, network=changed),
            )  # fmt: skip


def _with(network: Any, **changes: Any) -> Any:
    """The network with other settings, on the same weights."""
    changed = copy.copy(network)
    changed._modules = dict(network._modules)
    changed.config = replace(network.config, **changes)
    return changed


def _reads_text(network: Any) -> bool:
    """True where its drafts depend on more of the text than the last state and the draft."""
    return not isinstance(network, ParallelHeads) or network.prefix is not None
