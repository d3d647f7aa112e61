"""Controls of the drafter doctor: a drafter as it is, with one thing changed that a wrong setup has otherwise.

Where acceptance rises with the change, the setup lacks it. Each control isolates one cause; which ones there are
depends on the network. The same changes, made to a healthy drafter, say what acceptance a server would have with that
fault.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor, nn

from decoders.draft_models.forced_chain import usual_states, with_settings
from decoders.draft_models.network import DraftModel
from decoders.model.files.shape import ROTARIES

from .forced_drafts import Drafting
from .wirings import orders, rewire, rewirings

ROTARY_BASES = (10_000.0, 500_000.0, 1_000_000.0)  # tried beside the target's own
STATES_BYTES, TEXT_TOKENS = 2 << 30, 8192  # memory for states of layers that are searched, and tokens of all texts
NEAR = 3  # layers to either side that are searched for one of several states


@dataclass(frozen=True, slots=True)
class Control:
    """A drafter with one thing changed: its ``cause`` in a word or two, the change in a clause, and what to do where it
    helps.
    """

    cause: str
    change: str
    advice: str
    drafting: Drafting
    screened: bool = False  # one of many: it is tried at a few places first
    tensors: Callable[[], dict[str, Tensor]] | None = None  # of the network: those that differ

    def build(self) -> Drafting:
        """The drafter with the change; tensors that differ are computed now."""
        if self.tensors is None:
            return self.drafting
        return replace(self.drafting, network=rewire(self.drafting.network, self.tensors()))


@dataclass(frozen=True, slots=True)
class ControlOutcome:
    """A control's outcome: acceptance length, acceptance per position (``conditional``: behind the text's own tokens;
    ``by_position``: of all drafts), and by how many nats more the drafter expects the text's tokens, with its z.
    ``places`` is the number of places; ``tried`` that of controls of which this is the best.
    """

    cause: str
    change: str
    length: float
    conditional: list[float]
    by_position: list[float]
    gain: float
    z: float
    unit: str = "nats"
    places: int = 0
    tried: int = 1

    @property
    def words(self) -> str:
        """The change, and where it is the best of several that were tried at a few places."""
        return self.change if self.tried == 1 else f"{self.change} (the best of {self.tried}, at {self.places} places)"


def controls(drafting: Drafting) -> Iterator[Control]:
    """All that make sense for a network and its target, in the order in which they are reported."""
    yield from _layers(drafting)
    yield from _other_layers(drafting)
    yield from _states(drafting)
    for option in drafting.forced_chain.options(drafting.depth):
        variant = replace(drafting, network=option.network)
        yield Control(option.cause, option.change, option.advice, variant, screened=option.is_screened)
    yield from _rotary(drafting)
    yield from _state_scale(drafting)
    yield from _borrow(drafting)
    yield from _vocabulary(drafting)
    network = drafting.network
    if not (isinstance(network, DraftModel) and network.config.kv_layers) and drafting.forced_chain.reads_text:
        yield Control(
            "prompt unread", "without the prompt, but for its last tokens",
            "the drafter is better without the prompt: what it has of it is wrong. Check what fills its cache when the "
            "prompt comes from a prefix cache, and its positions there", drafting.with_reads(unread=True),
        )  # fmt: skip
    if isinstance(network, nn.Module):
        for wiring in rewirings(network):
            yield Control(
                wiring.cause, wiring.change,
                f"the part drafts better with {wiring.change}: its file or its configuration has it otherwise than its "
                "training. Look where the checkpoint is read or converted",
                drafting, screened=True, tensors=wiring.tensors,
            )  # fmt: skip


def _layers(drafting: Drafting) -> Iterator[Control]:
    """Every state from a layer before or behind, and several in the other order."""
    layers, last = drafting.layers, drafting.target.shape.layers
    layer_map = drafting.reads.layers
    for by, side in ((-1, "before"), (1, "behind")):
        moved_layers = {layer: layer_map.get(layer, layer) + by for layer in layers}
        if layers and all(0 <= place <= last for place in moved_layers.values()):
            names = ", ".join(str(place) for place in moved_layers.values())
            yield Control(
                "layer ids", f"states {names}: one layer {side}",
                f"take the states {names} (0 is the embeddings, {last} the last one after the norm): engines count "
                "layers from different ends, so look for an offset of one where the ids are read",
                drafting.with_reads(layers=moved_layers),
            )  # fmt: skip
    if len(layers) > 1:
        order = dict(zip(layers, (layer_map.get(layer, layer) for layer in reversed(layers)), strict=True))
        yield Control(
            "layer order", "the states in the other order",
            "join the states in the other order: the head was trained with the "
            + ("shallowest" if layers[0] > layers[-1] else "deepest") + " first",
            drafting.with_reads(layers=order),
        )  # fmt: skip


def _other_layers(drafting: Drafting) -> Iterator[Control]:
    """Every other layer whose state, or whose keys and values, could be read; orders of several; one of several."""
    target, network = drafting.target, drafting.network
    last, layers = target.shape.layers, list(drafting.layers)
    room = max(2 * NEAR, STATES_BYTES // (4 * target.shape.hidden * TEXT_TOKENS))

    def states(cause: str, places: Sequence[int]) -> Control:
        names = ", ".join(map(str, places))
        return Control(
            cause, f"states {names}",
            f"take the states {names} (0 is the embeddings, {last} the last one after the norm), in this order",
            drafting.with_reads(layers=dict(zip(layers, places, strict=True))), screened=True,
        )  # fmt: skip

    read_layers = [drafting.reads.layers.get(layer, layer) for layer in layers]
    for order in [order for order in orders(len(read_layers)) if len(read_layers) > 1]:
        yield states("layer order", [read_layers[place] for place in order])
    for place, layer in enumerate(read_layers):
        by = room if len(read_layers) == 1 else NEAR
        nearest = sorted(set(range(last + 1)) - {layer}, key=lambda candidate, layer=layer: abs(candidate - layer))[:by]
        for neighbour in nearest:
            yield states("layer ids", [*read_layers[:place], neighbour, *read_layers[place + 1 :]])
    usual = usual_states(last)
    for by in (*range(-NEAR, NEAR + 1),):
        for places in (read_layers, *([usual] if len(usual) == len(read_layers) > 1 else [])):
            moved_places = [place + by for place in places]
            if (
                len(read_layers) > 1
                and moved_places != read_layers
                and all(0 <= place <= last for place in moved_places)
            ):
                yield states("layer ids", moved_places)
    read = getattr(network.config, "kv_layers", ()) if isinstance(network, DraftModel) else ()
    places = list[list[int]]()
    for by in range(1 - last, last):
        places.append([layer + by for layer in read])
    places += [[read[place] for place in order] for order in orders(len(read)) if len(read) > 1]
    places += [
        [*read[:place], layer + by, *read[place + 1 :]] for place, layer in enumerate(read) if len(read) > 1
        for by in range(-NEAR, NEAR + 1)
    ]  # fmt: skip
    for layers in places:
        if layers != list(read) and all(0 <= layer < last for layer in layers):
            names = ", ".join(map(str, layers))
            yield Control(
                "kv layer", f"keys and values of layer {names}",
                f"read the target's keys and values of layer {names} (0 is the first layer): set kv_layers to it",
                replace(drafting, network=with_settings(network, kv_layers=tuple(layers))), screened=True,
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


def _rotary(drafting: Drafting) -> Iterator[Control]:
    """Other rotary positions of a network: bases, the target's scaling or none, windows or none."""
    chain = drafting.forced_chain
    rotary_part = chain.rotary_part
    if rotary_part is None:
        return
    config = rotary_part.config

    def variant(**settings: Any) -> Drafting:
        return replace(drafting, network=chain.with_rotary_part(with_settings(rotary_part, **settings)))

    own_base = float(config.rope.get("rope_theta", 0.0))
    rope = getattr(drafting.target.config, "rope_parameters", None) or {}
    theta = rope.get("rope_theta") if isinstance(rope, dict) else None
    bases = [float(theta)] if isinstance(theta, int | float) else []
    for base in dict.fromkeys([*bases, *ROTARY_BASES]):
        if base != own_base:
            base_owner = "the target's, " if base in bases else ""
            yield Control(
                "rotary base", f"rotary base {base:,.0f} ({base_owner}not {own_base:,.0f})",
                f"set rope_theta to {base:,.0f} in the head's description",
                variant(rope={"rope_type": "default", "rope_theta": base}), screened=base not in (*bases, 10_000.0),
            )  # fmt: skip
    plain = {"rope_type": "default", "rope_theta": own_base}
    if config.rope.get("rope_type", "default") != "default":
        yield Control(
            "rotary scaling", "no scaling of rotary positions",
            "take the scaling of rotary positions (rope_scaling) out of the head's description", variant(rope=plain),
        )  # fmt: skip
    elif bases and rope.get("rope_type", "default") in set(ROTARIES) - {"default"}:
        yield Control(
            "rotary scaling", "the target's scaling of rotary positions",
            "scale the head's rotary positions as the target's (rope_scaling)", variant(rope=dict(rope)),
        )  # fmt: skip
    if any(config.windows):
        yield Control(
            "windows", "no windows: its layers see everything",
            "take the windows out of the head's description", variant(windows=()),
        )  # fmt: skip


