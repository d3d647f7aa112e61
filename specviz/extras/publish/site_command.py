"""``specviz site``: recorded runs as a static site."""

from __future__ import annotations

import argparse
import json
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from decoders.errors import UserError
from specviz.commands import common, options
from specviz.words import plural

if TYPE_CHECKING:
    from .site.build import SiteEntry

DESCRIPTION = (
    "Make a site of recorded runs that needs no server and no Python: a list that is searched and filtered, the "
    "inspector, Compare, Attribution, the lessons, and a player for other pages. It opens from disk, and any static "
    "host serves it (docs/extras.md)."
)
SITE_FILES = "index.html", "run.html", "traces"  # what a folder holds that was made before, and may be replaced


def add(parser: argparse.ArgumentParser) -> None:
    options.file(parser, "traces", ".spectrace files, folders of them, or files to import", "TRACE", nargs="+")
    options.file(parser, "--out", "the folder to write", "FOLDER", required=True)
    parser.add_argument("--title", default="Speculative decoding, step by step", help="of the list")
    options.flag(parser, "--no-lessons", "leave out the lessons and the runs that they are about (1 MB)")


def run(args: argparse.Namespace) -> int:
    from .push_command import trace_files
    from .site.build import write_site

    out: Path = args.out
    if out.exists() and not (
        out.is_dir() and (not any(out.iterdir()) or all((out / name).exists() for name in SITE_FILES))
    ):
        raise UserError(f"{out} is there and no site of ours: give a new folder, or remove it")
    entries, faults = _entries(trace_files(args.traces))
    keys = write_site(out, args.title, entries, with_lessons=not args.no_lessons)
    size = sum(path.stat().st_size for path in out.rglob("*") if path.is_file())
    common.say(f"{out / 'index.html'}: {plural(len(keys), 'run')}, {size / 1e6:.1f} MB")
    common.say(*faults, error=True)
    return 1 if faults else 0


def _entries(paths: Sequence[Path]) -> tuple[list[SiteEntry], list[str]]:
    """The runs in files, with the tags that the library keeps beside them; sentences about files that are none. Raises
    UserError where all are.
    """
    from decoders.importers import ImportFault
    from decoders.trace.tables import TraceError

    from .site.build import SiteEntry

    entries, faults = [], []
    for path in paths:
        try:
            traces = common.read_traces(path)
        except (TraceError, ImportFault) as fault:
            faults.append(f"left out: {fault}")
            continue
        about = path.with_suffix(".json")  # an imported file is JSON itself, and has no tags
        try:
            metadata = json.loads(about.read_text("utf-8")) if about.is_file() else {}
            tags, gold = tuple(str(tag) for tag in metadata.get("tags", ())), metadata.get("gold")
        except (ValueError, AttributeError, TypeError):
            tags, gold = (), None
        entries += [SiteEntry(trace, tags, gold) for trace in traces]
    if not entries:
        raise UserError(f"no run could be read: {faults[0]}")
    return entries, faults
