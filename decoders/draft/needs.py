"""What a drafter reads of the target while it runs."""

from __future__ import annotations

from dataclasses import dataclass


def heads_by_layer(heads: tuple[tuple[int, int], ...]) -> dict[int, list[int]]:
    """Chosen heads grouped: layer → heads in it, both ascending.

    >>> heads_by_layer(((1, 3), (0, 2), (1, 0)))
    {0: [2], 1: [0, 3]}
    """
    grouped: dict[int, list[int]] = {}
    for layer, head in sorted(heads):
        grouped.setdefault(layer, []).append(head)
    return grouped


def covers(kept: Needs, needs: Needs) -> bool:
    """Whether what is kept for ``kept`` holds all that a drafter with ``needs`` reads (the pool is the session's).

    >>> covers(Needs(hidden_layers=(0, 1, 2), top_tokens=8), Needs(hidden_layer=1, top_tokens=4))
    True
    """
    layers = {needs.hidden_layer, *needs.hidden_layers} - {None}
    return (
        layers <= {kept.hidden_layer, *kept.hidden_layers}
        and set(needs.heads) <= set(kept.heads)
        and needs.top_tokens <= kept.top_tokens
    )


@dataclass(frozen=True, slots=True)
class Needs:
    """What a drafter reads besides the tokens; only this is captured while the target runs.

    ``hidden_layer`` indexes the model's hidden states (0 = embeddings, n = after layer n);
    ``heads`` are (layer, head) pairs whose attention rows are asked for, layers counted from 0;
    ``top_tokens`` next tokens are kept per committed position; ``pool`` says that drafts come from ``Context.pool``.
    ``hidden_layers`` are further layers to keep, for a session that several drafters look at (``Session.at``).
    """

    hidden_layer: int | None = None
    heads: tuple[tuple[int, int], ...] = ()
    top_tokens: int = 0
    pool: bool = False
    hidden_layers: tuple[int, ...] = ()