def _state_scale(drafting: Drafting) -> Iterator[Control]:
    """States as they are where a head reads them in units of their spread."""
    network: Any = drafting.network
    if getattr(network.config, "scaled", False):
        yield Control(
            "scaled states", "states as they are, not in units of their spread",
            "set scaled to false in the head's description: it was trained on states as they are",
            replace(drafting, network=with_settings(network, scaled=False)), screened=True,
        )  # fmt: skip


def _borrow(drafting: Drafting) -> Iterator[Control]:
    """The target's embedding and head in place of the network's own."""
    network, target = drafting.network, drafting.target
    if not drafting.forced_chain.borrows or network.config.hidden != target.shape.hidden:
        return
    like = network.fc.weight
    if network.config.own_embedding:
        variant = copy.copy(network)
        table: Any = target.embeddings
        rows = nn.Embedding.from_pretrained(table.weight.detach().to(like))
        object.__setattr__(variant, "embedding", rows)
        yield Control(
            "embedding", "the target's embedding in place of its own",
            "the embedding in the head's file is not this target's: share the target's, or take the head of this very "
            "checkpoint", replace(drafting, network=variant),
        )  # fmt: skip
    if not network.config.shared:
        variant = with_settings(network)
        weight: Any = target.head.weight
        rows = weight.detach() if network.drafted is None else weight.detach()[network.drafted.long()]
        variant._modules["lm_head"] = head = nn.Linear(*rows.mT.shape, bias=False, device="meta")
        head.weight = nn.Parameter(rows.to(like), requires_grad=False)
        yield Control(
            "output layer", "the target's head in place of its own",
            "the output layer in the head's file is not this target's: share the target's, or take the head of this "
            "very checkpoint", replace(drafting, network=variant),
        )  # fmt: skip


def _vocabulary(drafting: Drafting) -> Iterator[Control]:
    """A draft vocabulary's map read as ids where it holds offsets, and the other way round."""
    network = drafting.network
    drafted = getattr(network, "drafted", None)
    if drafted is None or network.config.shared:
        return
    count = torch.arange(len(drafted), device=drafted.device, dtype=drafted.dtype)
    ways = (
        (drafted + count, "offsets"), (drafted - count, "ids"), (drafted + 1, "ids of the tokens before"),
        (drafted - 1, "ids of the tokens behind"),
    )  # fmt: skip
    for ids, change in ways:
        whole = int(ids.min()) >= 0 and int(ids.max()) < network.config.vocab
        if whole and bool((ids.diff() > 0).all()):
            variant = copy.copy(network)
            variant._buffers = {**network._buffers, "drafted": ids}
            yield Control(
                "vocabulary map", f"the draft vocabulary's map holds {change}",
                f"read the draft vocabulary's map (d2t) as {change}: its tokens are others",
                replace(drafting, network=variant),
            )  # fmt: skip
