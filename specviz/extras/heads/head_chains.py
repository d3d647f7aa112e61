"""Drafts of Medusa's, Hydra's and EAGLE's heads along texts that are given."""

from __future__ import annotations

import copy
from collections.abc import Iterator, Sequence
from typing import Any

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn

from decoders.draft_models.forced_chain import Chain, Chains, ForcedChain, Option, with_settings
from decoders.model.state.memory import Context

from .eagle_run import DRAFT_ROWS, EagleRun
from .heads_prefix import PrefixRun


class ParallelChain(ForcedChain):
    """Medusa's and Hydra's heads."""

    parallel, feeds_back = True, False

    @property
    def layers(self) -> tuple[int, ...]:
        return (self.config.layer(self.target.shape),)

    @property
    def reads_text(self) -> bool:
        return self.network.prefix is not None

    @property
    def rotary_part(self) -> Any:
        return self.network.prefix

    def with_rotary_part(self, part: Any) -> Any:
        whole = copy.copy(self.network)
        whole._modules = {**self.network._modules, "prefix": part}
        return whole

    def depth(self, limit: int) -> int:
        return min(limit, self.config.heads)

    def chain(self, depth: int) -> Chain:
        heads, layer = self.network, self.layers[0]
        prefix = None if heads.prefix is None else PrefixRun(heads.prefix, layer)

        def chain(context: Context, tokens: Sequence[int]) -> Tensor:
            state = context.hidden_at(layer)[-1] if prefix is None else prefix.read(context)
            if not heads.config.grounded:
                return heads.say_all(state, depth).float()
            path = heads.embedding(torch.tensor([[context.root, *tokens[: depth - 1]]], device=state.device))
            head_logits = [heads.say(n, heads.state(n, state[None], path[:, : n + 1]))[0] for n in range(depth)]
            return torch.stack(head_logits).float()

        return chain


class EagleChain(ForcedChain):
    """EAGLE's heads."""

    borrows = True

    @property
    def rotary_part(self) -> Any:
        return self.network

    def chain(self, depth: int) -> Chain:
        return chain_of_states(EagleRun(self.network), depth)

    def chains(self, depth: int) -> Chains:
        run, most = PlacedRun(self.network), DRAFT_ROWS // depth

        def chains(contexts: Sequence[Context], drafts: Sequence[Sequence[int]]) -> Tensor:
            states = run.read_all(max(contexts, key=lambda context: context.length))
            roots = [context.root_position for context in contexts]
            tokens = torch.tensor(drafts, device=run.device)[:, : depth - 1]
            starts = range(0, len(roots), most)
            return torch.cat([run.draft_behind(states, roots[i : i + most], tokens[i : i + most]) for i in starts])

        return chains

    def options(self, depth: int) -> Iterator[Option]:
        """Switches of an EAGLE-3 head."""
        head = self.network
        if not head.config.third:
            return
        state = not head.config.norm_output
        yield Option(
            "state fed back", f"what goes back in is the state {'after' if state else 'before'} the last norm",
            f"set norm_output to {str(state).lower()} in the head's description: its later tokens read its own states, "
            "and those it was trained with are the others", with_settings(head, norm_output=state), is_screened=False,
        )  # fmt: skip
        for name, words in (("norm_before_fc", "their norm"), ("fc_norm", "their norms")):
            if getattr(head.config, name):
                yield Option(
                    "norm before fc", f"the target's states joined without {words}",
                    f"set {name} to false in the head's description", with_settings(head, **{name: False}),
                )  # fmt: skip
        residual = not head.config.norm_before_residual
        variant = with_settings(head, norm_before_residual=residual)
        variant._modules["layers"] = layers = nn.ModuleList(list(head.layers))
        first: Any = copy.copy(head.layers[0])
        first.norm_before_residual = residual
        layers[0] = first
        yield Option(
            "residual", f"attention is added to the state {'after' if residual else 'before'} its norm",
            f"set norm_before_residual to {str(residual).lower()} in the head's description", variant,
            is_screened=False,
        )  # fmt: skip


class PlacedRun(EagleRun):
    """A head that reads a text once, and goes on behind several of its places side by side."""

    @torch.inference_mode()
    def read_all(self, context: Context) -> Float[Tensor, "pairs hidden"]:
        """The state that each pair of the text leads to."""
        _, pairs = self._catch_up(context)
        states = list[Tensor]()
        for state, tokens, places, mask in self.pieces(0, pairs, context):
            turns, positions = (self.cache.cos[places], self.cache.sin[places]), range(places.start, places.stop)
            states.append(self.states_behind(state, tokens, places.start, positions, turns, mask))
        return torch.cat(states)

    @torch.inference_mode()
    def draft_behind(
        self, states: Float[Tensor, "pairs hidden"], roots: Sequence[int], tokens: Int[Tensor, "places depth"]
    ) -> Float[Tensor, "places depth+1 drafted"]:
        """Logits after each root, and after every token of the draft behind it; ``roots`` are positions."""
        first = torch.tensor(roots, device=self.device)
        states, self.places = states[first - 1], []
        logits, text = [self.head.say(states).float()], torch.arange(self.base, device=self.device) < first[:, None]
        own = torch.eye(len(roots), dtype=torch.bool, device=self.device)
        for level, column in enumerate(tokens.unbind(1)):
            mask, start = torch.cat([text, own.repeat(1, level + 1)], 1), self.base + level * len(roots)
            positions = [root + level for root in roots]
            self.places += positions
            turns = self.cache.cos[positions], self.cache.sin[positions]
            states = self.states_behind(states, column, start, positions, turns, mask)
            logits.append(self.head.say(states).float())
        return torch.stack(logits, 1)


def chain_of_states(run: Any, depth: int) -> Chain:
    """The chain of a run that goes on from its own states (``EagleRun``)."""

    def chain(context: Context, tokens: Sequence[int]) -> Tensor:
        step_logits = [run.read(context)]
        parent_row = torch.zeros(1, dtype=torch.long, device=run.device)
        step_logits += [
            run.extend(torch.tensor([token], device=run.device), parent_row)[0] for token in tokens[: depth - 1]
        ]
        return torch.stack(step_logits)

    return chain
