"""One verify forward for several runs: the rows of their drafts, probes included, go through the model side by side,
and each run attends to its own cache.

Nothing is padded, and no row sees another run: only the linear layers are shared.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager

import numpy as np
import torch
from torch import Tensor

from decoders.draft.draft import Draft, Scored, layout_of, reading_of
from decoders.errors import UserError

from ..files.shape import ROTARIES
from ..state.attention import RowBatch, Rule, running
from ..state.cache import CacheLayer, HybridCache, TreeCache
from ..state.cache_name import cache_input
from ..state.capture import Capture
from ..state.recurrent import JointStates, Paths
from ..state.transfer import send
from .target import Session, Target


class JointCache(HybridCache):
    """The caches of several runs in one forward, of which run i has the next ``counts[i]`` rows."""

    def __init__(self, caches: Sequence[TreeCache], counts: Sequence[int]) -> None:
        super().__init__(layers=[CacheLayer(self, index) for index in range(len(caches[0].layers))])
        self.caches, self.counts = list(caches), list(counts)
        states = [cache.states for cache in caches if cache.states is not None]
        self.states: JointStates | None = JointStates(states, counts) if states else None

    @property
    def length(self) -> int:
        return sum(cache.length for cache in self.caches)

    @property
    def capacity(self) -> int:
        return sum(cache.capacity for cache in self.caches)

    def write(self, layer: int, keys: Tensor, values: Tensor) -> tuple[RowBatch, RowBatch]:
        rows = zip(self.caches, keys.split(self.counts, 2), values.split(self.counts, 2), strict=True)
        key_values = [cache.write(layer, own_keys, own_values) for cache, own_keys, own_values in rows]
        all_keys, all_values = zip(*key_values, strict=True)
        return RowBatch(all_keys, tuple(self.counts)), RowBatch(all_values, tuple(self.counts))

    @contextmanager
    def following(
        self, positions: Sequence[np.ndarray], sees: Sequence[np.ndarray | None], device: torch.device
    ) -> Iterator[None]:
        """``TreeCache.following`` of each run."""
        if self.states is None:
            yield
            return
        with self.states.following([Paths(*path_args, device) for path_args in zip(positions, sees, strict=True)]):
            yield


def check_together(target: Target, sessions: Sequence[Session]) -> None:
    """Raise UserError where runs cannot share a forward."""
    if target.shape.rotary not in ROTARIES:
        raise UserError(f"{target.name} turns all rows by the longest text's positions: its runs share no forward")
    if any(s.needs.layers or s.needs.heads or s.needs.top_per_step for s in sessions):
        raise UserError("a method that reads hidden states, attention or logits shares no forward: take another one")


@torch.inference_mode()
def score_together(target: Target, sessions: Sequence[Session], drafts: Sequence[Draft]) -> list[Scored]:
    """Each session's draft scored, as ``Session.score`` does it one by one; nothing is committed yet. Raises UserError
    for runs that cannot share a forward.
    """
    check_together(target, sessions)
    if any(reading_of(draft) is not None for draft in drafts):
        raise UserError("prompt tokens with a prefix, a head or exits of their own share no forward: take others")
    counts = [len(draft.tree) + len(draft.probes) for draft in drafts]
    layouts = [draft.layout or layout_of(draft) for draft in drafts]
    places = [layout.offsets + (session.length - 1) for layout, session in zip(layouts, sessions, strict=True)]
    tokens = [[*draft.tree.tokens, *(probe.token or 0 for probe in draft.probes)] for draft in drafts]
    ids, positions = send(target.device, np.concatenate(tokens).astype(np.int64), np.concatenate(places))
    rows = [
        session.masks.rows(
            session.cache.length, None if layout.sees is None else send(target.device, layout.sees)[0], run_places,
            int(place.max()),
        )
        for session, layout, run_places, place in zip(sessions, layouts, positions.split(counts), places, strict=True)
    ]  # fmt: skip

    embedded = [  # a session's own way, for probes that bring theirs
        target.embeddings(run_ids[None])
        if layout.embeddings is None
        else session._embed(draft, layout.embeddings, run_ids)
        for session, draft, layout, run_ids in zip(sessions, drafts, layouts, ids.split(counts), strict=True)
    ] if any(layout.embeddings is not None for layout in layouts) else []  # fmt: skip

    def masks(rule: Rule, reach: int | None, skip: bool) -> RowBatch:
        return RowBatch(tuple(row_masks(rule, reach, skip and target.skips_masks) for row_masks in rows), tuple(counts))

    cache = JointCache([session.cache for session in sessions], counts)
    with target.lock, cache.following(places, [layout.sees for layout in layouts], target.device):
        reset_token = running.set(masks)
        try:
            output = target.model(
                **({"inputs_embeds": torch.cat(embedded, 1)} if embedded else {"input_ids": ids[None]}),
                position_ids=positions[None], use_cache=True, **cache_input(target.model, cache),
            )  # fmt: skip
        finally:
            running.reset(reset_token)
    results = []
    for session, draft, logits in zip(sessions, drafts, output.logits[0].float().split(counts), strict=True):
        session._logits, session._scored, session._captured = logits, draft, Capture()
        nodes = len(draft.tree)
        results.append(Scored(logits[:nodes], logits[nodes:] if draft.probes else None))
    return results
