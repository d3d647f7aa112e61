"""``specviz methods``: what there is to choose from, and what each method still lacks for a model."""

from __future__ import annotations

import argparse
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

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
    help_text = "only this method or verifier, with its parameters"
    parser.add_argument("name", nargs="?", metavar="NAME|new|check", help=help_text)
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
    from decoders.drafters import plugin_place, verifiers

    if args.name in verifiers() and args.name not in methods():
        _explain(rule := verifiers()[args.name], f"Source: {rule.source}")
        return 0
    entries = [find_method(args.name)] if args.name else list(methods().values())
    try:
        target = common.open_target(args)
    except UserError as error:  # methods can be listed without a model, unless one was asked for
        if args.model:
            raise
        lacks, unknown = None, str(error)
    else:
        lacks, unknown = {method.name: method.missing(target) for method in entries}, ""
    if args.name:
        [entry] = entries
        missing = f"Missing: {reason}" if lacks and (reason := lacks[entry.name]) else ""
        _explain(entry, entry.paper and f"Paper: {entry.paper}", missing, place=plugin_place(entry.name))
    else:
        _list(entries, lacks)
    if unknown:
        common.say(f"Which parts are missing is not known: {unknown}")
    return 0


def _list(entries: list[Method], lacks: Mapping[str, str | None] | None) -> None:
    """All methods as a table, below it what is missing, and all verifiers. ``lacks`` says it per method (None:
    nothing); None: unknown.
    """
    from decoders.drafters import plugin_place, verifier_place, verifiers

    parts = {entry.name: "?" if lacks is None else MISSING if lacks[entry.name] else READY for entry in entries}
    rows = [(*_row(entry, entry.paper, plugin_place(entry.name)), parts[entry.name]) for entry in entries]
    common.show_table(("method", "what it does, and the paper", "output", "parts"), rows, row_lines=True)
    common.say(*(f"{name}: {reason}" for name, reason in (lacks or {}).items() if reason))
    rules = [_row(verifier, verifier.source, verifier_place(verifier.name)) for verifier in verifiers().values()]
    columns = ("verifier", "which drafted tokens are accepted, and the source", "output")
    common.show_table(columns, rules, row_lines=True)
    common.say("specviz methods NAME explains the parameters of one; --verifier has it judge the drafts of any method.")


def _row(card: Method | VerifierCard, source: str, place: object) -> tuple[Any, ...]:
    """A method or verifier in a table; ``place``: of the plug-in that it comes from."""
    from rich.text import Text

    about = Text(f"{card.title}. {card.summary}")
    for line in filter(None, (source, place and f"Plug-in: {place}")):
        about.append(f"\n{line}", "italic")
    return card.name, about, _output(card)


def _explain(card: Method | VerifierCard, *extra_lines: str, place: object = None) -> None:
    """One method or verifier with its parameters."""
    from decoders.draft.params import controls

    origin = f"From the plug-in {place}" if place else ""
    common.say(f"{card.name}: {card.title} ({_output(card)})", origin, card.summary, *extra_lines)
    if rows := [(c.name, _default(c), c.range_in_words(), c.help) for c in controls(card.params)]:
        common.show_table(("parameter", "default", "allowed", "what it does"), rows)


def _output(card: Method | VerifierCard) -> str:
    return "lossless" if card.lossless else "lossy"


def _default(control: Control) -> str:
    if control.default is None:
        return "off"
    return str(control.default).lower() if control.kind == "bool" else str(control.default)
