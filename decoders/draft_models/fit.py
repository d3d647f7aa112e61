"""A published head, checked against one target: sizes, rotary positions and tensors, and a short text to try it on.

Formats leave open what a head reads and guesses, and servers disagree: so the readings that are possible are tried on
a text, and another than the checkpoint's own is taken where it is clearly better.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import torch
from torch import Tensor, nn

from decoders.draft.needs import Needs
from decoders.errors import UserError
from decoders.model.target_model.target import Session, Target

from .published import Published
from .published_fields import ROPE

CLEARLY = 0.05  # more of the text's tokens: another convention than the checkpoint's is taken
UNUSED = ("rotary_emb.inv_freq", "t2d")  # tensors that a head can do without
TEXT = (
    "The old lighthouse stood at the end of the harbour, and every evening the keeper climbed the stairs to light the "
    "lamp. In the morning he walked down to the village, bought bread and milk, and told the children about the ships "
    "that had passed in the night. One day a letter arrived from the capital. The lighthouse, it said, would be closed "
    "at the end of the year, because the ships now found their way by radio. The keeper read the letter twice.\n\n"
    "def total(items):\n    result = 0\n    for item in items:\n        result += item.price * item.count\n    return "
    "result\n\n"
    "Question: What is the capital of France? Answer: The capital of France is Paris. It lies on the river Seine."
)


@dataclass(frozen=True, slots=True)
class Fit:
    """A published head, checked against a target: its configuration here, its weights by the network's names, and what
    a run's record says of it (``about``).

    ``settle`` is called with the network once it stands beside the target: it may settle what the checkpoint leaves
    open, and gives what the record says of that.
    """

    config: Any
    weights: Mapping[str, Tensor]
    about: dict[str, Any] = field(default_factory=dict)
    settle: Callable[[nn.Module], dict[str, Any]] | None = None


def rope_of(head: Published) -> dict[str, Any]:
    """Rotary settings, as configurations named them before and after transformers 5. Raises UserError where both stand
    there and differ.
    """
    fields = head.layer
    new, old = (_rotary(fields.get(name) or {}, fields) for name in ("rope_parameters", "rope_scaling"))
    if fields.get("rope_parameters") and fields.get("rope_scaling") and new != old:
        raise UserError(
            f"{head.place} does not fit together: in its config.json rope_parameters come to {new!r}, and rope_scaling "
            f"to {old!r}"
        )
    return new if fields.get("rope_parameters") else old


def _rotary(scaling: Mapping[str, Any], layer: Mapping[str, Any]) -> dict[str, Any]:
    kind = scaling.get("rope_type", scaling.get("type", "default"))
    theta = scaling.get("rope_theta", layer.get("rope_theta"))
    settings = {name: value for name, value in scaling.items() if name in ROPE.read - {"type"} and value is not None}
    return {**settings, "rope_type": kind, "rope_theta": 10_000.0 if theta is None else float(theta)}


def tensors_of(
    head: Published, network: type[nn.Module], config: Any, target: Target, spare: Collection[str] = ()
) -> dict[str, Tensor]:
    """The tensors of the network, each of the right shape; d2t as the tokens themselves. ``spare`` ones may be there.

    Raises UserError for a tensor that is missing, not known or of another size, and for tokens that the target has not.
    """
    with torch.device("meta"):
        network_shapes = {name: tuple(tensor.shape) for name, tensor in network(config).state_dict().items()}
    skipped_names = {*spare, "drafted"} if not config.draft_vocab else {*spare}
    tensor_names = {
        "drafted" if name == "d2t" else name for name in head.shapes if not name.endswith(UNUSED)
    } - skipped_names
    if extra_names := sorted(tensor_names - network_shapes.keys()):
        raise UserError(
            f"{head.place} is of a variant that is not read: it has {extra_names[0]}, which {head.title} with this "
            "configuration has not"
        )
    if missing := sorted(network_shapes.keys() - tensor_names):
        raise UserError(f"{head.place} is incomplete: it lacks {missing[0]}; bring the whole checkpoint")
    for name, shape in network_shapes.items():
        stored_shape = head.shapes["d2t" if name == "drafted" else name]
        if stored_shape != shape:
            sizes = (" × ".join(map(str, dims)) for dims in (stored_shape, shape))
            raise UserError("{} does not fit together: {} is {}, where {} is wanted".format(head.place, name, *sizes))
    weights = head.read()
    if config.draft_vocab:
        drafted = weights["d2t"].long() + torch.arange(config.draft_vocab)
        for worst in (int(drafted.min()), int(drafted.max())):
            if not 0 <= worst < config.vocab:
                raise UserError(f"{head.place} drafts token {worst:,}, and {target.name} has {config.vocab:,} tokens")
        weights["drafted"] = drafted.int()
    return {name: weights[name] for name in network_shapes}


def same_table(stored_tensor: Tensor, table: Any) -> bool:
    """True where a stored tensor holds the weights of the target's embedding or head, in either's dtype."""
    weight = table.weight.detach()
    if weight.shape != stored_tensor.shape:
        return False
    return torch.equal(stored_tensor.to(weight.dtype), weight.cpu()) or torch.equal(
        weight.cpu().to(stored_tensor.dtype), stored_tensor
    )


def shifts(features: Sequence[int], target: Target) -> list[tuple[int, ...]]:
    """States that a head may mean: those it names, and where the target has them those one below and one above."""
    near = (tuple(layer + by for layer in features) for by in (0, -1, 1))
    return [layers for layers in near if min(layers) >= 0 and max(layers) <= target.shape.layers]


def read_text(target: Target, layers: Collection[int]) -> tuple[list[int], Session]:
    """Tokens of the short text, and a session that has read it, with these states and the target's first choices."""
    assert target.tokenizer is not None
    tokens = target.tokenizer(TEXT, add_special_tokens=True)["input_ids"][: min(256, target.context_length)]
    session = target.session(Needs(layers=tuple(sorted({*layers})), top_tokens=1), len(tokens))
    session.prefill(tokens)
    return tokens, session


