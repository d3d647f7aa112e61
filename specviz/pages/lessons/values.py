"""Values of a lesson's names: a run, a step, a node, a candidate, and how their values read."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any

from decoders.names import BASELINE
from decoders.study.attribute.evidence import factor
from decoders.trace import files as tracefile
from decoders.trace.baseline import pair_with_plain
from decoders.trace.metrics import METRICS
from decoders.trace.trace import Trace
from specviz.groups import group
from specviz.places import SUFFIX, is_id
from specviz.views.gallery import gallery_causes
from specviz.views.step_words import rows_of
from specviz.words import SIGNS, decimals, plural

from .reading import shown_as

NODES = ("root", "first", "last", "refused")
RANK_COLUMNS = ("chosen", "best")

STEP = (
    "drafted", "depth", "accepted", "emitted", "route", "reason", "outcome", "origins", "entropy", "draft_ms",
    "verify_ms", "commit_ms", "elapsed_ms",
)  # fmt: skip

Words = list[str]  # ["text" | "em" | "code", words]


class LessonRuns:
    """Recorded runs by name: those beside a lesson, then the gallery's (with or without their number)."""

    def __init__(self, *folders: Path) -> None:
        self.folders = folders

    def names(self) -> dict[str, Path]:
        """Name → file. A gallery run has two names where the one without its number is no other run's."""
        places = [folder for folder in self.folders if folder.is_dir()]
        files = [path for folder in places for path in sorted(folder.glob(f"*{SUFFIX}")) if is_id(path.stem)]
        named_files = {path.stem: path for path in reversed(files)}
        bare = group((re.sub(r"^\d+-", "", path.stem), path) for path in files)
        return {**{name: paths[0] for name, paths in bare.items() if len(paths) == 1}, **named_files}

    def find(self, name: str) -> tuple[str, Trace]:
        """The run's id and its trace. Raises KeyError where there is none, TraceError where it cannot be read."""
        path = self.names()[name]
        return path.stem, _trace(path, path.stat().st_mtime_ns)


@lru_cache(maxsize=32)
def _trace(path: Path, _: int) -> Trace:
    trace = tracefile.load(path)
    trace.run["id"] = path.stem
    if trace.run["method"]["name"] != BASELINE:  # its speedup, where plain decoding of its prompt stands beside it
        plains = [file for file in path.parent.glob(f"*{BASELINE}{SUFFIX}") if is_id(file.stem)]
        pair_with_plain([trace, *(_trace(file, file.stat().st_mtime_ns) for file in plains)])
    return trace


@dataclass(frozen=True, slots=True)
class Value:
    """The value of a name: the value to compare by, and how it reads."""

    raw: Any
    shown: str
    code: bool = False

    def run(self) -> Words:
        return ["code" if self.code else "text", self.shown]


Names = Mapping[str, Callable[[], Value]]  # looked up when a text names them: not all were recorded


class Unknown(ValueError):
    """A reference that leads nowhere: the sentence without file and line."""


