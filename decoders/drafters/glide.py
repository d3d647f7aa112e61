"""GLIDE and CAPE.

GLIDE (§4.1) drafts with a small model that glimpses the target's cached keys and values; CAPE (§4.2) widens the drafts
where that model is unsure.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from decoders.draft.params import param
from decoders.draft_models.draft_run import DraftRun, forwards_by_engine, target_rotary
from decoders.draft_models.drafter import KV_DELAY, NODE_TERMS, STEP_TERMS, ModelDrafter
from decoders.draft_models.expansion import EXPANSIONS
from decoders.draft_models.forced_chain import ModelChain
from decoders.draft_models.network import DraftConfig, DraftModel, refusal
from decoders.method.method import Method
from decoders.method.part import DRAFT_MODELS, Kind, Training
from decoders.model.target_model.target import Target
from decoders.parts import TrainedPart
from decoders.trace.origins import DRAFTER, EXPANSION
from decoders.verifiers.block import RULE, drawn_verifier
from decoders.verifiers.residual import ResidualVerifier

from .sps import SIZE, VARIES

_PART = param(None, "Draft model", "Folder of a trained GLIDE draft model. Off: the one trained for this target.")


@dataclass(frozen=True)
class GlideParams:
    part: str | None = _PART
    gamma: int = param(5, "Draft length γ", "Tokens drafted per step (the paper: 5).", low=1, high=32)
    rule: str = RULE


@dataclass(frozen=True)
class CapeParams:
    part: str | None = _PART
    gamma: int = param(4, "Draft length γ", "Tokens of the chain per step; at most 8 candidates each.", low=1, high=32)
    expansion: str = param(
        "confidence",
        "Expansion",
        "Candidates beside the chain: by the drafter's confidence (CAPE), a fixed number, or beam search instead.",
        choices=EXPANSIONS[1:],
    )
    size: int = SIZE


PART = TrainedPart(
    Kind(
        "glide", "GLIDE draft model", DraftConfig, DraftModel,
        training=Training(
            DRAFT_MODELS, "a GLIDE draft model for a target",
            "a draft model that reads the target's cached keys, for glide", 60.0, own=("kv_layer", "copied"),
            settings={"glimpse": True}, varies=VARIES, worth=0.1,
        ),
        compiled=forwards_by_engine, chain=ModelChain,
    )
)  # fmt: skip


def build(target: Target, params: GlideParams | CapeParams) -> ModelDrafter:
    model, rotary = PART.load(target, params), target_rotary(target.stack)
    run = DraftRun(model, rotary, forwards_by_engine(target, model), target.engines)
    expansion, size = (params.expansion, params.size) if isinstance(params, CapeParams) else ("none", 0)
    return ModelDrafter(run, params.gamma, expansion, size, is_delayed=True)


GLIDE = Method(
    name="glide",
    family="draft model",
    title="GLIDE",
    paper="GLIDE with a CAPE: a low-hassle method to accelerate speculative decoding",
    bibtex=r"""
@inproceedings{du2024glide,
  author = {Cunxiao Du and Jing Jiang and Xu Yuanchen and Jiawei Wu and Sicheng Yu and Yongqi Li and Shenggui Li and
            Kai Xu and Liqiang Nie and Zhaopeng Tu and Yang You},
  title = {{GLIDE} with a {CAPE}: A Low-Hassle Method to Accelerate Speculative Decoding},
  booktitle = {International Conference on Machine Learning},
  year = {2024},
}
""",
    summary="A small draft model reads the target's cached keys and values and writes a few tokens ahead.",
    params=GlideParams,
    build=build,
    origins=(DRAFTER, EXPANSION),
    node_terms=(*NODE_TERMS, KV_DELAY),
    step_terms=(*STEP_TERMS, KV_DELAY),
    verifier=drawn_verifier,
    verifier_params=("rule",),
    part=PART,
    available=lambda target: refusal(target.shape),
    signal="where the draft model's cross-attention looked",
    order=21,
)
CAPE = replace(
    GLIDE,
    name="glide+cape",
    title="GLIDE with CAPE",
    signal="",
    summary="GLIDE's drafts, with more candidates beside a token the less sure the draft model is of it.",
    params=CapeParams,
    verifier=lambda params, chooser, stop_ids: ResidualVerifier(chooser),
    order=22,
)
METHODS = (GLIDE, CAPE)
