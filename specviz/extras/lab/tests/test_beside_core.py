"""The Lab beside the core: limits of users, recipes' numbers, results under every verifier, what its commands take."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from fastapi.testclient import TestClient

from decoders import Prompt, load
from decoders.folders import ASSETS
from decoders.prompt.files import PromptRecord
from decoders.study.attribute.quotes import sweep
from decoders.sweep.bench import SpeedSpread
from decoders.trace import metrics
from decoders.trace.speedup import expected_speedup
from specviz import cli
from specviz.commands import FIRST, common
from specviz.server.forms import Refusal
from specviz.server.limits import rules_for
from specviz.views.examples import examples
from specviz.views.known_quotes import QuotedRecord
from specviz.views.prompts import Case, cases, records
from tests import recordings
from tests.command import refusal, specviz
from tests.drafts import save_tiny_part
from tests.models import prompt_ids, tiny_target
from tests.stubs import StubDesk, client_of
from tests.test_attribution_page import ROW
from tests.test_cli import PROMPTS, TURNS
from tests.test_trackers import arrivals  # noqa: F401
from tests.waiting import until

from .. import bench_command as bench
from .. import lab_command as lab
from ..experiments import Experiment, Results, find_recipe, plan, points, run_experiment
from ..experiments.quantities import QUANTITIES
from ..experiments.quote_scores import MIN_RUNS

RUNS = (recordings.chain(), recordings.tree(), recordings.cape())


@pytest.fixture(scope="module")
def desk(module_home: Path) -> StubDesk:
    return StubDesk(gallery=RUNS)


@pytest.fixture
def public() -> Iterator[StubDesk]:
    desk = StubDesk(gallery=(recordings.chain(),))
    desk.keep_to(rules_for(public=True, accounts=False))
    yield desk


def test_a_public_server_trains_nothing(public: StubDesk) -> None:
    plan: Any = SimpleNamespace(experiment=SimpleNamespace(max_new_tokens=64), variants=(), runs=50)
    public.services["lab"].check(plan, 0)
    for changed, mine, said in (
        ({"variants": (1,)}, 0, "Nothing is trained on a public server"),
        ({"runs": 101}, 0, "at most 100"),
        ({}, 2, "2 of your experiments wait or go on"),
    ):
        with pytest.raises(Refusal, match=said):
            public.services["lab"].check(SimpleNamespace(**(vars(plan) | changed)), mine)


def test_visitors_without_cookies_list_and_cancel_nothing_of_each_other(
    public: StubDesk, monkeypatch: pytest.MonkeyPatch
) -> None:
    owners: list[str] = []
    listing = public.services["lab"].listing
    monkeypatch.setattr(public.services["lab"], "listing", lambda owner: owners.append(owner) or listing(owner))
    with client_of(public) as client:
        for _ in range(2):
            client.cookies.clear()
            client.get("/api/lab")
            assert not client.post("/api/lab/cancel", json={"id": "any"}).json()["done"]
    assert len(set(owners)) == 2 and all(owner.startswith("nobody:") for owner in owners)


@pytest.mark.slow("runs judged in the background; what a judgement says is tested in the first tier")
def test_a_line_whose_runs_cannot_be_judged_leaves_the_others_to_choose(
    client: TestClient, desk: StubDesk, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A run that is gone, or that cannot be judged, is a sentence beside the table; runs of the store are found."""
    runs = {"mine": RUNS[0].run["id"], "gone": "0" * 12}
    rows = [{"series": line, "method": "pld", "trace": key} for line, key in runs.items()]
    results = Results({}, [*rows, {**rows[1], "series": "mine"}])
    monkeypatch.setattr(desk.services["lab"], "results", lambda key: results)

    def ask(line: str) -> Any:
        url = f"/api/lab/judged/any?series={line}"
        return until(lambda: (answer := client.get(url).json()).get("state") != "judging" and answer, "the judgement")

    mine, gone = ask("mine"), ask("gone")
    assert mine["lines"] == gone["lines"] == ["mine", "gone"] and (mine["line"], gone["line"]) == ("mine", "gone")
    assert mine["runs"] == 1 and mine["rules"] and gone["runs"] == 0 and gone["rules"] == []
    assert gone["faults"] == [f"Run {'0' * 12} was left out: its recording is not here any more, or cannot be read."]
    assert mine["faults"][-1:] == gone["faults"]


