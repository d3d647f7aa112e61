"""SpS: speculative decoding with a draft model (Leviathan et al. 2023; Chen et al. 2023).

The drafter is any causal LM, or a part that was trained for the target. One with another tokenizer drafts by its text,
or of the tokens that both have (``draft_models.other_vocabulary``).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from jaxtyping import Bool, Float
from torch import Tensor

from decoders.draft.needs import Needs
from decoders.draft.params import param
from decoders.draft.terms import Term
from decoders.draft_models.draft_run import DraftRun, common_prefix, forwards_by_engine, target_rotary
from decoders.draft_models.drafter import NODE_TERMS, STEP_TERMS, ModelDrafter
from decoders.draft_models.drafter_export import causal_lm
from decoders.draft_models.expansion import EXPANSIONS
from decoders.draft_models.forced_chain import ModelChain
from decoders.draft_models.network import DraftConfig, DraftModel
from decoders.draft_models.other_vocabulary import (
    SHARED,
    TEXT,
    WAYS,
    AssistantText,
    SharedTokensDrafter,
    TextDrafter,
)
from decoders.draft_models.vocabularies import Vocabularies
from decoders.errors import UserError
from decoders.folders import typed_path
from decoders.method.method import Method
from decoders.method.part import COMPANION, DRAFT_MODELS, Kind, Training
from decoders.model.engines.static import ROWS, StaticRows
from decoders.model.state.attention import Masks
from decoders.model.state.cache import TreeCache
from decoders.model.state.capture import Capture
from decoders.model.state.memory import Context, ReadingStopped
from decoders.model.state.transfer import send
from decoders.model.target_model.load import load_target
from decoders.model.target_model.target import SPARE_ROWS, Target, Tokens
from decoders.parts import TrainedPart, is_part, load_part
from decoders.trace import origins
from decoders.verifiers.block import RULE, drawn_verifier

VARIES = ("layers", "width", "kv_layer", "distill", "stages")  # between draft models that an experiment trains
PART = TrainedPart(
    Kind(
        "drafter", "vanilla drafter", DraftConfig, DraftModel,
        training=Training(
            DRAFT_MODELS, "a vanilla drafter for a target", "a small draft model, for the method sps", 60.0,
            settings={"glimpse": False}, varies=VARIES,
        ),
        formats={"transformers": causal_lm}, compiled=forwards_by_engine, chain=ModelChain,
    ),
    parameter="drafter", offered="drafter",
    instead=", or name a model (parameter drafter)",
)  # fmt: skip
ASSISTANT = Term(
    "assistant_tokens", "tokens of its own", "Tokens that a drafter with another tokenizer wrote, by its count.", 0, 0
)  # fmt: skip
PROBE = "The 12 quick foxes, naïve 東京 🙂\n\tdef f(x):\n        return x  # don't"

GAMMA = param(5, "Draft length γ", "Tokens drafted per step.", low=1, high=32)
SCHEDULE = param(
    "fixed", "Schedule", "Heuristic: γ grows by two after a fully accepted draft and shrinks by one after any other.",
    choices=("fixed", "heuristic"),
)  # fmt: skip
SIZE = param(
    4, "Fixed size", "For fixed expansion: candidates at each position, the first one included.", low=2, high=16
)


@dataclass(frozen=True)
class SpsParams:
    drafter: str | None = param(
        None,
        "Drafter",
        "Model folder or hub id, or folder of a trained drafter. One with another tokenizer than the target's drafts "
        "too (across). Off: the drafter trained for this target.",
    )
    gamma: int = GAMMA
    schedule: str = SCHEDULE
    expansion: str = param(
        "none", "Expansion",
        "Further candidates beside the chain: CAPE's by confidence, a fixed number, or beam search instead. Expanded "
        "drafts hold the drafter's first choices and are verified by matching.", choices=EXPANSIONS,
    )  # fmt: skip
    size: int = SIZE
    rule: str = RULE
    across: str = param(
        TEXT, "Another tokenizer",
        "Where the drafter's tokenizer is not the target's. Text: what it writes is put into the target's tokens, and "
        "the draft counts as given. Shared tokens: it drafts of the tokens that both have alone, with its own "
        "probabilities.", choices=WAYS,
    )  # fmt: skip


class LanguageModelRun:
    """Any causal LM as the drafter, with a cache of its own that keeps what the text still begins with."""

    looks_at: dict[str, Any] | None = None  # it does not look into the target's cache

    def __init__(self, drafter: Target, vocab: int, words: Vocabularies | None = None) -> None:
        self.drafter, self.vocab, self.limit = drafter, vocab, drafter.context_length
        self.words = words  # where its vocabulary is not the target's
        self.tokens = np.zeros(0, dtype=np.int64)  # those of the cached rows, as far as they are a chain
        self.cache: TreeCache | None = None
        self.masks, self.ahead_rows = Masks(drafter.dtype, drafter.device), DraftRows()

    def begin(self, context: Context) -> None:
        """Read the prompt."""
        self.read(context)

    @torch.inference_mode()
    def read(self, context: Context) -> Float[Tensor, " vocab"]:
        have = min(common_prefix(self.tokens, context.tokens), context.length - 1)
        capacity = len(context.buffer) + SPARE_ROWS
        if self.cache is None or self.cache.capacity < capacity:
            have = 0
            self.cache = TreeCache(self.drafter.shape, capacity, stores=self.drafter.engines.stores)
        have, self.tokens = self.cache.cut(have), context.tokens.copy()
        self.ahead_rows = DraftRows(context.length)
        while True:
            stop = have + self.drafter.rows_at_once(have, context.length)
            logits = self._forward(self.tokens[have:stop].tolist(), np.arange(have, stop), last_only=True)
            if stop == context.length:
                self.cache.keep()
                return logits[-1]
            if context.is_cancelled:
                raise ReadingStopped
            have = stop

    @torch.inference_mode()
    def extend(self, tokens: Tokens, parents: Sequence[int]) -> Float[Tensor, "rows vocab"]:
        positions = self.ahead_rows.grow(parents)
        if not isinstance(tokens, Tensor):
            self.wrote(tokens)
        return self._forward(tokens, positions)

    def wrote(self, tokens: Sequence[int]) -> None:
        if self.ahead_rows.sees is None:
            self.tokens = np.append(self.tokens, np.asarray(tokens, dtype=np.int64))

    def looks(self, rows: Sequence[int]) -> None:
        return None

    def _forward(self, tokens: Tokens, positions: np.ndarray, *, last_only: bool = False) -> Tensor:
        assert self.cache is not None
        sees, depths = self.ahead_rows.sees, self.ahead_rows.base + np.asarray(self.ahead_rows.depths)
        with self.drafter.lock:
            if sees is None and len(positions) <= ROWS[-1] and self.cache.length:
                rows = StaticRows(self.cache, self.masks, tokens, positions, None)
                logits, _ = self.drafter.engines.run(rows, Needs(), Capture())
            else:
                logits = self.drafter.forward(
                    self.cache, self.masks, tokens, positions, None if sees is None else sees[-len(positions) :],
                    own_positions=None if sees is None else depths, last_only=last_only,
                )  # fmt: skip
        self.cache.commit(range(len(tokens)))  # the next step cuts off what was rejected
        return self.fit_logits(logits)

    def fit_logits(self, logits: Float[Tensor, "*rows entries"]) -> Float[Tensor, "*rows vocab"]:
        """The drafter's logits over the target's vocabulary; its table may be padded to another size."""
        if logits.shape[-1] >= self.vocab:
            return logits[..., : self.vocab]
        return torch.nn.functional.pad(logits, (0, self.vocab - logits.shape[-1]), value=-torch.inf)


class SharedTokensRun(LanguageModelRun):
    """A causal LM with another tokenizer, over the tokens that it shares with the target: it reads and writes its own,
    and what comes in and goes out are the target's.
    """

    words: Vocabularies  # type: ignore[assignment]

    def __init__(self, drafter: Target, words: Vocabularies) -> None:
        super().__init__(drafter, words.target_size, words)
        draft_ids = np.flatnonzero(words.shared_tokens >= 0)
        if not len(draft_ids):
            raise UserError(f"{drafter.name} has no token that is one of the target's: choose across={TEXT}")
        draft_index = np.zeros(words.target_size, dtype=np.int64)
        draft_index[words.shared_tokens[draft_ids]] = draft_ids
        self.draft_probs, self.target_probs, self.node_places = send(
            drafter.device, draft_ids, words.shared_tokens[draft_ids], draft_index
        )

    def read(self, context: Context) -> Float[Tensor, " vocab"]:
        ids = self.words.token_by_token(context.tokens.tolist(), context.prompt_length)
        return super().read(AssistantText.of(ids, context))  # type: ignore[arg-type]

    def extend(self, tokens: Tokens, parents: Sequence[int]) -> Float[Tensor, "rows vocab"]:
        if isinstance(tokens, Tensor):
            return super().extend(self.node_places[tokens], parents)
        return super().extend([self.words.assistant_of[token] for token in tokens], parents)

    def wrote(self, tokens: Sequence[int]) -> None:
        super().wrote([self.words.assistant_of.get(token, token) for token in tokens])

    def fit_logits(self, logits: Float[Tensor, "*rows entries"]) -> Float[Tensor, "*rows vocab"]:
        full = logits.new_full((*logits.shape[:-1], self.vocab), -torch.inf)
        full[..., self.target_probs] = logits[..., self.draft_probs]
        return full


class DraftRows:
    """Rows of a draft that grows behind ``base`` others: a chain needs no mask of its own, of a tree each row sees its
    ancestors.
    """

    def __init__(self, base: int = 0) -> None:
        self.base = base
        self.sees: Bool[np.ndarray, "rows rows"] | None = None
        self.depths: list[int] = []
        self.parents: list[int] = []

    def grow(self, parents: Sequence[int]) -> np.ndarray:
        """Take in more rows; their positions."""
        first_row = len(self.parents)
        self.parents += parents
        self.depths += [0 if parent < 0 else self.depths[parent] + 1 for parent in parents]
        if len(parents) > 1 or any(parent != row - 1 for row, parent in enumerate(self.parents)):
            self.sees = np.zeros((len(self.parents),) * 2, dtype=bool)
            for row, parent in enumerate(self.parents):
                if parent >= 0:
                    self.sees[row] = self.sees[parent]
                self.sees[row, row] = True
        return np.asarray(self.depths[first_row:]) + self.base


def differing(target: Any, drafter: Any) -> str | None:
    """The difference of two tokenizers, in words; None if they give the same tokens."""
    if target is None or drafter is None:
        return None
    target_vocab, draft_vocab = target.get_vocab(), drafter.get_vocab()
    if len(target_vocab) != len(draft_vocab):
        return f"its tokenizer has {len(draft_vocab):,} tokens, the target's {len(target_vocab):,}"
    if target_vocab != draft_vocab:
        token = min((t for t in target_vocab if draft_vocab.get(t) != target_vocab[t]), key=target_vocab.__getitem__)
        draft_side = f"token {draft_vocab[token]} there" if token in draft_vocab else "unknown there"
        return f"its tokenizer has other tokens: {token!r} is token {target_vocab[token]} here and {draft_side}"
    target_side, draft_side = (
        tokenizer(PROBE, add_special_tokens=False)["input_ids"] for tokenizer in (target, drafter)
    )
    return None if target_side == draft_side else "its tokenizer has the same tokens but splits text in another way"


def open_drafter(target: Target, source: str, *, other_vocab: bool = False) -> Target:
    """A causal LM as a drafter for the target, loaded once. Raises UserError where the tokenizer is another, unless
    ``other_vocab`` allows that (``vocabularies``), and where one of two tokenizers is not known.
    """
    key, differ = (PART.kind.name, source), ("tokenizers", source)
    if key not in target.companions:
        engine = target.engines.engine
        drafter = load_target(source, dtype=target.info["dtype"], device=str(target.device), engine=engine)
        reason = differing(target.tokenizer, drafter.tokenizer)
        draft_size, target_size = drafter.info["vocab"], target.info["vocab"]
        if target.tokenizer is None and draft_size != target_size:
            reason, other_vocab = f"its vocabulary has {draft_size:,} tokens, the target's {target_size:,}", False
        if reason is not None and not other_vocab:
            raise UserError(_cannot(target, drafter, reason))
        if target.engines.busy is not None:
            drafter.engines.begin(target.engines.busy)
        else:
            drafter.engines.resume()
        target.companions[key], target.companions[differ] = drafter, reason
    drafter, reason = target.companions[key], target.companions.get(differ)
    if reason is not None and not other_vocab:
        raise UserError(_cannot(target, drafter, reason))
    return drafter


def _cannot(target: Target, drafter: Target, reason: str) -> str:
    return (
        f"{drafter.name} cannot draft for {target.name}: {reason}. A drafter needs the target's own tokenizer here; "
        f"the method {METHOD.name} takes one with another"
    )


def vocabularies(target: Target, source: str, drafter: Target) -> Vocabularies | None:
    """Both vocabularies, where a drafter that was opened has another one; None where it has the target's."""
    if target.companions.get(("tokenizers", source)) is None:
        return None
    key = ("vocabularies", source)
    if key not in target.companions:
        sizes = target.info["vocab"], drafter.info["vocab"]
        target.companions[key] = Vocabularies(target.tokenizer, drafter.tokenizer, *sizes)
    return target.companions[key]


