"""The commands as a user types them: what they print, and one sentence with exit code 2 for every mistake."""

from __future__ import annotations

import json
import re
import runpy
import string
import subprocess
import sys
import types
from pathlib import Path

import pytest
import torch
from rich.console import Console

from decoders import load, methods, save
from decoders.model.files import catalog
from decoders.prompt.files import PromptRecord
from specviz import cli
from specviz.commands import COMMANDS, FIRST, GROUPS, common, options
from specviz.commands.calibrate import heat_map
from specviz.views.examples import examples
from specviz.words import column_texts, plural

from .command import refusal, specviz
from .models import tiny_tokenizer

torch.set_num_threads(1)  # toys: more threads only cost

PROMPTS = [
    {
        "question_id": 1,
        "category": "a",
        "turns": ["the old lamp at the station " + string.printable[:95] + " the old lamp at"],
    },
    {"id": "edit", "instruction": "Copy", "context": "def total(items): return sum(items)", "question": "def total"},
    {"id": "long", "turns": ["museum 10 lamps " * 200]},
]


@pytest.fixture
def prompts(tmp_path) -> str:
    path = tmp_path / "prompts.jsonl"
    path.write_text("".join(json.dumps(p) + "\n" for p in PROMPTS))
    return str(path)


pytestmark = pytest.mark.usefixtures("home")


def test_run_prints_a_summary_or_one_json_object(capsys, model, tmp_path):
    common_args = (
        "run",
        "--model",
        model,
        "--method",
        "pld",
        "--set",
        "k=4",
        "--set",
        "clip=on",
        "--max-new-tokens",
        12,
    )
    assert specviz(*common_args, "--prompt", "the old lamp the old", "--json") == 0
    result = json.loads(capsys.readouterr().out)
    assert list(result) == [
        "method", "tokens", "steps", "accepted", "tokens_per_step", "tokens_per_s", "lossless", "differs",
        "differs_from_plain", "speedup", "quality_f1", "quality_rouge_l", "quality_edit", "output_ids", "text",
    ]  # fmt: skip
    assert result["lossless"] is True and result["differs"] == 0 and result["quality_f1"] is None
    assert result["method"] == "pld" and result["tokens"] == len(result["output_ids"]) == 12
    assert result["tokens_per_step"] == pytest.approx((result["accepted"] + result["steps"]) / result["steps"])
    out = tmp_path / "run.spectrace"
    assert specviz(*common_args, "--prompt", "the old lamp the old", "--out", out) == 0
    printed = capsys.readouterr()
    assert (
        "pld: 12 tokens in" in printed.err
        and "tokens per step" in printed.err
        and str(out) in printed.err.replace("\n", "")
    )
    trace = load(out)
    assert trace.output_ids == result["output_ids"] and trace.run["method"]["params"]["k"] == 4
    assert specviz(*common_args, "--prompt", "the old lamp the old", "--out", out, "--json") == 0
    again = json.loads(capsys.readouterr().out)
    assert {**again, "tokens_per_s": 0} == {**result, "tokens_per_s": 0}


TURNS = [
    {"question_id": 1, "category": "writing", "turns": ["the old lamp the old", "the red door", "a museum"]},
    {"question_id": 2, "category": "qa", "turns": ["the old door"]},
]


def test_every_user_turn_is_decoded_behind_the_models_answer_to_the_one_before(capsys, model, tmp_path):
    """Spec-Bench and MT-Bench have two turns: run follows the method's own answers, sweeps plain decoding's."""
    (tmp_path / "two.jsonl").write_text("".join(json.dumps(p) + "\n" for p in TURNS))
    asked = ("--model", model, "--max-new-tokens", 8)
    one = ("run", *asked, "--method", "pld", "--prompt-file", tmp_path / "two.jsonl", "--json", "--compare")
    assert specviz(*one, "--out", tmp_path / "a.spectrace") == 0
    result = json.loads(capsys.readouterr().out)
    first, second, third = result["turns"]
    assert [turn["turn"] for turn in result["turns"]] == [1, 2, 3] and result["tokens"] == 24
    assert result["steps"] == sum(turn["steps"] for turn in result["turns"])
    assert result["output_ids"] == [*first["output_ids"], *second["output_ids"], *third["output_ids"]]
    assert result["tokens_per_step"] == result["accepted"] / result["steps"] + 1
    own = [turn["tokens"] / turn["tokens_per_s"] for turn in result["turns"]]
    plain = [seconds * turn["speedup"] for seconds, turn in zip(own, result["turns"], strict=True)]
    assert result["speedup"] == pytest.approx(sum(plain) / sum(own))
    trace = load(tmp_path / "a-turn2.spectrace")
    assert trace.run["turn"] == 2 and trace.output_ids == second["output_ids"]
    before = tiny_tokenizer().decode(trace.prompt_ids)
    answer = tiny_tokenizer().decode(first["output_ids"], skip_special_tokens=True).strip()
    assert before.index("the old lamp") < before.index(answer) < before.index("the red door")

    data = tmp_path / "data.json"
    sweep = ("--prompts", tmp_path / "two.jsonl", *asked, "--json", data)
    assert specviz("verify", *sweep, "--methods", "pld", "--no-generate") == 0
    assert "2 prompts in 4 turns" in " ".join(capsys.readouterr().out.split())
    verified = json.loads(data.read_text())
    names = ["1", "1, turn 2", "1, turn 3", "2"]
    assert [(p["id"], p["turn"]) for p in verified["prompts"]] == list(zip(names, [1, 2, 3, 1], strict=True))
    assert [outcome["total"] for outcome in verified["outcomes"]] == [0, 4]


