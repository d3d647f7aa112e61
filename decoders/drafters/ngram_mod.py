"""llama.cpp's ngram-mod (Gerganov 2026): each n-gram of the text so far points to the token that followed it last.

The draft goes on token by token: the last n tokens, drafted ones among them, are looked up, and the token they point to
is drafted. So a draft is no copy of one place: behind each token the newest occurrence of its n-gram is followed.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from decoders.draft.draft import Draft
from decoders.draft.params import param
from decoders.draft.tree import DraftTree
from decoders.method.drafter import Drafter
from decoders.method.method import Method
from decoders.model.state.memory import Context


@dataclass(frozen=True)
class NgramModParams:
    n: int = param(
        24, "Length n", "Tokens that are looked up together. llama.cpp advises against small ones.", low=1, high=64
    )
    k: int = param(
        64, "Draft length K", "Tokens drafted after a match. A draft that reaches the text's end goes on where it "
        "began, so that it is never shorter.", low=1, high=128,
    )  # fmt: skip


class NgramModDrafter(Drafter):
    """Follows n-grams; ``following`` has the place of the token behind each, the last one that came."""

    learns = False  # drafts follow from the text

    def __init__(self, params: NgramModParams) -> None:
        self.params = params
        self.text = np.zeros(0, dtype=np.int64)  # whose n-grams are known
        self.following: dict[bytes, int] = {}

    def propose(self, context: Context, budget: int) -> Draft:
        text, n = context.tokens, self.params.n
        if len(text) < n:
            return Draft.empty(context.root, f"the text has fewer than n = {n} tokens")
        self._read(text)
        window, sources = text[len(text) - n :].tolist(), list[int]()
        while len(sources) < min(self.params.k, budget):
            place = self.following.get(np.asarray(window, dtype=np.int64).tobytes())
            if place is None:
                break
            sources.append(place)
            window = [*window[1:], int(text[place])]
        if not sources:
            return Draft.empty(context.root, f"the last n = {n} tokens did not stand together before")
        tree = DraftTree.chain(context.root, text[sources].tolist())
        return Draft(tree, ("root", *["main"] * len(sources)), (-1, *sources), route="lexical")

    def _read(self, text: np.ndarray) -> None:
        """Have the n-grams of a text; one that is no continuation of the last one is read anew."""
        n, known = self.params.n, len(self.text)
        if known > len(text) or not np.array_equal(self.text, text[:known]):
            self.following, known = {}, 0
        for place in range(max(n, known), len(text)):
            self.following[text[place - n : place].tobytes()] = place
        self.text = text.copy()


METHOD = Method(
    name="ngram-mod",
    family="copy",
    title="ngram-mod",
    paper="Gerganov 2026, llama.cpp: ngram-mod (pull request 19164)",
    bibtex=r"""
@misc{gerganov2026ngrammod,
  author = {Georgi Gerganov},
  title = {{llama.cpp}: spec: add ngram-mod},
  howpublished = {\url{https://github.com/ggml-org/llama.cpp/pull/19164}},
  year = {2026},
}
""",
    summary="Follows the text's n-grams token by token: behind each, the token that came there last.",
    params=NgramModParams,
    build=lambda target, params: NgramModDrafter(params),
    order=16,
)
