"""``specviz methods``: what there is to choose from, and what each method still lacks for a model."""

from __future__ import annotations

import argparse
from collections.abc import Mapping
from typing import TYPE_CHECKING

from decoders.errors import UserError

from . import common, options

if TYPE_CHECKING:
    from decoders import Method, VerifierCard
    from decoders.draft.params import Control

READY, MISSING = "ready", "missing"


DESCRIPTION = (
    "List drafting methods and verifiers, and say which methods lack a trained part. specviz methods new NAME writes "
    "a method of your own to begin with, specviz methods check FILE says whether one keeps the contract (exit code 1 "
    "where it does not)."
)


def add(parser: argparse.ArgumentParser) -> None:
    named = "only this method or verifier, with its parameters"
    parser.add_argument("name", nargs="?", metavar="NAME|new|check", help=named)
    parser.add_argument(
        "what", nargs="?", metavar="NAME|FILE", help="of new: the new method's name; of check: its file"
    )
    options.add_model(parser)


def run(args: argparse.Namespace) -> int:
    if args.name in ("new", "check"):
        if not args.what:
            raise UserError(f"specviz methods {args.name} needs a {'name' if args.name == 'new' else 'file'} behind it")
        from . import own_method

        return own_method.new(args.what) if args.name == "new" else own_method.check(args)
    if args.what:
        raise UserError(f"one method at a time: leave {args.what} out")
    from decoders import find_method, methods
    from decoders.drafters import verifiers

    if args.name in verifiers() and args.name not in methods():
        _explain_verifier(verifiers()[args.name])
        return 0
    chosen = [find_method(args.name)] if args.name else list(methods().values())
    try:
        target = common.open_target(args)
    except UserError as error:  # methods can be listed without a model, unless one was asked for
        if args.model:
            raise
        lacks, unknown = None, str(error)
    else:
        lacks, unknown = {method.name: method.missing(target) for method in chosen}, ""
    if args.name:
        _explain(chosen[0], lacks)
    else:
        _list(chosen, lacks)
    if unknown:
        common.say(f"Which parts are missing is not known: {unknown}")
    return 0


def _list(chosen: list[Method], lacks: Mapping[str, str | None] | None) -> None:
    """All methods as a table, below it what is missing. ``lacks`` says it per method (None: nothing); None: unknown."""
    from rich.text import Text

    from decoders.drafters import plugin_place

    rows = []
    for method in chosen:
        about = Text(f"{method.title}. {method.summary}")
        if method.paper:
            about.append(f"\n{method.paper}", "italic")
        if place := plugin_place(method.name):
            about.append(f"\nPlug-in: {place}", "italic")
        parts = "?" if lacks is None else MISSING if lacks[method.name] else READY
        rows.append((method.name, about, _output(method), parts))
    common.show_table(("method", "what it does, and the paper", "output", "parts"), rows, ruled=True)
    missing = (f"{name}: {reason}" for name, reason in (lacks or {}).items() if reason)
    common.say(*missing)
    _list_verifiers()
    common.say("specviz methods NAME explains the parameters of one; --verifier has it judge the drafts of any method.")


def _explain(method: Method, lacks: Mapping[str, str | None] | None) -> None:
    """One method with its parameters."""
    from decoders.drafters import plugin_place

    place = plugin_place(method.name)
    common.say(
        f"{method.name}: {method.title} ({_output(method)})", (place and f"From the plug-in {place}") or "",
        method.summary, method.paper and f"Paper: {method.paper}",
        f"Missing: {reason}" if lacks and (reason := lacks[method.name]) else "",
    )  # fmt: skip
    _show_parameters(method.params)


def _list_verifiers() -> None:
    """All verifiers as a table."""
    from rich.text import Text

    from decoders.drafters import verifier_place, verifiers

    rows = []
    for card in verifiers().values():
        about = Text(f"{card.title}. {card.summary}")
        about.append(f"\n{card.source}", "italic")
        if place := verifier_place(card.name):
            about.append(f"\nPlug-in: {place}", "italic")
        rows.append((card.name, about, _output(card)))
    common.show_table(("verifier", "which drafted tokens stand, and the source", "output"), rows, ruled=True)


def _explain_verifier(card: VerifierCard) -> None:
    """One verifier with its parameters."""
    common.say(f"{card.name}: {card.title} ({_output(card)})", card.summary, f"Source: {card.source}")
    _show_parameters(card.params)


def _show_parameters(params: type) -> None:
    from decoders.draft.params import controls

    if rows := [(c.name, _default(c), c.range_in_words(), c.help) for c in controls(params)]:
        common.show_table(("parameter", "default", "allowed", "what it does"), rows)


def _output(card: Method | VerifierCard) -> str:
    return "lossless" if card.lossless else "lossy"


def _default(control: Control) -> str:
    if control.default is None:
        return "off"
    return str(control.default).lower() if control.kind == "bool" else str(control.default)
