"""Lessons: their form, every lesson against its runs, faults by file and line; what the page explains of a number."""

from __future__ import annotations

import ast
import re
from pathlib import Path
from typing import Any

import pytest
from fastapi.testclient import TestClient

from decoders import Prompt, record
from decoders.trace import files as tracefile
from decoders.trace.metrics import METRICS
from decoders.trace.tables import TABLES
from specviz.cli import main
from specviz.pages.lessons import filling, reading, values
from specviz.pages.lessons.filling import Filler
from specviz.pages.lessons.lessons_page import LESSONS, LessonError, LessonRuns, load, parse
from specviz.pages.lessons.values import View
from specviz.places import GALLERY
from specviz.views import terms, web
from tests import recordings

from .models import prompt_ids, tiny_target
from .stubs import StubDesk, app_of

ROOT = Path(__file__).parent.parent
FILES = sorted(LESSONS.glob("*.txt"))

HEAD = "title: T\nabout: A.\nminutes: 3\nlearn: one thing\n\n"
STOP = "# Stop\nrun: chain\nstep: 3\n\n"


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("SPECVIZ_HOME", str(tmp_path))
    return tmp_path


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with two made-up runs: chain and tree."""
    place = tmp_path_factory.mktemp("lessons")
    for name, trace in (("chain", recordings.chain()), ("tree", recordings.tree())):
        trace.run["id"] = name
        tracefile.save(trace, place / f"{name}.spectrace")
    return place


def fill(folder: Path, text: str) -> dict[str, Any]:
    return Filler(parse(HEAD + text, "my.txt"), LessonRuns(folder)).fill()


def faults(folder: Path, text: str) -> list[str]:
    with pytest.raises(LessonError) as error:
        Filler(parse(text, "my.txt"), LessonRuns(folder)).fill()
    return [str(fault) for fault in error.value.faults]


def words(runs: list[list[str]]) -> str:
    return "".join(text for _, text in runs)


# --- the lessons that come along ----------------------------------------------------------------------------------


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem)
def test_a_lesson_fits_its_runs(path: Path) -> None:
    lesson = load(path)  # every reference is looked up, every holds: line is checked
    asked = [stop["ask"] for stop in lesson["stops"] if stop["ask"]]
    assert 5 <= len(lesson["stops"]) <= 9 and 1 <= len(asked) <= 3
    assert 2 <= len(lesson["learn"]) <= 4 and len(lesson["about"]) < 160
    for ask in asked:
        assert 2 <= len(ask["options"]) <= 9 and 0 <= ask["answer"] < len(ask["options"])
        shown = [words(option["runs"]) + str(option.get("position", "")) for option in ask["options"]]
        assert len(set(shown)) == len(shown)
        said = re.match(r"(Yes|No)\b", words(ask["reveal"][0]))
        assert not said or said[0] == shown[ask["answer"]], "the text says another answer than is taken for right"
    for stop in lesson["stops"]:
        assert all(words(runs).strip() for runs in stop["text"])


def test_there_is_a_lesson_for_each_subject() -> None:
    names = " ".join(path.stem for path in FILES)
    for subject in ("drafting", "forward", "ranking", "adapld", "prompt-tokens", "glide", "cape", "casd", "lossless"):
        assert subject in names


def test_the_answers_are_the_runs() -> None:
    checked = 0
    for path in FILES:
        for stop in load(path)["stops"]:
            ask = stop["ask"]
            if not ask or ask["kind"] not in ("accepted", "branch", "candidate"):
                continue
            trace = LessonRuns(LESSONS, GALLERY).find(stop["run"])[1]
            view, said = View(trace, stop["step"]), words(ask["options"][ask["answer"]]["runs"])
            if ask["kind"] == "accepted":
                truth = trace.tables["steps"]["accepted"][stop["step"]]
                assert said == "none" if truth == 0 else re.search(rf"\b{truth}$", said)
            elif ask["kind"] == "branch":
                first = [node for node in view.nodes if node["parent"] == 0 and node["status"] == "accepted"]
                assert said.startswith(view.label([first[0]["token"]])) if first else said == "none of these"
            else:
                chosen = [one for one in view.candidates if one["chosen"]]
                assert ask["options"][ask["answer"]]["position"] == chosen[0]["position"]
            checked += 1
    assert checked >= 10


# --- the form -----------------------------------------------------------------------------------------------------


def test_text_is_filled_from_the_run(folder: Path) -> None:
    trace = recordings.chain()
    steps = trace.tables["steps"]
    body = "*Look*: {accepted|token} of {drafted}, in `{steps}` steps, {accepted of step 1}; \\{x\\} \\*"
    body += "\n\nSecond\nline."
    stop = fill(folder, STOP + body)["stops"][0]
    first, second = stop["text"]
    accepted = steps["accepted"][2]
    assert first[0] == ["em", "Look"] and ["code", str(len(steps["accepted"]))] in first
    assert words(first) == (
        f"Look: {accepted} token{'' if accepted == 1 else 's'} of {steps['drafted'][2]}, in {len(steps['accepted'])} "
        f"steps, {steps['accepted'][0]}; {{x}} *"
    )
    assert words(second) == "Second line." and stop["run"] == "chain" and stop["step"] == 2


def test_a_run_and_its_places_carry_over(folder: Path) -> None:
    text = STOP + "One.\n\n# Two\nshow: tree, node 1, root, metric steps\n\nAlso {step} of {steps of run tree}."
    one, two = fill(folder, text)["stops"]
    assert (two["run"], two["step"]) == ("chain", 0) and one["show"] == []
    assert words(two["text"][0]) == f"Also 1 of {recordings.tree().rows('steps')}."
    shown = fill(folder, text.replace("# Two\n", "# Two\nstep: 3\n"))["stops"][1]["show"]
    assert [one["kind"] for one in shown] == ["panel", "node", "tokens", "metric"]


def test_questions(folder: Path) -> None:
    def ask(line: str, options: str = "") -> dict[str, Any]:
        return fill(folder, f"{STOP}ask: {line}\n{options}Which?\n\nreveal:\nThis.")["stops"][0]["ask"]

    view = View(recordings.chain(), 2)
    row = view.steps
    found = ask("accepted", "options: 0, 1\n")
    numbers = sorted({0, 1, row["accepted"]})
    assert len(found["options"]) == len(numbers) and found["answer"] == numbers.index(row["accepted"])
    found = ask("candidate")
    assert found["options"][found["answer"]]["position"] == view.candidate("chosen")["position"]
    found = ask("token")
    assert words(found["options"][found["answer"]]["runs"]) == view.label([row["bonus"]])
    assert ask(f"yes if accepted = {row['accepted']}")["answer"] == 0
    assert ask(f"yes if accepted > {row['accepted']}")["answer"] == 1
    found = ask("value drafted", "options: 1, 99\n")
    assert words(found["options"][found["answer"]]["runs"]) == str(row["drafted"])
    assert words(found["reveal"][0]) == "This." and ask("candidate scores")["scores"]


@pytest.mark.parametrize(
    ("text", "line", "said"),
    [
        ("", 1, "the field title: is missing"),
        ("titel: T\n", 1, "found the field 'titel'; allowed are title:, about:, minutes:, learn:"),
        (HEAD, 1, "there is no stop"),
        (HEAD + "# Stop\n\nText.", 6, "does not say which run"),
        (HEAD.replace("3", "soon") + STOP + "Text.", 3, "minutes is 'soon'; a whole number from 1 to 99"),
        (HEAD + STOP, 6, "has no text"),
        (HEAD + STOP + "Text.\n\nask: guess\nWhat?", 12, "found the question 'guess'; allowed are accepted"),
        (HEAD + STOP + "Text.\n\nask: accepted\nHow many?", 12, "write reveal: and below it"),
        (HEAD + "# Stop\nrun: chain\nrun: tree\n\nText.", 8, "is given twice, first on line 7"),
        (HEAD + "#Stop\nrun: chain\n\nText.", 6, "a stop begins with # and its title"),
        (HEAD + "# Stop\nrun: nowhere\n\nText.", 7, "there is no run 'nowhere'; there are chain, tree"),
        (HEAD + "# Stop\nrun: chain\nstep: 99\n\nText.", 8, "step is '99'; run chain has the steps 1 to"),
        (HEAD + STOP + "A {number}.", 10, "{number}: found the name 'number'; allowed are accepted, "),
        (HEAD + STOP + "A {prob of knot 1}.", 10, "found of 'knot 1'; allowed are of node, of candidate"),
        (HEAD + STOP + "A {prob of node 99}.", 10, "step 3 has no node '99'"),
        (HEAD + STOP + "A {steps of run x}.", 10, "there is no run 'x'"),
        (HEAD + STOP + "A {fall of source 1}.", 10, "no causes were recorded with this run"),
        (HEAD + "# Stop\nrun: chain\nshow: tee\n\nText.", 8, "found 'tee' to show; allowed are timeline, "),
        (HEAD + "# Stop\nrun: chain\nholds: steps = 0\n\nText.", 8, "the run says otherwise: steps = 0 does not hold"),
        (HEAD + "# Stop\nrun: chain\nholds: steps\n\nText.", 8, "found the condition 'steps'; write NAME = VALUE"),
        (HEAD + STOP + "ask: accepted\noptions: a, b\nHow?\n\nreveal: R.", 11, "whole numbers from 0 to"),
        (HEAD + STOP + "ask: value drafted\nHow?\n\nreveal: R.", 10, "options is missing"),
        (HEAD + STOP + "ask: best\noptions: 1, 2\nHow?\n\nreveal: R.", 11, "options are the run's own"),
    ],
)  # fmt: skip
def test_a_fault_names_file_line_found_and_allowed(folder: Path, text: str, line: int, said: str) -> None:
    told = faults(folder, text)
    assert any(one.startswith(f"my.txt, line {line}: ") and said in one for one in told), told


def test_all_faults_are_told_at_once(folder: Path) -> None:
    assert len(faults(folder, HEAD + STOP + "A {x} and {y}.\n\n# Two\nstep: 0\n\nText.")) == 3


def test_the_readme_of_lessons_names_everything() -> None:
    text = (LESSONS / "README.md").read_text(encoding="utf-8")
    for name in (*reading.HEAD, *reading.PLACE, *reading.KINDS, *filling.PANELS, *filling.SPANS, *values.NODES):
        assert re.search(rf"`[^`]*\b{name}\b[^`]*`", text) or f"{name}:" in text, name


# --- the command, the page's JSON -----------------------------------------------------------------------------------


def test_the_command_checks_a_file(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    good, bad = folder / "good.txt", folder / "bad.txt"
    good.write_text(HEAD + STOP + "ask: accepted\nHow many?\n\nreveal: {accepted}.", encoding="utf-8")
    bad.write_text(HEAD + STOP + "A {number}.", encoding="utf-8")
    assert main(["lessons", "check", str(good)]) == 0
    assert "1 stop, 1 question; every reference was found" in capsys.readouterr().out
    assert main(["lessons", "check", str(bad)]) == 1
    assert "bad.txt, line 10: {number}: found the name 'number'" in capsys.readouterr().out
    assert main(["lessons", "check", str(folder / "none.txt")]) == 1
    assert "cannot be opened" in capsys.readouterr().out
    assert main(["lessons"]) == 0
    assert "What drafting is" in capsys.readouterr().out


def test_the_page_is_told_lessons_and_runs(home: Path, folder: Path) -> None:
    desk = StubDesk(load=None)
    own = home / "lessons"
    own.mkdir()
    (own / "mine.txt").write_text(HEAD + STOP + "Text.", encoding="utf-8")
    (own / "chain.spectrace").write_bytes((folder / "chain.spectrace").read_bytes())
    (own / "broken.txt").write_text("titel: x", encoding="utf-8")
    client = TestClient(app_of(desk))
    cards = {card["id"]: card for card in client.get("/api/lessons").json()["lessons"]}
    assert len(cards) == len(FILES) + 2 and cards["own-mine"]["own"] and not cards["1-drafting"]["own"]
    assert cards["own-broken"]["faults"][0].startswith("broken.txt, line 1: ")
    lesson = client.get("/api/lessons/own-mine").json()
    assert lesson["stops"][0]["run"] == "chain"
    trace = client.get("/api/lessons/runs/chain").json()
    assert trace["schema"] == "spectrace/1" and "chain" in desk.store
    for path, status in (
        ("/api/lessons/none", 404),
        ("/api/lessons/own-broken", 422),
        ("/api/lessons/runs/none", 404),
        ("/api/lessons/runs/..%2F..%2Fsecret", 404),
    ):
        assert client.get(path).status_code == status, path
    (own / "mine.txt").write_text(HEAD.replace("T", "New") + STOP + "Text.", encoding="utf-8")
    assert client.get("/api/lessons/own-mine").json()["title"] == "New"  # a changed file is read again


# --- what a number means --------------------------------------------------------------------------------------------


def test_every_number_has_its_formula_and_its_code() -> None:
    table = terms.table()
    for metric in METRICS:
        told = table["terms"][metric.key]
        assert (told["formula"], told["help"]) == (metric.formula, metric.help)
    codes = {told["code"] for told in table["terms"].values()} | {terms.RESIDUAL_RULE}
    for code in codes:
        file, name = code.split(" ")
        names = _definitions(ROOT / file)
        assert name in names, f"{file} has no {name}"
    numbers = set(re.findall(r"^  (\w+): \(", web.modules()["specviz/base/terms.js"], re.M))
    assert {key for key in table["terms"] if key.startswith("step_")} <= numbers
    assert "accepted" in {column.name for column in TABLES["steps"]}


def _definitions(path: Path) -> set[str]:
    """Functions and classes of a module, methods as Class.method and as method."""
    found = set()
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.ClassDef):
            found.add(node.name)
            found |= {f"{node.name}.{one.name}" for one in node.body if isinstance(one, ast.FunctionDef)}
        elif isinstance(node, ast.FunctionDef):
            found.add(node.name)
    return found


def test_the_drafting_code_is_that_of_the_method() -> None:
    """The run's record names the code that drafted and decided."""
    target = tiny_target()
    for method in ("plain", "pld", "pld+h", "adapld"):
        trace = record(target, Prompt.from_ids(prompt_ids(3)), method, max_new_tokens=1)
        for code in trace.run["method"]["code"].values():
            file, name = code.split(" ")
            assert name in _definitions(ROOT / file), code
