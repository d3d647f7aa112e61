"""Drafts of block drafters and MTP layers along texts that are given."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import torch
from torch import Tensor

from decoders.draft_models.forced_chain import Chain, ForcedChain, Option, with_settings
from decoders.model.state.memory import Context
from specviz.extras.heads.head_chains import chain_of_states

from .block_run import BlockRun
from .block_walk import score
from .mtp_run import MtpRun


class BlockChain(ForcedChain):
    """Block drafters."""

    feeds_back, borrows = False, True

    @property
    def rotary_part(self) -> Any:
        return self.network

    def depth(self, limit: int) -> int:
        return min(limit, self.config.places)

    def chain(self, depth: int) -> Chain:
        run, network = BlockRun(self.network), self.network

        def chain(context: Context, tokens: Sequence[int]) -> Tensor:
            states = run.block(context)[:depth]
            prior_tokens = torch.tensor([context.root, *tokens[: depth - 1]], device=states.device)[:, None]
            rows = zip(network.say(states), states, prior_tokens, strict=True)
            return torch.stack([score(network, row_logits, state, token) for row_logits, state, token in rows])

        return chain

    def options(self, depth: int) -> Iterator[Option]:
        config = self.config
        changes: list[tuple[str, str, dict[str, Any]]] = [
            ("causal", "no row sees later ones", {"causal": (True,) * config.layers}),
            ("causal", "every row sees the whole block", {"causal": ()}),
            ("anchor", "rows guess " + ("their own token" if config.anchor else "the next token"),
             {"anchor": not config.anchor}),
            ("embedding_scale", "embeddings as they are", {"embedding_scale": 1.0}),
            ("embedding_scale", "embeddings times the root of their width", {"embedding_scale": config.hidden**0.5}),
            ("logits_scale", "logits as they are", {"logits_scale": 1.0, "softcap": 0.0}),
        ]  # fmt: skip
        if config.markov_rank and not config.confidence_markov:
            changes.append(("markov_rank", "without its Markov head", {"markov_rank": 0}))
        for name, words, settings in changes:
            if all(getattr(config, key) == value for key, value in settings.items()):
                continue
            if name == "anchor" and (config.block == 1 or config.block - config.anchor < depth):
                continue  # drafts of another length
            yield Option(
                name.replace("_", " "), words,
                "set " + " and ".join(f"{key} to {value}" for key, value in settings.items()) + " in its description",
                with_settings(self.network, **settings),
            )  # fmt: skip


class MtpChain(ForcedChain):
    """A model's MTP layers."""

    def depth(self, limit: int) -> int:
        return min(limit, self.config.layers) if self.config.layers > 1 else limit

    def chain(self, depth: int) -> Chain:
        return chain_of_states(MtpRun(self.network, getattr(self.target.stack, "rotary_emb", None)), depth)
