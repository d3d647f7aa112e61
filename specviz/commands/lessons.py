"""``specviz lessons``: the lessons there are, and what is wrong with one; torch need not be installed."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

from specviz.words import plural

from . import common, options

DESCRIPTION = "Lessons are plain text files: assets/lessons/README.md tells how to write one."


def add(parser: argparse.ArgumentParser) -> None:
    parts = parser.add_subparsers(dest="part", metavar="PART")
    check = parts.add_parser("check", help="read a lesson, look up all its references, say what is wrong")
    options.file(check, "file", "a lesson, for example my-lesson.txt", "FILE")


def run(args: argparse.Namespace) -> int:
    """0 where all is well, 1 where a lesson has faults."""
    return _check(args.file) if args.part == "check" else _listing()


def _check(file: Path) -> int:
    from specviz.pages.lessons.lessons_page import LessonError, load

    try:
        lesson = load(file)
    except LessonError as error:
        common.say(*map(str, error.faults), f"{len(error.faults)} to mend")
        return 1
    questions = [(stop["title"], stop["ask"]) for stop in lesson["stops"] if stop["ask"]]
    sizes = f"{plural(len(lesson['stops']), 'stop')}, {plural(len(questions), 'question')}"
    common.say(f"{file.name}: {lesson['title']}", f"{sizes}; every reference was found")
    for title, question in questions:
        answer = "".join(words for _, words in question["options"][question["answer"]]["runs"])
        common.say(f"  {title}: the answer is {answer}")
    return 0


def _listing() -> int:
    from specviz.pages.lessons.lessons_page import ENDING, LESSONS, LessonError, load, own_folder, places

    rows: list[tuple[Any, ...]] = []
    for path in places():
        try:
            lesson = load(path)
        except LessonError as error:
            rows.append((f"{len(error.faults)} to mend: specviz lessons check", "", "", "", path))
            continue
        questions = sum(stop["ask"] is not None for stop in lesson["stops"])
        file = path.name if path.parent == LESSONS else path
        rows.append((lesson["title"], lesson["minutes"], len(lesson["stops"]), questions, file))
    common.show_table(("lesson", "minutes", "stops", "questions", "file"), rows)
    common.say(f"Lessons of your own (*{ENDING}) belong into {own_folder()}.")
    return 0