class View:
    """One step of a run, as a lesson's text refers to it. ``step`` counts from 0."""

    def __init__(self, trace: Trace, step: int) -> None:
        self.trace, self.step = trace, step
        self.steps = {name: column[step] for name, column in trace.tables["steps"].items()}
        self.nodes = rows_of(trace, "nodes", step)
        table = rows_of(trace, "candidates", step)
        order = sorted(table, key=lambda row: (bool(row["excluded"]), row["rank"] if row["rank"] >= 0 else 10**6))
        self.candidates = order

    # tokens

    def label(self, ids: list[int], limit: int = 60) -> str:
        """Tokens as the inspector writes them: spaces and line ends visible."""
        text = self.trace.text(ids).translate(str.maketrans(SIGNS))
        text = re.sub("␣{4,}", lambda match: f"␣×{len(match[0])}", text)
        return text if len(text) <= limit else text[: limit - 1] + "…"

    def token(self, ids: list[int] | int, limit: int = 60) -> Value:
        ids = [ids] if isinstance(ids, int) else ids
        if ids and ids[0] < 0:
            return Value("stop", "stop", True)
        return Value(self.trace.text(ids), self.label(ids, limit), True)

    def anchor(self, candidate: Mapping[str, Any]) -> int:
        """The token that a candidate's offer follows."""
        if candidate["pool"] >= 0:
            pool = self.trace.tables["pool"]
            return pool["id"][pool["position"].index(candidate["pool"])]
        return self.trace.tables["tokens"]["id"][candidate["position"]]

    def offer(self, candidate: Mapping[str, Any], limit: int = 8) -> list[int]:
        """The first tokens a candidate offers."""
        count = min(candidate["length"], limit)
        if candidate["pool"] >= 0:
            pool = self.trace.tables["pool"]
            ids = dict(zip(pool["position"], pool["id"], strict=True))
            return [ids[candidate["pool"] + k] for k in range(1, count + 1) if candidate["pool"] + k in ids]
        at = candidate["position"] + 1
        return self.trace.tables["tokens"]["id"][at : at + count]

    # nodes and candidates

    @property
    def path(self) -> list[int]:
        return [k for k, node in enumerate(self.nodes) if node["status"] == "accepted"]

    @property
    def last(self) -> int:
        return self.path[-1] if self.path else 0

    def node_number(self, name: str) -> int:
        """``name``: a number in the tree, or one of ``NODES``."""
        fell = (self.last, "rejected")
        rejections = (k for k, node in enumerate(self.nodes) if (node["parent"], node["status"]) == fell)
        numbers = {"root": 0, "first": 1, "last": self.last, "refused": next(rejections, -1)}
        if name not in numbers and not name.isdecimal():
            raise Unknown(f"found the node {shown_as(name)}; allowed are a number, {', '.join(NODES)}")
        number = numbers[name] if name in numbers else int(name)
        if not 0 <= number < len(self.nodes) and name != "root":
            drafted = plural(len(self.nodes) - 1, "token")
            raise Unknown(f"step {self.step + 1} has no node {name!r}: it drafted {drafted}")
        return number

    def candidate(self, name: str) -> dict[str, Any]:
        """``name``: a rank from 1, or one of ``RANK_COLUMNS``."""
        if not self.candidates:
            raise Unknown(f"step {self.step + 1} ranked no candidates")
        if name == "chosen":
            matching = [row for row in self.candidates if row["chosen"]]
        elif name == "best":
            measured_rows = [row for row in self.candidates if row["would_accept"] >= 0]
            matching = sorted(measured_rows, key=lambda row: -row["would_accept"])
        elif name.isdecimal() and int(name) > 0:
            matching = self.candidates[int(name) - 1 : int(name)]
        else:
            raise Unknown(
                f"found the candidate {shown_as(name)}; allowed are a rank from 1, {' and '.join(RANK_COLUMNS)}"
            )
        if not matching:
            raise Unknown(f"step {self.step + 1} has no candidate {name!r}: it has {len(self.candidates)}")
        return matching[0]

    def targets(self, node: int) -> list[tuple[int, float]]:
        """The target's first choices after a visited node."""
        rows = rows_of(self.trace, "targets", self.step)
        return [(row["token"], row["prob"]) for row in rows if row["node"] == node]

    # names

    def run_values(self) -> Names:
        run = self.trace.run
        units = {metric.key: metric.unit for metric in METRICS}
        method, metrics = run["method"], run.get("metrics", {})
        settings = {**method.get("params", {}), **method.get("resolved", {})}
        return {
            **{key: lambda key=key: _metric(key, metrics[key], units.get(key, "")) for key in metrics},
            **_columns({f"setting.{name}": value for name, value in settings.items()}),
            "title": lambda: plain(run.get("title", "")),
            "method": lambda: plain(method.get("title") or method["name"]),
            "model": lambda: plain(run["model"].get("name", "")),
            "prompt_tokens": lambda: plain(run["prompt_length"]),
            "output": lambda: self.token(self.trace.output_ids),
        }

    def step_values(self) -> Names:
        row, tokens = self.steps, self.trace.tables["tokens"]["id"]
        start, emitted, accepted = row["context"], row["emitted"], row["accepted"]
        kinds = [node["origin"] for node in self.nodes]
        origins = {"branches": "branch", "successors": "successor", "expansions": "expansion", "copied": "main"}
        side_origins = ("branch", "successor", "expansion")  # the main chain
        return {
            "step": lambda: plain(self.step + 1),
            "root": lambda: self.token(tokens[start - 1]),
            "bonus": lambda: self.token(row["bonus"]),
            "written": lambda: self.token(tokens[start : start + emitted]),
            "kept": lambda: self.token(tokens[start : start + accepted]),
            "draft": lambda: self.token(
                [node["token"] for node in self.nodes[1:] if node["origin"] not in side_origins]
            ),
            "candidates": lambda: plain(len(self.candidates)),
            "regret": lambda: plain(self.candidate("best")["would_accept"] - self.candidate("chosen")["would_accept"]),
            **_columns({name: kinds.count(origin) for name, origin in origins.items()}),
            **_columns(row, *STEP),
        }

    def node_values(self, name: str) -> Names:
        number = self.node_number(name)
        node = self.nodes[number]
        return {
            "token": lambda: self.token(node["token"]),
            "prob": lambda: _probability(node["prob"]),
            "draft_prob": lambda: _probability(node["draft_prob"]),
            "rank": lambda: plain(node["rank"] + 1),
            "siblings": lambda: plain(sum(sibling["parent"] == node["parent"] for sibling in self.nodes)),
            "wanted": lambda: self.token(self._target_choice(node["parent"])[0]),
            "wanted_prob": lambda: _probability(self._target_choice(node["parent"])[1]),
            "next": lambda: self.token(self._target_choice(number)[0]),
            "next_prob": lambda: _probability(self._target_choice(number)[1]),
            **_columns(node, "depth", "status", "origin"),
        }

    def _target_choice(self, parent: int) -> tuple[int, float]:
        choices = self.targets(parent)
        if not choices:
            raise Unknown(f"the target's choices after node {parent} were not recorded: it was not visited")
        return choices[0]

    def candidate_values(self, name: str) -> Names:
        candidate = self.candidate(name)
        return {
            "rank": lambda: plain(self.candidates.index(candidate) + 1),
            "anchor": lambda: self.token(self.anchor(candidate)),
            "offer": lambda: self.token(self.offer(candidate)),
            **_columns(candidate, "score", "length", "would_accept"),
        }

    def source_values(self, name: str) -> Names:
        """The change of the step's words where a source is left out; ``name`` is its number from 1."""
        causes = gallery_causes(self.trace.run["id"])
        if not causes:
            raise Unknown("no causes were recorded with this run: they are of the gallery's answers about documents")
        if not name.isdecimal() or not 1 <= int(name) <= len(causes):
            raise Unknown(f"found the source {shown_as(name)}; allowed are 1 to {len(causes)}")
        cause, start = causes[int(name) - 1], self.steps["context"] - self.trace.run["prompt_length"]
        tokens = range(start, start + self.steps["emitted"])
        fall = sum(cause["fall"][at] for at in tokens)
        changed = [cause["instead"][at][0] for at in tokens if cause["instead"][at]]
        return {
            "fall": lambda: Value(fall, decimals(fall, 1)),
            "times": lambda: plain(factor(fall)),
            "instead": lambda: Value(changed[0] if changed else "", changed[0] if changed else "the same", True),
        }

    def rule_values(self, name: str) -> Names:
        """A verifier's judgement of the step by name: ``decoders.study.judge.judge``."""
        from decoders.errors import UserError
        from decoders.study.judge.judge import chosen_rules, judge_steps

        try:
            steps = list(judge_steps(self.trace, chosen_rules([name]), steps=[self.step]))
        except UserError as problem:
            raise Unknown(str(problem)) from None
        if not steps:
            raise Unknown(f"step {self.step + 1} cannot be judged: it drafted nothing, or holds no p")
        verdict = steps[0].rules[name]
        fell = verdict.status.index("rejected") if "rejected" in verdict.status else 0
        first = next((node for node, status in enumerate(verdict.status) if status == "accepted"), fell)
        return {
            "accepted": lambda: plain(verdict.accepted),
            "expected": lambda: _range(verdict.expected),
            "other": lambda: _range(verdict.other),
            "bonus": lambda: self.token([] if verdict.bonus is None else verdict.bonus),
            "why": lambda: plain(verdict.reasons[first if verdict.accepted else fell]),
        }


