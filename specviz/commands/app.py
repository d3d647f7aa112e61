"""``specviz app``: the web app, as ``python app.py``."""

from __future__ import annotations

import argparse
from typing import Any

from . import common


def add(commands: Any) -> None:
    parser = commands.add_parser("app", help="open the web app", description="Serve the web app.")
    parser.add_argument("--model", metavar="PATH_OR_ID", help="model folder or hub id (default: the bundled target)")
    parser.add_argument("--device", metavar="D", help="cpu or cuda (default: cuda where there is one)")
    parser.add_argument("--dtype", metavar="T", help="float32, bfloat16, float16 or float64 (default: by device)")
    add_address(parser)
    parser.set_defaults(run=run)


def add_address(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--port", type=common.whole(0, 65535), default=7860, metavar="N", help="default: 7860; 0 picks a free one"
    )
    parser.add_argument("--host", default="127.0.0.1", metavar="ADDRESS", help="default: this machine only")
    parser.add_argument("--open", action="store_true", help="open a browser too")


def run(args: argparse.Namespace) -> int:
    from ..server import serve

    serve(args.model, args.host, args.port, open_browser=args.open, device=args.device, dtype=args.dtype)
    return 0
