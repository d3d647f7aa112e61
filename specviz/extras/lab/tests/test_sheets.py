"""Tables of lines × tasks, answers side by side: what is in their cells, drawn and written; methods not there yet."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from decoders import Prompt
from decoders.errors import UserError
from specviz.views.prompts import Case
from tests.drafts import needs_kinds
from tests.models import prompt_ids

from ..experiments import Experiment, Line, PaperSeries, Results, find_recipe, plan, recipes
from ..experiments import run_experiment as run
from ..experiments.answers import CLOSE, OPEN
from ..experiments.figures import caption, charts
from ..experiments.grids import grids, to_file_text
from ..experiments.sheets import in_a_cell
from ..page.display import draw

WORDS = "there is no GLIDE draft model for tiny-llama: make one with `specviz train glide` --model and this model"
IN_A_CELL = "not there: specviz train glide"
SHEET = Experiment(
    "sheet", "Sheet", (Line("Head", "glide"), Line("PLD", "pld"), Line("Plain", "plain")),
    metrics=("tokens_per_step", "speedup"), max_new_tokens=12, x="category", chart="sheet",
    papers=(
        PaperSeries("PLD", "table 1", "speedup", (("SUM", 2.5), ("Avg.", 2.0)), "Vicuna"),
        PaperSeries("Head", "table 1", "speedup", (("SUM", 3.5),), "Vicuna"),
    ),
)  # fmt: skip


pytestmark = pytest.mark.usefixtures("home")


CASES = [Case(f"p{n}", ("summary", "chat")[n % 2], Prompt.from_ids(prompt_ids(n))) for n in range(3)]


@pytest.fixture(scope="module")
def results(target: Any) -> Results:
    return run(target, plan(target, SHEET, CASES))


def test_a_table_has_a_row_per_line_in_order_and_says_what_would_fill_one(results: Results) -> None:
    ours, theirs = grids(results, ["speedup"])
    assert ours.heads == ("", "summary", "chat", "all", "runs")
    assert [row[0] for row in ours.rows] == ["Head", "PLD", "Plain"] and ours.rows[2][1:] == ("1.00",) * 3 + ("3",)
    assert ours.rows[0] == ("Head", "–", "–", "–", WORDS)
    assert theirs.heads == ("", "SUM", "Avg.") and theirs.rows == (("Head", "3.50", "–"), ("PLD", "2.50", "2.00"))
    assert "paper" in theirs.title and "Vicuna" in theirs.title and "paper" not in ours.title
    text = to_file_text(results, "md").replace("\\`", "`")
    assert WORDS in text and "paper: table 1, Vicuna" in text


def test_its_figures_have_ours_and_the_papers_apart(results: Results) -> None:
    steps, speed, paper = charts(results)
    assert [chart.paper for chart in (steps, speed, paper)] == [False, False, True]
    heat = speed.figure.data[0]
    assert list(heat.z[0]) == [None] * 3
    shown = [note.text for note in speed.figure.layout.annotations]
    assert f"<i>{IN_A_CELL}</i>" in shown and any("1.00" in text for text in shown)
    assert all(heat.customdata[row][at] is not None for row in (1, 2) for at in range(3))


def test_a_page_has_them_as_tables_alone(results: Results) -> None:
    """No chart of a table, and no table twice: every number of ``grids`` stands in a cell, ours with its point."""
    page = draw(results, ["speedup"])
    (metric,) = page["sheets"]
    assert page["charts"] == page["profiles"] == [] and metric["title"] == "Speedup (×)"
    for sheet, grid in zip(metric["sheets"], grids(results, ["speedup"]), strict=True):
        assert grid.title == f"{metric['title']}, {sheet['about']}"
        assert [[cell["text"] for cell in row["cells"]] for row in sheet["rows"]] == [
            list(row[1 : 1 + len(sheet["columns"])]) for row in grid.rows
        ]
    ours, paper = metric["sheets"]
    assert [row["absent"] for row in ours["rows"]] == [WORDS, "", ""]
    assert all(page["points"][cell["point"]]["series"] == "PLD" for cell in ours["rows"][1]["cells"])
    shares = [row["cells"][0]["share"] for row in paper["rows"]]
    assert shares == [1, 0] and [row["cells"][0]["best"] for row in paper["rows"]] == [True, False]
    assert not any(cell["best"] for row in ours["rows"] for cell in row["cells"]), "timings of ours may be chance"


def test_speedups_that_cannot_be_are_told(results: Results) -> None:
    def tell(speedup: float) -> bool:
        rows = [{**row, "speedup": speedup, "tokens_per_step": 2.0} for row in results.rows]
        return f"{len(rows)} of {len(rows)} speedups are above" in caption(Results(results.about, rows))

    assert tell(2.5) and not tell(2.0) and not tell(0.5)


def test_a_method_without_its_part_is_noted_and_one_misspelt_is_refused(target: Any) -> None:
    planned = plan(target, SHEET, CASES)
    assert planned.absent == {"Head": WORDS} and f"glide is left out: {WORDS}" in planned.notes
    with pytest.raises(UserError, match="no method 'plds'"):
        plan(target, replace(SHEET, lines=(Line("A", "plds"),)), CASES)
    with pytest.raises(UserError, match="no method of this experiment can run here"):
        plan(target, replace(SHEET, lines=SHEET.lines[:1]), CASES)
    assert SHEET.fixing({"k": 3}).lines[1].params == {"k": 3}


def test_answers_stand_side_by_side_with_what_was_drafted(target: Any, tmp_path: Path) -> None:
    lines = (SHEET.lines[0], Line("TR", "recycling"), SHEET.lines[2])
    cases = replace(SHEET, lines=lines, chart="cases", x="", metrics=("tokens_per_step",), max_new_tokens=40)
    done = run(target, plan(target, cases, CASES[:2]))
    first, second = grids(done)
    assert [row[0] for row in first.rows] == ["TR", "Plain", "Head"] and first.rows[2][1] == f"not run: {WORDS}"
    drafted, plain = (row[1].replace(OPEN, "").replace(CLOSE, "") for row in first.rows[:2])
    assert drafted.split() == plain.split() and OPEN not in first.rows[1][1] and first.title != second.title
    assert [OPEN in row["output"] for row in done.rows] == [row["accepted"] > 0 for row in done.rows]
    assert any(row["accepted"] for row in done.rows)
    done.save(tmp_path)
    assert grids(Results.load(tmp_path)) == [first, second]


HEADS = {"Medusa": "medusa", "EAGLE": "eagle", "Hydra": "hydra"}


@needs_kinds(*HEADS.values())
def test_every_table_with_heads_says_which_command_makes_them(target: Any) -> None:
    """On a model without parts: each of their rows has the command that would fill it, and what can run is run."""
    seen = 0
    for name, experiment in recipes().items():
        try:
            absent = plan(target, replace(experiment, count=1, arrange=None), CASES[:1]).absent
        except UserError:
            continue  # nothing of it can run here
        for line in experiment.lines:
            if line.label in HEADS:
                assert f"specviz train {HEADS[line.label]}`" in absent[line.label], name
                assert in_a_cell(absent[line.label]) == f"not there: specviz train {HEADS[line.label]}"
                seen += 1
    assert seen >= 9
    assert {line.label for line in find_recipe("pldplus-table1").lines} >= HEADS.keys()


def test_a_chart_says_below_it_what_would_fill_a_line(target: Any) -> None:
    done = run(target, plan(target, replace(SHEET, chart="bar", x="line", papers=()), CASES[:1]))
    (table,) = grids(done)
    assert table.rows[-1] == ("Head", "–", "–", WORDS) and len(table.rows) == 3
    assert WORDS in to_file_text(done, "md").replace("\\`", "`")
