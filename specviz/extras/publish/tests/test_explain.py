"""The page's sentences in a terminal, the skill for agents, and how specviz is cited."""

from __future__ import annotations

import json
import re
import shlex
from pathlib import Path

import pytest
import quickjs
import yaml

from decoders import save
from specviz import __version__
from specviz.commands import COMMANDS
from specviz.extras.publish.explain import sentences
from specviz.extras.publish.explain.scripts import as_function
from specviz.places import GALLERY
from specviz.views.terms import CITATION
from tests import recordings
from tests.command import refusal, specviz

ROOT = Path(__file__).resolve().parents[4]


def test_the_command_prints_the_panels_sentence(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    trace = recordings.chain()
    file = tmp_path / "run.spectrace"
    save(trace, file)
    assert specviz("explain", file, "--step", "1") == 0
    text = capsys.readouterr().out
    assert text.startswith(f"Step 1 of {trace.rows('steps')}: ") and text.count("\n") == 1
    assert specviz("explain", file, "--json") == 0
    rows = json.loads(capsys.readouterr().out)
    assert [row["step"] for row in rows] == [*range(1, trace.rows("steps") + 1)]
    assert f"Step 1 of {rows[0]['of']}: {rows[0]['text']}\n" == text
    assert "out of range" in refusal(capsys, "explain", file, "--step", "999")
    assert specviz("explain", GALLERY / "1-class-docstring-adapld.spectrace", "--step", "6") == 0
    branches = capsys.readouterr().out  # those of the anchor, told apart from what was drafted behind them
    assert "8 next tokens likely there: the draft, with 8 tokens behind them." in branches


def test_a_hostile_run_is_text(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    save(recordings.nasty(), tmp_path / "run.spectrace")
    assert specviz("explain", tmp_path / "run.spectrace") == 0
    assert not re.search("[\x00-\x08\x0b-\x1f\x7f\u202a-\u202e]", capsys.readouterr().out)


def test_a_run_that_is_too_large_is_said_to_be_so(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    save(recordings.chain(), tmp_path / "run.spectrace")
    monkeypatch.setattr(sentences, "MEMORY", 2**20)
    assert "could not be worded" in refusal(capsys, "explain", tmp_path / "run.spectrace")


def test_a_module_becomes_a_function_of_those_before_it() -> None:
    """Every form of import and export that the page's modules and libraries have, and one that stands in a text."""
    library = "const a=2;export{a as b,a as Two};export default function(x){return x+1}"
    own = """import plus, { b as first,
      Two } from "library";
    import * as all from "library";
    export { b } from "library";
    export const sum = plus(first) + Two + all.b;
    export async function* later() {}
    export class Box {}
    const text = 'export const not = "a module"';
    """.replace("\n    ", "\n")
    engine = quickjs.Context()
    engine.eval("const modules = {};" + as_function("library", library) + as_function("own", own))
    assert engine.eval("JSON.stringify([Object.keys(modules.own), modules.own.sum, modules.own.b])") == json.dumps(
        [["b", "sum", "later", "Box"], 7, 2], separators=(",", ":")
    )


def test_every_command_of_the_skill_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    page = (ROOT / ".agents" / "skills" / "specviz" / "SKILL.md").read_text("utf-8")
    about = yaml.safe_load(page.split("---\n")[1])
    assert about["name"] == "specviz" and len(about["description"]) <= 1024
    commands = [line for block in re.findall(r"```bash\n(.*?)```", page, re.DOTALL) for line in block.splitlines()]
    assert len(commands) >= 8 and all(line.startswith("specviz ") for line in commands)
    monkeypatch.chdir(tmp_path)
    for line in (line for line in commands if line.split()[1] in COMMANDS):  # an annex may be deleted
        assert specviz(*shlex.split(line)[1:]) == 0, line
    for name in ("lookup.html", "site/index.html", "step.pdf"):
        assert (tmp_path / name).is_file() and name in page


def test_there_is_one_citation() -> None:
    cited = yaml.safe_load((ROOT / "CITATION.cff").read_text("utf-8"))
    fields = dict(re.findall(r"(\w+) = \{+(.*?)\}+,", CITATION))
    assert cited["version"] == fields["version"] == __version__ and cited["title"] == fields["title"]
    assert [author["name"] for author in cited["authors"]] == [fields["author"]]
    assert str(cited["date-released"])[:4] == fields["year"]