@pytest.mark.slow("opens a model")
def test_run_compares_drafts_from_a_pool_and_measures_quality(capsys, model, tmp_path):
    (tmp_path / "pool.txt").write_text("the old lamp the old lamp\n\nthe old door", encoding="utf-8")
    (tmp_path / "latin.txt").write_bytes(b"caf\xe9")
    asked = ("run", "--model", model, "--prompt", "the old lamp the old", "--max-new-tokens", 12)
    lossy = (*asked, "--method", "casd", "--set", "delta=0", "--pool", tmp_path / "pool.txt", "--reference", "the old")
    assert specviz(*lossy, "--compare", "--json") == 0
    result = json.loads(capsys.readouterr().out)
    assert result["lossless"] is False and result["speedup"] > 0 and 0 <= result["quality_f1"] <= 1
    assert (result["differs"] > 0) == (result["differs_from_plain"] > 0)
    assert specviz(*lossy, "--compare") == 0
    said = capsys.readouterr().err
    assert "lossy: " in said and f"it differs by {plural(result['differs_from_plain'], 'token')}" in said
    assert specviz(*asked, "--method", "pld", "--compare") == 0
    assert "identical to plain decoding" in capsys.readouterr().err
    assert "UTF-8" in refusal(capsys, *asked, "--method", "casd", "--pool", tmp_path / "latin.txt")
    assert "of no use to pld" in refusal(capsys, *asked, "--method", "pld", "--pool", tmp_path / "pool.txt")
    assert "needs a context" in refusal(capsys, *asked, "--method", "casd")


def test_run_writes_a_given_answer(capsys, model, tmp_path):
    answer = "the old lamp at the old door"
    record = {"instruction": "Copy.", "context": [f"{answer} was red"], "question": "?", "reference": answer}
    (tmp_path / "one.jsonl").write_text(json.dumps(record) + "\n")
    asked = ("run", "--model", model, "--method", "llma", "--prompt-file", tmp_path / "one.jsonl", "--forced")
    out = tmp_path / "forced.spectrace"
    assert specviz(*asked, "--json", "--out", out) == 0
    result = json.loads(capsys.readouterr().out)
    assert result["forced"] is True and result["text"].strip() == answer and result["accepted"] > 0
    trace = load(out)
    assert trace.run["forced"] is True and list(trace.output_ids) == result["output_ids"]
    assert specviz(*asked) == 0 and "the answer was given" in capsys.readouterr().err
    assert "--reference" in refusal(capsys, "run", "--model", model, "--prompt", "a", "--forced")
    assert "leave --compare" in refusal(capsys, *asked, "--compare")


@pytest.mark.slow("opens a model")
def test_run_takes_prompt_files_and_samples_by_seed(capsys, model, prompts, tmp_path):
    plain = tmp_path / "plain.txt"
    plain.write_text("the old lamp")
    outputs = {}
    for name, extra in {
        "file": ["--prompt-file", plain],
        "text": ["--prompt", "the old lamp"],
        "chat": ["--prompt", "the old lamp", "--chat"],
        "second": ["--prompt-file", prompts, "--index", 1],
        "seed 1": ["--prompt", "the old lamp", "--temperature", 1, "--seed", 1, "--top-k", 9, "--top-p", 0.9],
        "again 1": ["--prompt", "the old lamp", "--temperature", 1, "--seed", 1, "--top-k", 9, "--top-p", 0.9],
        "seed 2": ["--prompt", "the old lamp", "--temperature", 1, "--seed", 2, "--top-k", 9, "--top-p", 0.9],
    }.items():
        assert specviz("run", "--model", model, "--max-new-tokens", 8, "--json", *extra) == 0
        outputs[name] = json.loads(capsys.readouterr().out)["output_ids"]
    assert outputs["file"] == outputs["text"] != outputs["chat"]
    assert outputs["seed 1"] == outputs["again 1"] != outputs["seed 2"]


@pytest.mark.parametrize(
    ("output", "template", "chat", "is_hint"),
    [([7], "t", False, True), ([], "t", False, True), ([7], "t", True, False), ([7], None, False, False),
     ([5], "t", False, False), ([5, 7], "t", False, False)],
)  # fmt: skip
def test_a_chat_model_that_ends_at_once_is_given_its_template(output, template, chat, is_hint):
    target = types.SimpleNamespace(stop_ids=(7,), tokenizer=types.SimpleNamespace(chat_template=template))
    args = types.SimpleNamespace(chat=chat)
    hint = common.template_hint(args, PromptRecord(id="prompt", text="Repeat: lamp"), target, output)
    assert ("--chat" in hint) is is_hint
    assert not common.template_hint(args, PromptRecord(id="prompt", instruction="Repeat"), target, output)


def test_methods_lists_papers_and_explains_one(capsys, monkeypatch, model):
    with monkeypatch.context() as patch:
        patch.setattr(common, "console", lambda **_: Console(file=sys.stdout, width=250))  # no sentence is wrapped
        assert specviz("methods", "--model", model) == 0
    lines = capsys.readouterr().out.splitlines()
    for method in methods().values():
        (row,) = (i for i, line in enumerate(lines) if line.startswith(f"│ {method.name} "))
        assert method.title in lines[row] and method.summary in lines[row] and method.paper in lines[row + 1]
        assert ("lossless" if method.lossless else "lossy") in lines[row].split("│")[3]
    assert specviz("methods", "pld", "--model", model) == 0
    explained = capsys.readouterr().out
    assert "max_ngram" in explained and "a whole number from 1 to 128" in explained and "Missing" not in explained


