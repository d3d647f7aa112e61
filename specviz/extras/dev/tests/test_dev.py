"""The live loop: what a method would have accepted at every recorded step, and what a save changed."""

from __future__ import annotations

import pytest

from decoders import Prompt, find_method, record
from decoders.drafters import add_plugin
from decoders.study.look.whatif import ReadRun
from specviz import cli
from specviz.cli import main
from specviz.extras.dev import saves
from specviz.extras.dev.live_drafts import LiveRun
from tests.command import refusal
from tests.models import prompt_ids, save_model
from tests.test_plugins import COPIED, no_plugins, write  # noqa: F401
from tests.tiers import matrix

PROMPT = Prompt.from_ids(prompt_ids(3, spread=5))


@pytest.fixture(scope="module")
def trace(target):
    return record(target, PROMPT, "pld", {"k": 4}, max_new_tokens=40)


@pytest.mark.parametrize("name", matrix(["pld", "pld+h", "adapld", "recycling", "plain"], 2, "the other methods"))
def test_the_text_alone_says_what_the_target_would_have_accepted(target, trace, name):
    """Against what if, which has the target score every draft."""
    live, method = LiveRun(target, trace).draft_with(find_method(name)), find_method(name)
    read = ReadRun(target, trace)
    expected = [read.redraft(step, method, method.params()) for step in range(trace.rows("steps"))]
    assert [step.accepted for step in live.steps] == [one.accepted for one in expected]
    assert [step.drafted for step in live.steps] == [one.trace.tables["steps"]["drafted"][0] for one in expected]
    assert [step.recorded for step in live.steps] == trace.tables["steps"]["accepted"]
    assert live.scored == (name == "recycling")


def test_a_step_that_raises_stands_beside_the_others_with_its_traceback(tmp_path, target, trace, registry):
    add_plugin(write(tmp_path, (COPIED, f"if context.length % 2: raise ValueError(7)\n                {COPIED}")))
    steps = LiveRun(target, trace).draft_with(find_method("mine")).steps
    broken = [step for step in steps if step.error]
    assert len(steps) == trace.rows("steps") and 0 < len(broken) < len(steps)
    assert "raise ValueError(7)" in broken[0].details and "failed in propose: ValueError: 7, line" in broken[0].error


def test_the_worst_steps_come_first_and_are_against_the_last_save(tmp_path, target, trace, registry):
    run = LiveRun(target, trace)
    drafts = []
    for k in ("8", "1"):
        add_plugin(write(tmp_path, ("param(8,", f"param({k},")))
        drafts.append(run.draft_with(find_method("mine")))
    rows = saves.rows([drafts[1]], [drafts[0]], None)
    changes = [row.change for row in rows]
    assert changes == sorted(changes) and changes[0] < 0 and max(changes) <= 0
    assert all(row.change == row.step.accepted - row.accepted_before for row in rows)
    first = saves.rows([drafts[0]], None, None)
    assert all(row.change == row.step.accepted - row.step.recorded for row in first)


def test_the_command_drafts_at_every_save_and_survives_a_broken_file(tmp_path, monkeypatch, capsys):
    model, path = ["--model", save_model(tmp_path / "toy")], write(tmp_path)
    out = str(tmp_path / "run.spectrace")
    prompt = "the old lamp the old lamp the old lamp"
    assert main(["run", "--method", "pld", "--prompt", prompt, "--max-new-tokens", "24", "--out", out, *model]) == 0
    edits = iter([lambda: path.write_text("def f(:"), lambda: write(tmp_path), None])

    def look(seconds: float) -> None:
        if (save := next(edits)) is None:
            raise KeyboardInterrupt
        save()

    monkeypatch.setattr(saves.time, "sleep", look)
    assert main(["dev", str(path), "--traces", out, "--against", "pld", *model]) == 130
    said = capsys.readouterr().out
    assert "tokens per step" in said and "against pld" in said and "line 1 is no Python" in said
    assert "against the last save" in said
    path.write_text(path.read_text().replace(COPIED, "raise KeyError(1)"))
    assert main(["dev", str(path), "--once", "--traces", out, *model]) == 1
    assert "KeyError" in capsys.readouterr().out
    assert "there is no file gone.py: specviz methods new NAME writes one" in refusal(capsys, "dev", "gone.py")


def test_methods_and_its_older_spelling_name_one_method():
    for spelling in ("--method", "--methods"):
        assert cli.parser().parse_args(["dev", "f", spelling, "pld"]).methods == ["pld"]
