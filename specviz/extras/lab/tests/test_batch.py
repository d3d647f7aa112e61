"""The batch mode: what is run and how often, its tables' arithmetic by hand, its files, the lab and the command."""

from __future__ import annotations

import csv
import gc
import io
import json
import threading
import zipfile
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any
from unittest import mock

import pytest
from fastapi import FastAPI
from fastapi.testclient import TestClient

from decoders import Prompt, load
from decoders.drafters.pld import PldDrafter
from decoders.errors import UserError
from decoders.folders import ASSETS
from decoders.prompt.files import PromptRecord
from decoders.sweep.plan import Contender, Sample, alternate, execute
from decoders.trace.trace import Trace
from specviz.pages import pages
from specviz.server.desk import Desk
from specviz.server.http import tell_errors
from specviz.server.loader import Loader
from specviz.server.routes import add_page
from specviz.server.runner import Runner
from specviz.server.store import TraceStore
from specviz.views.prompts import Case
from tests.command import refusal, specviz
from tests.models import prompt_ids, tiny_target, tiny_tokenizer
from tests.stubs import at_work
from tests.waiting import until, until_over

from ..experiments import Results, plan
from ..experiments import run_experiment as run
from ..experiments.batch import batch, of_lines
from ..experiments.experiment import Line
from ..experiments.field import field_notes, field_tables, spec_bench_speedups
from ..experiments.grids import to_file_text
from ..experiments.quantities import measure
from ..experiments.result_table import PLAIN
from ..experiments.results import ABOUT
from ..experiments.tables import checks, describe, notes, tables, warnings
from ..page.requests import ExperimentRequest

SMALL = replace(batch([("pld", {"k": 2}), ("pld", {})], 2), max_new_tokens=8)


pytestmark = pytest.mark.usefixtures("home")


@pytest.fixture(autouse=True)
def _once(monkeypatch: pytest.MonkeyPatch) -> None:
    """As often as is asked for, however busy the machine is."""
    monkeypatch.setattr("decoders.sweep.ledger.MAX_RETRIES", 0)


@pytest.fixture
def steady(monkeypatch: pytest.MonkeyPatch) -> None:
    """A machine on which every step takes 10 ms, whatever is drafted."""
    monkeypatch.setattr(Sample, "tokens_per_s", property(lambda self: 100.0 * (self.accepted / self.steps + 1)))


@pytest.fixture(scope="module")
def target() -> Any:
    made = tiny_target("llama")
    made.tokenizer = made.tokenizer or tiny_tokenizer()
    return made


def made_cases(count: int = 3) -> list[Case]:
    return [Case(f"p{n}", "ab"[n % 2], Prompt.from_ids(prompt_ids(n))) for n in range(count)]


@pytest.fixture(scope="module")
def batch_results(target: Any) -> tuple[Results, list[Trace]]:
    kept: list[Trace] = []
    with mock.patch("decoders.sweep.ledger.MAX_RETRIES", 0):
        return run(target, plan(target, SMALL, made_cases()), keep=kept.append), kept


# --- what is run ---


def test_plain_decoding_always_takes_part_and_methods_twice_are_told_apart() -> None:
    assert [line.label for line in SMALL.lines] == ["plain", "pld, k = 2", "pld"]
    for wrong, words in (
        ([("plds", {})], "there is no method 'plds' (did you mean pld?)"),
        ([("plain", {})], "choose at least one other method"),
        ([("pld", {}), ("pld", {"k": 10})], "pld is chosen twice"),
        ([("pld", {"kk": 1})], "pld has no parameter 'kk'"),
        ([("pld", {"k": 0})], "pld: k=0 is out of range"),
        ([("pld", {"k": n}) for n in range(1, 30)], "29 methods are chosen and at most 23 fit one table"),
    ):
        with pytest.raises(UserError, match=".*") as caught:
            batch(wrong)
        assert words in str(caught.value)
    with pytest.raises(UserError, match="Steps by outcome is not one number per run"):
        batch([("pld", {})], 1, ("outcomes",))
    with pytest.raises(UserError, match="0 repeats are asked for"):
        batch([("pld", {})], 0)


def talk(target: Any, *turns: str) -> Prompt:
    return PromptRecord("a", turns=turns).prompt(target.tokenizer)