@pytest.mark.slow("opens a model")
def test_methods_says_which_parts_are_missing(capsys, model):
    """A model that nothing was trained for lacks every part; the bundled one has its own."""
    assert specviz("methods", "--model", model) == 0
    toy = capsys.readouterr().out
    assert "ppd: there is no set of prompt tokens for toy:" in toy
    assert specviz("methods", "glide", "--model", model) == 0
    assert "Missing: there is no GLIDE draft model for toy" in capsys.readouterr().out
    assert specviz("methods") == 0
    assert toy.count("missing") > capsys.readouterr().out.count("missing") >= 1


def test_methods_are_listed_without_a_model(capsys, monkeypatch, tmp_path):
    monkeypatch.setattr(catalog, "BUNDLED_FOLDER", tmp_path / "gone")
    assert specviz("methods") == 0
    listed = capsys.readouterr().out
    assert "pld+h" in listed and "Which parts are missing is not known: the bundled target is not there" in listed


def test_verify_says_identical(capsys, model, prompts, tmp_path):
    out = tmp_path / "verify.json"
    assert specviz("verify", "--model", model, "--prompts", prompts, "--max-new-tokens", 10, "--json", out) == 0
    printed = capsys.readouterr().out
    assert (
        "generate()" in printed
        and "2/2" in printed
        and "ok: every output is identical (2 prompts, 10 tokens, float32)" in printed
    )
    assert "1 of 3 prompts was left out: with 10 new tokens it does not fit toy's context of 512" in " ".join(
        printed.split()
    )
    data = json.loads(out.read_text())
    assert data["failed"] == 0 and {o["method"] for o in data["outcomes"]} >= {"plain", "pld", "pld+h", "pld+a"}
    assert (
        specviz(
            "verify", "--model", model, "--prompts", prompts, "--methods", "pld,pld+h", "--no-generate", "--limit", 1,
            "--engine", "auto", "--json", out,
        )
        == 0
    )  # fmt: skip
    assert "pld+a" not in (second := capsys.readouterr().out)
    assert "steps by engine" not in printed and "steps by engine" in " ".join(second.split())
    told = json.loads(out.read_text())["outcomes"]
    assert [one["engines"] for one in told] == [{"eager": one["steps"]} for one in told]


@pytest.mark.slow("every method once more")
def test_verify_gives_every_prompt_a_text_to_draft_from(capsys, model, prompts, tmp_path):
    """llma and rest draft from the answers themselves here, and are told so; a method that takes none is refused it."""
    pool, out = tmp_path / "answers.txt", tmp_path / "verify.json"
    args = ("--model", model, "--prompts", prompts, "--no-generate", "--limit", 2, "--max-new-tokens", 12)
    named = ("verify", "--methods", "llma,rest", "--set", "rest.shortest_suffix=1")
    written = []
    for index in range(2):
        run = ("run", "--method", "plain", "--model", model, "--prompt-file", prompts, "--index", index)
        assert specviz(*run, "--max-new-tokens", 12, "--json") == 0
        written.append(json.loads(capsys.readouterr().out)["text"])
    pool.write_text("\n".join(written), "utf-8")
    steps = []
    for given in ([], ["--pool", pool]):
        assert specviz(*named, *given, "--json", out, *args) == 0
        told = json.loads(out.read_text("utf-8"))
        assert told["pool"] == (given[1].name if given else None)
        outcomes = {one["method"]: one for one in told["outcomes"]}
        assert all(outcomes[name]["identical"] == 2 for name in ("llma", "rest"))
        steps.append([outcomes[name]["tokens_per_step"] for name in ("llma", "rest")])
    assert steps[0] == [1, 1] and min(steps[1]) > 1
    assert specviz("verify", "--methods", "pld", "--pool", pool, *args) == 2
    assert "--pool is of no use to pld" in capsys.readouterr().err


def test_verify_tells_of_every_prompt_and_of_every_category(capsys, model, tmp_path):
    path, out = tmp_path / "tasks.jsonl", tmp_path / "verify.json"
    turns = [("a", "qa"), ("b", "qa"), ("c", "qa"), ("d", "maths"), ("e", "")]
    lines = [{"question_id": i, "category": c, "turns": [f"the old lamp {i} the old lamp"]} for i, c in turns]
    path.write_text("".join(json.dumps(line) + "\n" for line in lines))
    args = ("verify", "--model", model, "--prompts", path, "--methods", "pld", "--limit", 4, "--max-new-tokens", 6)
    assert specviz(*args, "--by-category", "--json", out) == 0
    captured = capsys.readouterr()
    told = captured.err.splitlines()
    assert [line.split(",")[0] for line in told] == [
        "1 of 4: prompt a (qa)", "2 of 4: prompt d (maths)", "3 of 4: prompt e", "4 of 4: prompt b (qa)"
    ]  # fmt: skip
    assert all("2 of 2 outputs identical; " in line and line.endswith(" s") for line in told)
    rows = [[cell.strip() for cell in line.split("│")[1:-1]] for line in captured.out.splitlines() if "│" in line]
    assert rows[-1] == ["prompts", "2", "1", "1", "4"] and [row[0] for row in rows[-3:-1]] == ["plain", "pld"]
    assert "QA ┃ maths ┃ – ┃ Overall" in " ".join(captured.out.split())
    data = json.loads(out.read_text())
    assert [prompt["id"] for prompt in data["prompts"]] == ["a", "d", "e", "b"]
    assert [run["prompt"] for run in data["outcomes"][0]["runs"]] == [0, 1, 2, 3]
    assert specviz(*args, "--temperature", 1, "--seed", 2) == 0
    printed = capsys.readouterr().out
    assert "ok: every output is identical (4 prompts, 6 tokens, float32, temperature 1)" in printed
    assert "generate()" not in printed and "qa" not in printed


