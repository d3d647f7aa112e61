"""The example of the README: heads of one's own in one file."""

from __future__ import annotations

import sys
from pathlib import Path

from decoders import Prompt, drafters, find_method, generate, load_target, record
from decoders.method import part
from specviz import cli
from tests.models import save_model

README = Path(__file__).resolve().parent.parent / "README.md"


def test_a_method_with_a_trained_part_is_one_file(tmp_path, home, registry, monkeypatch, capsys, text):
    """The recipe of the README, followed: trained by its command, found, recorded, lossless."""
    page = README.read_text("utf-8").partition("## Heads of your own")[2]
    file = tmp_path / "my_heads.py"
    file.write_text(page.partition("```python\n")[2].partition("```")[0], "utf-8")
    monkeypatch.setattr(part, "_kinds", dict(part._kinds))
    monkeypatch.setattr(sys, "path", list(sys.path))
    drafters.add_plugin(file)
    model = save_model(tmp_path / "model")
    asked = ["my-heads", "--model", str(model), "--data", str(text), "--out", str(tmp_path / "out"), "--heads", "2"]
    target = load_target(model)
    assert "make one with `specviz train my-heads`" in str(find_method("mine").missing(target))
    assert cli.main(["train", *asked, "--steps", "2", "--batch-tokens", "600", "--positions", "100"]) == 0
    assert "is where methods find it" in capsys.readouterr().out
    prompt = Prompt.from_ids([5, 6, 7, 8])
    trace = record(target, prompt, "mine", max_new_tokens=8)
    assert trace.output_ids == generate(target, prompt, max_new_tokens=8)
    assert trace.run["part"]["kind"] == "my-heads" and len(trace.run["part"]["fingerprint"]) == 24
    assert sum(trace.tables["steps"]["drafted"]) > 0
