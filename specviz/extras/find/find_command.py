"""``specviz find``: recorded runs by what is in them."""

from __future__ import annotations

import argparse
from dataclasses import asdict
from pathlib import Path

from decoders.errors import UserError
from specviz.commands import common, options
from specviz.places import GALLERY, SUFFIX, home
from specviz.server.library import Library
from specviz.words import mark_unseen, plural

from .index import FoundRun, RunIndex, file_sources
from .texts import Place

DESCRIPTION = (
    "Find recorded runs whose prompt, output and rejected draft tokens hold all of the words (upper and lower case "
    "alike; quote words that stand side by side), and the steps: among your runs and the gallery, or in a folder. "
    "Exits with 1 where there is none."
)
LINE_ENDS = str.maketrans("\n\r\t", "⏎␍→")


def add(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("words", nargs="+", metavar="WORDS", help="what to look for")
    options.file(parser, "--runs", "only the .spectrace files in this folder", "FOLDER")
    options.count(parser, "--limit", "runs that are printed, the newest first", 20)
    options.flag(parser, "--json", "print JSON; steps are counted from 0 there")


def run(args: argparse.Namespace) -> int:
    words = [word for word in dict.fromkeys(args.words) if word.strip()]
    if not words:
        raise UserError("the words are empty: give at least one character to look for")
    if args.runs is not None and not args.runs.is_dir():
        raise UserError(f"there is no folder {args.runs}: give one with {SUFFIX} files, or leave --runs out")
    library = home() / "runs"
    folders = [args.runs] if args.runs is not None else [library, GALLERY]
    paths, matches = _find(words, folders, library if args.runs is None and library.is_dir() else None)
    titles = {key: Library(paths[key].parent).about(key).get("title") or run.title for key, run in matches.items()}
    shown_keys = [*matches][: args.limit]
    if args.json:
        lines = [
            {"run": key, "file": str(paths[key]), "title": titles[key], "method": matches[key].method,
             "count": matches[key].count, "places": list(map(asdict, matches[key].places))} for key in shown_keys
        ]  # fmt: skip
        common.print_json(lines)
    else:
        for key in shown_keys:
            _show(titles[key], paths[key], matches[key])
        common.say(
            "" if matches else "No run holds these words." if len(words) > 1 else "No run holds this word.",
            f"{plural(len(matches) - len(shown_keys), 'further run')}: give --limit {len(matches)}"
            if shown_keys != [*matches]
            else "",
        )
    return 0 if matches else 1


def _find(words: list[str], folders: list[Path], library: Path | None) -> tuple[dict[str, Path], dict[str, FoundRun]]:
    """The runs in the folders that hold all words, and the file of each run. A ``library`` holds the index."""
    paths: dict[str, Path] = {}
    sources = {}
    for folder in folders:
        for key, source in file_sources(folder).items():
            sources[key], paths[key] = source, folder / f"{key}{SUFFIX}"
    index = RunIndex(library)
    try:
        index.check()
        with common.progress_bar("reading runs") as progress:
            index.sync(sources, progress=progress)
        matches = index.find(words, list(sources))
    finally:
        index.close()
    return paths, {key: run for key, run in matches.items() if len(run.words) == len(words)}


def _show(title: str, path: Path, run: FoundRun) -> None:
    from rich.text import Text

    out = common.console()
    suffix = f" · {plural(run.count, 'place')}" if run.count > len(run.places) else ""
    out.print(Text(f"{mark_unseen(title)} · {mark_unseen(run.method)}{suffix}", "bold"), soft_wrap=not out.is_terminal)
    for place in run.places:
        left_text, match, right_text = (mark_unseen(text).translate(LINE_ENDS) for text in place.text)
        line = Text.assemble(f"  {_words(place)}: ", (left_text, "dim"), (match, "bold"), (right_text, "dim"))
        out.print(line, soft_wrap=not out.is_terminal)
    out.print(Text(f"  {path}"), soft_wrap=True)


def _words(place: Place) -> str:
    return place.part if place.part == "prompt" else f"{place.part}, step {place.step + 1}"
