"""PLD+ (papers: PLD+, §3): every earlier occurrence of the last token is a candidate, ranked by what the model
itself computed.

``pld+h`` ranks by hidden states: cos(H[j-1], H[t-1]) at one layer. ``pld+a`` ranks by attention: the weight position
t-1 puts on j, the token about to be copied, in heads that copy. t is the root, j a candidate; both methods copy from
j+1 on.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
import torch
from jaxtyping import Float

from decoders.draft.needs import Needs
from decoders.draft.params import param
from decoders.draft.terms import Term
from decoders.errors import UserError
from decoders.method.method import Method
from decoders.model.state.memory import Context
from decoders.model.state.transfer import fetch, send
from decoders.model.target_model.target import Target

from .pld import RankedCopier

PAPER = "PLD+: accelerating LLM inference by leveraging language model artifacts"
BIBTEX = r"""
@inproceedings{somasundaram2025pldplus,
  author = {Shwetha Somasundaram and Anirudh Phukan and Apoorv Saxena},
  title = {{PLD+}: Accelerating {LLM} Inference by Leveraging Language Model Artifacts},
  booktitle = {Findings of the Association for Computational Linguistics: NAACL 2025},
  year = {2025},
  pages = {6075--6089},
}
"""
SHORTEST = 1e-24  # of two states' lengths together: below, they are alike in nothing
NO_PREDECESSOR = -1.0  # score of a candidate at position 0: nothing stands before it to compare

LAYER = param(
    None, "Layer", "Hidden states compared (0 = embeddings). Off: the calibrated layer, else 0.3 of the model's depth.",
    low=0, high=200,
)  # fmt: skip
_K = param(
    20, "Draft length K", "Most tokens copied after the chosen place. The paper's tuned value is 70, for GPUs.", low=1,
    high=256,
)  # fmt: skip
_THETA = param(
    None, "Threshold θ",
    "Only candidates scoring above θ may be copied; if none does, the step is plain. Off: the best one always wins.",
    low=-1.0, high=1.0, step=0.05,
)  # fmt: skip
_PROMPT_ONLY = param(False, "Prompt only", "Look for candidates in the prompt alone, not in the text generated so far.")


@dataclass(frozen=True)
class HiddenParams:
    layer: int | None = LAYER
    k: int = _K
    theta: float | None = _THETA
    average_last: int = param(
        1, "Average last", "Compare the mean of the last m hidden states instead of one.", low=1, high=16
    )
    prompt_only: bool = _PROMPT_ONLY


AGGREGATIONS = ("heads max", "layer max", "layer sum", "all max", "all sum")


@dataclass(frozen=True)
class AttentionParams:
    aggregation: str = param(
        "heads max",
        "Aggregation",
        "Which heads count and how they are joined: the calibrated copying heads, one layer's heads, or all heads.",
        choices=AGGREGATIONS,
    )
    heads: int | None = param(
        None, "Heads", "How many calibrated copying heads. Off: 5 % of all heads, at least 4 (the paper: 50 of 1,024).",
        low=1, high=1024,
    )  # fmt: skip
    layer: int | None = param(
        None, "Layer", "For the two per-layer aggregations (0 = first). Off: the calibrated layer.", low=0, high=199
    )
    k: int = _K
    theta: float | None = _THETA
    prompt_only: bool = _PROMPT_ONLY


class ThresholdCopier(RankedCopier):
    """Base of both methods: candidates that score above θ may be copied."""

    def exclude(self, score: np.ndarray, follow: np.ndarray) -> np.ndarray | None:
        theta = self.params.theta
        return None if theta is None else np.where(score > theta, "", f"score not above θ = {theta:g}")

    def empty_reason(self, score: np.ndarray) -> str:
        return f"no candidate scores above θ = {self.params.theta:g}"


class HiddenCopier(ThresholdCopier):
    """PLD+(h): score(j) = cos(H[j-1], H[t-1])."""

    params: HiddenParams

    def scores(self, context: Context, positions: np.ndarray) -> dict[str, np.ndarray]:
        predecessors = positions - 1
        query, last = context.root_position - 1, self.params.average_last
        cosines = hidden_cosines(context.hidden, np.maximum(predecessors, 0), query, last)
        return {"cosine": np.where(predecessors >= 0, cosines, NO_PREDECESSOR)}


def hidden_cosines(
    hidden: Float[torch.Tensor, "processed hidden"], rows: np.ndarray, query: int, average_last: int = 1
) -> np.ndarray:
    """cos(hidden[row], hidden[query]) for every row, in fp32, ``[rows]``; with ``average_last`` m, of means over the
    last m states.
    """
    if average_last == 1 and hidden.device.type == "cpu" and hidden.dtype == torch.float32:
        # behind a forward a call of torch costs more than these numbers
        all_states = hidden.detach().numpy()
        of, query_state = all_states[rows], all_states[query]
        lengths = np.sqrt(np.einsum("ij,ij->i", of, of)) * math.sqrt(query_state @ query_state)
        return (of @ query_state / np.maximum(lengths, SHORTEST)).astype(np.float64)
    (index,) = send(hidden.device, np.append(rows, query))
    if average_last == 1:
        states = hidden[index].float()
    else:
        window_index = index[:, None] - torch.arange(average_last, device=hidden.device)
        in_text = (window_index >= 0).float()[..., None]
        states = (hidden[window_index.clamp_min(0)].float() * in_text).sum(1) / in_text.sum(1)
    states = torch.nn.functional.normalize(states, dim=-1)
    return fetch(states[:-1] @ states[-1])[0].astype(np.float64)


class AttentionCopier(ThresholdCopier):
    """PLD+(a): score(j) = max over the selected heads of A[t-1 → j]; sums and other heads for the paper's fig. 3."""

    params: AttentionParams

    def __init__(self, params: AttentionParams, heads: tuple[tuple[int, int], ...]) -> None:
        super().__init__(params)
        self.heads = np.asarray(sorted(heads))

    def scores(self, context: Context, positions: np.ndarray) -> dict[str, np.ndarray]:
        weights = context.attention()
        (index,) = send(weights.device, np.minimum(positions, context.root_position - 1))
        (rows,) = fetch(weights[:, index])
        strongest = self.heads[rows.argmax(0)]
        score = rows.sum(0) if self.params.aggregation.endswith("sum") else rows.max(0)
        return {"attention": score.astype(np.float64), "layer": strongest[:, 0], "head": strongest[:, 1]}