def test_a_table_too_wide_for_its_numbers_is_printed_in_parts(capsys):
    heads = ["task", "prompts", *(f"method{n}" for n in range(24))]
    rows = [["text [b]of[/b] long lines", 1, *(f"{n}.25" for n in range(24))], ["all", 2, *(["–"] * 24)]]
    common.show_table(heads, rows, "Speed", right=2)
    printed = capsys.readouterr().out
    assert "…" not in printed and max(map(len, printed.splitlines())) <= 130
    parts = printed.split("Speed")[1:]
    assert len(parts) > 1 and all("prompts" in part and "[b]of[/b]" in part for part in parts)
    assert re.findall(r"\d+\.25", printed) == rows[0][2:] and re.findall(r"method\d+", printed) == heads[2:]
    common.show_table(heads[:4], rows, "Speed", right=2)
    assert capsys.readouterr().out.count("Speed") == 1


def test_long_commands_are_not_silent_in_a_pipe(capsys, monkeypatch):
    from specviz.commands import common

    clock = iter([0.0, 5.0, common.LINE_SECONDS + 1.0, common.LINE_SECONDS + 2.0, common.LINE_SECONDS + 2.0, 99.0])
    monkeypatch.setattr(common.time, "monotonic", lambda: next(clock))
    with common.progress_bar("measuring") as progress:
        for done in (1, 1200, 1201):
            progress(done, 2400)
    assert capsys.readouterr().err == "measuring: 1,200 of 2,400\n"


def test_verify_fails_with_1_on_a_difference(capsys, model, prompts, monkeypatch):
    from decoders.study.measure.stock import StockModel

    monkeypatch.setattr(StockModel, "generate", lambda self, tokens, n, stop_ids: [7] * n)
    assert (
        specviz(
            "verify", "--model", model, "--prompts", prompts, "--methods", "plain", "--limit", 1, "--max-new-tokens", 4
        )
        == 1
    )
    printed = capsys.readouterr().out
    assert "FAILED: 1 output differs" in printed and "prompt 1, token 0" in printed and "top-2 gap" in printed


def test_verify_says_what_half_precision_promises(capsys, model, prompts):
    args = ("--prompts", prompts, "--methods", "pld", "--limit", 1, "--max-new-tokens", 4)
    specviz("verify", "--model", model, "--dtype", "bfloat16", *args)
    printed = " ".join(capsys.readouterr().out.split())
    assert "bfloat16 promises that no written token lies more than 0.5 below the model's best logit" in printed
    assert "it cannot promise equal outputs" in printed
    specviz("verify", "--model", model, *args)
    assert "promise" not in capsys.readouterr().out


def test_a_near_tie_carries_its_number():
    from decoders.study.judge.divergences import Divergence
    from decoders.sweep.lossless import MethodCheck
    from specviz.commands import verify

    tie = Divergence(3, 5, 6, "near tie", gap=0.03, shortfall=0.042, tolerance=0.5)
    said = verify._describe(tie, ["a"], types.SimpleNamespace(tokenizer=None))
    assert said.endswith("top-2 gap 0.03 (near tie: no token lies more than 0.042 below the best logit)")
    outcomes = [MethodCheck("plain", "generate()", divergences=[tie])]
    assert "the farthest here lies 0.042 below" in verify._half_precision(outcomes, "bfloat16", None)
    assert verify._half_precision(outcomes, "float32", None) == ""


def test_a_columns_numbers_have_the_same_decimals():
    assert column_texts("tokens", [1.0, 2.256]) == ["1.00", "2.26"] and column_texts("share", [0.5, None]) == [
        "50.0",
        "–",
    ]


@pytest.mark.slow("calibrates a model")
def test_calibrate_is_kept_and_used(capsys, model, prompts, tmp_path):
    page = tmp_path / "heads.html"
    assert specviz("calibrate", "--model", model, "--prompts", prompts, "--max-new-tokens", 40, "--html", page) == 0
    printed = capsys.readouterr().out
    assert "(best)" in printed and "Copies per layer" in printed
    (kept,) = (tmp_path / "home" / "calibration").iterdir()
    assert "Copying heads" in page.read_text()
    best = json.loads(kept.read_text())["best_layer"]
    trace = tmp_path / "a.spectrace"
    assert specviz("run", "--model", model, "--prompt", "the the", "--max-new-tokens", 2, "--out", trace) == 0
    assert load(trace).run["reads"]["hidden_layer"] == best


def test_heat_map_shades_by_count():
    assert heat_map(((0, 4), (2, 1))) == ["   0   ██", "   1 ▒▒░░"]


def test_a_recorded_run_is_replayed_under_another_rule(capsys, model, tmp_path):
    """Numbers of ``specviz judge`` carry a note on position bias, and the command that runs the whole text."""
    from decoders.names import POSITION_BIAS

    trace = str(tmp_path / "run.spectrace")
    common = ["--model", model, "--prompt", "the old lamp the old lamp", "--max-new-tokens", "40"]
    common += ["--temperature", ".7"]
    assert specviz("run", *common, "--methods", "pld", "--out", trace) == 0
    capsys.readouterr()
    assert specviz("judge", trace) in (0, 2)
    judged = " ".join(capsys.readouterr().out.split())
    assert POSITION_BIAS in judged and "specviz run --again TRACE --verifier NAME" in judged
    assert specviz("run", "--model", model, "--again", trace, "--verifier", "fly", "--json") == 0
    told = json.loads(capsys.readouterr().out)
    assert told["method"] == "pld@fly" and len(told["steps"]) == 2 and told["steps"][1] > 0


