"""Lessons: guided tours over recorded runs, one plain-text file each (the format: ``assets/lessons/README.md``).

A file is parsed (``reading``), then filled from the runs it is about (``filling``, ``values``). Faults name the file,
the line, what was found and what is allowed.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

from decoders.errors import reason_of
from decoders.trace.report import payload
from specviz.places import GALLERY, LESSONS, home
from specviz.server.desk import Desk, Service, get
from specviz.server.forms import Missing
from specviz.server.store import EVERYBODY

from .filling import Filler
from .reading import Fault, LessonError, parse
from .values import LessonRuns

ENDING = ".txt"
LARGEST = 200_000  # bytes of a lesson


def read(path: Path) -> str:
    """The text of a lesson's file. Raises LessonError where it is none."""
    try:
        if path.stat().st_size > LARGEST:
            size = f"the file is larger than {LARGEST // 1000} kB, which no lesson is"
            raise LessonError([Fault(path.name, 1, size)])
        return path.read_bytes().decode("utf-8")
    except UnicodeDecodeError:
        raise LessonError([Fault(path.name, 1, "the file is not text in UTF-8; save it as such")]) from None
    except OSError as error:
        raise LessonError([Fault(path.name, 1, f"the file cannot be opened: {reason_of(error)}")]) from None


def load(path: Path, runs: LessonRuns | None = None) -> dict[str, Any]:
    """A lesson from its file, filled from its runs. Raises LessonError with all faults."""
    runs = runs or LessonRuns(path.parent, GALLERY)
    return Filler(parse(read(path), path.name), runs).fill()


def own_folder() -> Path:
    """Folders of a teacher's lessons, and of the runs they are about."""
    return home() / "lessons"


def files_in(folder: Path) -> list[Path]:
    """The lesson files of a folder, in order of the numbers that their names begin with."""
    return sorted(folder.glob(f"*{ENDING}"), key=_in_order)


def places() -> list[Path]:
    """All lesson files: those that come along, then a teacher's own."""
    return [path for folder in (LESSONS, own_folder()) if folder.is_dir() for path in files_in(folder)]


def lesson_key(path: Path) -> str:
    """A lesson's id; a teacher's own are named own-…"""
    name = re.sub(r"[^A-Za-z0-9_-]+", "-", path.stem)
    return name if path.parent == LESSONS else f"own-{name}"


def card(lesson: dict[str, Any]) -> dict[str, Any]:
    """A filled lesson as it stands in the list."""
    question_count = sum(stop["ask"] is not None for stop in lesson["stops"])
    fields = {name: lesson[name] for name in ("id", "own", "title", "about", "minutes", "learn")}
    return {**fields, "stops": len(lesson["stops"]), "asked": question_count}


class Lessons(Service):
    """The page "Lessons": those that come along, and a teacher's own in ``SPECVIZ_HOME/lessons``."""

    name, title, order, module = "lessons", "Lessons", 40, "lesson/page"

    def __init__(self, desk: Desk) -> None:
        super().__init__(desk)
        self._cached_lessons: dict[Path, tuple[int, dict[str, Any]]] = {}

    def runs(self) -> LessonRuns:
        return LessonRuns(own_folder(), LESSONS, GALLERY)

    def files(self) -> dict[str, Path]:
        """Lesson id → file."""
        lessons: dict[str, Path] = {}
        for path in places():
            lessons.setdefault(lesson_key(path), path)
        return lessons

    @get()
    def listing(self) -> dict[str, Any]:
        """All lessons as cards; a lesson that cannot be shown tells its faults instead."""
        cards = []
        for key in self.files():
            try:
                cards.append(card(self.lesson(key)))
            except LessonError as error:
                cards.append({"id": key, "own": True, "faults": [str(fault) for fault in error.faults[:20]]})
            except Missing:
                continue
        return {"lessons": cards}

    @get("runs/{name}")
    def run(self, name: str) -> dict[str, Any]:
        """A lesson's run as JSON; the page Inspect can open a teacher's own from then on. Raises Missing."""
        try:
            key, trace = self.runs().find(name)
        except KeyError:
            text = f"There is no run called {name[:40]!r} beside the lessons or in the gallery."
            raise Missing(text) from None
        if key not in self.desk.store:
            self.desk.store.put(trace, kind="lesson", owner=EVERYBODY)
        return payload(trace)

    @get("{key}")
    def lesson(self, key: str) -> dict[str, Any]:
        """A lesson, filled. Raises LessonError; Missing where there is none."""
        try:
            path = self.files()[key]
            stamp = path.stat().st_mtime_ns
        except (KeyError, OSError):
            raise Missing(f"There is no lesson {key[:40]!r} here.") from None
        cached_lesson = self._cached_lessons.get(path)
        if cached_lesson is None or cached_lesson[0] != stamp:
            cached_lesson = self._cached_lessons[path] = (stamp, load(path, self.runs()))
        return {"id": key, "own": path.parent != LESSONS, **cached_lesson[1]}


def _in_order(path: Path) -> tuple[int, str]:
    """By the number a file's name begins with."""
    number = re.match(r"\d+", path.name)
    return int(number[0]) if number else 10**6, path.name