def test_what_heads_take_is_counted_from_their_file(home: Path) -> None:
    """PPD's fig. 7a: 2 blocks of 64 × 64 and their biases, and no cache."""
    target = tiny_target("llama")
    save_tiny_part(target, "medusa", heads=3)
    planned = plan(target, find_recipe("ppd-fig7a"), [])
    (row,) = run_experiment(target, planned).rows
    assert "specviz train hydra" in planned.absent["Hydra"]
    trained = 3 * (64 * 64 + 64 + 64 * 64)
    assert row["series"] == "Medusa"
    assert row["trained_percent"] == row["memory_percent"] == pytest.approx(100 * trained / target.info["parameters"])

    cases = [Case("p", "chat", Prompt.from_ids(prompt_ids(3)))]
    speeds = run_experiment(target, plan(target, replace(find_recipe("ppd-fig1"), max_new_tokens=4), cases)).rows
    assert [(one["series"], one["memory_percent"]) for one in speeds] == [("Medusa", row["memory_percent"])]
    assert speeds[0]["speedup"] > 0 and not speeds[0]["error"]


@pytest.mark.parametrize(
    ("name", "chains"), [("6-class-docstring-glide", True), ("7-class-docstring-glide-cape", False)]
)
def test_a_speedup_is_expected_of_chains_alone(name: str, chains: bool) -> None:
    """Of CAPE's trees a position holds several tokens, and a verify forward more rows than the formula has."""
    trace = load(ASSETS / "gallery" / f"{name}.spectrace")
    values, expected = metrics.compute(trace), QUANTITIES["expected_speedup"].of(trace, "")
    if chains:
        assert expected == pytest.approx(expected_speedup(values["beta"], values["draft_cost"], 5))
    assert (expected is not None) == chains and values["beta"] and values["draft_cost"]


def test_table_10_in_the_lab(tmp_path: Path, home: Path) -> None:
    target = tiny_target("llama", seed=2)
    target.model.generation_config.eos_token_id = 1
    save_tiny_part(target, "glide")
    recipe = find_recipe("pldplus-table10")
    path = tmp_path / "q.jsonl"
    path.write_text("\n".join(json.dumps({**ROW, "unique_id": f"q{n}"}) for n in range(2)), "utf-8")
    found = cases(target.tokenizer, records(str(path), 5))
    assert [case.gold.id for case in found if case.gold] == ["q0", "q1"]
    kept = []
    planned = plan(target, Experiment(**{**vars(recipe), "lines": recipe.lines[::4], "max_new_tokens": 64}), found)
    results = run_experiment(target, planned, keep=kept.append)
    assert results.failures == 0 and len(kept) == 4 and all(trace.run["forced"] for trace in kept)
    assert len(results.rows) == 4 * 2 * len(MIN_RUNS) and {row["method"] for row in results.rows} == {"pld+h", "glide"}
    [point] = [
        p for p in points(results, ["f1"])
        if p["x"] == "2" and p["series"] == "PLD+ (h) · counted = whole quotations"
    ]  # fmt: skip
    gold = [case.gold for case in found if case.gold]
    expected = sweep([(kept[0], gold[0])], [2])[0].score.f1
    assert point["values"]["f1"]["mean"] == pytest.approx(expected) and point["count"] == 2
    demo = records("quotes", 3)
    assert len(demo) == 3 and all(isinstance(one, QuotedRecord) and one.gold for one in demo)
    with pytest.raises(ValueError, match="answers whose quotes are known"):
        plan(target, planned.experiment, cases(target.tokenizer, [PromptRecord("p", instruction="Do it.")]))


def test_a_recorded_sweep_sends_its_rows(arrivals, capsys):
    assert cli.main(["lab", "pldplus-fig4", "--recorded", "--log-to", "trackio"]) == 0
    assert [work for _, work, _, _ in arrivals][::len(arrivals) - 1] == ["init", "finish"] and len(arrivals) > 4
    assert all(numbers for _, work, (*numbers,), _ in arrivals if work == "log")


@pytest.fixture
def prompts(tmp_path: Path) -> str:
    path = tmp_path / "prompts.jsonl"
    path.write_text("".join(json.dumps(p) + "\n" for p in PROMPTS))
    return str(path)


def test_measuring_takes_the_examples_where_no_prompts_are_named() -> None:
    for model in ("bundled", "some/model"):
        args = cli.parser().parse_args(["bench", "--model", model, "--limit", "3"])
        wanted = [example.record.id for example in examples(model == "bundled")][:3]
        assert [record.id for record in common.prompt_records(args)] == wanted


