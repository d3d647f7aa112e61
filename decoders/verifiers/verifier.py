"""What every verifier is."""

from __future__ import annotations

from abc import ABC, abstractmethod

from decoders.draft.draft import Draft, Scored, Verdict


class Verifier(ABC):
    """Decides which drafted tokens stand. One decision per visited node (methods with a chain rule: per token)."""

    lossless: bool = True

    @abstractmethod
    def __call__(self, draft: Draft, scored: Scored) -> Verdict: ...

    def draws(self, route: str, drafted: int, accepted: int) -> int:
        """Random numbers of the chooser that a sampled step took: one per emitted token."""
        return accepted + 1