def test_a_recorded_run_is_decoded_again_and_compared(capsys, model, tmp_path):
    trace = tmp_path / "a.spectrace"
    run = ("--prompt", "the old lamp at the old", "--max-new-tokens", 9, "--method", "pld", "--set", "k=3")
    assert specviz("run", "--model", model, *run, "--temperature", 0.9, "--seed", 4, "--out", trace) == 0
    capsys.readouterr()
    assert specviz("run", "--model", model, "--again", trace) == 0
    assert "the same 9 tokens, in" in capsys.readouterr().err
    other = load(trace)
    other.run["sampling"]["seed"] += 1
    save(other, trace)
    assert specviz("run", "--model", model, "--again", trace) == 1
    assert "different from output token" in capsys.readouterr().err
    assert "settled by the recorded run" in refusal(capsys, "run", "--model", model, "--again", trace, "--set", "k=2")


def test_the_bare_command_shows_what_people_need_first(capsys):
    assert specviz() == 0
    told = capsys.readouterr().out
    first = [line.split()[1] for line in told.splitlines() if line.startswith("  specviz")]
    assert first[:4] == ["app", "run", "compare", "verify"] and len(first) == len(FIRST)
    assert "specviz --help" in told and all(line.split()[1] in COMMANDS for line in FIRST)


def test_the_package_is_the_command(monkeypatch, capsys):
    monkeypatch.setattr(sys, "argv", ["specviz"])
    with pytest.raises(SystemExit, match="^0$"):
        runpy.run_module("specviz", run_name="__main__")
    assert "specviz app" in capsys.readouterr().out


def test_measuring_takes_the_examples_where_no_prompts_are_named():
    for model in ("bundled", "some/model"):
        args = cli.parser().parse_args(["verify", "--model", model, "--limit", "3"])
        wanted = [example.record.id for example in examples(model == "bundled")][:3]
        assert [record.id for record in common.prompt_records(args)] == wanted
        assert args.prompts.name == ("bundled.jsonl" if model == "bundled" else "examples.jsonl")





def test_steps_are_counted_from_one(capsys, model, tmp_path):
    trace, page = tmp_path / "a.spectrace", tmp_path / "a.html"
    assert specviz("run", "--model", model, "--prompt", "the old", "--max-new-tokens", 3, "--out", trace) == 0
    assert specviz("export", trace, "--html", page, "--step", 1) == 0 and 'data-step="0"' in page.read_text()
    assert specviz("export", trace, "--html", page, "--step", 2) == 0 and 'data-step="1"' in page.read_text()
    capsys.readouterr()
    for command in ("export", "whatif"):
        refusal(capsys, command, trace, "--step", 0)
        assert specviz(command, "--help") == 0 and "from 0" not in capsys.readouterr().out


def test_export_writes_one_page(capsys, model, tmp_path):
    trace, page = tmp_path / "a.spectrace", tmp_path / "a.html"
    assert specviz("run", "--model", model, "--prompt", "the old", "--max-new-tokens", 3, "--out", trace) == 0
    assert specviz("export", trace, "--html", page) == 0
    assert page.read_text().startswith("<!doctype html>")
    capsys.readouterr()
    assert "--step 99 is out of range" in refusal(capsys, "export", trace, "--html", page, "--step", 99)
    (tmp_path / "bad.spectrace").write_bytes(b"PK nonsense")
    refusal(capsys, "export", tmp_path / "bad.spectrace", "--html", tmp_path / "b.html")
    refusal(capsys, "export", tmp_path / "none.spectrace", "--html", tmp_path / "b.html")
    assert not (tmp_path / "b.html").exists()


def test_app_and_view_call_the_server(monkeypatch, tmp_path):
    calls = []
    server = types.ModuleType("specviz.app")
    server.serve = lambda *a, **k: calls.append((a, k))  # the real one imports the web framework
    monkeypatch.setitem(sys.modules, "specviz.app", server)
    given = ("--weights", "fp32", "--port", 0, "--auth-file", "users", "--limit", "runs=5")
    assert specviz("app", "--model", "x", *given) == 0
    assert specviz("view", tmp_path / "a.spectrace", "--open") == 0
    shared = {"auth_file": Path("users"), "public": False, "limits": {"runs": "5"}, "pickers": [], "allow_hosts": []}
    shared["root_path"] = ""
    assert calls[0][0] == ("x", "127.0.0.1", 0, None, False)
    opening = dict.fromkeys(("device", "dtype", "drafter", "engine", "threads", "backends"))
    assert [mount(None, None) for mount in calls[0][1].pop("mounts")] in ([], [None])
    assert calls[0][1] == opening | shared | {"weights": "fp32", "read_only": False}
    assert calls[1][0] == (None, "127.0.0.1", 7860)
    alone = shared | {"auth_file": None, "limits": {}}
    assert calls[1][1] == {"trace": tmp_path / "a.spectrace", "open_browser": True} | alone
    assert specviz("app", "--backends", "local:2", "--threads", 3) == 0
    assert (calls[2][1]["backends"].count, calls[2][1]["backends"].threads_each) == (2, 3)


