"""A null model: drafts that are accepted as often as one says, depth by depth.

Whatever is drawn of a method (tokens per step, acceptance by depth, speedup) has a value that follows from acceptance
alone; this drafter shows it. It is no method: it reads the target's own answer before it drafts it.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from decoders.draft.draft import Draft
from decoders.draft.needs import Needs
from decoders.draft.params import param
from decoders.draft.tree import DraftTree
from decoders.method.drafter import Drafter
from decoders.method.method import Method
from decoders.model.state.memory import Context
from decoders.model.target_model.target import Session, Target
from decoders.trace.origins import Origin
from decoders.verifiers.match import judged


@dataclass(frozen=True)
class SyntheticParams:
    k: int = param(8, "Draft length", "Tokens per draft.", low=1, high=64)
    alpha: float = param(
        0.8,
        "Acceptance α",
        "How often the first drafted token is the target's own. The answer is found by decoding plainly ahead, which "
        "takes the target's time: read tokens per step here, never speed.",
        low=0.0,
        high=1.0,
    )
    decay: float = param(
        1.0,
        "Decay per depth",
        "Each further token is right so many times as often as the one before it, if that one was.",
        low=0.0,
        high=1.0,
    )
    seed: int = param(0, "Seed", "Of the draws that say which tokens are wrong.", low=0, high=1_000_000)

    def rates(self, count: int) -> np.ndarray:
        """Acceptance by depth, given that all before were accepted, ``[count]``.

        >>> SyntheticParams(alpha=0.8, decay=0.5).rates(3).tolist()
        [0.8, 0.4, 0.2]
        """
        return self.alpha * self.decay ** np.arange(count)


class TextAhead:
    """The target's greedy continuation of a text, decoded plainly on a session of its own as far as it is asked for."""

    def __init__(self, target: Target) -> None:
        self.target = target
        self.session: Session | None = None

    def tokens_after(self, text: np.ndarray, count: int, room: int) -> list[int]:
        """The ``count`` tokens that the target would write after ``text``; ``room``: as many as may ever be wanted.

        It starts anew where the text is not the one that it wrote itself: the run drew its tokens, or looks back.
        """
        end, session = len(text) + count, self.session
        leads = session is not None and np.array_equal(session.buffer[: min(len(text), session.length)], text)
        if session is None or session.capacity < end or not leads:
            session = self.session = self.target.session(Needs(), len(text) + room)
            session.prefill(text.tolist())
        while session.length < end:
            root = Draft.empty(session.context.root, "decoding ahead")
            session.commit(judged(root, [0], int(session.score(root).logits[0].argmax())))
        return session.buffer[len(text) : end].tolist()


class SyntheticDrafter(Drafter):
    """A chain of the target's answer, wrong from the first depth on whose draw says so."""

    def __init__(self, target: Target, params: SyntheticParams) -> None:
        self.params, self.vocab, self.oracle = params, target.shape.vocab, TextAhead(target)

    def propose(self, context: Context, budget: int) -> Draft:
        count = min(self.params.k, budget)
        answer, rates = self.oracle.tokens_after(context.tokens, count, budget), self.params.rates(count)
        draws = np.random.default_rng((self.params.seed, context.length)).random(count)
        right = int(np.argmin([*(draws < rates), False]))
        tokens = [*answer[:right], *((token + 1) % self.vocab for token in answer[right:])]
        return Draft(
            DraftTree.chain(context.root, tokens),
            ("root",) + (ORIGIN.name,) * count,
            (-1,) * (count + 1),
            probabilities=(1.0, *rates.tolist()),
            route="synthetic",
        )


ORIGIN = Origin(
    "synthetic", "N", "null model", "No guess: the target's own token, or a wrong one where a draw says so.", "notched"
)

METHOD = Method(
    name="synthetic",
    title="synthetic (null model)",
    paper="",
    summary="No method: drafts the target's own answer with errors, accepted as often per depth as you say.",
    params=SyntheticParams,
    build=SyntheticDrafter,
    origins=(ORIGIN,),
    null=True,
    order=99,
)