def offer_drafter(target: Target, source: str) -> None:
    """Make a model or trained part the drafter of runs that name none. Raises UserError where it cannot be one."""
    _running(target, source)
    target.companions[COMPANION] = source


def build(target: Target, params: SpsParams) -> ModelDrafter:
    run = _running(target, params.drafter or target.companions.get(COMPANION), params.across)
    heuristic = params.schedule == "heuristic"
    if params.expansion.startswith("beam") and isinstance(run, LanguageModelRun) and run.drafter.shape.recurrent_layers:
        raise UserError(
            f"{run.drafter.name} cannot draft by {params.expansion}: it is a hybrid model, whose recurrent state "
            "follows one text from forward to forward. Choose another expansion"
        )
    if isinstance(run, SharedTokensRun):
        return SharedTokensDrafter(run, params.gamma, params.expansion, params.size, heuristic=heuristic)
    if isinstance(run, LanguageModelRun) and run.words is not None:
        if params.expansion != "none":
            raise UserError(
                f"{run.drafter.name} has another tokenizer than {target.name}, and by text it drafts chains alone: set "
                f"expansion=none, or across={SHARED!r}"
            )
        return TextDrafter(run, run.words, params.gamma, heuristic=heuristic)
    return ModelDrafter(run, params.gamma, params.expansion, params.size, heuristic=heuristic)


