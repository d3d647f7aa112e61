"""``specviz app``: the web app, as ``python app.py``."""

from __future__ import annotations

import argparse
import os
from functools import partial
from typing import Any

from decoders.extra import entries_of
from decoders.imports import nothing_collected
from decoders.model.files.catalog import DEFAULT
from specviz.workers.kinds import Workers, backend_kinds

from . import common, options, over_workers

LIMITS = ("runs", "waiting", "prompt", "new_tokens", "upload", "asks")
SPACE = "SPACE_ID"  # in the environment of a Hugging Face Space
HOST, PORT = "GRADIO_SERVER_NAME", "GRADIO_SERVER_PORT"  # as a Space and a container set them


DESCRIPTION = "Serve the web app."


def add(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--drafter", metavar="PATH_OR_ID",
        help="a model as draft model for SpS, whatever its tokenizer (default: the one trained for it)",
    )  # fmt: skip
    options.file(parser, "--trace", "open on this recorded run", "TRACE")
    add_address(parser)
    options.add_model(parser, weights=True)
    parser.add_argument(
        "--backends", metavar="KIND:N",
        help="do the runs in N backends, each with a model of its own: "
        + "; ".join(f"{name}:N, {kind.about}" for name, kind in backend_kinds().items()) + " (docs/scale.md)",
    )  # fmt: skip
    options.flag(parser, "--read-only", "show recorded runs alone: no model is loaded, and nobody runs anything")
    for _, module in entries_of("app"):
        module.add(parser)
    over_workers.add_cluster(parser)


def add_address(parser: argparse.ArgumentParser) -> None:
    space = SPACE in os.environ
    parser.add_argument(
        "--port", type=options.whole(0, 65535), default=os.environ.get(PORT, "7860"), metavar="N",
        help="default: 7860; 0 picks a free one",
    )  # fmt: skip
    parser.add_argument(
        "--host", default=os.environ.get(HOST) or ("0.0.0.0" if space else "127.0.0.1"), metavar="ADDRESS",
        help="default: this machine only",
    )  # fmt: skip
    options.several(
        parser, "--allow-host", "NAME",
        "a name that the server is reached by besides --host, such as a proxy's; may be repeated; * is any "
        "(docs/security.md)",
    )  # fmt: skip
    parser.add_argument(
        "--root-path", default="", metavar="PATH",
        help="where a proxy shows the app, such as /specviz (docs/security.md)",
    )  # fmt: skip
    options.flag(parser, "--open", "open a browser too")
    shared = parser.add_argument_group("for other people")
    options.file(shared, "--auth-file", "only the users in FILE, after signing in (see specviz users)", "FILE")
    options.flag(shared, "--public", "anybody: stricter limits, no training, and nobody sees another's runs")
    options.several(shared, "--picks", "NAME", "with --auth-file: a user who may choose the model; may be repeated")
    options.several(shared, "--limit", "NAME=NUMBER", f"per user, may be repeated: {', '.join(LIMITS)}")


def sharing_options(args: argparse.Namespace) -> dict[str, Any]:
    """Options of ``serve`` on other people."""
    pairs = [text.partition("=") for text in args.limit]
    limits = {name: value for name, _, value in pairs}
    public = args.public or (SPACE in os.environ and args.auth_file is None)
    return {
        "auth_file": args.auth_file, "public": public, "limits": limits, "pickers": args.picks,
        "allow_hosts": args.allow_host, "root_path": args.root_path,
    }  # fmt: skip


def backends(args: argparse.Namespace) -> Workers | None:
    """The backends that are asked for; None where none are. Raises UserError for options that contradict each other."""
    if not args.backends:
        if args.address:
            raise common.UserError("an address of a cluster goes with --backends KIND:N: add that, or leave both out")
        return None
    if args.trace is not None and args.model is None:
        raise common.UserError("--trace alone opens recorded runs only, which need no --backends: add --model, too")
    return Workers.behind_app(args.backends, threads=args.threads or 0, address=args.address or "")


def run(args: argparse.Namespace) -> int:
    import logging

    read_only = args.read_only or (SPACE in os.environ and not args.model and DEFAULT not in os.environ)
    if args.read_only and (args.model or args.backends or args.drafter):
        raise common.UserError("--read-only loads no model: leave --model, --drafter and --backends out")
    backend_list = backends(args)
    with nothing_collected():
        from specviz.app import serve

    mounts = [partial(module.mount, args=args) for _, module in entries_of("app")]
    logging.basicConfig(format="%(levelname)s %(name)s: %(message)s")
    for package in ("specviz", "decoders"):
        logging.getLogger(package).setLevel(logging.INFO)
    serve(
        args.model, args.host, args.port, args.trace, args.open, drafter=args.drafter, backends=backend_list,
        mounts=mounts, read_only=read_only, **options.model_arguments(args), **sharing_options(args),
    )  # fmt: skip
    return 0
