"""``specviz site``: recorded runs as a static site."""

from __future__ import annotations

import argparse
import json
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from decoders.errors import UserError
from specviz.words import counted

from . import common, options

if TYPE_CHECKING:
    from specviz.views.site import Entry

DESCRIPTION = (
    "Make a site of recorded runs that needs no server and no Python: a list that is searched and filtered, the runs "
    "of a prompt beside one another, and the inspector. It opens from disk, and any static host serves it "
    "(docs/publish.md)."
)
MADE = "index.html", "run.html", "traces"  # what a folder holds that was made before, and may be replaced


def add(parser: argparse.ArgumentParser) -> None:
    options.file(parser, "traces", ".spectrace files, or folders of them", "TRACE", nargs="+")
    options.file(parser, "--out", "the folder to write", "FOLDER", required=True)
    parser.add_argument("--title", default="Speculative decoding, step by step", help="of the list")


def run(args: argparse.Namespace) -> int:
    from specviz.views.site import write_site

    from .push import trace_files

    out: Path = args.out
    if out.exists() and not (out.is_dir() and (not any(out.iterdir()) or all((out / name).exists() for name in MADE))):
        raise UserError(f"{out} is there and no site of ours: give a new folder, or remove it")
    entries, faults = _entries(trace_files(args.traces))
    keys = write_site(out, args.title, entries, _outcomes(entries))
    size = sum(path.stat().st_size for path in out.rglob("*") if path.is_file())
    common.say(f"{out / 'index.html'}: {counted(len(keys), 'run')}, {size / 1e6:.1f} MB")
    common.say(*faults, error=True)
    return 1 if faults else 0


def _entries(paths: Sequence[Path]) -> tuple[list[Entry], list[str]]:
    """The runs in files, with the tags that the library keeps beside them; sentences about files that are none. Raises
    UserError where all are.
    """
    from decoders import load
    from decoders.trace.tables import TraceError
    from specviz.views.site import Entry

    entries, faults = [], []
    for path in paths:
        try:
            trace = load(path)
        except TraceError as fault:
            faults.append(f"left out: {fault}")
            continue
        about = path.with_suffix(".json")
        try:
            tags = json.loads(about.read_text("utf-8")).get("tags", ()) if about.is_file() else ()
        except (ValueError, AttributeError):
            tags = ()
        entries.append(Entry(trace, tuple(str(tag) for tag in tags)))
    if not entries:
        raise UserError(f"no run could be read: {faults[0]}")
    return entries, faults


def _outcomes(entries: Sequence[Entry]) -> dict[str, str]:
    """For each prompt with several runs, the sentence of Compare."""
    from specviz.pages.compare.outcome import BASELINE, lane_numbers, outcome

    groups: dict[str, list[Entry]] = {}
    for entry in entries:
        groups.setdefault(entry.trace.prompt_key, []).append(entry)
    sentences = {}
    for prompt, group in groups.items():
        plain = next((one.trace for one in group if one.trace.run["method"]["name"] == BASELINE), None)
        lanes = {
            BASELINE if one.trace is plain else str(place): (one.method, lane_numbers(one.trace, plain))
            for place, one in enumerate(group)
        }
        if len(lanes) > 1:
            sentences[prompt] = outcome(lanes)
    return sentences
