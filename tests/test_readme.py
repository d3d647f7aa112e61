"""The steps for newcomers in the README and docs/ work as they stand."""

import json
import re
import sys
from collections.abc import Iterator
from dataclasses import fields
from pathlib import Path

import pytest

from decoders import Method, Needs, Prompt, drafters, generate, methods
from decoders.draft.params import controls

from . import test_contract as contract
from .models import prompt_ids, tiny_target

ROOT = Path(__file__).resolve().parent.parent
PAGES = {path.relative_to(ROOT).as_posix(): path for path in [ROOT / "README.md", *(ROOT / "docs").glob("*.md")]}
ADDING = "docs/add-a-method.md"

ANNEX = re.compile(r"specviz/extras/\w+(?=/)")


def page(name: str) -> str:
    return PAGES[name].read_text("utf-8")


def snippet(name: str, place: str = "README.md") -> str:
    """The code between <!-- name --> and <!-- /name -->."""
    marked = re.search(rf"<!-- {name} -->\n```\w*\n(.*?)```\n<!-- /{name} -->", page(place), re.DOTALL)
    assert marked, f"{place} has no snippet {name}"
    return marked[1]


def section(place: str, title: str) -> str:
    """The text below the heading ``## title``."""
    return page(place).split(f"\n## {title}\n")[1].split("\n## ")[0]


@pytest.fixture
def latest(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """The method of docs/add-a-method.md, saved as a file where the registry looks for methods."""
    (tmp_path / "latest.py").write_text(snippet("method", ADDING))
    monkeypatch.setattr(drafters, "__path__", [*drafters.__path__, str(tmp_path)])
    monkeypatch.setattr(drafters, "_methods", dict(drafters.methods()))
    drafters._discover()
    yield "latest"
    sys.modules.pop("decoders.drafters.latest", None)


def test_the_method_is_found_and_keeps_the_contract(latest: str, prompt: Prompt):
    assert "latest" in methods() and [c.name for c in controls(methods()["latest"].params)] == ["k"]
    target = tiny_target("qwen3")
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
        line
        for line in snippet("method", ADDING).splitlines()
        if line.strip() and not line.startswith(("from", "import"))
    ]
    assert len(lines) <= 20


def test_four_lines_of_python(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]):
    code = snippet("python")
    assert len(code.strip().splitlines()) == 4

    def tiny(place: str) -> object:
        assert (ROOT / place).is_dir()
        return tiny_target("qwen3")

    monkeypatch.setattr("decoders.model.target_model.load.load_target", tiny)
    names: dict[str, object] = {}
    exec(code, names)
    assert names["trace"].run["complete"] and capsys.readouterr().out.strip()  # type: ignore[attr-defined]


def test_the_readme_is_short():
    assert len(page("README.md").splitlines()) <= 200


def test_the_commands_that_are_listed_exist():
    from specviz.cli import COMMANDS, parser

    listed = set(re.findall(r"^specviz (\w+)", page("docs/commands.md"), re.MULTILINE))
    assert {"run", "verify", "bench"} <= listed
    of_annexes = set(re.findall(r"^- `specviz (\w+)`", page("docs/extras.md"), re.MULTILINE))  # which may be deleted
    for command in sorted(listed & set(COMMANDS) | listed - of_annexes):
        with pytest.raises(SystemExit) as left:
            parser().parse_args([command, "--help"])
        assert left.value.code == 0


def test_the_methods_that_are_described_exist():
    described = re.findall(r"`([^`]+)`", " ".join(re.findall(r"^## (`.*)", page("docs/methods.md"), re.MULTILINE)))
    assert "pld+h" in described and set(described) <= set(methods())


def test_what_a_drafter_may_read_is_what_needs_has():
    table = section(ADDING, "What a drafter may read")
    assert set(re.findall(r"^\| `(\w+)` \|", table, re.MULTILINE)) == {field.name for field in fields(Needs)}


def test_what_a_method_declares_is_what_the_entry_has():
    rows = re.findall(r"^\| (`[^|]*) \|", section(ADDING, "The rest of the entry"), re.MULTILINE)
    names = re.findall(r"`(\w+)`", " ".join(rows))
    assert names and set(names) <= {field.name for field in fields(Method)}


def test_the_test_command_is_the_one_that_ci_runs():
    assert "pytest" in snippet("test") and "<!-- test -->" in (ROOT / ".ci" / "run").read_text("utf-8")


def anchors(text: str) -> set[str]:
    """The names that links give a page's headings: lower case, hyphens for spaces, no punctuation.

    >>> anchors("## `pld`: the first\\n") == {"pld-the-first"}
    True
    """
    titles = re.findall(r"^#+ (.*)$", text, re.MULTILINE)
    return {re.sub(r"[^\w -]", "", title.lower()).replace(" ", "-") for title in titles}


def broken_links(text: str, folder: Path) -> list[str]:
    """Links and pictures of a page in ``folder`` that lead nowhere in the repository."""
    faults = []
    for link in re.findall(r"\]\(([^)]+)\)", text):
        place, _, anchor = link.partition("#")
        if place.startswith("http"):
            continue
        path = folder / place if place else None
        if path is not None and (annex := ANNEX.search(path.as_posix())) and not (ROOT / annex[0]).exists():
            continue  # it was deleted
        there = path is None or path.exists()
        if there and anchor:
            there = anchor in anchors(text if path is None else path.read_text("utf-8"))
        if not there:
            faults.append(link)
    return faults


@pytest.mark.parametrize("name", sorted(PAGES))
def test_links_lead_somewhere(name: str):
    assert broken_links(page(name), PAGES[name].parent) == []


def test_the_link_check_catches_a_broken_one():
    """Negative control."""
    text = "# Top\n[a](gone.md) [b](README.md) [c](#top) [d](#bottom) [e](README.md#gone) [f](README.md#licence)"
    assert broken_links(text, ROOT) == ["gone.md", "#bottom", "README.md#gone"]


def test_every_page_of_docs_is_linked():
    linked = set(re.findall(r"\]\((docs/[\w-]+\.md)", page("README.md")))
    assert linked == set(PAGES) - {"README.md"}


def test_the_results_are_those_of_the_measured_files():
    """Whoever records or measures anew runs ``python -m benchmarks.results``."""
    from benchmarks import results

    assert page("docs/results.md") == results.page(), "older than assets/measured: python -m benchmarks.results"
    assert page("README.md") == results.readme(page("README.md")), "older than assets/measured"


def test_a_measurement_that_no_chapter_names_is_missed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """Negative control, and a changed number changes the page."""
    from benchmarks import results

    made = results.page()
    for path in results.MEASURED.glob("*.json"):
        (tmp_path / path.name).write_text(path.read_text("utf-8").replace("GLIDE .968, vanilla", "GLIDE .969, vanilla"))
    monkeypatch.setattr(results, "MEASURED", tmp_path)
    assert results.page() == made.replace("GLIDE .968, vanilla", "GLIDE .969, vanilla") != made
    section = results._read("installing")
    section["numbers"]["install_s"] += 10
    (tmp_path / "installing.json").write_text(json.dumps(section))
    assert results.readme(page("README.md")) != page("README.md")
    (tmp_path / "new.json").write_text('{"title": "New", "blocks": []}')
    with pytest.raises(KeyError, match="names no chapter for new"):
        results.page()