def test_a_batch_has_rows_of_every_turn_and_counts_prompts_once(target: Any) -> None:
    two = talk(target, "the old lamp", "the red door")
    planned = plan(target, SMALL, [Case("p0", "a", two), Case("p1", "b", talk(target, "a museum"))])
    assert planned.turns == 3 and planned.runs == 3 + 3 * 3 * (2 + 1) and "several user turns" in planned.notes[0]
    results = run(target, planned)
    at = {(row["prompt"], row["place"], row["turn"], row["repeat"]) for row in results.rows}
    assert at == {(p, n, t, r) for p, n, t in (("p0", 0, 1), ("p0, turn 2", 0, 2), ("p1", 1, 1)) for r in (1, 2)}
    assert len(results.rows) == 3 * 3 * 2 and {row["same"] for row in results.rows} == {1.0}
    table = tables(results)[0]
    assert table.counts == "turns" and [line.prompts for line in table.lines] == [2, 1, 3]
    assert any("2 prompts in 3 turns" in note for note in notes(results))
    old = Results(results.about, [{k: v for k, v in r.items() if k != "turn"} for r in results.rows if r["turn"] == 1])
    assert tables(old)[0].counts == "prompts" and [line.prompts for line in tables(old)[0].lines] == [1, 1, 2]


def test_a_turn_that_cannot_be_reached_is_a_row_with_the_reason(target: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*args: Any, **options: Any) -> Any:
        raise UserError("the prompt does not fit")

    monkeypatch.setattr("decoders.study.measure.turns.generate", full)
    for experiment in (replace(SMALL, repeats=1), replace(SMALL, repeats=0)):
        cases = [Case("p0", "a", talk(target, "the old lamp", "the red door")), Case("p1", "b", talk(target, "a"))]
        rows = run(target, plan(target, experiment, cases)).rows
        errors = [(row["prompt"], row["error"]) for row in rows if row["error"]]
        assert errors == [("p0, turn 2", "turn 2 was not reached: The prompt does not fit.")] * 3
        assert {row["prompt"] for row in rows if not row["error"]} == {"p0", "p1"}


def test_every_method_is_timed_in_every_repeat_and_recorded_once(
    target: Any, batch_results: tuple[Results, list[Trace]]
) -> None:
    results, kept = batch_results
    planned = plan(target, SMALL, made_cases())
    assert planned.runs == 3 + 3 * 3 * (2 + 1) and planned.lossy == ()  # warm-up; timed and recorded
    assert results.about["state"] == "complete" and len(results.rows) == 3 * 3 * 2 and results.failures == 0
    first = [row for row in results.rows if row["repeat"] == 1]
    assert [row["trace"] for row in first] == [t.run["id"] for t in kept if t] and len(kept) == 9
    assert sorted(t.run["title"] for t in kept)[:3] == ["p0 · plain", "p0 · pld", "p0 · pld, k = 2"]
    assert {t.run["method"]["params"]["k"] for t in kept if t.run["title"].endswith("k = 2")} == {2}
    for row in results.rows:
        plain = next(
            other for other in results.rows
            if (other["series"], other["place"], other["repeat"]) == ("plain", row["place"], row["repeat"])
        )  # fmt: skip
        assert row["speedup"] == pytest.approx(row["tokens_per_s"] / plain["tokens_per_s"]) and row["same"] == 1
        assert (row.get("tokens_per_step") is not None) == (row["repeat"] == 1)


def test_the_methods_take_turns(monkeypatch: pytest.MonkeyPatch) -> None:
    kinds = [Contender(name, "method", True, lambda prompt: None, rounds) for name, rounds in (("a", None), ("b", 1))]  # type: ignore
    frozen, thawed = gc.get_freeze_count(), []
    monkeypatch.setattr(gc, "unfreeze", lambda: thawed.append(True))
    turns = [turn for turn, _ in execute(alternate(kinds, [0, 1], 2), tidy=True)]
    order = [(turn.round, turn.prompt, turn.contender.name, turn.last) for turn in turns]
    assert order == [
        (-1, 0, "a", True), (0, 0, "a", False), (0, 0, "b", True), (0, 1, "b", False), (0, 1, "a", True),
        (1, 0, "a", True), (1, 1, "a", True),
    ]  # fmt: skip
    assert frozen and not thawed  # by conftest.py: all tests stay to the end
    monkeypatch.setattr(gc, "get_freeze_count", lambda: 0)
    list(execute(alternate(kinds, [0, 1], 2), tidy=True))
    assert thawed


