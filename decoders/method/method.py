"""A method's card in the registry."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from decoders.draft.needs import Needs
from decoders.draft.terms import Term
from decoders.model.target import Target
from decoders.prompt.prompt import Prompt
from decoders.verifiers.sampling import Chooser
from decoders.verifiers.verifier import Verifier

from .drafter import Drafter


@dataclass(frozen=True)
class Method:
    """A registry entry. One method, one file; nothing else has to know of it.

    ``params`` is a frozen dataclass made with ``decoders.draft.params.param``: the app's controls, ``--set`` and sweeps
    are made from it. ``terms``, ``node_terms`` and ``step_terms`` declare the numbers that it records per candidate,
    tree node and step. ``verifier`` makes the verifier from the parameters, the chooser and the stop tokens (None:
    tokens must match the target's choice). ``prompt`` may rewrite the prompt before anything is read. ``order`` places
    the method in lists. ``available`` returns None, or one sentence that says what is missing for this target and which
    command makes it (``brings`` says of parameters that they name it, so that nothing is missing); ``applies`` returns
    None, or one sentence that says what a prompt lacks.
    """

    name: str
    title: str
    paper: str
    summary: str
    params: type
    build: Callable[[Target, Any], Drafter]
    needs: Callable[[Target, Any], Needs] = lambda target, params: Needs()
    lossless: bool = True
    terms: tuple[Term, ...] = ()
    node_terms: tuple[Term, ...] = ()
    step_terms: tuple[Term, ...] = ()
    verifier: Callable[[Any, Chooser, frozenset[int]], Verifier] | None = None
    prompt: Callable[[Target, Any, Prompt], Prompt] | None = None
    available: Callable[[Target], str | None] = lambda target: None
    brings: Callable[[Any], bool] = lambda params: False
    applies: Callable[[Prompt], str | None] = lambda prompt: None
    order: int = 50