def test_in_a_space_the_app_is_public_and_read_only_until_a_model_is_named(monkeypatch, capsys):
    calls = []
    server = types.ModuleType("specviz.app")
    server.serve = lambda *a, **k: calls.append((a, k))
    monkeypatch.setitem(sys.modules, "specviz.app", server)
    monkeypatch.delenv("SPECVIZ_MODEL")
    monkeypatch.setenv("SPACE_ID", "me/specviz")
    monkeypatch.setenv("GRADIO_SERVER_PORT", "7861")
    assert specviz("app") == 0
    monkeypatch.setenv("SPECVIZ_MODEL", "bundled")
    assert specviz("app") == 0 and specviz("app", "--read-only") == 0
    assert [args[1:3] for args, _ in calls] == [("0.0.0.0", 7861)] * 3
    assert [(more["public"], more["read_only"]) for _, more in calls] == [(True, True), (True, False), (True, True)]
    assert "--read-only loads no model" in refusal(capsys, "app", "--read-only", "--model", "x")


def test_backends_that_make_no_sense_are_refused(capsys, tmp_path):
    assert "names no backends" in refusal(capsys, "app", "--backends", "two")
    assert "add --model, too" in refusal(capsys, "app", "--backends", "local:2", "--trace", tmp_path / "a.spectrace")


@pytest.mark.parametrize(
    ("args", "words"),
    [
        (["rum"], "there is no command 'rum': choose one of app, run, compare"),
        (["run"], "--prompt-file --prompt --again is required"),
        (["run", "--prompt", "a", "--prompt-file", "b"], "not allowed with argument"),
        (["run", "--prompt", "a", "--methd", "pld"], "--methd"),
        (["run", "--prompt", "  "], "the prompt is empty"),
        (["run", "--prompt", "a", "--method", "pdl"], "there is no method 'pdl': choose one of plain, pld"),
        (["run", "--prompt", "a", "--method", "pld", "--set", "q=1"], "unknown parameter 'q'"),
        (["run", "--prompt", "a", "--method", "pld", "--set", "k=0"], "k='0' is out of range: a whole number from 1"),
        (["run", "--prompt", "a", "--method", "pld", "--set", "k"], "not of the form name=value"),
        (["run", "--prompt", "a", "--set", "k=1", "--set", "k=2"], "gives k twice"),
        (["run", "--prompt", "a", "--max-new-tokens", "0"], "0 is out of range: a whole number of at least 1"),
        (["run", "--prompt", "a", "--max-new-tokens", "ten"], "'ten' is not allowed: a whole number"),
        (["run", "--prompt", "a", "--temperature", "-1"], "'-1' is out of range: a number from 0 to 10"),
        (["run", "--prompt", "a", "--methods", "pld", "casd"], "specviz run: unrecognized arguments: casd"),
        (["run", "--prompt", "a", "--methods", "pld", "--methods", "casd"], "names pld and casd"),
        (["run", "--prompt", "a", "--methods", "pld", "--set", "pld+h.k=1"], "and these run: pld"),
        (["compare"], "nothing to compare: give --prompt TEXT"),
        (["compare", "a.spectrace", "--prompt", "a"], "recorded runs and a prompt are given: leave one out"),
        (["compare", "a.spectrace", "--methods", "pld"], "for runs that are made now"),
        (["compare", "/no/a.spectrace", "b"], "a.spectrace cannot be opened"),
        (["run", "--prompt", "a", "--top-p", "0"], "top_p=0.0 is out of range"),
        (["run", "--prompt", "a", "--out", "/no/such/folder/x.spectrace"], "there is no folder /no/such/folder"),
        (["run", "--prompt-file", "/no/such/file.txt"], "there is no prompt file"),
        (["run", "--prompt", "a", "--model", "/no/such/model"], "there is no model folder"),
        (["verify", "--prompts", "/no/such.jsonl"], "there is no prompt file"),
        (["verify", "--prompt", "x"], "--prompt"),
        (["methods", "nope"], "there is no method 'nope'"),
        (["app", "--port", "70000"], "from 0 to 65535"),
    ],
)  # fmt: skip
def test_a_mistake_gives_one_sentence_and_2(capsys, args, words):
    assert words in refusal(capsys, *args)


def test_mistakes_that_need_a_model(capsys, model, prompts, tmp_path):
    bad = tmp_path / "bad.jsonl"
    bad.write_text('{"turns": ["a"]}\n{"turn": "b"}\n')
    for args, words in (
        (["verify", "--prompts", bad], f"{bad}, line 2: "),
        (["verify", "--prompts", prompts, "--methods", "pld", "nope"], "there is no method 'nope'"),
        (["verify", "--prompts", prompts, "--methods", "pld", "pld+h", "--set", "q=3"], "none of pld, pld+h has"),
        (["verify", "--prompts", prompts, "--methods", "pld", "--set", "rest.k=3"], "these run: pld"),
        (["verify", "--prompts", prompts, "--set", "pld.k=x"], "k='x' is not allowed"),
        (["calibrate", "--prompts", prompts, "--max-new-tokens", 600], "no prompt can be used"),
        (["run", "--prompt-file", prompts, "--index", 3], "--index 3 is out of range"),
        (["run", "--prompt-file", prompts, "--index", 2, "--max-new-tokens", 5], "512"),
        (["run", "--prompt", "a", "--dtype", "int3"], "dtype 'int3' is unknown"),
        (["run", "--prompt", "a", "--device", "warp"], "device 'warp'"),
    ):
        assert words in refusal(capsys, *args, "--model", model)


