"""Several prompts decoded side by side, step by step, each verify forward shared: throughput by batch size."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from decoders.draft.draft import emitted_tokens
from decoders.engine.decoding import Decoding
from decoders.method.method import Method
from decoders.model.target import Session, Target
from decoders.model.together import check_together, score_together
from decoders.model.transfer import wait
from decoders.names import BASELINE
from decoders.prompt.prompt import Prompt
from decoders.verifiers.match import stopped


@dataclass(frozen=True, slots=True)
class Together:
    """What a batch wrote, the seconds of decoding (prompts read before), and how many shared forwards it took."""

    outputs: tuple[tuple[int, ...], ...]
    seconds: float
    forwards: int

    @property
    def tokens(self) -> int:
        return sum(map(len, self.outputs))


def decode_together(
    target: Target, prompts: Sequence[Prompt], method: str | Method = BASELINE, params: Mapping[str, Any] | None = None,
    **options: Any,
) -> Together:  # fmt: skip
    """Every prompt's output, as each alone would give it. Drafts are made prompt by prompt; of each step the verify
    forwards are one. What has ended leaves the batch. Options as of ``Decoding.of``. Raises UserError for a method that
    reads more than tokens and cache.
    """
    runs = [Decoding.of(target, prompt, method, params, **options) for prompt in prompts]
    sessions = list[Session]()
    for run in runs:
        run.prefill()
        assert run.session is not None
        sessions.append(run.session)
    check_together(target, sessions)
    active, forwards = list(range(len(runs))), 0
    started = time.perf_counter()
    while active:
        drafts = [runs[n].propose(sessions[n]) for n in active]
        scored = score_together(target, [sessions[n] for n in active], drafts)
        forwards += 1
        going = []
        for n, draft, said in zip(active, drafts, scored, strict=True):
            run, session = runs[n], sessions[n]
            verdict = stopped(draft, run.verifier(draft, said), run.stop_ids)
            session.commit(verdict)
            run.drafter.observe(draft, said, verdict)
            last = emitted_tokens(draft.tree.tokens, verdict)[-1]
            if last not in run.stop_ids and session.length - session.prompt_length < run.room(session):
                going.append(n)
        active = going
    wait(target.device)
    seconds = time.perf_counter() - started
    outputs = tuple(tuple(s.buffer[s.prompt_length : s.length].tolist()) for s in sessions)
    return Together(outputs, seconds, forwards)
