"""``specviz app --mcp``: the tools for assistants beside the pages."""

from __future__ import annotations

import argparse
from contextlib import AbstractAsyncContextManager
from typing import TYPE_CHECKING, Any

from specviz.commands import options

if TYPE_CHECKING:
    from fastapi import FastAPI

    from specviz.server.desk import Desk


def add(parser: argparse.ArgumentParser) -> None:
    options.flag(parser, "--mcp", "assistants may call its tools, at /mcp (docs/extras.md)")


def mount(app: FastAPI, desk: Desk, args: argparse.Namespace) -> AbstractAsyncContextManager[Any] | None:
    """The tools at ``/mcp``, where they are asked for; the context lasts as long as the server."""
    return mount_tools(app, desk) if args.mcp else None


def mount_tools(app: FastAPI, desk: Desk) -> AbstractAsyncContextManager[Any]:
    """The tools at ``/mcp``."""
    from .assistants import routes_of, server_of

    tools = server_of(desk)
    app.router.routes.extend(routes_of(tools))
    return tools.session_manager.run()