@pytest.mark.slow("decodes prompts of several turns by both commands")
def test_every_user_turn_is_measured(capsys: Any, model: str, tmp_path: Path, home: Path) -> None:
    (tmp_path / "two.jsonl").write_text("".join(json.dumps(p) + "\n" for p in TURNS))
    data, names = tmp_path / "data.json", ["1", "1, turn 2", "1, turn 3", "2"]
    sweep = ("--prompts", tmp_path / "two.jsonl", "--model", model, "--max-new-tokens", 8, "--json", data)
    assert specviz("bench", *sweep, "--methods", "pld", "--repeats", 1) == 0
    assert "2 prompts in 4 turns" in " ".join(capsys.readouterr().out.split())
    measured = json.loads(data.read_text())
    assert measured["settings"]["prompts"] == 2 and measured["settings"]["turn_numbers"] == [1, 2, 3, 1]
    assert measured["tables"][0]["counts"] == "turns" and measured["tables"][0]["lines"][0]["prompts"] == 3

    assert specviz("lab", *sweep, "--method", "pld", "--vary", "k=2,4") == 0
    rows = json.loads(data.read_text())["rows"]
    assert [row["prompt"] for row in rows] == [name for name in names for _ in range(2)]
    assert [row["turn"] for row in rows] == [1, 1, 2, 2, 3, 3, 1, 1]
    assert json.loads(data.read_text())["turns"] == 4 and not any(row.get("error") for row in rows)


@pytest.mark.slow("test_bench.py has the same for the function")
def test_bench_measures_and_writes(
    capsys: Any, model: str, prompts: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, home: Path
) -> None:
    monkeypatch.setattr("decoders.model.engines.machine.compiler", lambda: None)  # compiling takes minutes
    out, page = tmp_path / "bench.json", tmp_path / "bench.html"
    args = ["--model", model, "--prompts", prompts, "--methods", "pld", "--max-new-tokens", 6, "--repeats", 1]
    assert specviz("bench", *args, "--peers", "--json", out, "--html", page, "--set", "pld.k=3") == 0
    printed = capsys.readouterr().out
    for words in (
        "plain ÷ generate()",
        "pld ÷ prompt lookup",
        "tracing on ÷ off",
        "tokens/s",
        "1 of 3 prompts was left out",
        "no C++ compiler was found",
    ):
        assert words in printed
    assert printed.count("tracing on ÷ off") == 1  # one line for all methods
    data = json.loads(out.read_text())
    assert data["schema"] == "specbench/1" and data["settings"]["methods"]["pld"]["k"] == 3
    assert data["settings"]["prompt_file"] == "prompts.jsonl" and str(tmp_path) not in out.read_text()
    outside = re.findall(r'(?:src|href)="?(?!data:)[^" >]{1,80}', page.read_text()[:3000] + page.read_text()[-20000:])
    assert page.stat().st_size > 1_000_000 and outside == []  # plotly itself is in the page
    assert specviz("bench", *args, "--no-trace", "--context", 40, "--limit", 1) == 0
    printed = capsys.readouterr().out
    assert "40–40 tokens" in printed and "tracing" not in printed and "generate()" not in printed


def test_a_sweep_of_ones_own_runs_on_the_examples() -> None:
    args = ["lab", "--method", "pld", "--vary", "k=2,4"]
    assert lab._experiment(cli.parser().parse_args(args)).prompts == "examples"
    assert lab._experiment(cli.parser().parse_args([*args, "--prompts", "demo"])).prompts == "demo"


def test_mistakes_of_a_benchmark_are_sentences(capsys: Any, model: str, prompts: str) -> None:
    for args, words in (
        (["bench", "--prompts", "x", "--repeats", "0"], "from 1 to 1000"),
        (["bench", "--prompts", prompts, "--context", 510, "--model", model], "do not fit the 512 tokens"),
    ):
        assert words in refusal(capsys, *args)


def test_older_spellings_are_taken_and_not_shown(capsys: Any) -> None:
    for command in ("lab", "bench"):
        for spelling in ("--methods", "--method"):
            assert cli.parser().parse_args([command, spelling, "pld"]).methods[0] == "pld"
        assert specviz(command, "--help") == 0 and not re.search(r"--method\b", capsys.readouterr().out)


def test_commands_stand_where_they_belong() -> None:
    lines = cli.commands_by_group().splitlines()
    measure = [line.split()[0] for line in lines[lines.index("measure:") + 1 :] if line.startswith("  ")]
    assert measure[:4] == ["verify", "bench", "lab", "acceptance"] and "specviz bench" in FIRST


def test_a_columns_numbers_have_the_same_decimals() -> None:
    values = [SpeedSpread(12.5, 12.0, 14.25, 4), None, SpeedSpread(0.5, 0.25, 0.75, 4)]
    assert bench.spreads("×", values) == ["12.50 (12.00–14.25)", "–", "0.50 (0.25–0.75)"]


def test_fewer_than_four_numbers_have_no_quartiles() -> None:
    numbers = [SpeedSpread.of([1.0, 2.0, 3.0]), SpeedSpread.of([1.0, 2.0, 3.0, 6.0]), None]
    assert [bench.spread(one, "{:.1f}".format) for one in numbers] == ["2.0", "2.5 (1.8–3.8)", "–"]
