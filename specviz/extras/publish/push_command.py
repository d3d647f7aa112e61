"""``specviz push``: recorded runs into a dataset of Parquet files, in a folder or on the Hugging Face hub."""

from __future__ import annotations

import argparse
from pathlib import Path

from decoders.errors import UserError
from specviz.commands import common, options
from specviz.words import plural

DESCRIPTION = (
    "Add recorded runs to a dataset of Parquet files, one config per table: a folder, or a dataset on the Hugging Face "
    "hub (owner/name; private unless --public), which its viewer, DuckDB and `datasets` open. Runs that are there "
    "already are left out."
)


def add(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("dataset", metavar="DATASET", help="a folder, or owner/name on the hub")
    options.file(parser, "traces", ".spectrace files, folders of them, or files to import", "TRACE", nargs="+")
    options.flag(parser, "--public", "a dataset that is made on the hub can be seen by everybody")


def run(args: argparse.Namespace) -> int:
    from .dataset import push

    paths = trace_files(args.traces)
    traces = (trace for path in paths for trace in common.read_traces(path))
    upload = push(args.dataset, traces, private=not args.public)
    known_runs = f", {plural(upload.known_count, 'run')} there already" if upload.known_count else ""
    common.say(f"{upload.place}: {plural(upload.added_count, 'run')} added{known_runs}")
    return 0


def trace_files(paths: list[Path]) -> list[Path]:
    """The trace files that were named, and those in folders that were. Raises UserError where there is none."""
    from decoders.trace.files import SUFFIX

    files: list[Path] = []
    for path in paths:
        if not path.exists():
            raise UserError(f"there is no {path}: give {SUFFIX} files, or folders of them")
        files += sorted(path.rglob(f"*{SUFFIX}")) if path.is_dir() else [path]
    if not files:
        raise UserError(f"there is no {SUFFIX} file in {', '.join(map(str, paths))}: `specviz run --out` records one")
    return files
