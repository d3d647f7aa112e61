"""Teacher forcing: a method drafts over an answer that is given, so that its copied spans can be attributed.

The run is an ordinary one (same engine, same trace) but for its verifier: a drafted token stands while it equals the
next token given. Probabilities and ranks are the target's own opinion of the tokens it was made to take.
"""

from __future__ import annotations

import threading
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from decoders.drafters import select_method
from decoders.engine.recording import Run
from decoders.errors import UserError
from decoders.method.method import Method
from decoders.model.target_model.own_settings import NEUTRAL
from decoders.model.target_model.target import Target
from decoders.names import USUAL
from decoders.prompt.prompt import Prompt
from decoders.trace.trace import Trace
from decoders.verifiers.forced import ForcedVerifier


def answer_ids(target: Target, text: str) -> list[int]:
    """Token ids of an answer, and the token that ends it where the model has one (so that every token of the answer
    may be drafted). What spells a special token stays text.
    """
    if not text.strip():
        raise UserError("the answer is empty: give the text to attribute")
    ids: list[int] = list(target.tokenizer(text, add_special_tokens=False, split_special_tokens=True)["input_ids"])
    return [*ids, *end_ids(target)]


def end_ids(target: Target) -> list[int]:
    """The token that ends an answer; none where the model has none."""
    end = getattr(target.tokenizer, "eos_token_id", None)
    return [end] if end in target.stop_ids else [*target.stop_ids[:1]]


def check_answer(target: Target, answer: Sequence[int], prompt_length: int = 0) -> None:
    """Raise UserError for an answer that is empty, goes on after a stop token, or is too long for the model behind a
    prompt of ``prompt_length`` tokens.
    """
    if not answer:
        raise UserError("the answer is empty: give the text to attribute")
    stops = frozenset(target.stop_ids)
    if early := [i for i, token in enumerate(answer[:-1]) if token in stops]:
        raise UserError(
            f"the answer holds the stop token {answer[early[0]]} at place {early[0]} of {len(answer)}: "
            "give only what stands before it"
        )
    room = max(0, target.context_length - prompt_length)
    if len(answer) > room:
        raise UserError(
            f"the answer has {len(answer)} tokens and {target.name} has room for {room} after this prompt: "
            "shorten one of them or choose a model with a longer context"
        )


def forced_run(
    target: Target,
    prompt: Prompt,
    answer: Sequence[int],
    method: str | Method = USUAL,
    params: Mapping[str, Any] | None = None,
    *,
    max_new_tokens: int = 256,
    title: str = "",
    cancel: threading.Event | None = None,
) -> Run:
    """A traced run that writes the token ids ``answer``; its record says ``forced``.

    ``max_new_tokens`` bounds drafts as in a free run, and is raised to the answer's length. An answer that does not end
    with a stop token ends the run there; its last token is then never drafted. With the model's own greedy output, a
    lossless method drafts and has accepted what it would have in a free run with the same bound.

    Raises UserError for an answer that is empty, too long for the model, or goes on after a stop token.
    """
    check_answer(target, answer)
    entry, values = select_method(method, params)
    prompt = replace(prompt, grammar=None)
    has_end = answer[-1] in target.stop_ids
    limit = max(max_new_tokens, len(answer)) if has_end else len(answer)
    run = Run(
        target, prompt, entry, values, verifier=ForcedVerifier(answer), max_new_tokens=limit, stop_ids=target.stop_ids,
        generation=NEUTRAL, title=title or f"{entry.title}, given answer", cancel=cancel,
    )  # fmt: skip
    check_answer(target, answer, len(run.decoding.prompt.tokens))
    run.trace.run["forced"] = True
    return run


def forced_trace(
    target: Target, prompt: Prompt, answer: Sequence[int], method: str | Method = USUAL,
    params: Mapping[str, Any] | None = None, **options: Any,
) -> Trace:  # fmt: skip
    """The trace of a ``forced_run``, run to its end."""
    return forced_run(target, prompt, answer, method, params, **options).finish()
