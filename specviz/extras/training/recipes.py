"""Recipes of trained parts: everything but the data that decides what a part becomes. Fields with a control are options
of ``specviz train``; importing this needs no torch.
"""

from __future__ import annotations

from dataclasses import dataclass

from decoders.draft.params import param
from decoders.errors import UserError
from decoders.names import MASKS

RECIPES = ("ours", "paper")
ONE_STAGE, TWO_STAGES = "one-stage", "two-stage"
HEADS = ("target", ONE_STAGE, TWO_STAGES)
COMMONEST = "draft only the N commonest tokens of the data: a smaller head; 0: all"


def _check_vocab(count: int) -> None:
    if count == 1:
        raise UserError("draft_vocab=1 is not allowed: a whole number of at least 2, or 0 for all tokens")


@dataclass(frozen=True)
class Products:
    """The precision of a training's matrix products; weights, optimisers and losses are fp32 in any case."""

    bf16: bool = False  # in bf16
    fast: bool = False  # in bf16, and layers are compiled where a training has any to compile

    @property
    def half(self) -> bool:
        """True where matrix products are in bf16."""
        return self.bf16 or self.fast


@dataclass(frozen=True)
class DraftModelRecipe(Products):
    """Of a draft model. ``recipe`` "ours" is Muon for the hidden matrices and AdamW for the rest, on batches of
    ``batch_tokens``; "paper" is GLIDE's: AdamW alone, 5e-4, batches of 64 documents (``drafter.epoch_steps`` gives the
    steps of one epoch).
    """

    recipe: str = param(
        RECIPES[0], "Recipe",
        "ours: Muon and AdamW, batches by tokens. paper: GLIDE's, AdamW at 5e-4 on batches of 64 conversations, for "
        "one epoch of the data where neither --steps nor --minutes is given", choices=RECIPES,
    )  # fmt: skip
    layers: int = param(1, "Layers", "draft layers", low=1, high=16)
    hidden: int | None = param(None, "Width", "draft width (default: the target's)", low=8, option="width")
    mlp: int | None = None  # in proportion to the target's
    kv_layer: int | None = param(
        None, "Layer read",
        "target layer that the last draft layer reads, from 0 (default: the target's last; where answers copy from the "
        "prompt, the layer of the copying heads that `specviz calibrate` finds may be far better)", low=0,
    )  # fmt: skip
    shared: bool | None = None  # embedding and head are the target's: where its vocabulary is large
    draft_vocab: int = param(0, "Draft vocabulary", COMMONEST, low=0)
    copied: bool = param(
        False, "Copied projections",
        "begin with the projections of the target layer that is read, faintly, instead of a glimpse that adds nothing",
        option="copy_projections",
    )  # fmt: skip
    soft: bool = param(
        False, "Soft labels",
        "learn the target's distributions, not the text's tokens; the target reads each document once, and its states "
        "are kept on disk", option="soft_labels",
    )  # fmt: skip
    block: int = 5
    batch_tokens: int = param(5120, "Batch", "tokens per step, padding included", low=64)
    matrix_lr: float = 0.02  # Muon, hidden matrices
    vector_lr: float = 0.002  # AdamW, embeddings and norms
    warmup_steps: int = 40
    prompt_share: float = 0.15  # prompt positions that enter the loss
    prompt_weight: float = 0.3  # of each of these; an answer's position weighs 1
    validate_steps: int = param(100, "Validation", "steps between two validations", low=1)

    def __post_init__(self) -> None:
        _check_vocab(self.draft_vocab)


@dataclass(frozen=True)
class PromptTokenRecipe(Products):
    """Of PPD's prompt tokens."""

    tokens: int = param(3, "Prompt tokens", "prompt tokens: how far ahead", low=1, high=16)
    vectors: int = param(1, "Vectors", "vectors of each, EPTs", low=1, high=128, option="ensemble")
    mask: str = param(
        MASKS[0], "Mask", "a vector's view of its group; decoder and encoder are ablations", choices=MASKS
    )
    learned: bool = param(
        False, "Learned weights", "learn the weights of the vectors and of the exits (ablation)",
        option="learned_weights",
    )  # fmt: skip
    prefix: int = param(
        0, "Prefix", "prefix tokens that each prompt token sees before the text, as trained keys and values; ablation",
        low=0, high=16,
    )  # fmt: skip
    exits: int = param(1, "Exits", "guess from the average of the last K layers' states; ablation", low=1)
    head: str = param(
        HEADS[0], "Head",
        "the target's own head, or a copy that is trained with the prompt tokens (one-stage) or in the second half of "
        "the time (two-stage; ablations)", choices=HEADS,
    )  # fmt: skip
    hard_labels: bool = param(
        False, "Hard labels", "learn the text's own tokens, not the target's distributions (ablation)"
    )
    alpha: float = 0.8  # a distance weighs so much of the one before it
    rate: float = 0.01  # AdamW, cosine to 0 without warm-up
    batch_tokens: int = param(2048, "Batch", "tokens of text per step, padding included", low=64)
    rows: int = param(6144, "Rows", "rows of prompt tokens per step, at most: they cost most", low=16)
    prompt_share: float = 0.1  # of the prompt's positions after which prompt tokens are inserted
    prompt_weight: float = 0.3  # of each of these; one in an answer weighs 1
    validate_steps: int = param(200, "Validation", "steps between two validations", low=1)


@dataclass(frozen=True)
class HeadRecipe(Products):
    """Of heads on a target's states. ``heads`` and ``blocks`` are Medusa's and Hydra's; ``mlp``, ``unroll`` and
    ``agreement`` EAGLE's; ``mlp`` and ``block`` DFlash's.
    """

    heads: int = param(4, "Heads", "heads: how far ahead", low=1, high=16)
    blocks: int = param(1, "Blocks", "residual blocks of each", low=1, high=16)
    prefix: bool = param(False, "Prefix", "Hydra++: a decoder layer of the target's sizes in front of the heads")
    mlp: int = param(0, "MLP", "width of its MLP; 0: the target's", low=0)
    unroll: int = param(5, "Unrolled steps", "steps on its own states that it learns", low=1, high=8)
    block: int = param(8, "Block", "rows of a block: the root, and a mask per token that is drafted", low=2, high=64)
    own_states: bool = True  # EAGLE-1's head learns all of these; else the first alone, as in its paper
    agreement: float = 0.1  # of EAGLE-1's loss: the divergence, beside the distance of the states
    draft_vocab: int = param(0, "Draft vocabulary", COMMONEST, low=0)
    hard_labels: bool = param(False, "Hard labels", "learn the text's own tokens, not the target's distributions")
    batch_tokens: int = param(2048, "Batch", "tokens of text per step, padding included", low=64)
    positions: int = param(1024, "Positions", "positions learnt from per step, at most", low=16)
    muon: bool = True  # for matrices; else AdamW for everything, as the papers train
    matrix_lr: float = param(
        0.1, "Muon's learning rate",
        "Muon's learning rate: maps that begin at 0 have far to go; SmolLM2's heads learn at 0.02", low=1e-6,
        option="rate",
    )  # fmt: skip
    rate: float = 1e-3  # AdamW's
    warmup_steps: int = 20
    prompt_share: float = 0.1  # of the prompt's positions that are learnt from
    prompt_weight: float = 0.3  # of each of these; an answer's weighs 1
    validate_steps: int = param(100, "Validation", "steps between two validations", low=1)

    def __post_init__(self) -> None:
        _check_vocab(self.draft_vocab)
