"""``specviz attribute``: what it prints, writes and refuses."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from decoders import load, save

from . import recordings
from .command import refusal, specviz
from .models import network, save_model

PASSAGES = ["the old lamp at the station", "was sold to the city museum"]
ANSWER = "It says: the old lamp at the station. It was sold to the city museum"
ROW = {
    "unique_id": "r1", "question": "What was sold?", "title1": "", "title2": "", "source1": PASSAGES[0],
    "source2": PASSAGES[1], "summary": "The text: [ 1 old lamp at the station ] , and it [ 2 was sold to the city ] .",
}  # fmt: skip


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> str:
    """A tiny model with a tokenizer and an end of text, as a folder."""
    made = network("llama")
    made.generation_config.eos_token_id = 1
    return save_model(tmp_path_factory.mktemp("models") / "toy", model=made)


@pytest.fixture
def prompts(tmp_path: Path) -> Path:
    path = tmp_path / "prompts.jsonl"
    records = [{"instruction": "Copy.", "context": PASSAGES, "question": q} for q in ("the?", "old?")]
    path.write_text("".join(json.dumps(record) + "\n" for record in records), "utf-8")
    return path


@pytest.fixture
def quotesum(tmp_path: Path) -> Path:
    path = tmp_path / "quotes.jsonl"
    path.write_text("".join(json.dumps(r) + "\n" for r in (ROW, {**ROW, "summary": "nothing"}, ROW)), "utf-8")
    return path


pytestmark = pytest.mark.usefixtures("home")


def test_a_given_answer_is_linked_to_its_passages(capsys, model, prompts, tmp_path):
    out, page = tmp_path / "run.spectrace", tmp_path / "a.md"
    given = ("--model", model, "--prompt-file", prompts, "--index", 1, "--answer", ANSWER)
    assert specviz("attribute", *given, "--min-run", 4, "--out", out, "--markdown", page) == 0
    printed = capsys.readouterr()
    assert "[the old lamp at the station](1). It [was sold to the city museum](2)" in printed.out
    assert "passage 1" in printed.err and "copied by nobody" in printed.err and "all verbatim" in printed.err
    assert "the answer was given" in printed.err
    assert page.read_text("utf-8").count("\n[^1]: Passage 1") == 1
    assert load(out).run["forced"] is True
    assert specviz("attribute", "--trace", out, "--min-run", 4, "--json") == 0
    recorded = json.loads(capsys.readouterr().out)
    (tmp_path / "answer.txt").write_text(ANSWER + "\n", "utf-8")
    assert specviz("attribute", *given[:-1], tmp_path / "answer.txt", "--min-run", 4, "--json") == 0
    again = json.loads(capsys.readouterr().out)
    assert {**again, "run": 0} == {**recorded, "run": 0} and again["run"]["forced"] is True
    assert recorded["output"] == ANSWER and recorded["schema"] == "specattribution/1"
    texts = [(link["text"].strip(), link["passage"]) for link in recorded["links"]]
    assert texts == [(PASSAGES[0], 0), (PASSAGES[1], 1)]
    for link in recorded["links"]:
        assert ANSWER[slice(*link["output"])] == link["text"] and link["verbatim"]


def test_a_generated_answer_and_methods_with_parameters(capsys, model, prompts):
    asked = ("--model", model, "--prompt-file", prompts, "--max-new-tokens", 24, "--json")
    assert specviz("attribute", *asked, "--method", "adapld", "--set", "copy_length=5", "--min-run", 1) == 0
    result = json.loads(capsys.readouterr().out)
    assert result["run"]["method"] == "adapld" and result["run"]["forced"] is False
    assert result["output_tokens"] <= 24 and [s["passage"] for s in result["sources"]][:2] == [0, 1]


def test_lines_of_three_hyphens_stand_between_passages(capsys, model, tmp_path):
    text = tmp_path / "sources.txt"
    text.write_text("\n---\n".join(PASSAGES), "utf-8")
    assert specviz("attribute", "--model", model, "--prompt-file", text, "--answer", ANSWER, "--json") == 0
    result = json.loads(capsys.readouterr().out)
    assert [(s["kind"], s["passage"]) for s in result["sources"]][:2] == [("context", 0), ("context", 1)]
    assert all(source["links"] for source in result["sources"][:2])


def test_a_recorded_run_needs_no_model(capsys, tmp_path):
    path = tmp_path / "t.spectrace"
    save(recordings.nasty(), path)
    assert specviz("attribute", "--trace", path, "--min-run", 3, "--markdown", tmp_path / "n.md") == 0
    printed = capsys.readouterr()
    assert "\x1b" not in printed.out and "all verbatim" in printed.err and (tmp_path / "n.md").exists()
    assert "of the answer (%)" in printed.err and " %" not in printed.err  # shares as in the Lab's tables


def test_scores_of_a_quotesum_file(capsys, model, quotesum, tmp_path):
    table = tmp_path / "t.md"
    asked = ("--model", model, "--score", quotesum, "--method", "pld+h", "casd", "--min-run", "2,5")
    assert specviz("attribute", *asked, "--json", "--markdown", table) == 0
    result = json.loads(capsys.readouterr().out)
    assert result["notes"] == ["line 2 was left out: its summary quotes nothing"] and result["answers"] == "given"
    keys = [(row["method"], row["counted"], row["min_run"]) for row in result["rows"]]
    counts = ("whole quotations", "drafted tokens")
    assert keys == [(m, c, n) for m in ("pld+h", "casd") for c in counts for n in (2, 5)]
    assert all(row["examples"] == 2 and 0 <= row["f1"] <= 1 for row in result["rows"])
    whole = [row["f1"] for row in result["rows"] if row["counted"] == counts[0] and row["min_run"] == 2]
    assert len(whole) == 2 and min(whole) > 0.9
    assert len([line for line in table.read_text("utf-8").splitlines() if line.startswith("| ")]) == 10
    assert specviz("attribute", *asked, "--limit", 1) == 0
    printed = capsys.readouterr().out
    assert "right passage" in printed and "whole quotations" in printed and "left out" not in printed


def test_scores_of_the_demo_tasks(capsys, model):
    assert specviz("attribute", "--model", model, "--score", "demo", "--limit", 3, "--min-run", 2, "--json") == 0
    result = json.loads(capsys.readouterr().out)
    kept = {row["examples"] for row in result["rows"]}
    assert len(kept) == 1 and f"{3 - kept.pop()} of 3 prompts leave no room" in result["notes"][0]
    assert result["rows"][0]["recall"] > 0.9 and result["rows"][0]["counted"] == "whole quotations"
    short = ("--score", "demo", "--limit", 3, "--generated", "--max-new-tokens", 8)
    error = refusal(capsys, "attribute", "--model", model, *short)
    assert "no answer holds the quotes" in error


@pytest.mark.parametrize(
    ("args", "why"),
    [
        (("--prompt", "a", "--trace", "b"), "not allowed with"),
        ((), "one of the arguments"),
        (("--prompt", "a", "--min-run", "2,5"), "--min-run takes one length here"),
        (("--prompt", "a", "--min-run", "0"), "0 is out of range"),
        (("--prompt", "a", "--min-run", "2,"), "'' is not allowed"),
        (("--prompt", " "), "the prompt is empty"),
        (("--prompt", "a", "--answer", " "), "the answer is empty"),
        (("--prompt", "a", "--limit", "3"), "--limit belongs to --score"),
        (("--prompt", "a", "--method", "pld", "pld+h"), "several belong to --score"),
        (("--trace", "t", "--methods", "pld"), "--methods is of no use with --trace"),
        (("--trace", "t", "--answer", "x"), "--answer is of no use with --trace"),
        (("--trace", "none.spectrace"), "none.spectrace"),
        (("--score", "demo", "--without"), "--without is of no use with --score"),
        (("--score", "demo", "--subsets", "8"), "--subsets is of no use with --score"),
        (("--prompt", "a", "--subsets", "0"), "--subsets: 0 is out of range"),
        (("--trace", "t", "--model", "m"), "--model is of no use with --trace"),
        (("--score", "demo", "--drafted"), "--drafted is of no use with --score"),
        (("--score", "nothing"), "nothing is neither a file nor one of demo, demo+brief"),
        (("--prompt", "a", "--markdown", "/none/x.md"), "there is no folder"),
    ],
)
def test_mistakes(capsys, args, why):
    assert why in refusal(capsys, "attribute", *args)


def test_an_answer_is_read_without_each_passage(capsys, model, prompts, tmp_path):
    out = tmp_path / "run.spectrace"
    given = ("--model", model, "--prompt-file", prompts, "--answer", ANSWER)
    assert specviz("attribute", *given, "--without", "--out", out) == 0
    printed = capsys.readouterr().err
    assert "fall of log p without" in printed and "Passage 2" in printed and "the whole answer" in printed
    assert specviz("attribute", "--trace", out, "--model", model, "--without", "--json") == 0
    causes = json.loads(capsys.readouterr().out)["causes"]
    assert [(found["kind"], found["passage"]) for found in causes] == [("context", 0), ("context", 1)]
    assert all(len(found["weights"]) == 3 and found["weights"][0]["said"] in printed for found in causes)


def test_an_answer_is_read_without_subsets_of_its_passages(capsys, model, prompts, tmp_path):
    out = tmp_path / "run.spectrace"
    given = ("--model", model, "--prompt-file", prompts, "--answer", ANSWER)
    assert specviz("attribute", *given, "--subsets", "8", "--out", out) == 0
    printed = capsys.readouterr().err
    assert "weight in log p" in printed and "LDS" in printed and "Fall of log p without the first sources" in printed
    assert specviz("attribute", "--trace", out, "--model", model, "--subsets", "8", "--json") == 0
    report = json.loads(capsys.readouterr().out)["subsets"]
    assert report["sources"] == ["passage 1", "passage 2"] and report["fitted"] == 3 and report["held"] == 1
    assert len(report["fits"]) == 3 and all(len(fit["weights"]) == 2 for fit in report["fits"])
    alone = ("--model", model, "--prompt", "the old lamp", "--answer", "fell", "--subsets", "8")
    assert "subsets are of at least two sources" in refusal(capsys, "attribute", *alone)


def test_mistakes_that_need_the_model(capsys, model, prompts, tmp_path):
    asked = ("--model", model, "--prompt-file", prompts)
    assert "--index 2 is out of range" in refusal(capsys, "attribute", *asked, "--index", 2)
    assert "copy_len" in refusal(capsys, "attribute", *asked, "--method", "adapld", "--set", "copy_len=5")
    assert "has room for" in refusal(capsys, "attribute", *asked, "--answer", "the old lamp " * 300)
    alone = ("--model", model, "--score", _alone(tmp_path), "--method", "casd")
    assert "cannot run" in refusal(capsys, "attribute", *alone)


def _alone(folder: Path) -> Path:
    """A row whose only source is one letter: too little to draft from."""
    path = folder / "one.jsonl"
    path.write_text(json.dumps({"question": "?", "summary": "[ 1 a ]", "source1": "a"}), "utf-8")
    return path
