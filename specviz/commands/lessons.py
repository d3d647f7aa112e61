"""``specviz lessons``: the lessons there are, and what is wrong with one; torch need not be installed."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

from . import common


def add(commands: Any) -> None:
    parser = commands.add_parser(
        "lessons",
        help="list the lessons, or check one of your own",
        description="Lessons are plain text files: assets/lessons/README.md tells how to write one.",
    )
    parts = parser.add_subparsers(dest="part", metavar="PART")
    check = parts.add_parser("check", help="read a lesson, look up all its references, say what is wrong")
    check.add_argument("file", type=Path, metavar="FILE", help="a lesson, for example my-lesson.txt")
    parser.set_defaults(run=run)


def run(args: argparse.Namespace) -> int:
    """0 where all is well, 1 where a lesson has faults."""
    return _check(args.file) if args.part == "check" else _listing()


def _check(file: Path) -> int:
    from specviz.pages.lessons.service import LessonError, load
    from specviz.pages.lessons.values import counted

    try:
        lesson = load(file)
    except LessonError as error:
        common.say(*map(str, error.faults), f"{len(error.faults)} to mend")
        return 1
    asked = [stop["ask"] for stop in lesson["stops"] if stop["ask"]]
    common.say(f"{file.name}: {lesson['title']}")
    stops, questions = counted(len(lesson["stops"]), "stop"), counted(len(asked), "question")
    common.say(f"{stops}, {questions}; every reference was found")
    for stop in lesson["stops"]:
        if stop["ask"]:
            answer = "".join(words for _, words in stop["ask"]["options"][stop["ask"]["answer"]]["runs"])
            common.say(f"  {stop['title']}: the answer is {answer}")
    return 0


def _listing() -> int:
    from rich.table import Table

    from specviz.pages.lessons.service import ENDING, LESSONS, LessonError, load, own_folder, places

    out = common.console()
    table = Table("lesson", "minutes", "stops", "questions", "file")
    for path in places():
        try:
            lesson = load(path)
        except LessonError as error:
            table.add_row(f"{len(error.faults)} to mend: specviz lessons check", "", "", "", str(path))
            continue
        asked = sum(stop["ask"] is not None for stop in lesson["stops"])
        file = path.name if path.parent == LESSONS else str(path)
        table.add_row(lesson["title"], str(lesson["minutes"]), str(len(lesson["stops"])), str(asked), file)
    out.print(table)
    common.say(f"Lessons of your own (*{ENDING}) belong into {own_folder()}.")
    return 0
