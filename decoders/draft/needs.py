"""Needs of a drafter: the parts of the target that it reads."""

from __future__ import annotations

from dataclasses import dataclass


def heads_by_layer(heads: tuple[tuple[int, int], ...]) -> dict[int, list[int]]:
    """Chosen heads grouped: layer → heads in it, both ascending.

    >>> heads_by_layer(((1, 3), (0, 2), (1, 0)))
    {0: [2], 1: [0, 3]}
    """
    layer_heads: dict[int, list[int]] = {}
    for layer, head in sorted(heads):
        layer_heads.setdefault(layer, []).append(head)
    return layer_heads


@dataclass(frozen=True, slots=True)
class Needs:
    """Parts of the target that a drafter reads besides the tokens; only this is captured while the target runs.

    ``layers`` index the model's hidden states (0 = embeddings, n = after layer n);
    ``heads`` are (layer, head) pairs whose attention rows are read, layers counted from 0;
    ``top_tokens`` next tokens are kept per committed position, or of the prompt's alone (``top_of_prompt``): working
    them out takes some hundredths of a one-row step; ``pool`` says that drafts come from ``Context.pool``.
    """

    layers: tuple[int, ...] = ()
    heads: tuple[tuple[int, int], ...] = ()
    top_tokens: int = 0
    pool: bool = False
    top_of_prompt: bool = False

    @property
    def top_per_step(self) -> int:
        """The next tokens that are kept per committed position of the output."""
        return 0 if self.top_of_prompt else self.top_tokens

    def __or__(self, right: Needs) -> Needs:
        """The union of two drafters' needs.

        >>> Needs(layers=(2,), top_tokens=4) | Needs(layers=(1, 2), heads=((0, 3),))
        Needs(layers=(1, 2), heads=((0, 3),), top_tokens=4, pool=False, top_of_prompt=False)
        """
        return Needs(
            tuple(sorted({*self.layers, *right.layers})),
            tuple(sorted({*self.heads, *right.heads})),
            max(self.top_tokens, right.top_tokens),
            self.pool or right.pool,
            bool(tops := [needs for needs in (self, right) if needs.top_tokens])
            and all(needs.top_of_prompt for needs in tops),
        )

    def covers(self, needs: Needs) -> bool:
        """True where a session with these keeps all that a drafter with ``needs`` reads (the pool is the session's).

        >>> Needs(layers=(0, 1, 2), top_tokens=8).covers(Needs(layers=(1,), top_tokens=4))
        True
        """
        return (
            set(needs.layers) <= set(self.layers)
            and set(needs.heads) <= set(self.heads)
            and needs.top_tokens <= self.top_tokens
            and (not needs.top_tokens or needs.top_of_prompt or not self.top_of_prompt)
        )
