"""Verification against a given text: a token is accepted while it equals the next one of the text."""

from __future__ import annotations

from collections.abc import Sequence

from decoders.draft.draft import Draft, Scored, Verdict

from .match import judged
from .verifier import Verifier


class ForcedVerifier(Verifier):
    """Accepts exactly the tokens of ``answer``, in their order; the next one that no child carries is the bonus.

    It is called once per step, as it counts the tokens that were written.
    """

    lossless = False

    def __init__(self, answer: Sequence[int]) -> None:
        self.answer, self.position = tuple(answer), 0

    def __call__(self, draft: Draft, scored: Scored) -> Verdict:
        children = draft.tree.children()
        path, bonus = [0], None
        while bonus is None and self.position < len(self.answer):
            token = self.answer[self.position]
            self.position += 1
            child = children[path[-1]].get(token)
            if child is None:
                bonus = token
            else:
                path.append(child)
        return judged(draft, path, bonus, accepted="as given", rejected="not as given")
