"""``specviz methods``: what there is to choose from, with all parameters."""

from __future__ import annotations

import argparse
from typing import Any

from . import common


def add(commands: Any) -> None:
    parser = commands.add_parser(
        "methods", help="list methods and their parameters", description="List drafting methods."
    )
    parser.add_argument("name", nargs="?", help="only this one, with its parameters")
    parser.set_defaults(run=run)


def run(args: argparse.Namespace) -> int:
    from rich.table import Table

    from decoders import find_method, methods
    from decoders.draft.params import controls

    chosen = [find_method(args.name)] if args.name else list(methods().values())
    out = common.console()
    if not args.name:
        table = Table("method", "what it does", "output", "parameters")
        for method in chosen:
            kind = "lossless" if method.lossless else "lossy"
            table.add_row(method.name, method.summary, kind, ", ".join(c.name for c in controls(method.params)) or "–")
        out.print(table)
        out.print("specviz methods NAME explains the parameters of one.", markup=False)
        return 0
    method = chosen[0]
    out.print(f"{method.name}: {method.title} ({'lossless' if method.lossless else 'lossy'})", markup=False)
    out.print(f"{method.summary}{' ' + method.paper if method.paper else ''}", markup=False)
    table = Table("parameter", "default", "allowed", "what it does")
    for control in controls(method.params):
        shown = (
            "off"
            if control.default is None
            else str(control.default).lower()
            if control.kind == "bool"
            else str(control.default)
        )
        table.add_row(control.name, shown, control.allowed(), control.help)
    if table.row_count:
        out.print(table)
    return 0
