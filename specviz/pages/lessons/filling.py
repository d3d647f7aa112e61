"""Fills a lesson from its runs: every number in its text, every place, every question's options and its answer."""

from __future__ import annotations

import operator
import re
from collections.abc import Callable, Mapping
from typing import Any

from decoders.trace import files as tracefile
from decoders.trace.trace import Trace

from .reading import Ask, Fault, Lesson, LessonError, LessonLine, Stop, shown_as
from .values import LessonRuns, Unknown, Value, View, Words, plain, plural

MOST_OPTIONS = 9  # one digit each
PANELS = (
    "timeline", "sentence", "prompt", "output", "pool", "tree", "candidates", "lattice", "drafter", "prompts",
    "metrics", "diff", "legend",
)  # fmt: skip
SPANS = ("root", "source", "written")  # tokens of a step
TESTS: dict[str, Callable[[Any, Any], bool]] = {
    "<=": operator.le, ">=": operator.ge, "!=": operator.ne, "=": operator.eq, "<": operator.lt, ">": operator.gt
}  # fmt: skip

# a word in its own run: *emphasis*, `code`, {a name}; \* and \{ are the characters themselves
_MARKS = re.compile(r"\\([*`{}\\])|\*([^*\n]+)\*|`([^`\n]+)`|\{([^{}\n]*)\}")