def _range(bounds: tuple[float, float] | None) -> Value:
    """A number, or two where the record leaves a range; it is compared by the lower one."""
    if bounds is None:
        raise Unknown("the rule does not say it")
    low, high = (f"{bound:.2g}" for bound in bounds)
    return Value(bounds[0], low if low == high else f"{low} to {high}")


def _columns(row: Mapping[str, Any], *names: str) -> Names:
    """Columns of a row as they are (all, without ``names``), and the method's own numbers without their ``term:``."""
    terms = [name for name in row if name.startswith("term:")]
    return {name.removeprefix("term:"): lambda name=name: plain(row[name]) for name in (*(names or row), *terms)}


def plain(value: Any) -> Value:
    if value is None:
        raise Unknown("its value was not recorded")
    return Value(value, _number(value) if isinstance(value, int | float) else str(value))


def _metric(key: str, value: Any, unit: str) -> Value:
    if value is None:
        raise Unknown(f"the run has no {key}: it was not measured, or is not defined for its method")
    return Value(value, f"{_number(100 * value)} %" if unit == "share" else _number(value))


def _number(value: float) -> str:
    """A number as people read it.

    >>> _number(1234), _number(7.5), _number(0.3341234), _number(2.0)
    ('1,234', '7.5', '0.334', '2')
    """
    if isinstance(value, bool):
        return "yes" if value else "no"
    if float(value).is_integer() or abs(value) >= 1000:
        return f"{value:,.0f}"
    if 0.9995 <= value < 1:
        return "more than 0.999"
    return f"{value:.3g}"


def _probability(value: float | None) -> Value:
    """A probability; the ends are said in words, as rounding would claim too much."""
    if value is None:
        raise Unknown("its value was not recorded")
    text = "less than 0.001" if value < 0.001 else "more than 0.999" if value > 0.999 else f"{value:.3g}"
    return Value(value, text)
