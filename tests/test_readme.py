"""What the README tells newcomers to do works as it stands."""

import re
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from decoders import Prompt, drafters, generate, methods
from decoders.draft.params import controls

from . import test_contract as contract
from .models import prompt_ids, tiny_target, tiny_tokenizer

ROOT = Path(__file__).resolve().parent.parent
README = (ROOT / "README.md").read_text("utf-8")


def snippet(name: str) -> str:
    """The code between <!-- name --> and <!-- /name -->."""
    found = re.search(rf"<!-- {name} -->\n```\w*\n(.*?)```\n<!-- /{name} -->", README, re.DOTALL)
    assert found, f"README.md has no snippet {name}"
    return found[1]


@pytest.fixture
def latest(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """The README's method, saved as a file where the registry looks for methods."""
    (tmp_path / "latest.py").write_text(snippet("method"))
    monkeypatch.setattr(drafters, "__path__", [*drafters.__path__, str(tmp_path)])
    monkeypatch.setattr(drafters, "_methods", dict(drafters.methods()))
    drafters._discover()
    yield "latest"
    sys.modules.pop("decoders.drafters.latest", None)


def test_the_method_is_found_and_keeps_the_contract(latest: str):
    assert "latest" in methods() and [c.name for c in controls(methods()["latest"].params)] == ["k"]
    target = tiny_target("qwen3")
    text = "the old lamp at the station was sold to the city museum and the old lamp at the"
    prompt = Prompt.from_segments(
        tiny_tokenizer(), instruction="Copy.", context=[text, text[::-1]], question="the old?"
    )
    contract.test_lossless_and_repeatable(target, prompt, generate(target, prompt, max_new_tokens=contract.NEW), latest)
    contract.test_drafts_carry_their_provenance(target, prompt, latest)
    contract.test_tracing_changes_nothing_and_misses_nothing(target, prompt, latest)
    contract.test_controls_describe_every_parameter(latest)


def test_the_method_drafts_and_something_is_accepted(latest: str):
    from decoders import record

    traces = [
        record(tiny_target("gemma"), Prompt.from_ids(prompt_ids(seed)), latest, max_new_tokens=40) for seed in range(3)
    ]
    assert sum(trace.run["metrics"]["accepted"] for trace in traces) > 0


def test_it_has_twenty_lines_but_for_imports_and_layout():
    lines = [
        line for line in snippet("method").splitlines() if line.strip() and not line.startswith(("from", "import"))
    ]
    assert len(lines) <= 20


def test_four_lines_of_python(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]):
    code = snippet("python")
    assert len(code.strip().splitlines()) == 4

    def tiny(place: str) -> object:
        assert (ROOT / place).is_dir()
        return tiny_target("qwen3")

    monkeypatch.setattr("decoders.model.load.load_target", tiny)
    names: dict[str, object] = {}
    exec(code, names)
    assert names["trace"].run["complete"] and capsys.readouterr().out.strip()  # type: ignore[attr-defined]


def test_the_commands_of_the_readme_exist():
    from specviz.cli import parser

    listed = set(re.findall(r"^specviz (\w+)", README, re.MULTILINE))
    assert listed
    for command in sorted(listed):
        with pytest.raises(SystemExit) as left:
            parser().parse_args([command, "--help"])
        assert left.value.code == 0


def test_the_methods_of_the_readme_are_those_registered():
    table = README.split("## Methods")[1].split("\n## ")[0]
    assert set(re.findall(r"^\| `([^`]+)` \|", table, re.MULTILINE)) == set(methods())


def test_the_test_command_is_the_one_that_ci_runs():
    assert "pytest" in snippet("test") and "<!-- test -->" in (ROOT / ".ci" / "run").read_text("utf-8")


def test_links_lead_somewhere():
    """Pictures and files the README points at are in the repository."""
    for target in re.findall(r"\]\(([^)#]+)\)", README):
        if not target.startswith("http"):
            assert (ROOT / target).exists(), target
