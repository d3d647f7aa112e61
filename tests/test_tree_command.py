"""``specviz tree``: trees designed, kept, printed and used; one sentence for every mistake."""

from __future__ import annotations

import json
import shutil
from dataclasses import replace

import pytest
import torch

from decoders import Prompt, generate, load_target
from decoders.parts import Part, save_part
from decoders.prompt_tokens.design import design
from decoders.prompt_tokens.tokens import PromptConfig, PromptTokens
from decoders.prompt_tokens.trees import FILE, load_trees, save_trees
from decoders.study.measure import latency

from .command import refusal, specviz
from .models import prompt_ids, save_model

torch.set_num_threads(1)
TABLE = ((0.6, 0.2), (0.5, 0.1))


@pytest.fixture(scope="module")
def base(tmp_path_factory):
    """A random Llama as a folder, and untrained prompt tokens for it."""
    folder = tmp_path_factory.mktemp("models")
    save_model(folder / "toy")
    tokens = PromptTokens(PromptConfig(2, 1, 64)).requires_grad_(False)
    tokens.embeddings.normal_(0, 0.5, generator=torch.Generator().manual_seed(2))
    key = load_target(folder / "toy").key
    save_part(Part("ppd", key, "toy", tokens.config), tokens.state_dict(), folder / "part")
    return folder


@pytest.fixture
def place(base, tmp_path, home, monkeypatch):
    """A folder of one's own with the prompt tokens, and prompts."""
    monkeypatch.setattr(latency, "ATTEMPTS", 1)
    shutil.copytree(base / "part", tmp_path / "part")
    lines = [{"turns": [f"the old lamp at the station was sold {n} times"]} for n in range(6)]
    (tmp_path / "prompts.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    return tmp_path


@pytest.fixture
def ask(base, place):
    """A design that can be made quickly."""
    return ("tree", "design", "--model", base / "toy", "--part", place / "part", "--prompts", place / "prompts.jsonl",
            "--max-new-tokens", 40, "--max-size", 12, "--threads", 1)  # fmt: skip


def test_design_measures_prints_and_keeps_what_a_run_then_uses(capsys, base, place, ask):
    assert specviz(*ask, "--size", 8) == 0
    shown = capsys.readouterr().out
    assert "Guesses that held: toy, 6 prompts" in shown and "(best)" in shown
    trees = load_trees(place / "part" / FILE)
    assert f"designed trees of {trees.size} rows, {'the best size' if '8 (best)' in shown else 'as asked for'}" in shown
    assert trees.m == 2 and trees.size in (7, 8) and 0 < sum(trees.acceptance[0]) <= 1
    assert len(list((place / "home" / "latency").iterdir())) == 1
    target, prompt = load_target(base / "toy"), Prompt.from_ids(prompt_ids(1))
    plain = generate(target, prompt, max_new_tokens=12)
    assert generate(target, prompt, "ppd", {"part": str(place / "part")}, max_new_tokens=12) == plain


@pytest.mark.slow("decodes with trees of every size")
def test_check_decodes_with_every_size_and_compares_the_best(capsys, place, ask):
    assert specviz(*ask, "--limit", 4, "--max-new-tokens", 12, "--max-size", 8, "--check") == 0
    shown = capsys.readouterr().out
    assert "Predicted and measured, 2 prompts" in shown, "the two that acceptance was not measured on"
    line = next(line for line in shown.splitlines() if line.startswith("best size: "))
    predicted, measured, *_ = (int(word) for word in line.replace(",", "").split() if word.isdigit())
    sizes = [4, 6, 8]
    assert predicted in sizes and measured in sizes
    near = abs(sizes.index(predicted) - sizes.index(measured)) <= 1
    assert line.endswith("within one step" if near else "2 sizes apart; was the machine idle?")


@pytest.mark.slow("measures and designs trees of every kind")
def test_the_best_size_and_other_kinds(capsys, place, ask):
    out = place / "other.json"
    assert specviz(*ask, "--size", "best", "--out", out) == 0
    assert "the best size for" in capsys.readouterr().out
    best = load_trees(out)
    assert not (place / "part" / FILE).exists()
    for kind in ("naive", "random"):
        assert specviz(*ask, "--size", 12, "--kind", kind, "--out", out) == 0
        assert f"chosen: {kind} trees" in capsys.readouterr().out
        other = load_trees(out)
        assert other.label == kind and other.size <= 12 and other.acceptance == best.acceptance


@pytest.mark.slow("measures this machine")
def test_latency_is_measured_once_and_printed(capsys, base, place):
    args = ("tree", "latency", "--model", base / "toy", "--max-size", 4, "--threads", 1)
    assert specviz(*args) == 0
    first = capsys.readouterr().out
    assert "256 tokens of context" in first and "against 1 row" in first and "1.00×" in first
    assert specviz(*args) == 0 and capsys.readouterr().out == first
    kept = next((place / "home" / "latency").iterdir())
    before = kept.stat().st_mtime_ns
    assert specviz(*args, "--again") == 0 and kept.stat().st_mtime_ns > before


def test_show_draws_every_state(capsys, place):
    save_trees(design(TABLE, 11), place / "part" / FILE)
    assert specviz("tree", "show", place / "part") == 0
    by_folder = capsys.readouterr().out
    assert specviz("tree", "show", place / "part" / FILE) == 0
    assert capsys.readouterr().out == by_folder
    assert [f"state {k}" in by_folder for k in range(4)] == [True, True, True, False]
    assert "│  └─ #0  2 prompt tokens, p = 0.300, ends here 0.300" in by_folder
    assert "└─ #1     1 prompt token, p = 0.200, ends here 0.200" in by_folder and "R = Σ π f = 1.050" in by_folder


def test_a_label_is_only_text(capsys, place):
    trees = design(TABLE, 11)
    save_trees(replace(trees, label="[red]\x1b[31mmine"), place / FILE)
    assert specviz("tree", "show", place / FILE) == 0
    assert capsys.readouterr().out.startswith("[red]\\x1b[31mmine: 2 prompt tokens")


def test_mistakes_are_one_sentence(capsys, base, place, ask):
    model = ("--model", base / "toy")
    assert "there is no tree file" in refusal(capsys, "tree", "show", place / "none.json")
    (place / "bad.json").write_text("[1]")
    assert "no usable tree file" in refusal(capsys, "tree", "show", place / "bad.json")
    assert "a tree size of 3 is not allowed: with 2 prompt tokens at least 4" in refusal(capsys, *ask, "--size", 3)
    assert "'x' is not allowed: a whole number from 1 to 256, or best" in refusal(capsys, *ask, "--size", "x")
    assert "there is no folder" in refusal(capsys, *ask, "--out", place / "no" / "trees.json")
    assert "no prompt file" in refusal(capsys, "tree", "design", *model, "--prompts", place / "no.jsonl")
    assert "there is no set of prompt tokens" in refusal(capsys, "tree", "design", *model)
    assert "there is no trained part in" in refusal(capsys, "tree", "design", *model, "--part", place)
    assert "there is no command 'grow': choose one of design, show, latency" in refusal(capsys, "tree", "grow")
    assert "COMMAND" in refusal(capsys, "tree")
    short = [*ask[: ask.index("--max-new-tokens") + 1], 2, *ask[ask.index("--max-new-tokens") + 2 :]]
    assert "the answers are too short" in refusal(capsys, *short)


def test_prompt_tokens_of_another_target(capsys, place, ask):
    save_model(place / "other", seed=9)
    args = [place / "other" if i and ask[i - 1] == "--model" else a for i, a in enumerate(ask)]
    assert "was trained for toy" in refusal(capsys, *args)
