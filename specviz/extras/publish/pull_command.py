"""``specviz pull``: the runs of a dataset as trace files."""

from __future__ import annotations

import argparse
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from specviz.commands import common, options
from specviz.words import plural

DESCRIPTION = (
    "Write the runs of a dataset that `specviz push` made (a folder, or owner/name on the Hugging Face hub) as trace "
    "files, which are what they were. Exits with 1 where a run of it could not be read."
)


def add(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("dataset", metavar="DATASET", help="a folder, or owner/name on the hub")
    options.file(parser, "--out", "the folder to write (default: the dataset's name)", "FOLDER")
    parser.add_argument("--methods", nargs="+", default=[], metavar="NAME", help="only runs of these methods")
    parser.add_argument("--runs", nargs="+", default=[], metavar="ID", help="only these runs")


def run(args: argparse.Namespace) -> int:
    from decoders import save

    from .dataset import pull

    def is_wanted(row: Mapping[str, Any]) -> bool:
        return (not args.methods or row["method"] in args.methods) and (not args.runs or row["run"] in args.runs)

    out = args.out or Path(f"{Path(args.dataset).name}-runs")
    read = pull(args.dataset, out, is_wanted, save)
    common.say(f"{out}: {plural(read.traces, 'run')}", *read.problems)
    return 1 if any("left" in problem for problem in read.problems) else 0