def hidden_layer(target: Target, layer: int | None) -> int:
    """The layer PLD+(h) reads: asked for, calibrated, or round(0.3 · layers). Raises UserError for one too many."""
    depth = target.info["layers"]
    if layer is not None:
        if layer > depth:
            raise UserError(f"layer={layer} is out of range: {target.name} has hidden states 0 to {depth}")
        return layer
    calibration = target.calibration
    return calibration.best_layer if calibration is not None else round(0.3 * depth)


def selected_heads(target: Target, params: AttentionParams) -> tuple[tuple[int, int], ...]:
    """The (layer, head) pairs PLD+(a) reads. Uncalibrated, the copying heads are unknown and all heads are read."""
    all_heads, attending = target.shape.attention_heads, target.shape.kv_layers
    calibration = target.calibration
    if params.aggregation.startswith("layer"):
        layer = params.layer
        if layer is None and calibration is not None:
            layer = int(np.asarray(calibration.head_counts).sum(1).argmax())
        elif layer is None:
            layer = min(attending, key=lambda kv_layer: abs(kv_layer - round(0.3 * target.shape.layers)))
        if layer not in attending:
            has = ", ".join(map(str, attending)) if target.shape.recurrent_layers else f"0 to {attending[-1]}"
            raise UserError(f"layer={layer} is out of range: {target.name} has attention layers {has}")
        return tuple((of, head) for of, head in all_heads if of == layer)
    if params.aggregation.startswith("all") or calibration is None:
        return all_heads
    count = params.heads if params.heads is not None else max(4, round(0.05 * len(all_heads)))
    return tuple(pair for pair in calibration.top_heads(None) if pair in all_heads)[:count]


METHODS = (
    Method(
        name="pld+h",
        family="copy",
        title="PLD+ by hidden states",
        paper=PAPER,
        bibtex=BIBTEX,
        summary="Of all places where the last token occurred, copies after the one whose hidden state is most alike.",
        params=HiddenParams,
        build=lambda target, params: HiddenCopier(params),
        needs=lambda target, params: Needs(layers=(hidden_layer(target, params.layer),)),
        terms=(
            Term("cosine", "hidden cosine", "cos(H[j-1], H[t-1]): how alike the states before both places are.", -1, 1),
        ),
        signal="the place whose hidden state is most alike",
        order=2,
    ),
    Method(
        name="pld+a",
        family="copy",
        title="PLD+ by attention",
        paper=PAPER,
        bibtex=BIBTEX,
        summary="Of all places where the last token occurred, copies after the one the copying heads attend to.",
        params=AttentionParams,
        build=lambda target, params: AttentionCopier(params, selected_heads(target, params)),
        needs=lambda target, params: Needs(heads=selected_heads(target, params)),
        available=lambda target: target.no_attention,
        terms=(
            Term(
                "attention",
                "attention",
                "Weight the last processed position puts on the candidate, joined over the selected heads.",
                0,
                1,
            ),
            Term("layer", "layer", "Layer of the head with the greatest weight.", 0, 0),
            Term("head", "head", "The head with the greatest weight.", 0, 0),
        ),
        signal="the place that copying heads attend to",
        order=3,
    ),
)
