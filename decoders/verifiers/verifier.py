"""What every verifier is."""

from __future__ import annotations

from typing import Protocol

from decoders.draft.draft import Draft, Scored, Verdict


class Verifier(Protocol):
    """Decides which drafted tokens stand. One decision per visited node (methods with a chain rule: per token).

    One that draws other than once per emitted token has ``draws(route, drafted, accepted)``: how many of the chooser's
    random numbers a sampled step took.
    """

    lossless: bool

    def __call__(self, draft: Draft, scored: Scored) -> Verdict: ...