def test_what_is_done_of_a_cancelled_batch_is_whole(target: Any) -> None:
    cancel = threading.Event()

    def tell(progress: Any) -> None:
        if progress.done == 3 + 6 + 2:  # the warm-up, the first prompt, two runs of the second
            cancel.set()

    results = run(target, plan(target, SMALL, made_cases()), progress=tell, cancel=cancel)
    assert results.about["state"] == "cancelled" and [row["prompt"] for row in results.rows] == ["p0"] * 3


def test_a_failing_method_is_left_out_of_what_is_best(target: Any) -> None:
    wide = of_lines((Line("plain", "plain"), Line("pld", "pld"), Line("pld+h", "pld+h", {"layer": 99})), 1)
    results = run(target, plan(target, replace(wide, max_new_tokens=6), made_cases(2)))
    assert results.failures == 2 and "ayer=99" in results.rows[2]["error"]
    (steps, _) = tables(results)
    assert [(cell.text, cell.partly, cell.best) for cell in steps.lines[-1].cells][2] == ("–", "0 of 2", False)
    assert any("pld+h failed on 2 of 2 prompts" in text for text in notes(results))


def test_a_lossless_method_that_changes_the_output_is_told_loudly(target: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    from decoders.engine import recording
    from decoders.sweep import contenders

    whole = contenders.Decoding

    class Meddling(whole):  # type: ignore
        def __iter__(self) -> Iterator[Any]:
            for step in super().__iter__():
                yield replace(step, emitted=(5, *step.emitted[1:])) if isinstance(self.drafter, PldDrafter) else step

    monkeypatch.setattr(contenders, "Decoding", Meddling)
    assert recording.Decoding is whole  # the recorded run is as it should be, the timed one is not
    results = run(target, plan(target, replace(SMALL, lines=SMALL.lines[:2], repeats=1), made_cases(2)))
    plain, pld = checks(results)
    assert plain.same == plain.checked == 2 and pld.bugs == 2 and pld.text == "0/2, 2 DIFFER"
    assert pld.runs[0]["verdict"] == "bug" and pld.runs[0]["trace"] == results.rows[1]["trace"]
    (said,) = warnings(results)
    assert "pld, k = 2 must not change the output" in said and "p0 (token " in said
    assert not any(line.cells[1].best for table in tables(results) for line in table.lines)
    assert "**0/2, 2 DIFFER**" in to_file_text(results, "md") and r"\textbf{0/2, 2 DIFFER}" in to_file_text(
        results, "tex"
    )
    (row,) = [r for r in csv.reader(io.StringIO(to_file_text(results, "csv"))) if r[0] == "outputs_bugs"]
    assert row[4::3] == ["0", "2"]


# --- the arithmetic, by hand ---


def row(series: str, place: int, repeat: int, **more: Any) -> dict[str, Any]:
    return {
        "series": series, "place": place, "prompt": f"p{place}", "category": "ab"[place // 2], "method": series,
        "trace": f"{series}{place}" if repeat == 1 else "", "error": "", "repeat": repeat, "same": 1.0, **more,
    }  # fmt: skip


ROWS = [
    # task a: prompts 0 and 1, task b: prompt 2; two repeats
    *(row("plain", p, r, speedup=1.0, tokens_per_step=1.0 if r == 1 else None) for r in (1, 2) for p in range(3)),
    row("x", 0, 1, speedup=2.0, tokens_per_step=3.0), row("x", 1, 1, speedup=4.0, tokens_per_step=5.0),
    row("x", 2, 1, speedup=1.3, tokens_per_step=1.804),
    row("x", 0, 2, speedup=3.0), row("x", 1, 2, speedup=5.0),
    row("x", 2, 2, speedup=1.7, same=0.0, differs_at=7.0, verdict="lossy by design"),
]  # fmt: skip


def by_hand(**about: Any) -> Results:
    experiment = of_lines((Line("plain", "plain"), Line("x", "pld")), 2)
    model = {"name": "tiny", "parameters": 1e6, "dtype": "float32", "device": "cpu"}
    machine = {"cores": 2, "torch_threads": 1, "processor": "x86_64", "torch": "2.0", "python": "3.11"}
    described = experiment.describe({}) | {"id": "x", "state": "complete", "created": "2026-11-21T00:00:00Z"}
    given = {"model": model, "machine": machine, "notes": [], "lossy": ["x"], "runs": 0, "cases": 3, **about}
    return Results(described | given, ROWS)


def test_a_table_by_hand() -> None:
    steps, speedup = tables(by_hand())
    assert (steps.columns, [line.name for line in speedup.lines]) == (("plain", "x"), ["a", "b", "overall"])
    assert [line.prompts for line in speedup.lines] == [2, 1, 3]
    a, b, overall = (line.cells[1] for line in speedup.lines)
    # medians of 2, 3 and 4, 5; quartiles 2.25, 2.75 and 4.25, 4.75
    assert (a.mean, a.low, a.high, a.text, a.spread, a.count) == (3.5, 3.25, 3.75, "3.50", "3.25–3.75", 4)
    assert (b.text, b.spread, b.count, b.disturbed) == ("1.50", "1.40–1.60", 2, 0)
    assert overall.mean == pytest.approx(8.5 / 3) and overall.spread == "2.63–3.03" and overall.disturbed == 0
    assert speedup.lines[0].cells[0].spread == ""  # what is always 1 has no spread
    assert [line.cells[1].best for line in speedup.lines] == [True] * 3  # plain's 1 lies below every range
    counted = [line.cells[1] for line in steps.lines]
    assert [(c.text, c.spread, c.count) for c in counted] == [("4.00", "", 2), ("1.80", "", 1), ("3.27", "", 3)]
    assert [line.cells[1].best for line in steps.lines] == [True] * 3
    assert [run["trace"] for run in a.runs] == ["x0", "x1"]
    plain, x = checks(by_hand())
    assert (plain.text, x.text, x.lossy, x.bugs) == ("6/6", "5/6", True, 0) and warnings(by_hand()) == []
    assert x.runs[0]["at"] == 7 and x.runs[0]["repeat"] == 2 and x.runs[0]["trace"] == "x2"
    (tokens,) = tables(by_hand(), ["draft_efficiency"])
    assert tokens.lines[0].cells[1].text == "–" and tokens.title == "Draft efficiency (%)"
    with pytest.raises(UserError, match="not one number per run"):
        tables(by_hand(), ["ranks"])


def cells_of(*values: tuple[str, float, float]) -> tuple[Any, str]:
    """The cells of one prompt's speedups, given twice per method at 3 tokens per step; and the notes."""
    rows = [
        row(name, 0, repeat, speedup=of, tokens_per_step=3.0 if repeat == 1 else None)
        for name, *both in values for repeat, of in enumerate(both, 1)
    ]  # fmt: skip
    results = Results(by_hand().about, rows)
    return {name: cell for name, cell in zip(("plain", "x", "y"), tables(results)[1].lines[0].cells, strict=False)}, (
        " ".join(notes(results))
    )


def test_numbers_that_cannot_be_right_are_marked_and_never_the_best() -> None:
    plain = ("plain", 1.0, 1.0)
    cells, said = cells_of(plain, ("x", 33.78, 34.0), ("y", 1.4, 1.5))
    assert (cells["x"].text, cells["x"].disturbed, cells["x"].best) == ("–", 1, False)  # 3 tokens per step, 33 times
    assert (cells["y"].text, cells["y"].best) == ("1.45", True) and "‡ 1 measurement" in said
    cells, said = cells_of(plain, ("x", 1.0, 2.8), ("y", 1.1, 1.2))  # x: quartiles 1.45 to 2.35
    assert (cells["x"].text, cells["x"].disturbed, cells["x"].best) == ("1.90", 1, False)
    assert not cells["y"].best and "‡ 1 measurement" in said  # x may be faster
    cells, said = cells_of(plain, ("x", 1.8, 2.0), ("y", 1.85, 2.1))  # the ranges meet
    assert not any(cell.best or cell.disturbed for cell in cells.values()) and "‡" not in said
    cells, _ = cells_of(plain, ("x", 1.8, 2.0), ("y", 2.3, 2.4))
    assert [name for name, cell in cells.items() if cell.best] == ["y"]
    once = Results(by_hand().about, [r for r in ROWS if r["repeat"] == 1])
    assert not any(cell.best for line in tables(once)[1].lines for cell in line.cells)  # one repeat tells no range
    disturbed = Results(by_hand().about, [{**r, "speedup": 40.0} if r["series"] == "x" else r for r in ROWS])
    for form, mark in (("csv", "40"), ("md", "–‡"), ("tex", r"--\textsuperscript{\ddag}")):
        assert (mark in to_file_text(disturbed, form)) is (form != "csv")
    assert not any("still disturbed" in sentence for sentence in notes(disturbed))  # nothing was measured again
    later = Results(disturbed.about, [*disturbed.rows, {**disturbed.rows[0], "repeat": 99}])
    assert any("still disturbed after 2 more turns" in sentence for sentence in notes(later))


def test_what_was_disturbed_is_measured_again_beside_plain_decoding(
    target: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A machine that stalls while "pld" runs on the first prompt, once."""
    monkeypatch.setattr("decoders.sweep.ledger.MAX_RETRIES", 2)

    def stall(sample: Any) -> float | None:
        if (sample.name, sample.prompt, sample.round) == ("pld", 0, 0):
            return 50.0
        return 100.0 * sample.tokens_per_step if sample.steps else None

    monkeypatch.setattr(Sample, "tokens_per_s", property(stall))
    results = run(target, plan(target, SMALL, made_cases()))
    more = [row for row in results.rows if row["repeat"] > 2]
    assert {(row["series"], row["place"]) for row in more} == {("plain", 0), ("pld", 0)}
    assert sorted({row["repeat"] for row in more})[:2] == [3, 4] and all(not row["trace"] for row in more)
    assert not any(cell.disturbed for line in tables(results)[1].lines for cell in line.cells)
    assert "‡" not in " ".join(notes(results)) and results.about["state"] == "complete"


SPOKEN = (("writing", 0), ("coding", 1), ("translation", 2), ("rag", 3))  # Spec-Bench's categories, and a run of each


def test_the_fields_form_pools_the_steps_of_recorded_runs() -> None:
    """Accepted lengths by hand: the integers of the runs' files, added up here."""
    files = sorted((ASSETS / "lab" / "draft-length" / "traces").glob("*.spectrace"))[: len(SPOKEN)]
    steps = [json.loads(zipfile.ZipFile(file).read("steps.json"))["accepted"] for file in files]
    plain = {"tokens_per_step": 1.0, "steps": 9.0}
    rows = [
        row(series, place, 1, **(measure(load(files[place])) if series == "x" else plain))
        | {"category": category, "tokens_per_s": speed * (place + 1), "speedup": speed / 10}
        for category, place in SPOKEN for series, speed in (("plain", 10.0), ("x", 12.0))
    ]  # fmt: skip
    rows[-1] |= {"tokens_per_s": 80.0, "speedup": 2.0}  # x on the last prompt
    results = Results(by_hand().about, rows)
    lengths, speedups = field_tables(results)
    assert lengths.lines(PLAIN)[0] == ["method", "MT", "Trans.", "RAG", "Overall", "same as plain"]
    groups = [steps[:2], steps[2:3], steps[3:], steps]
    pooled = [(sum(map(sum, group)) + sum(map(len, group))) / sum(map(len, group)) for group in groups]
    of_means = [sum(sum(one) / len(one) + 1 for one in group) / len(group) for group in groups]
    assert [cell.text for cell in lengths.rows[1][1:5]] == [f"{value:.2f}" for value in pooled]
    assert f"{pooled[0]:.2f}" != f"{of_means[0]:.2f}" and f"{pooled[3]:.2f}" != f"{of_means[3]:.2f}"
    assert [cell.text for cell in lengths.rows[0][1:5]] == ["1.00"] * 4
    assert lengths.formula == "(Σ accepted + steps) ÷ steps" and lengths.title.startswith("Tokens per step τ")
    assert [cell.text for cell in speedups.rows[1][1:5]] == ["1.20", "1.20", "2.00", "1.40"]
    assert speedups.rows[2] == ("prompts", "2", "1", "1", "4", "") and not speedups.rows[1][1].spread
    # means of 12, 24, 36, 80 and of 10, 20, 30, 40
    assert spec_bench_speedups(results) == {"x": pytest.approx(152 / 100)}
    said = " ".join(field_notes(results))
    assert "MT: MT-Bench's categories (writing, coding)" in said and "plain's mean tokens/s, overall: x 1.52." in said
    text = to_file_text(results, "md", field=True)
    for words in ("batch size 1", "greedy", "tiny (1 M parameters)", "pooled: Σ tokens ÷ Σ steps", "overall: x 1.52"):
        assert words in text, words
    old = [{k: v for k, v in one.items() if k != "steps"} for one in rows]  # files of before knew no steps
    assert field_tables(Results(by_hand().about, old))[0].rows[1][4].text == f"{of_means[3]:.2f}"


def test_what_has_to_be_known_is_said() -> None:
    said = " ".join(notes(by_hand()))
    for words in (
        "tiny (1 M parameters), float32 on x86_64, 2 cores, 1 of them used", "torch 2.0", "2026-11-21",
        "3 prompts (the examples), at most 96 new tokens, greedy, batch size 1 (one request at a time); 2 repeats",
        "† x: not lossless",
    ):  # fmt: skip
        assert words in said
    assert "not complete (cancelled)" in " ".join(notes(by_hand(state="cancelled")))
    assert "1 repeat: nothing is known of the spread" in " ".join(notes(by_hand(repeats=1)))


HOSTILE = "\\input{x} & 50% |<b>_\n=1"


def test_files_hold_the_same_numbers_and_names_are_text() -> None:
    made = by_hand()
    grid = list(csv.DictReader(io.StringIO(to_file_text(made, "csv"), newline="")))
    (overall,) = [r for r in grid if (r["metric"], r["task"]) == ("speedup", "overall")]
    assert (overall["prompts"], float(overall["x"]), float(overall["x low"])) == ("3", 2.83333, 2.63333)
    text = to_file_text(made, "md")
    assert "| overall | 3 | 1.00 | **2.83** (2.63–3.03) |" in text and "| task | prompts | plain | x † |" in text
    tex = to_file_text(made, "tex")
    assert r"overall & 3 & 1.00 & \textbf{2.83} {\scriptsize [2.63--3.03]} \\" in tex and tex.count(r"\toprule") == 2
    assert to_file_text(made, "md", ["steps"]).count("| task |") == 1
    with pytest.raises(UserError, match="choose of csv, tex, md"):
        to_file_text(made, "exe")
    bad = Results(made.about, [{**r, "series": HOSTILE, "category": HOSTILE, "prompt": HOSTILE} for r in ROWS])
    tex = to_file_text(bad, "tex")
    assert r"\textbackslash{}input\{x\} \& 50\% \textbar{}\textless{}b\textgreater{}\_ =1" in tex
    assert r"\input" not in tex
    body = [line for line in tex.splitlines() if line.endswith(r"\\")]
    assert {line.count(" & ") for line in body} == {2}
    text = to_file_text(bad, "md")
    assert r"\\input\{x\} \& 50% \|\<b\>\_ =1" in text and "<b>" not in text
    formula = Results(made.about, [{**r, "series": "=1+1", "category": "@x"} for r in ROWS])
    assert next(csv.reader(io.StringIO(to_file_text(formula, "csv"))))[4] == "'=1+1"


def test_a_batch_is_saved_and_opened_again(batch_results: tuple[Results, list[Trace]], tmp_path: Path) -> None:
    results, _ = batch_results
    results.save(tmp_path / "kept")
    again = Results.load(tmp_path / "kept")
    assert describe(again)["tables"] == describe(results)["tables"]
    assert [c.text for c in checks(again)] == [c.text for c in checks(results)] == ["6/6"] * 3


# --- the lab of a server ---

ASKED = {
    "batch": {"lines": [{"method": "pld", "params": {"k": "3"}}], "repeats": "2"}, "max_new_tokens": 6,
    "prompts": {"file": {"name": "my/set.jsonl", "text": "\n".join(
        json.dumps({"question_id": n, "category": task, "turns": ["the old lamp at the station " * 2]})
        for n, task in enumerate(("qa", "rag", "qa"))
    )}},
}  # fmt: skip


@pytest.fixture
def desk(target: Any) -> Iterator[Desk]:
    store = TraceStore()
    with at_work(Desk(store, Runner(store), Loader(lambda: target, name="tiny"), pages=pages())) as made:
        yield made


def wait(desk: Desk, key: str) -> dict[str, Any]:
    return until_over(lambda: desk.services["lab"].show(key), f"the batch {key}")


def test_a_batch_in_the_app(desk: Desk, steady: None) -> None:
    app = FastAPI()  # these routes alone: the whole page takes seconds to make
    add_page(app, desk.services["lab"])
    tell_errors(app)
    with TestClient(app) as client:
        assert client.post("/api/lab/estimate", json=ASKED).json()["runs"] == 2 + 2 * 3 * 3
        key = client.post("/api/lab/start", json=ASKED).json()["id"]
        shown = wait(desk, key)
        assert (shown["state"], shown["rows"], shown["failed"], shown["warnings"]) == ("complete", 12, 0, [])
        steps, speedup = shown["tables"]
        assert [line["task"] for line in steps["lines"]] == ["qa", "rag", "all"]
        assert steps["columns"] == ("plain", "pld")
        assert speedup["lines"][2]["cells"][1]["count"] == 6 and not speedup["lines"][2]["cells"][1]["disturbed"]
        other = client.get(f"/api/lab/results/{key}?metrics=kv_mb").json()
        assert [t["metric"] for t in other["tables"]] == ["kv_mb"] and other["rows"] == 12  # nothing ran again
        assert shown["about"]["prompts"] == "set.jsonl" and "(set.jsonl)" in " ".join(shown["remarks"])
        trace = steps["lines"][0]["cells"][1]["runs"][1]["trace"]
        assert desk.services["lab"].bring(trace)
        found = desk.store.get(trace).run
        assert found["title"] == "2 · pld" and found["method"]["params"]["k"] == 3
        for form, words in (("table", "overall"), ("tex", r"\toprule"), ("md", "| overall |"), ("csv", "tokens_per_s")):
            answer = client.get(f"/api/lab/results/{key}/download?format={form}&metrics=kv_mb")
            assert answer.status_code == 200 and words in answer.text, form
        assert client.get(f"/api/lab/results/{key}/download?format=tex&metrics=ranks").status_code == 422
        # another server, on the same folder, where the results are written after the last run
        about = desk.services["lab"].folder / key / ABOUT
        until(lambda: json.loads(about.read_text("utf-8"))["state"] == "complete", "the results are on disk")
        again = Desk(TraceStore(), Runner(TraceStore()), desk.loader, pages=pages())
        lab = again.services["lab"]
        assert lab.show(key)["tables"] == shown["tables"] and lab.listing("bo")[0]["name"] == "batch"
        again.end()


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"batch": {"lines": "pld"}}, "given as a list"),
        ({"batch": {"lines": [{"method": 3}]}}, "given as a list"),
        ({"batch": {"lines": [{"method": "pld", "params": {"k": [1]}}]}}, "no number and no short text"),
        ({"batch": {"lines": [{"method": "glide", "params": {"part": "/etc"}}]}}, "names a file"),
        ({"batch": {"lines": []}}, "at least one other method"),
        ({"batch": {"lines": [{"method": "pld"}], "repeats": "0"}}, "the number of repeats is '0'"),
        ({"metrics": ["outcomes"]}, "not one number per run"),
        ({"prompts": "/etc/passwd"}, "there are no prompts called"),
        ({"free": {"methods": ["glide"], "fixed": {"part": "/etc"}}, "batch": None}, "names a file"),
    ],
)
def test_what_a_page_asks_is_checked(desk: Desk, change: dict[str, Any], words: str) -> None:
    with pytest.raises(ValueError, match=".*") as caught:
        desk.services["lab"].start(ExperimentRequest(**{**ASKED, **change}), "ada")
    assert words in str(caught.value) and desk.services["lab"].listing("ada") == []


