"""From a lesson's text to its parts: the head, the stops, their places, words and questions."""

from __future__ import annotations

import re
from dataclasses import dataclass, field

from decoders.errors import UserError

HEAD = ("title", "about", "minutes", "learn")
PLACE = ("run", "step", "show", "holds")
KINDS = {
    "accepted": "how many tokens will be accepted",
    "branch": "which token after the root will be accepted",
    "token": "what the target writes after the accepted tokens",
    "candidate": "which candidate wins; candidate scores leaves their scores in sight",
    "best": "which candidate would have accepted most",
    "value": "what a number of the run is: value NAME",
    "yes": "yes or no: yes if NAME = VALUE",
}


@dataclass(frozen=True, slots=True)
class Fault:
    """A fault of a line of a lesson."""

    file: str
    line: int
    text: str

    def __str__(self) -> str:
        return f"{self.file}, line {self.line}: {self.text}"


class LessonError(UserError):
    """A lesson that cannot be shown: all its faults, in the order of their lines."""

    def __init__(self, faults: list[Fault]) -> None:
        super().__init__("\n".join(map(str, sorted(faults, key=lambda f: f.line))))
        self.faults = tuple(faults)


@dataclass(slots=True)
class LessonLine:
    """A field's value, or a paragraph, and the line it begins on."""

    text: str
    number: int


@dataclass(slots=True)
class Ask:
    """A question: its kind (a key of ``KINDS``), what follows the kind, and the three parts a writer gives."""

    kind: str
    rest: str
    number: int
    text: list[LessonLine] = field(default_factory=list)
    options: LessonLine | None = None
    reveal: list[LessonLine] = field(default_factory=list)


@dataclass(slots=True)
class Stop:
    """One stop of the tour: where it stands in which run, what it shows, what must hold there, and its text."""

    title: LessonLine
    place: dict[str, LessonLine] = field(default_factory=dict)
    holds: list[LessonLine] = field(default_factory=list)
    text: list[LessonLine] = field(default_factory=list)
    ask: Ask | None = None


@dataclass(slots=True)
class Lesson:
    """A lesson as it was written."""

    file: str
    head: dict[str, LessonLine]
    learn: list[LessonLine]
    stops: list[Stop]


def parse(text: str, file: str = "lesson") -> Lesson:
    """The lesson in a text. Raises LessonError with every fault of its form.

    >>> lesson = parse("title: A\\nabout: B.\\nminutes: 1\\nlearn: C\\n\\n# One\\nrun: r\\nstep: 2\\n\\nText.", "a.txt")
    >>> lesson.stops[0].title.text, lesson.stops[0].text[0].number
    ('One', 10)
    """
    reader = _Reader(file)
    for number, line in enumerate(text.lstrip("\ufeff").splitlines(), 1):
        reader.take(line.rstrip(), number)
    return reader.finish()


