"""``specviz mcp``: the tools for assistants, on standard input and output."""

from __future__ import annotations

import argparse

from decoders.errors import UserError
from specviz.commands import options

DESCRIPTION = (
    "Serve specviz to an assistant over the Model Context Protocol, on standard input and output: run, compare, "
    "explain a step, acceptance, what if, find runs. In the app the same tools are at /mcp with `specviz app --mcp`."
)


def add(parser: argparse.ArgumentParser) -> None:
    options.file(parser, "--trace", "a recorded run to ask about; without --model no model is loaded", "TRACE")
    options.add_model(parser, weights=True)


def run(args: argparse.Namespace) -> int:
    from specviz.app import open_desk

    try:
        from .assistants import server_of
    except ModuleNotFoundError:
        raise UserError("the package mcp is not installed: pip install -e '.[mcp]'") from None
    desk = open_desk(args.model, args.trace, **options.model_arguments(args))
    desk.begin()
    try:
        server_of(desk).run("stdio")
    finally:
        desk.end()
    return 0