def agreement(network: Any, states: Tensor, truth: Tensor) -> float:
    """The share of states whose likeliest token, by the head's output layer, is the target's choice."""
    best = network.say(states).argmax(-1)
    guesses = best if network.drafted is None else network.drafted.long()[best]
    return float((guesses == truth).float().mean())


@dataclass(frozen=True, slots=True)
class Trial:
    """A reading of a head: the ``fields`` of its configuration that it sets, and the share of first guesses on a short
    text that are the target's own choice.
    """

    fields: Mapping[str, Any]
    acceptance: float

    def to_json(self) -> dict[str, Any]:
        return {**self.fields, "features": list(self.fields["features"]), "acceptance": round(self.acceptance, 4)}


def take_best(
    network: Any, trials: Sequence[Trial], words: Callable[[Mapping[str, Any]], str], warnings: list[str]
) -> dict[str, Any]:
    """Give the network the reading that is clearly better than the checkpoint's own, the first, where one is; what was
    tried is for the record, and another than its own, put into ``words``, a warning.
    """
    first_trial, best_trial = trials[0], max(trials, key=lambda trial: trial.acceptance)
    if best_trial.acceptance < first_trial.acceptance + CLEARLY:
        best_trial = first_trial
    network.config = replace(network.config, **best_trial.fields)
    if best_trial is not first_trial:
        warnings.append(
            f"the checkpoint says {words(first_trial.fields)}; with {words(best_trial.fields)} the target agrees with "
            f"{best_trial.acceptance:.0%} of its first guesses on a short text, against {first_trial.acceptance:.0%}: "
            "this is used"
        )
    return {**best_trial.to_json(), "trials": [trial.to_json() for trial in trials], "warnings": warnings}


def about_of(head: Published, weights: Mapping[str, Tensor], config: Any, **extras: Any) -> dict[str, Any]:
    """A run's record of a head, as far as it is the same for all formats."""
    return {
        "format": head.format, "title": head.title, "fingerprint": head.fingerprint(weights),
        "features": list(config.features), "draft_vocab": config.draft_vocab or config.vocab, "warnings": [], **extras,
    }  # fmt: skip