class _Reader:
    def __init__(self, file: str) -> None:
        self.lesson = Lesson(file, {}, [], [])
        self.faults: list[Fault] = []
        self.part = "head"  # head, place, text, question, reveal
        self.fresh = True  # the next line of words begins a paragraph

    def fault(self, number: int, text: str) -> None:
        self.faults.append(Fault(self.lesson.file, number, text))

    def take(self, line: str, number: int) -> None:
        if not line.strip():
            self.fresh = True
            if self.part == "place" and self.lesson.stops[-1].place:
                self.part = "text"
            return
        if line.startswith("#"):
            self.begin(line, number)
            return
        setting = re.match(r"([A-Za-z]+)\s*:\s*(.*)$", line)
        key = setting[1].lower() if setting else ""
        if setting and self.part in ("head", "place"):
            self.setting(key, setting[2], number)
        elif setting and key == "ask" and self.fresh:
            self.question(setting[2], number)
        elif setting and key in ("options", "reveal") and self.fresh and self.part in ("question", "reveal"):
            self.answer(key, setting[2], number)
        elif self.part == "head":
            self.fault(number, f"found {shown_as(line)} before the first stop; allowed are {_fields(HEAD)} and # TITLE")
        else:
            self.words(line.strip(), number)

    def begin(self, line: str, number: int) -> None:
        title = line.lstrip("#").strip()
        if not line.startswith("# ") or not title:
            self.fault(number, f"found {shown_as(line)}; a stop begins with # and its title: # What PLD copies")
        self.lesson.stops.append(Stop(LessonLine(title, number)))
        self.part, self.fresh = "place", True

    def setting(self, key: str, value: str, number: int) -> None:
        known_fields = HEAD if self.part == "head" else PLACE
        if key not in known_fields:
            if self.part == "place":  # a paragraph such as "Remember: …" right below the title
                return self.words(f"{key.capitalize()}: {value}", number)
            return self.fault(number, f"found the field {shown_as(key)}; allowed are {_fields(known_fields)}")
        if not value:
            return self.fault(number, f"{key}: is empty; write its value behind the colon")
        line = LessonLine(value, number)
        fields = self.lesson.head if self.part == "head" else self.lesson.stops[-1].place
        if key == "learn":
            self.lesson.learn.append(line)
        elif key == "holds":
            self.lesson.stops[-1].holds.append(line)
        elif key in fields:
            self.fault(number, f"{key}: is given twice, first on line {fields[key].number}; keep one")
        else:
            fields[key] = line
        return None

    def question(self, value: str, number: int) -> None:
        stop = self.lesson.stops[-1]
        kind, _, argument = value.partition(" ")
        if kind not in KINDS:
            kinds_text = "; ".join(f"{name} ({meaning})" for name, meaning in KINDS.items())
            return self.fault(number, f"found the question {shown_as(value)}; allowed are {kinds_text}")
        if stop.ask is not None:
            return self.fault(number, f"this stop asks twice, first on line {stop.ask.number}; begin another stop")
        stop.ask = Ask(kind, argument.strip(), number)
        self.part, self.fresh = "question", True
        return None

    def answer(self, key: str, value: str, number: int) -> None:
        ask = self.lesson.stops[-1].ask
        assert ask is not None
        if key == "options":
            ask.options = LessonLine(value, number)
            return
        self.part, self.fresh = "reveal", True
        if value:
            self.words(value, number)

    def words(self, line: str, number: int) -> None:
        if self.part == "place":
            self.part = "text"
        stop = self.lesson.stops[-1]
        ask = stop.ask
        parts = {"text": stop.text} if ask is None else {"text": stop.text, "question": ask.text, "reveal": ask.reveal}
        home = parts[self.part]
        if self.fresh or not home:
            home.append(LessonLine(line, number))
        else:
            home[-1].text += " " + line
        self.fresh = False

    def finish(self) -> Lesson:
        lesson = self.lesson
        for key in ("title", "about", "minutes"):
            if key not in lesson.head:
                self.fault(1, f"the field {key}: is missing; a lesson begins with {_fields(HEAD)}")
        if "minutes" in lesson.head and not re.fullmatch(r"[1-9]\d?", lesson.head["minutes"].text):
            line = lesson.head["minutes"]
            self.fault(line.number, f"minutes is {shown_as(line.text)}; a whole number from 1 to 99 is allowed")
        if not lesson.learn:
            self.fault(1, "the field learn: is missing; say in a few words what one will learn (several are allowed)")
        if not lesson.stops:
            self.fault(1, "there is no stop; each begins with # and its title")
        elif "run" not in lesson.stops[0].place:
            number = lesson.stops[0].title.number
            text = "the first stop does not say which run it is about; write run: and its name below the title"
            self.fault(number, text)
        for stop in lesson.stops:
            number = stop.title.number
            if not stop.text and stop.ask is None:
                self.fault(number, f"the stop {shown_as(stop.title.text)} has no text")
            if stop.ask and not stop.ask.text:
                self.fault(stop.ask.number, "the question has no text; write it below ask:")
            if stop.ask and not stop.ask.reveal:
                text = "the question has no answer text; write reveal: and below it what happened"
                self.fault(stop.ask.number, text)
        if self.faults:
            raise LessonError(self.faults)
        return lesson


def _fields(names: tuple[str, ...]) -> str:
    return ", ".join(f"{name}:" for name in names)


def shown_as(text: str) -> str:
    text = " ".join(str(text).split())
    return repr(text if len(text) <= 60 else text[:59] + "…")
