"""Drafts from a language model with another tokenizer than the target's: by text, or by the tokens that both have."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
import torch

from decoders.draft.draft import Draft, Translation
from decoders.draft.tree import DraftTree
from decoders.model.state.memory import Context
from decoders.model.state.transfer import Span, fetch, mark

from .drafter import ModelDrafter, Running, first_choice, one_by_one
from .vocabularies import Vocabularies

TEXT, SHARED = WAYS = ("text", "shared tokens")


@dataclass(frozen=True, slots=True)
class AssistantText:
    """A run's text in the draft model's own tokens, as ``Running.read`` takes one."""

    tokens: np.ndarray
    context: Context

    @classmethod
    def of(cls, ids: Sequence[int], context: Context) -> AssistantText:
        """The text of a run's ``context``."""
        return cls(np.asarray(ids, dtype=np.int64), context)

    @property
    def is_cancelled(self) -> bool:
        return self.context.is_cancelled

    @property
    def length(self) -> int:
        return len(self.tokens)

    @property
    def buffer(self) -> Sequence[int]:
        """As long as the text may become before the draft model's cache is made anew: doubled where it is full."""
        return range(1 << max(8, (len(self.tokens) + 64).bit_length()))


class TextDrafter(ModelDrafter):
    """Drafts the text that a language model with another tokenizer writes: ``gamma`` of its tokens, its first choices.

    The draft is what the target's tokenizer makes of that text. The model has no distribution over the target's tokens,
    so the draft counts as given, in sampled runs too: the target's own draw is looked for in it, which is lossless for
    any draft.
    """

    def __init__(self, run: Running, words: Vocabularies, gamma: int, *, heuristic: bool = False) -> None:
        super().__init__(run, gamma, heuristic=heuristic)
        self.words = words

    def prepare(self, context: Context) -> None:
        text = AssistantText.of(self.words.assistant_ids(context.tokens.tolist()), context)
        if text.length < self.run.limit:
            self.run.begin(text)  # type: ignore[arg-type]

    def propose(self, context: Context, budget: int) -> Draft:
        device, gamma = context.device, self.gamma(context)
        text = AssistantText.of(self.words.assistant_ids(context.tokens.tolist()), context)
        depth = min(gamma, self.run.limit - text.length)
        if depth < 1:
            return Draft.empty(context.root, f"the drafter reads at most {self.run.limit:,} of its own tokens")
        start_mark = mark(device)
        chain = one_by_one(self.run, text, depth, first_choice)  # type: ignore[arg-type]
        forward_mark = mark(device)
        chain_tokens = chain.tokens
        self.run.wrote(chain_tokens[:-1])
        sure = torch.stack(chain.logit_rows).softmax(-1).gather(1, torch.cat(chain.drafted)[:, None])[:, 0]
        translation = self.words.write(context.tokens.tolist(), chain_tokens)
        tokens = list(translation.tokens[:budget])
        notes = {
            "gamma": float(gamma), "forward_ms": Span((start_mark, forward_mark)),
            "expand_ms": Span((forward_mark, mark(device))), "assistant_tokens": float(len(chain_tokens)),
        }  # fmt: skip
        nodes = [
            [place + 1 if 0 <= place < len(tokens) else -1 for place in places]
            for places in (translation.first, translation.last)
        ]
        last = [len(tokens) if first > 0 and node < 0 else node for first, node in zip(*nodes, strict=True)]  # cut off
        draft_translation = Translation(
            tuple(chain_tokens), tuple(self.words.assistant_pieces.of(token)[0] for token in chain_tokens),
            tuple(fetch(sure)[0].tolist()), tuple(nodes[0]), tuple(last),
        )  # fmt: skip
        reason = "" if tokens else "what the drafter wrote is no whole text in the target's tokens"
        return Draft(
            DraftTree.chain(context.root, tokens), ("root", *("drafter",) * len(tokens)), (-1,) * (len(tokens) + 1),
            route="text" if tokens else "none", reason=reason, notes=notes, translated=draft_translation,
        )  # fmt: skip


class SharedTokensDrafter(ModelDrafter):
    """Drafts as any draft model does, of the tokens that both vocabularies have: what is drawn, and its q, are of the
    draft model's distribution over these alone, renormalised. Says of every node which token of its own it was.
    """

    def propose(self, context: Context, budget: int) -> Draft:
        draft = super().propose(context, budget)
        words, tree = self.run.words, draft.tree  # type: ignore[attr-defined]
        if not tree.drafted:
            return draft
        nodes = tuple(node for node, token in enumerate(tree.tokens) if node and token in words.assistant_of)
        assistant_tokens = tuple(words.assistant_of[tree.tokens[node]] for node in nodes)
        pieces = tuple(words.assistant_pieces.of(token)[0] for token in assistant_tokens)
        probabilities = draft.probabilities or (0.0,) * len(tree)
        translation = Translation(assistant_tokens, pieces, tuple(probabilities[node] for node in nodes), nodes, nodes)
        return replace(
            draft, notes={**draft.notes, "assistant_tokens": float(len(assistant_tokens))}, translated=translation
        )