@pytest.mark.slow("a whole batch again, drawn")
def test_a_batch_takes_a_temperature(target: Any) -> None:
    """All runs draw from one seed: what matches the target's own draws writes plain decoding's text."""
    kept: list[Trace] = []
    warm = replace(batch([("pld", {}), ("recycling", {})], 2), max_new_tokens=8, temperature=1.0)
    results = run(target, plan(target, warm, made_cases()), keep=kept.append)
    assert {trace.run["sampling"]["temperature"] for trace in kept} == {1.0}
    assert {row["same"] for row in results.rows} == {1.0} and not any(row["verdict"] for row in results.rows)
    assert any("new tokens, temperature 1, batch size 1" in line for line in notes(results))
    greedy: list[Trace] = []
    run(target, plan(target, replace(warm, temperature=0.0), made_cases()), keep=greedy.append)
    assert [trace.output_ids for trace in kept] != [trace.output_ids for trace in greedy]


# --- the command ---


@pytest.fixture
def prompts(monkeypatch: pytest.MonkeyPatch, target: Any, tmp_path: Path) -> Path:
    monkeypatch.setattr("decoders.load_target", lambda *_, **__: target)
    monkeypatch.setattr("decoders.model.engines.machine.compiler", lambda: None)  # compiling takes minutes
    path = tmp_path / "set.jsonl"
    path.write_text(ASKED["prompts"]["file"]["text"])
    return path