def _running(target: Target, source: str | None, across: str = TEXT) -> Any:
    """A draft model at work: a trained part (that of the target where no source is given), or a causal LM."""
    if source is None or is_part(typed_path(source)):
        model, rotary = load_part(target, PART.kind.name, source), target_rotary(target.stack)
        return DraftRun(model, rotary, forwards_by_engine(target, model), target.engines)
    drafter = open_drafter(target, source, other_vocab=True)
    words = vocabularies(target, source, drafter)
    if words is None:
        return LanguageModelRun(drafter, target.info["vocab"])
    if across == SHARED:
        return SharedTokensRun(drafter, words)
    return LanguageModelRun(drafter, drafter.info["vocab"], words)


METHOD = Method(
    name="sps",
    family="draft model",
    title="SpS: a draft model",
    paper="Leviathan et al. 2023, Fast inference from transformers via speculative decoding",
    bibtex=r"""
@inproceedings{leviathan2023speculative,
  author = {Yaniv Leviathan and Matan Kalman and Yossi Matias},
  title = {Fast Inference from Transformers via Speculative Decoding},
  booktitle = {International Conference on Machine Learning},
  year = {2023},
}
""",
    summary="A small language model writes a few tokens ahead, and the target checks them in one forward.",
    params=SpsParams,
    build=build,
    origins=(origins.DRAFTER, origins.EXPANSION),
    node_terms=NODE_TERMS,
    step_terms=(*STEP_TERMS, ASSISTANT),
    verifier=drawn_verifier,
    verifier_params=("rule",),
    part=PART,
    order=20,
)