class Filler:
    """Fills one lesson from its runs, and collects what does not fit."""

    def __init__(self, lesson: Lesson, runs: LessonRuns) -> None:
        self.lesson, self.runs = lesson, runs
        self.faults: list[Fault] = []

    def fault(self, number: int, text: str) -> None:
        self.faults.append(Fault(self.lesson.file, number, text))

    def fill(self) -> dict[str, Any]:
        """The lesson as the page plays it. Raises LessonError with every reference that leads nowhere."""
        lesson = self.lesson
        stops: list[dict[str, Any]] = []
        run = ""
        for stop in lesson.stops:
            run = stop.place["run"].text if "run" in stop.place else run
            view = self.view(stop, run)
            if view is not None:
                stops.append(self.stop(stop, view))
        if self.faults:
            raise LessonError(self.faults)
        head = lesson.head
        return {
            "title": head["title"].text, "about": head["about"].text, "minutes": int(head["minutes"].text),
            "learn": [line.text for line in lesson.learn], "stops": stops,
        }  # fmt: skip

    def view(self, stop: Stop, run: str) -> View | None:
        line = stop.place.get("run", stop.title)
        try:
            trace = self.trace(run)
            line = stop.place.get("step", LessonLine("1", stop.title.number))
            return _at(trace, line.text, f"run {run}")
        except Unknown as error:
            self.fault(line.number, str(error))
            return None

    def trace(self, run: str) -> Trace:
        """A run by its name. Raises Unknown."""
        try:
            return self.runs.find(run)[1]
        except KeyError:
            names = ", ".join(sorted(self.runs.names()))
            raise Unknown(f"there is no run {shown_as(run)}; there are {names}") from None
        except tracefile.TraceError as error:
            raise Unknown(f"the run {run} cannot be opened: {error}") from None

    def stop(self, stop: Stop, view: View) -> dict[str, Any]:
        for line in stop.holds:
            try:
                left_value, test, right = self.sides(line.text, view)
                if not _holds(left_value, test, right):
                    says = f"found {left_value.shown} and {right.shown}"
                    self.fault(line.number, f"the run says otherwise: {line.text} does not hold ({says})")
            except Unknown as error:
                self.fault(line.number, str(error))
        return {
            "title": stop.title.text,
            "run": view.trace.run["id"],
            "step": view.step,
            "show": self.show(stop.place.get("show"), view),
            "text": [self.words(line, view) for line in stop.text],
            "ask": self.ask(stop.ask, view) if stop.ask else None,
        }

    # words

    def words(self, line: LessonLine, view: View) -> list[Words]:
        """A paragraph as runs of text, emphasis and code."""
        pieces: list[Words] = []
        end = 0
        for mark in _MARKS.finditer(line.text):
            pieces.append(["text", line.text[end : mark.start()]])
            end = mark.end()
            escape, emphasis, code, name = mark.groups()
            if escape is not None:
                pieces.append(["text", escape])
            elif name is not None:
                pieces.append(self.value(name, line.number, view).run())
            else:
                look_up = lambda match: self.value(match[1], line.number, view).shown  # noqa: E731
                content = re.sub(r"\{([^{}\n]*)\}", look_up, emphasis or code)
                pieces.append(["em" if emphasis else "code", content])
        pieces.append(["text", line.text[end:]])
        runs: list[Words] = []
        for kind, words in pieces:
            if kind == "text" and runs and runs[-1][0] == "text":
                runs[-1][1] += words
            elif words or kind != "text":
                runs.append([kind, words])
        return runs

    def value(self, expression: str, number: int, view: View) -> Value:
        try:
            return self.read(expression, view)
        except Unknown as error:
            self.fault(number, f"{{{expression}}}: {error}")
            return Value(0, "?")

    def read(self, expression: str, view: View) -> Value:
        """The value of ``name``, ``name of node refused of step 3 of run pld``, ``accepted|token``. Raises Unknown."""
        expression, _, noun = expression.partition("|")
        name, *place_parts = (part.strip() for part in expression.strip().split(" of "))
        place: dict[str, str] = {}
        for part in place_parts:
            kind, _, label = part.partition(" ")
            if kind not in ("node", "candidate", "rule", "source", "step", "run") or not label.strip():
                scopes = "of node, of candidate, of rule, of source, of step and of run"
                raise Unknown(f"found of {shown_as(part)}; allowed are {scopes}")
            place[kind] = label.strip()
        if "run" in place or "step" in place:
            trace = self.trace(place["run"]) if "run" in place else view.trace
            view = _at(trace, place.get("step", "1" if "run" in place else str(view.step + 1)), "the run")
        if "node" in place:
            names = view.node_values(place["node"])
        elif "candidate" in place:
            names = view.candidate_values(place["candidate"])
        elif "rule" in place:
            names = view.rule_values(place["rule"])
        elif "source" in place:
            names = view.source_values(place["source"])
        else:
            names = {**view.run_values(), **view.step_values()}
        if name not in names:
            raise Unknown(f"found the name {shown_as(name)}; allowed are {', '.join(sorted(names))}")
        value = names[name]()
        if noun and isinstance(value.raw, int | float):
            return Value(value.raw, f"{value.shown} {noun.strip()}{'' if value.raw == 1 else 's'}")
        return value

    # conditions

    def sides(self, condition: str, view: View) -> tuple[Value, str, Value]:
        parts = re.fullmatch(r"(.+?)\s*(<=|>=|!=|=|<|>)\s*(.+)", condition.strip())
        if parts is None:
            raise Unknown(f"found the condition {shown_as(condition)}; write NAME = VALUE (or !=, <, <=, >, >=)")
        left_text, test, right = parts.groups()
        if re.fullmatch(r"-?\d+(\.\d+)?", right):
            right_value = plain(float(right))
        elif re.fullmatch(r'"[^"]*"', right):
            right_value = plain(right[1:-1])
        else:
            right_value = self.read(right, view)
        return self.read(left_text, view), test, right_value

    # places

    def show(self, line: LessonLine | None, view: View) -> list[dict[str, Any]]:
        """The highlighted things: panels, nodes, candidate rows, tokens, metrics."""
        highlights: list[dict[str, Any]] = []
        for part in line.text.split(",") if line else ():
            name = part.strip()
            kind, _, label = name.partition(" ")
            try:
                if name in PANELS:
                    highlights.append({"kind": "panel", "name": name})
                elif name in SPANS:
                    highlights.append({"kind": "tokens", "at": self.span(name, view)})
                elif kind == "node" and label:
                    highlights.append({"kind": "node", "node": view.node_number(label)})
                elif kind == "candidate" and label:
                    highlights.append({"kind": "candidate", "row": view.candidates.index(view.candidate(label))})
                elif kind == "metric" and label:
                    self.read(label, view)
                    highlights.append({"kind": "metric", "key": label})
                else:
                    targets = ", ".join((*PANELS, *SPANS, "node N", "candidate N", "metric NAME"))
                    raise Unknown(f"found {shown_as(name)} to show; allowed are {targets}")
            except Unknown as error:
                assert line is not None
                self.fault(line.number, str(error))
        return highlights

    def span(self, name: str, view: View) -> list[int]:
        start = view.steps["context"]
        if name == "root":
            return [start - 1]
        if name == "written":
            return list(range(start, start + view.steps["emitted"]))
        places = [node["source"] for node in view.nodes if node["source"] >= 0]
        if not places:
            raise Unknown(f"step {view.step + 1} copied from no place in the text")
        return places

    # questions

    def ask(self, ask: Ask, view: View) -> dict[str, Any]:
        try:
            if ask.options is not None and ask.kind not in ("accepted", "value"):
                raise Unknown(f"options are the run's own for the question {ask.kind}; leave the line out")
            options, answer = getattr(self, f"ask_{ask.kind}")(ask, view)
        except Unknown as error:
            self.fault(ask.options.number if ask.options and "options" in str(error) else ask.number, str(error))
            options, answer = [], 0
        return {
            "kind": ask.kind,
            "text": [self.words(line, view) for line in ask.text],
            "options": options,
            "answer": answer,
            "scores": ask.kind == "candidate" and ask.rest == "scores",
            "reveal": [self.words(line, view) for line in ask.reveal],
        }

    def options(self, ask: Ask) -> list[str]:
        """The writer's options, none where the run gives them."""
        if ask.options is None:
            return []
        options = [option.strip() for option in ask.options.text.split(",") if option.strip()]
        if not 2 <= len(options) <= MOST_OPTIONS or len(set(options)) < len(options):
            raise Unknown(f"options has {len(options)} entries; 2 to {MOST_OPTIONS} different ones are allowed")
        return options

    def ask_accepted(self, ask: Ask, view: View) -> tuple[list[dict[str, Any]], int]:
        drafted, depth, truth = view.steps["drafted"], view.steps["depth"], view.steps["accepted"]
        if not drafted:
            raise Unknown(f"step {view.step + 1} drafted nothing, so nothing can be accepted; ask at another step")
        options = self.options(ask)
        if options and not all(option.isdecimal() and int(option) <= depth for option in options):
            raise Unknown(f"options is {shown_as(', '.join(options))}; whole numbers from 0 to {depth} are allowed")
        numbers = sorted({int(option) for option in options} | {truth} if options else _numbers_around(truth, depth))
        chain = depth == drafted

        def words(n: int) -> str:
            if n < 2:
                return str(n) if n else "none"
            return f"all {n}" if n == drafted else f"the first {n}" if chain else str(n)

        return [{"runs": [["text", words(n)]]} for n in numbers], numbers.index(truth)

    def ask_branch(self, ask: Ask, view: View) -> tuple[list[dict[str, Any]], int]:
        first = [node for node in view.nodes if node["parent"] == 0]
        if len(first) < 2:
            tokens = plural(len(first), "token")
            raise Unknown(f"step {view.step + 1} has {tokens} after the root; ask where there are two")
        winner = next((k for k, node in enumerate(first) if node["status"] == "accepted"), -1)
        listed_nodes = first[: MOST_OPTIONS - 1]
        if winner >= len(listed_nodes):
            listed_nodes[-1], winner = first[winner], len(listed_nodes) - 1
        names = {"main": "the copy", "drafter": "the main chain"}
        options = [
            {"runs": [view.token(node["token"]).run(), ["text", f" ({names.get(node['origin'], node['origin'])})"]]}
            for node in listed_nodes
        ]
        return [*options, {"runs": [["text", "none of these"]]}], winner if winner >= 0 else len(options)

    def ask_token(self, ask: Ask, view: View) -> tuple[list[dict[str, Any]], int]:
        bonus = view.steps["bonus"]
        fell = [node for node in view.nodes if node["parent"] == view.last and node["status"] == "rejected"]
        likely = [token for token, _ in view.targets(view.last)]
        tokens = list(dict.fromkeys([bonus, *(node["token"] for node in fell[:2]), *likely]))[:4]
        if bonus < 0 or len(tokens) < 2:
            raise Unknown(f"step {view.step + 1} has no token of the target's own to ask for, or nothing beside it")
        tokens.sort(key=lambda token: view.label([token]))
        return [{"runs": [view.token(token).run()]} for token in tokens], tokens.index(bonus)

    def ask_candidate(self, ask: Ask, view: View) -> tuple[list[dict[str, Any]], int]:
        if ask.rest not in ("", "scores"):
            raise Unknown(f"found ask: candidate {ask.rest}; allowed are ask: candidate and ask: candidate scores")
        return self.among(view, view.candidate("chosen"))

    def ask_best(self, ask: Ask, view: View) -> tuple[list[dict[str, Any]], int]:
        best = view.candidate("best")
        best_candidates = [
            candidate for candidate in view.candidates if candidate["would_accept"] == best["would_accept"]
        ]
        if len(best_candidates) > 1:
            problem = f"{len(best_candidates)} candidates of step {view.step + 1} would have accepted most"
            raise Unknown(f"{problem}; ask where one does")
        return self.among(view, best)

    def among(self, view: View, answer: Mapping[str, Any]) -> tuple[list[dict[str, Any]], int]:
        """Candidates in the order of the text, at most six, the chosen and the best among them."""
        if len(view.candidates) < 2:
            count_text = plural(len(view.candidates), "candidate")
            raise Unknown(f"step {view.step + 1} has {count_text}; ask where there are two")
        first = (answer, view.candidate("chosen"), view.candidate("best"), *view.candidates)
        unique = {id(candidate): candidate for candidate in first}.values()
        listed_candidates = sorted(list(unique)[:6], key=lambda candidate: (candidate["pool"], candidate["position"]))
        options = [
            {
                "runs": [view.token(view.offer(candidate), 34).run()],
                "position": candidate["position"],
                "pool": candidate["pool"],
            }
            for candidate in listed_candidates
        ]
        return options, listed_candidates.index(answer)

    def ask_value(self, ask: Ask, view: View) -> tuple[list[dict[str, Any]], int]:
        if not ask.rest:
            raise Unknown("found ask: value without a name; write ask: value accepted of step 3")
        value, options = self.read(ask.rest, view), self.options(ask)
        if not options:
            raise Unknown("options is missing; write the values to choose from, with commas between them")
        if value.shown not in options:
            options = [*options[: MOST_OPTIONS - 1], value.shown]
        if all(_leading(option) is not None for option in options):
            options.sort(key=lambda option: _leading(option) or 0.0)
        kind = "code" if value.code else "text"
        return [{"runs": [[kind, option]]} for option in options], options.index(value.shown)

    def ask_yes(self, ask: Ask, view: View) -> tuple[list[dict[str, Any]], int]:
        condition = ask.rest.removeprefix("if").strip()
        if not condition:
            raise Unknown("found ask: yes without a condition; write ask: yes if differs > 0")
        return [{"runs": [["text", word]]} for word in ("Yes", "No")], 0 if _holds(*self.sides(condition, view)) else 1


def _holds(left_value: Value, test: str, right: Value) -> bool:
    if isinstance(left_value.raw, str) != isinstance(right.raw, str):
        return test == "!="
    return TESTS[test](left_value.raw, right.raw)


def _leading(text: str) -> float | None:
    """The number a text begins with, for putting options in order."""
    number = re.match(r"-?[\d,]*\.?\d+", text)
    return float(number[0].replace(",", "")) if number else None


def _at(trace: Trace, step: str, run: str) -> View:
    """A step of a run, by its number as it is written. Raises Unknown."""
    count = trace.rows("steps")
    if not step.isdecimal() or not 1 <= int(step) <= count:
        raise Unknown(f"step is {shown_as(step)}; {run} has the steps 1 to {count}")
    return View(trace, int(step) - 1)


def _numbers_around(truth: int, depth: int) -> set[int]:
    """Numbers of tokens to choose from: none, all, the answer, and what lies between."""
    numbers = {0, truth, depth, max(1, depth // 3), max(1, 2 * depth // 3)}
    return {n for n in numbers if 0 <= n <= depth} | ({1} if depth < 4 else set())
