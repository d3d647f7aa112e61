"""``specviz view``: open a recorded run in the browser; torch need not be installed."""

from __future__ import annotations

import argparse

from .app import add_address, sharing_options
from .options import file

DESCRIPTION = "Open a recorded run in the browser."


def add(parser: argparse.ArgumentParser) -> None:
    file(parser, "trace", "a .spectrace file", "TRACE")
    add_address(parser)


def run(args: argparse.Namespace) -> int:
    from specviz.app import serve

    serve(None, args.host, args.port, trace=args.trace, open_browser=args.open, **sharing_options(args))
    return 0