def test_a_missing_package_is_named(capsys, monkeypatch):
    monkeypatch.setitem(sys.modules, "torch_that_is_missing", None)

    def missing(args):
        import torch_that_is_missing  # noqa: F401

    monkeypatch.setattr("specviz.commands.methods.run", missing)
    parser = cli.parser()
    monkeypatch.setattr(cli, "parser", lambda: parser)
    assert "torch_that_is_missing is not installed" in refusal(capsys, "methods")


def test_a_bug_keeps_its_traceback(monkeypatch):
    def deep(args):
        json.loads("{")

    for run, kind in ((deep, ValueError), (lambda args: {}["x"], KeyError)):
        monkeypatch.setattr("specviz.commands.methods.run", run)
        with pytest.raises(kind):
            cli.main(["methods"])


def test_interrupting_is_not_an_error_message(capsys, monkeypatch):
    def stop(args):
        raise KeyboardInterrupt

    monkeypatch.setattr("specviz.commands.methods.run", stop)
    assert specviz("methods") == 130 and capsys.readouterr().err == "stopped\n"


def test_the_help_names_every_command(capsys):
    assert specviz("--help") == 0
    text = capsys.readouterr().out
    groups = [part.split(":\n")[0] for part in text.split("\n\n") if ":\n  " in part]
    assert groups == ["options", *GROUPS] and list(GROUPS) == ["use", "measure", "share", "build"]
    for command, line in COMMANDS.items():
        assert re.search(rf"^  {command} +{re.escape(line)}$", text, re.MULTILINE)
        assert specviz(command, "--help") == 0
    assert specviz("--version") == 0


def test_the_help_imports_no_command():
    """It stays quick: nothing is imported but what parses arguments."""
    code = "import sys; from specviz import cli; cli.parser().format_help(); print(*sys.modules)"
    loaded = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout.split()
    assert [name for name in loaded if name.startswith("specviz.commands.")] == []
    assert not {"torch", "rich", "fastapi", "numpy"} & set(loaded)


@pytest.mark.parametrize(
    ("pairs", "names", "of"),
    [
        (["k=3"], ["pld", "plain", "pld+h"], {"pld": {"k": "3"}, "plain": {}, "pld+h": {"k": "3"}}),
        (["k=3", "pld.k=4"], ["pld", "pld+h"], {"pld": {"k": "4"}, "pld+h": {"k": "3"}}),
        (["pld.k=4", "k=3"], ["pld"], {"pld": {"k": "4"}}),
        (["nope=1"], ["pld"], {"pld": {"nope": "1"}}),  # which make_params refuses, with the names that there are
    ],
)
def test_parameters_are_of_one_method_or_of_all_that_have_them(pairs, names, of):
    assert options.sets_of(pairs, names) == of


def test_older_spellings_are_taken_and_not_shown(capsys, model):
    """``--method``, once and several times, in every command that takes methods."""
    parser = cli.parser()
    for command, rest in {
        "run": ["--prompt", "a"], "whatif": ["t"], "attribute": ["--prompt", "a"],
        "verify": [], "compare": ["--prompt", "a"],
    }.items():  # fmt: skip
        for spelling in ("--methods", "--method"):
            assert parser.parse_args([command, spelling, "pld", *rest]).methods[0] == "pld"
        assert specviz(command, "--help") == 0 and not re.search(r"--method\b", capsys.readouterr().out)
    twice = parser.parse_args(["verify", "--method", "pld", "--method", "casd"])
    assert twice.methods == ["pld", "casd"] == parser.parse_args(["verify", "--methods", "pld", "casd"]).methods


def test_comparing_says_who_wins_as_the_page_does(capsys, model, tmp_path):
    """Lanes, numbers and checks are those of the page's own functions; recorded runs give the same without a model."""
    from specviz.pages.compare.claim import claim_of
    from specviz.pages.compare.outcome import numbers_of

    asked = ("--model", model, "--prompt", "the old lamp the old lamp the old", "--max-new-tokens", 12)
    methods = ("--methods", "pld", "recycling", "--set", "k=3")
    assert specviz("compare", *asked, *methods, "--out", tmp_path / "runs", "--json") == 0
    told = json.loads(capsys.readouterr().out)
    assert [lane["method"] for lane in told["lanes"]] == ["plain", "pld", "recycling"]
    assert all(lane["output"]["state"] == "identical" for lane in told["lanes"])
    traces = {name: load(tmp_path / "runs" / f"{name}.spectrace") for name in ("plain", "pld", "recycling")}
    all_numbers = json.loads(json.dumps(numbers_of(traces)))
    for lane, (name, trace) in zip(told["lanes"], traces.items(), strict=True):
        numbers = all_numbers[name]
        assert {key: lane[key] for key in numbers} == numbers and lane["output_ids"] == trace.output_ids
        assert trace.run["method"]["params"].get("k", 3) == 3, name
    assert told["outcome"] == claim_of(traces)["time"]["sentence"]
    assert specviz("compare", *(tmp_path / "runs" / f"{name}.spectrace" for name in traces)) == 0
    printed = " ".join(capsys.readouterr().out.split())
    assert f"{told['outcome']} One run of each: nothing is known of the spread." in printed
    assert printed.count("identical") >= 2
    other = tmp_path / "other.spectrace"
    assert specviz("run", "--model", model, "--prompt", "a museum", "--max-new-tokens", 3, "--out", other) == 0
    capsys.readouterr()
    assert "of another prompt" in refusal(capsys, "compare", tmp_path / "runs" / "pld.spectrace", other)
    assert "1 run given" in refusal(capsys, "compare", other)
    assert "for runs that are made now" in refusal(capsys, "compare", other, other, "--set", "k=2")