@pytest.mark.slow("a whole batch again")
def test_the_same_from_the_shell(capsys: pytest.CaptureFixture[str], prompts: Path, desk: Desk, tmp_path: Path) -> None:
    files = [tmp_path / f"out.{form}" for form in ("csv", "tex", "md")]
    outs = [part for file in files for part in ("--out", file)]
    args = ("--prompts", prompts, "--methods", "pld", "--set", "pld.k=3", "--max-new-tokens", 6, "--repeats", 2)
    outs += ["--save", "My batch", "--metric", "speedup", "--json", tmp_path / "all.json"]
    assert specviz("bench", *args, *outs) == 0
    printed = capsys.readouterr().out
    assert "Speedup (×)" in printed and "same as plain" in printed and "kept as “My batch”" in printed
    (about,) = desk.services["lab"].listing("ada")
    assert (about["name"], about["title"], about["state"]) == ("batch", "My batch", "complete")
    shown = desk.services["lab"].show(about["id"])
    assert shown["profiles"][0]["heads"][-2:] == ["Overall", "same as plain"] and "a row per method" not in printed
    assert shown["rows"] == 12 and shown["checks"][1]["text"] == "6/6"
    assert shown["about"]["lines"][1]["params"]["k"] == 3
    assert [t["metric"] for t in shown["tables"]] == ["speedup"]
    assert json.loads((tmp_path / "all.json").read_text())["tables"] == json.loads(json.dumps(shown["tables"]))
    assert files[0].read_bytes().decode() == to_file_text(desk.services["lab"].results(about["id"]), "csv")
    assert r"\bottomrule" in files[1].read_text() and "| Overall |" in files[2].read_text()
    trace = shown["tables"][0]["lines"][0]["cells"][1]["runs"][0]["trace"]
    assert desk.services["lab"].bring(trace) and desk.store.get(trace).run["method"]["name"] == "pld"
    (steps,) = desk.services["lab"].show(about["id"], ["tokens_per_step"])["tables"]
    assert steps["lines"][2]["cells"][1]["mean"] >= 1


