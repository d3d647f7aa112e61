"""Plain decoding: the drafter that proposes nothing, so every step is one token of the target's own."""

from __future__ import annotations

from decoders.draft.draft import Draft
from decoders.draft.params import NoParams
from decoders.method.drafter import Drafter
from decoders.method.method import Method
from decoders.model.state.memory import Context


class EmptyDrafter(Drafter):
    def propose(self, context: Context, budget: int) -> Draft:
        return Draft.empty(context.root, "plain decoding never drafts", route="plain")


METHOD = Method(
    name="plain",
    title="Plain decoding",
    paper="",
    summary="One forward per token: the baseline every speed-up and every losslessness check is measured against.",
    params=NoParams,
    build=lambda target, params: EmptyDrafter(),
    origins=(),
)
