"""Acceptance of guesses by distance and rank: PPD's, from which its trees are designed (PPD §4.2)."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import torch
from jaxtyping import Float
from torch import Tensor

from decoders.draft.draft import Draft, Probe, Verdict
from decoders.draft.needs import Needs
from decoders.draft.tree import DraftTree
from decoders.engine.decoding import generate
from decoders.errors import UserError
from decoders.model.target_model.target import SPARE_ROWS, Session, Target
from decoders.names import QUICK
from decoders.prompt.prompt import Prompt
from decoders.prompt_tokens.tokens import PromptTokens
from decoders.prompt_tokens.trees import RANKS


def measure_acceptance(
    target: Target,
    prompt_tokens: PromptTokens,
    prompts: Sequence[Prompt],
    *,
    max_new_tokens: int = 64,
    ranks: int = RANKS,
    progress: Callable[[int, int], None] | None = None,
) -> list[list[float]]:
    """``[m][ranks]``: how often the guess of each rank at each distance was the target's token.

    Prompt tokens hang on every position of the target's own greedy answers, which are fed to it again; distance 1 is
    the token after the next, which the position itself predicts. Distances are counted apart, as if independent.
    ``progress(done, total)`` counts prompts. Raises UserError where the answers are too short to count anything.
    """
    m = prompt_tokens.config.tokens
    hits, totals = torch.zeros(m, ranks, dtype=torch.long), torch.zeros(m, dtype=torch.long)
    for index, prompt in enumerate(prompts):
        output = generate(target, prompt, QUICK, max_new_tokens=max_new_tokens)
        tokens = [*prompt.tokens, *output]
        for distance, token_ranks in enumerate(guess_ranks(target, prompt_tokens, tokens, len(prompt.tokens))):
            hits[distance] += torch.bincount(token_ranks[token_ranks < ranks], minlength=ranks)
            totals[distance] += len(token_ranks)
        if progress:
            progress(index + 1, len(prompts))
    if not bool(totals.all()):
        raise UserError(
            f"the answers are too short to measure {m} distances: give prompts with answers of at least {m + 1} tokens"
        )
    return (hits / totals[:, None]).tolist()


@torch.inference_mode()
def guess_ranks(target: Target, prompt_tokens: PromptTokens, tokens: Sequence[int], start: int) -> list[Tensor]:
    """Per distance, the rank of the token that came, ``[positions]``, for prompt tokens on every position of ``tokens``
    from ``start`` - 1 on (positions whose distance lies beyond the end are not counted).

    A forward holds as many positions as there are rows: the text as a chain, the prompt tokens as probes.
    """
    m, last = prompt_tokens.config.tokens, len(tokens) - 1
    per_node = prompt_tokens.config.rows
    block = (SPARE_ROWS - m * prompt_tokens.config.prefix) // (1 + per_node)
    if block < 1:
        raise UserError(f"{per_node} rows of prompt tokens do not fit the {SPARE_ROWS} rows of one forward")
    ranks: list[list[Tensor]] = [[] for _ in range(m)]
    end = min(last - 1, target.context_length - m)  # where nothing is left to guess, or no position for a guess
    root = start - 1
    if root >= end:
        return [torch.zeros(0, dtype=torch.long) for _ in range(m)]
    session = target.session(Needs(), len(tokens))
    session.prefill(tokens[:start])
    while root < end:
        count = min(block, end - root)
        guesses = _guesses(session, prompt_tokens, tokens[root : root + count])
        for d in range(m):
            position_count = min(count, last - root - 1 - d)  # positions whose token at this distance is in the text
            if position_count > 0:
                offset = root + 2 + d
                right = torch.as_tensor(tokens[offset : offset + position_count], device=guesses.device)[:, None]
                logits = guesses[:position_count, d]
                ranks[d].append((logits > logits.gather(1, right)).sum(-1).cpu())
        root += count
        if root < end:
            session.commit(Verdict(tuple(range(count)), tokens[root], (), ()))
    return [torch.cat(parts) if parts else torch.zeros(0, dtype=torch.long) for parts in ranks]


def _guesses(session: Session, prompt_tokens: PromptTokens, chain: Sequence[int]) -> Float[Tensor, "nodes m vocab"]:
    probes: list[Probe] = []
    for node in range(len(chain)):
        probes += prompt_tokens.probes(node, prompt_tokens.config.tokens, len(probes))
    scored = session.score(Draft(DraftTree.chain(chain[0], chain[1:]), probes=tuple(probes)))
    assert scored.probe_logits is not None
    return torch.stack([prompt_tokens.guesses(rows) for rows in scored.probe_logits.split(prompt_tokens.config.rows)])
