"""MTP: the layers for multi-token prediction that a model was published with draft for it.

DeepSeek-V3 and GLM-4.5 have them behind their own layers, Qwen3-Next and Qwen3.5 as ``mtp.*``: they stand in the
target's own checkpoint, which transformers opens without them.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from decoders.draft.draft import Draft, Learned, Scored, Verdict
from decoders.draft.needs import Needs
from decoders.draft.params import param
from decoders.draft_models.drafter import STEP_TERMS
from decoders.errors import UserError
from decoders.method.method import Method
from decoders.method.part import Kind
from decoders.model.target_model.target import Target
from decoders.parts import TrainedPart, find_part, load_part
from decoders.trace.origins import DRAFTER, EXPANSION
from specviz.extras.heads.eagle import (
    FORWARDS,
    NODE_TERMS,
    RULE,
    SCORED,
    EagleDrafter,
    dynamic_expansion,
    verifier_by_rule,
)
from specviz.extras.heads.eagle_trees import Expansion

from . import mtp_published
from .block_chains import MtpChain
from .mtp_head import MtpConfig, MtpHead
from .mtp_published import own_layers
from .mtp_run import MtpRun

CHAIN, TREE = "chain", "tree"
NORMED, RAW = "after its norm", "before its norm"


@dataclass(frozen=True)
class MtpParams:
    part: str | None = param(
        None, "MTP layers",
        "Folder, file or hub id of a checkpoint with MTP layers for this target. Off: those of its own checkpoint.",
    )  # fmt: skip
    form: str = param(
        CHAIN, "Form", "Chain: the first choice at each place. Tree: EAGLE-2's, which grows where the layers are sure.",
        choices=(CHAIN, TREE),
    )  # fmt: skip
    depth: int = param(
        3, "Depth", "Tokens ahead. Of several MTP layers each drafts one, so that there are no more; one goes on from "
        "its own states.", low=1, high=16,
    )  # fmt: skip
    top_k: int = param(
        4, "Top k", "For trees: choices after each token that is gone on from, and how many that are per level.",
        low=1, high=32,
    )  # fmt: skip
    total_tokens: int = param(
        16, "Total tokens", "For trees: rows that the target checks, the root included: the best by cumulative "
        "probability stay.", low=2, high=256,
    )  # fmt: skip
    fed_back: str = param(
        NORMED, "State that goes back in",
        "What the next place reads: the layer's state after its norm, as in transformers and SGLang, or before it, as "
        "vLLM's DeepSeek has it.", choices=(NORMED, RAW),
    )  # fmt: skip
    rule: str = RULE


class MtpDrafter(EagleDrafter):
    """Drafts chains or trees with a model's MTP layers; they follow from the text alone."""

    params: Any
    run: Any

    def __init__(self, run: MtpRun, params: MtpParams) -> None:
        super().__init__(run, params)  # type: ignore[arg-type]
        layers = run.config.layers
        self.levels = params.depth if layers == 1 else min(params.depth, layers)

    @property
    def route(self) -> str:
        return self.params.form

    @property
    def max_nodes(self) -> int:
        return self.levels if self.params.form == CHAIN else self.params.total_tokens - 1

    def expansion(self, budget: int) -> Expansion:
        top_k = 1 if self.params.form == CHAIN else self.params.top_k
        return dynamic_expansion(min(self.levels, budget), top_k)

    def observe(self, draft: Draft, scored: Scored, verdict: Verdict) -> Learned | None:
        return None


@dataclass(frozen=True, slots=True)
class OwnLayers(TrainedPart):
    """MTP layers: those kept for the target (``specviz parts add``), else those of its own checkpoint."""

    def missing(self, target: Target) -> str | None:
        if find_part(target.key, self.kind.name) is not None or own_layers(target) is not None:
            return None
        return (
            f"there are no MTP layers for {target.name}: its checkpoint has none, or is not on this machine. Open a "
            "model that was published with them (Qwen3-Next, Qwen3.5, DeepSeek-V3), or name a checkpoint that has them "
            "for this one (parameter part)"
        )

    def load(self, target: Target, params: Any) -> MtpHead:
        place = getattr(params, self.parameter)
        if place is None and find_part(target.key, self.kind.name) is None:
            place = own_layers(target)
            if place is None:
                raise UserError(str(self.missing(target)))
        return load_part(target, self.kind.name, place)


KIND = Kind(
    "mtp", "set of MTP layers", MtpConfig, MtpHead, mtp_published.fit, reads=mtp_published.FORMATS, chain=MtpChain
)
PART = OwnLayers(KIND)


def build(target: Target, params: MtpParams) -> MtpDrafter:
    """The drafter of a target's MTP layers."""
    rotary = getattr(target.stack, "rotary_emb", None)
    return MtpDrafter(MtpRun(PART.load(target, params), rotary, normed=params.fed_back == NORMED), params)


METHOD = Method(
    name="mtp",
    family="heads",
    title="MTP: the model's own layers",
    paper="DeepSeek-AI 2024, DeepSeek-V3 technical report",
    bibtex=r"""
@article{deepseek2024v3,
  author = {{DeepSeek-AI}},
  title = {{DeepSeek-V3} Technical Report},
  journal = {arXiv preprint arXiv:2412.19437},
  year = {2024},
}
""",
    summary="The layers for multi-token prediction that a model was trained with guess on from its last state.",
    params=MtpParams,
    build=build,
    needs=lambda target, params: Needs(layers=PART.load(target, params).config.features),
    part=PART,
    origins=(DRAFTER, EXPANSION),
    node_terms=NODE_TERMS,
    step_terms=(*STEP_TERMS[1:], FORWARDS, SCORED),
    verifier=verifier_by_rule,
    order=46,
)
