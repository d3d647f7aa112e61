"""A drafting method at work on one run."""

from __future__ import annotations

from typing import Protocol

from decoders.draft.draft import Draft, Scored, Verdict
from decoders.model.memory import Context


class Drafter(Protocol):
    """A drafting method at work on one run. Deterministic, given the context and the seed.

    A drafter that builds something for the prompt once (an index, say) may also have ``prepare(context)``, called
    after the prompt was read and before the first step. One that draws its tokens may have ``sample_with(chooser)``,
    called when it was built; it takes the warpers and the seed from there, but leaves the chooser's draws to the
    verifier. One whose drafts have ``looks`` has ``looks_at``: what they are, as {"label", "layers", "heads"}.
    One whose drafts depend on more than the context has ``resume(context, past)``: it takes up the state it would have
    after the steps ``past``, and may give the last one's draft back, to be scored and observed once more.
    """

    def propose(self, context: Context, budget: int) -> Draft:
        """A draft after the context's last token, at most ``budget`` tokens deep."""
        ...

    def observe(self, draft: Draft, scored: Scored, verdict: Verdict) -> None:
        """What became of the draft; called once per step, after the accepted path was committed."""
        ...
