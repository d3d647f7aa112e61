"""Merged drafts and forbidden tokens in Chromium: who proposed a node, what each drafter did, who forbade what."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from transformers import NoRepeatNGramLogitsProcessor

from decoders import Prompt, record
from decoders.model.target_model.target import Target
from decoders.trace.report import report
from decoders.trace.trace import Trace
from specviz.views.export import standalone_html
from tests.models import prompt_ids, tiny_target
from tests.waiting import expect


def open_run(page: Any, folder: Path, method: str, drafted: int = 2, **settings: Any) -> tuple[Trace, int]:
    """The standalone page of a run of a tiny target, opened at the first step that drafted so much."""
    target: Target = tiny_target()
    prompt = Prompt.from_ids(prompt_ids(3) * 2)
    trace = record(target, prompt, method, max_new_tokens=32, stop_ids=(), **settings)
    step = next(k for k, count in enumerate(trace.tables["steps"]["drafted"]) if count >= drafted)
    (folder / "run.html").write_text(standalone_html(trace, step), encoding="utf-8")
    page.goto((folder / "run.html").as_uri())
    page.wait_for_selector(".sv-row")
    return trace, step


def test_a_merged_draft_says_who_proposed(page: Any, tmp_path: Path) -> None:
    trace, step = open_run(page, tmp_path, "composite", params={"drafters": "pld,adapld"})
    steps = trace.tables["steps"]
    rows = page.locator(".sv-proposers tbody tr")
    expect(rows).to_have_count(2)
    for place, name in enumerate(("PLD", "AdaPLD")):
        cells = [cell.strip() for cell in rows.nth(place).locator("td").all_inner_texts()]
        counts = [steps[f"term:{key}{place + 1}"][step] for key in ("proposed", "verified", "accepted")]
        assert cells[0] == name and cells[1:4] == [f"{count:.0f}" for count in counts]
    shares = report(trace)["branches"]["proposed_by"]
    expect(page.locator(".sv-shares li")).to_have_count(len(shares))
    shown = page.locator(".sv-shares li").first.inner_text()
    assert shares[0]["who"] in shown and f"{shares[0]['accepted']} of {shares[0]['judged']}" in shown

    page.locator(".sv-lower").get_by_role("tab", name="Tree", exact=True).click()
    expect(page.locator(".sv-tree-discs li")).to_have_count(3)
    node = page.locator(".sv-node:has(.sv-disc)").first
    node.focus()
    tip = page.locator(".sv-tip")
    expect(tip).to_contain_text("AdaPLD")
    expect(tip).to_contain_text("estimated survival")
    assert "proposed by" not in tip.inner_text()  # a mask is for machines
    page.keyboard.press("d")
    expect(page.locator(".sv-by-place .sv-map-cell").first).to_be_visible()
    expect(page.locator(".sv-by-place")).to_contain_text("counted at the places that these runs visited")


def test_a_forbidden_token_has_a_sign_of_its_own(page: Any, tmp_path: Path) -> None:
    trace, _ = open_run(page, tmp_path, "pld", drafted=1, processors=[NoRepeatNGramLogitsProcessor(2)])
    nodes = trace.tables["nodes"]
    forbidden = nodes["term:forbidden"].count(1)
    step = nodes["step"][nodes["term:forbidden"].index(1)]
    page.evaluate("step => specviz.inspector.setStep(step)", step)
    expect(page.locator(".sv-is-forbidden .sv-mark")).to_have_text("⊘")
    expect(page.locator(".sv-why-panel")).to_contain_text("forbidden by NoRepeatNGram")
    page.locator(".sv-lower").get_by_role("tab", name="Tree", exact=True).click()
    expect(page.locator(".sv-node.sv-forbidden .sv-ban").first).to_be_visible()
    assert report(trace)["statuses"]["forbidden"] == forbidden
