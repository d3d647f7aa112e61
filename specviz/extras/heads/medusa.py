"""Medusa (Cai et al. 2024): heads on the target's last state, each guessing one token further ahead.

Every head's first guesses fill a tree that is settled beforehand; the target verifies it in one forward. Medusa's own
typical acceptance is an entry of its own, as it is lossy.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

from decoders.draft.needs import Needs
from decoders.draft.params import param
from decoders.errors import UserError
from decoders.folders import typed_path
from decoders.method.method import Method
from decoders.method.part import HEADS, Kind, Training, train_command
from decoders.model.target_model.target import Target
from decoders.parts import TrainedPart, find_part, is_part, load_part, read_part
from decoders.prompt_tokens.design import candidates
from decoders.verifiers.residual import ResidualVerifier
from decoders.verifiers.typical import ALPHA, EPSILON, FAST, DrawnTypicalVerifier, TypicalVerifier
from decoders.verifiers.typical import NODE_TERMS as TYPICAL_TERMS

from . import heads_export, heads_published
from .head_chains import ParallelChain
from .head_drafter import HEAD, NODE_TERMS, STEP_TERMS, HeadsDrafter
from .head_formats import MEDUSA_FORMATS
from .head_ranks import head_ranks
from .head_trees import MC_SIM, Ranks
from .heads import MOST_HEADS, HeadsConfig, ParallelHeads

PUBLIC, DESIGNED, CHAIN = "mc_sim_7b_63", "designed", "chain"
MOST_NODES = 255


@dataclass(frozen=True)
class HeadsParams:
    part: str | None = param(
        None, "Heads",
        "Folder of trained heads, or folder, file or hub id of published ones. Off: those trained for this target.",
    )  # fmt: skip
    tree: str = param(
        PUBLIC, "Tree",
        "mc_sim_7b_63: the published tree of 63 nodes. designed: the likeliest paths by what was measured of these "
        "heads in training. chain: first guesses alone.", choices=(PUBLIC, DESIGNED, CHAIN),
    )  # fmt: skip
    size: int = param(63, "Size", "Nodes of a designed tree, the root excluded.", low=1, high=MOST_NODES)
    heads: int | None = param(
        None, "Heads used", "How many of the heads draft, the nearest ones first. Off: all.", low=1, high=MOST_HEADS
    )
    top_k: int = param(10, "Top k", "Guesses per node that may enter the tree.", low=1, high=64)

    def __post_init__(self) -> None:
        if self.tree != DESIGNED and self.size != type(self).size:
            raise ValueError(f"size={self.size} is of a designed tree: choose tree={DESIGNED}, or leave the size")


@dataclass(frozen=True)
class TypicalParams(HeadsParams):
    epsilon: float = EPSILON
    alpha: float = ALPHA
    fast: bool = FAST


def build_heads(kind: str, target: Target, params: HeadsParams) -> HeadsDrafter:
    """The drafter of heads of this kind. Raises UserError for more heads than there are, and for a tree that cannot be
    designed.
    """
    heads = load_part(target, kind, params.part)
    stored_heads = heads.config.heads
    if params.heads is not None and params.heads > stored_heads:
        raise UserError(
            f"heads={params.heads} is not allowed: there are {stored_heads} heads, for as many tokens ahead"
        )
    count = params.heads or stored_heads
    paths = _paths(kind, target, params, count)
    return HeadsDrafter(heads, heads.config.layer(target.shape), paths, count, params.top_k, target.engines)


def _paths(kind: str, target: Target, params: HeadsParams, count: int) -> Sequence[Ranks]:
    """The nodes of the tree that the parameters ask for."""
    if params.tree == CHAIN:
        return [(0,) * (depth + 1) for depth in range(count)]
    if params.tree == PUBLIC:
        return MC_SIM
    place = find_part(target.key, kind) if params.part is None else typed_path(params.part)
    log = (read_part(place).training.get("log") if place is not None and is_part(place) else None) or [{}]
    if "ranks" not in log[-1]:
        command = train_command(kind)
        raise UserError(
            "no tree can be designed for these heads: how often each guess is right was not measured for them. Choose "
            f"tree={PUBLIC} or {CHAIN}{f', or train heads with `{command}`' if command else ''}"
        )
    return candidates(log[-1]["ranks"], params.size, count)


def heads_of(kind: Kind) -> dict[str, Any]:
    """A card's facts on heads of this kind: how drafters are built, the state that they read, the part."""

    def needs(target: Target, params: HeadsParams) -> Needs:
        return Needs(layers=(load_part(target, kind.name, params.part).config.layer(target.shape),))

    return {"build": partial(build_heads, kind.name), "needs": needs, "part": TrainedPart(kind)}


HEADS_OPTIONS = ("heads", "blocks")


def lesson() -> Any:
    """The lesson, as a training begins."""
    from .parallel_lesson import Parallel

    return Parallel(grounded=False)


KIND = Kind(
    "medusa", "set of Medusa heads", HeadsConfig, ParallelHeads, partial(heads_published.fit, "medusa"),
    Training(
        HEADS, "Medusa's heads for a target", "heads that each guess one token further ahead, for medusa",
        own=HEADS_OPTIONS, lesson=lesson,
    ),
    {"medusa": heads_export.medusa}, reads=MEDUSA_FORMATS, chain=ParallelChain, ranks=head_ranks,
)  # fmt: skip

MEDUSA = Method(
    name="medusa",
    family="heads",
    title="Medusa",
    paper="Cai et al. 2024, Medusa: simple LLM inference acceleration framework with multiple decoding heads",
    bibtex=r"""
@inproceedings{cai2024medusa,
  author = {Tianle Cai and Yuhong Li and Zhengyang Geng and Hongwu Peng and Jason D. Lee and Deming Chen and Tri Dao},
  title = {Medusa: Simple {LLM} Inference Acceleration Framework with Multiple Decoding Heads},
  booktitle = {International Conference on Machine Learning},
  year = {2024},
}
""",
    summary="Heads on the target's last state each guess one token further ahead, and their guesses make a tree.",
    params=HeadsParams,
    **heads_of(KIND),
    origins=(HEAD,),
    node_terms=NODE_TERMS,
    step_terms=STEP_TERMS,
    verifier=lambda params, chooser, stop_ids: ResidualVerifier(chooser),
    order=40,
)
TYPICAL = replace(
    MEDUSA,
    name="medusa+typical",
    title="Medusa with typical acceptance",
    summary="Medusa's trees, accepted where the target finds a guess likely enough: not lossless.",
    params=TypicalParams,
    lossless=False,
    node_terms=(*NODE_TERMS[:-1], *TYPICAL_TERMS),
    verifier_params=("epsilon", "alpha", "fast"),
    verifier=lambda params, chooser, stops: (TypicalVerifier if params.fast else DrawnTypicalVerifier)(
        chooser, epsilon=params.epsilon, alpha=params.alpha
    ),
    order=41,
)
METHODS = (MEDUSA, TYPICAL)
