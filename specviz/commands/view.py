"""``specviz view``: open a recorded run in the browser; torch need not be installed."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

from .app import add_address, shared


def add(commands: Any) -> None:
    parser = commands.add_parser(
        "view", help="open a trace in the browser", description="Open a recorded run in the browser."
    )
    parser.add_argument("trace", type=Path, metavar="TRACE", help="a .spectrace file")
    add_address(parser)
    parser.set_defaults(run=run)


def run(args: argparse.Namespace) -> int:
    from specviz.app import serve

    serve(None, args.host, args.port, trace=args.trace, open_browser=args.open, **shared(args))
    return 0
