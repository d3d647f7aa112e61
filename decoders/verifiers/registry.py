"""The registry of verifiers. One verifier, one file: a module here that defines ``VERIFIER`` is found by itself; what
plug-ins bring is added by the registry of methods (``decoders.drafters``), which reads them.
"""

from __future__ import annotations

import functools
import importlib
import pkgutil
import re
from pathlib import Path

from decoders.draft.params import card_fault

from .verifier import VerifierCard

NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]*")
_added: dict[str, VerifierCard] = {}


@functools.cache
def own_verifiers() -> dict[str, VerifierCard]:
    """The verifiers of this package by name, lossless ones first."""
    folder = Path(__file__).parent
    modules = (importlib.import_module(f"{__package__}.{info.name}") for info in pkgutil.iter_modules([str(folder)]))
    cards = [module.VERIFIER for module in modules if hasattr(module, "VERIFIER")]
    return {card.name: card for card in sorted(cards, key=lambda c: (not c.lossless, c.order, c.name))}


def registered_verifiers() -> dict[str, VerifierCard]:
    """All verifiers by name, those that were added last."""
    return {**own_verifiers(), **_added}


def register_verifier(card: VerifierCard) -> VerifierCard:
    """Add a verifier (or replace the one of the same name) for this process."""
    _added[card.name] = card
    return card


def forget_verifier(name: str) -> None:
    """Take out a verifier that was added."""
    _added.pop(name, None)


def verifier_fault(card: object) -> str:
    """The reason why an object cannot be registered as a verifier, in plain words; "" where nothing does."""
    if not isinstance(card, VerifierCard):
        return f"VERIFIER is a {type(card).__name__}, and a decoders.VerifierCard is wanted"
    if not isinstance(card.name, str) or not NAME.fullmatch(card.name):
        return f"its verifier is called {card.name!r}, and a name has letters, digits, _ . or -"
    return card_fault(card, ("title", "source", "summary"), "params, chooser and stop ids")
