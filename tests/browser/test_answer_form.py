"""The form of an answer on the page, in Chromium: a bad one is refused beside its field, a good one is kept to."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest

from decoders import Prompt, record
from tests.models import prompt_ids, tiny_target
from tests.stubs import gallery_desk, nothing_wrong
from tests.waiting import expect, until

pytest.importorskip("llguidance")
ANSWER = "#sv-answer"


@pytest.fixture(scope="module")
def desk(module_home: Path) -> Any:
    target = tiny_target()
    target.model.generation_config.eos_token_id = 1
    return gallery_desk(target, {"first": record(target, Prompt.from_ids(prompt_ids(1)), max_new_tokens=4)})


@pytest.mark.slow("a form, its faults and a run that keeps to it; test_grammar.py and tests/web have the parts")
def test_a_form_is_refused_beside_its_field_or_kept_to(page: Any, port: int, desk: Any) -> None:
    page.goto(f"http://127.0.0.1:{port}/?trace=first")
    page.click(".svp-edit")
    page.wait_for_selector("#sv-panel .sve-prompt:not(.sve-waits)")
    page.click(f"{ANSWER} summary")
    page.select_option(f"{ANSWER} select", "regex")
    page.fill(f"{ANSWER} textarea", "[0-9]{2")
    page.click(".sve-foot .svp-go")
    expect(page.locator(f"{ANSWER} .ui-wrong")).to_contain_text("The regex cannot be read")
    expect(page.locator(f"{ANSWER} textarea")).to_have_attribute("aria-invalid", "true")
    page.fill(f"{ANSWER} textarea", "[0-9]{2}-[a-z]")
    expect(page.locator(f"{ANSWER} .ui-wrong")).to_have_count(0)
    page.click(f"{ANSWER} .ui-check")
    page.click(".sve-foot .svp-go")
    until(lambda: page.evaluate("specviz.inspector.model.run.grammar?.drafts") == "filter", "the run is shown")
    until(lambda: page.evaluate("specviz.inspector.model.run.complete"), "the run is over")
    trace = desk.store.get(page.evaluate("specviz.inspector.model.run.id"))
    assert re.fullmatch(r"[0-9]{2}-[a-z]", trace.text(trace.output_ids))
    nothing_wrong(page, port, said=["status of 422"])  # the refusal