@pytest.mark.slow("a whole batch again")
def test_peers_and_no_trace_from_the_shell(
    capsys: pytest.CaptureFixture[str], prompts: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    from decoders.study.measure.stock import StockModel
    from tests.models import network

    monkeypatch.setattr(StockModel, "load", classmethod(lambda cls, *_: StockModel(network())))
    out = tmp_path / "out.csv"
    args = ("--prompts", prompts, "--methods", "pld", "--max-new-tokens", 6, "--repeats", 1, "--no-trace")
    assert specviz("bench", *args, "--peers", "--model", "x", "--out", out) == 0
    grid = list(csv.DictReader(io.StringIO(out.read_bytes().decode())))
    assert {"plain", "pld", "generate()"} < set(grid[0])
    (same,) = [r for r in grid if r["metric"] == "outputs_same_as_plain"]
    assert same["generate()"] == same["pld"] == "3" and float(grid[0]["pld"]) >= 1 and grid[0]["generate()"] == ""
    for wrong, words in (
        (("--out", tmp_path / "x.pdf"), "ends in one of .csv, .tex, .md"),
        (("--out", tmp_path / "no" / "x.md"), "there is no folder"),
        (("--metric", "speed"), "there is no metric 'speed' for a table"),
        (("--metric", "kv_mb"), "kv_mb is told by recorded runs alone"),
        (("--save", " "), "--save needs a name"),
        (("--peers", "--temperature", 1), "--peers is for greedy runs"),
    ):
        assert words in refusal(capsys, "bench", *args, *wrong)