def test_an_output_that_must_not_differ_fails_the_comparison(capsys, model, tmp_path):
    """Negative control: a recorded run whose output was changed is a bug, and exit code 1."""
    asked = ("--model", model, "--prompt", "the old lamp the old lamp the old", "--max-new-tokens", 6)
    assert specviz("compare", *asked, "--methods", "pld", "--out", tmp_path) == 0
    forged = load(tmp_path / "pld.spectrace")
    ids, bonus = forged.tables["tokens"]["id"], forged.tables["steps"]["bonus"]
    ids[-1] = bonus[-1] = next(token for token in ids if token != ids[-1])
    forged.tables["tokens"]["prob"][-1] = 1e-6
    save(forged, tmp_path / "forged.spectrace")
    capsys.readouterr()
    assert specviz("compare", tmp_path / "plain.spectrace", tmp_path / "forged.spectrace") == 1
    assert "bug (token 6)" in " ".join(capsys.readouterr().out.split())


@pytest.mark.parametrize(
    ("lanes", "words"),
    [
        ({}, "No method came to its end"),
        ({"a": (2.0, 2.5, 10, 1)}, "A is 2.00× as fast as plain decoding."),
        ({"a": (2.0, 2.5, 10, 1), "b": (1.99, 2.0, 12, 1)}, "A and B are level at 2.00× and 1.99×"),
        ({"a": (2.0, 2.5, 10, 1), "b": (1.0, 3.0, 9, 90)}, "steps take less time (11.0 against 99.0 ms each), though"),
        ({"a": (3.0, 5.0, 10, 1), "b": (2.0, 3.3, 9.9, 1)}, "× B; it writes more tokens per step (5.00 against 3.30)."),
        ({"a": (2.0, 2.5, 10, 1), "b": (9.0, 3.0, 9, 1)}, "A is 2.00× as fast"),  # b cannot be right: it takes no part
        ({"a": (1.02, 1.5, 10, 1)}, "No method is clearly faster than plain decoding: A comes nearest at 1.02×"),
        ({"a": (0.9, 1.0, 10, 1), "b": (0.5, 1.0, 10, 9)}, "No method is faster than plain decoding: A comes nearest"),
        ({"a": (None, 2.5, 10, 1), "b": (None, 2.0, 10, 1)}, "A needs the fewest forwards, 40 (2.50 tokens per step)"),
        ({"a": (None, 2.5, 10, 1), "plain": (1.0, 1.0, 9, 0)}, "by time nobody can be said to win: no speedup: the"),
    ],
)
def test_the_sentence_names_the_winner_the_factor_and_the_reason(lanes, words):
    from decoders.trace.metrics import doubts
    from specviz.pages.compare.claim import Lane, claim

    def numbers(speedup, per_step, verify_ms, draft_ms):
        values = {
            "speedup": speedup, "tokens_per_step": per_step, "steps": round(100 / per_step), "verify_ms": verify_ms,
            "draft_ms": draft_ms,
        }  # fmt: skip
        notes = {} if speedup else {"speedup": "no speedup: the engine differs"}
        return {"metrics": values, "doubts": doubts(values), "notes": notes}

    rows = [Lane(key, key.upper(), numbers(*lane), key == "plain") for key, lane in lanes.items()]
    assert words in claim(rows)["time"]["sentence"]


def test_the_bundled_target_is_the_default(capsys, monkeypatch, tmp_path, model):
    from pathlib import Path

    monkeypatch.setattr(catalog, "BUNDLED_FOLDER", Path(model))
    assert specviz("run", "--prompt", "the old", "--max-new-tokens", 2, "--json") == 0
    capsys.readouterr()
    monkeypatch.setattr(catalog, "BUNDLED_FOLDER", tmp_path / "gone")
    assert "give --model" in refusal(capsys, "run", "--prompt", "a")


@pytest.mark.slow("every method once more")
def test_a_method_whose_parts_are_missing_is_left_out_of_all(capsys, monkeypatch, model, prompts):
    from dataclasses import replace

    from decoders import drafters

    made = "its prompt tokens are not there: make them with `specviz train ppd`"
    fake = replace(drafters.find_method("pld"), name="ppd", available=lambda target: made)
    monkeypatch.setattr(drafters, "_methods", {**drafters._methods, "ppd": fake})
    args = ("verify", "--model", model, "--prompts", prompts, "--limit", 1, "--max-new-tokens", 4, "--no-generate")
    assert specviz(*args) == 0
    assert f"ppd was left out: {made}" in " ".join(capsys.readouterr().out.split())
    assert made in refusal(capsys, *args, "--methods", "ppd")


def test_control_characters_of_a_model_stay_visible(capsys, model, monkeypatch):
    keys = ("tokens", "steps", "accepted", "tokens_per_step", "tokens_per_s", "method")
    keys += ("lossless", "differs", "differs_from_plain", "speedup", "quality_f1", "quality_rouge_l", "quality_edit")
    result = {**dict.fromkeys((*keys, "turn"), 1), "text": "a\x1b[31m\u202eb\n[bold]☃"}
    monkeypatch.setattr("specviz.commands.run._decode", lambda args, record: [result])
    assert specviz("run", "--prompt", "x") == 0
    assert capsys.readouterr().out == "a\\x1b[31m\\u202eb\n[bold]☃\n"
