"""A method that is being written, in real Chromium: saves are seen at once, faults with their line; text is data."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from decoders import Prompt, record
from specviz.extras.dev import page as dev_page
from tests.models import prompt_ids, tiny_target
from tests.stubs import gallery_desk, nothing_wrong, serving
from tests.test_plugins import COPIED, no_plugins, write  # noqa: F401
from tests.waiting import expect


@pytest.fixture
def file(tmp_path: Path, registry: None) -> Path:
    return write(tmp_path)


@pytest.fixture
def port(file: Path, home: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[int]:
    monkeypatch.setattr(dev_page, "check_prompts", lambda tokenizer: [Prompt.from_ids(prompt_ids(1))])  # a short one
    target = tiny_target("llama")
    run = record(target, Prompt.from_ids(prompt_ids(3, spread=5)), "pld", {"k": 4}, max_new_tokens=40)
    desk = gallery_desk(target, {"mine": run})
    desk.services["dev"].watch(file, against="pld")
    with serving(desk) as number:
        yield number


@pytest.mark.slow("a model drafts at every save; test_dev_page.py has the routes")
def test_every_save_is_drafted_checked_and_run(page: Any, port: int, file: Path) -> None:
    page.goto(f"http://127.0.0.1:{port}/?tab=dev")
    parts = page.locator(".svv-part")
    expect(page.locator(".svv-summary")).to_contain_text("tokens per step")
    expect(page.locator(".svv-summary")).to_contain_text("against pld · ")
    expect(parts.nth(0).locator(".svv-kept")).to_have_count(5)
    expect(page.locator(".svv-stage .sv-sentence")).to_contain_text("8 tokens copied")
    expect(page.locator(".svv-stage[data-ready]")).to_have_count(1)
    expect(page.locator(".svv-state")).to_have_text("save 1")

    # a save that drafts one token only: seen without a reload, with what it lost, and run anew
    first = page.get_attribute(".svv-stage", "data-ready")
    write(file.parent, ("param(8,", "param(1,"))
    expect(page.locator(".svv-state")).to_contain_text("save 2")
    expect(page.locator(".svv-summary")).to_contain_text("against the last save")
    expect(page.locator(".svv-summary")).not_to_contain_text("0 won, 0 lost")
    expect(page.locator(".svv-state")).to_have_text("save 2")
    expect(page.locator(".svv-stage")).not_to_have_attribute("data-ready", first)

    # a step that raises stands first, with its line; its words are text, whatever they spell
    fault = "raise ValueError('<img src=x onerror=alert(1)>')"
    write(file.parent, (COPIED, f"if context.length % 2: {fault}\n                {COPIED}"))
    raised = page.locator(".svv-raised").first
    expect(raised).to_contain_text("ValueError: <img src=x onerror=alert(1)>, line")
    raised.locator("summary").click()
    expect(raised.locator("pre")).to_contain_text("in propose")
    expect(parts.nth(0).locator(".svv-broken").first).to_contain_text("ValueError")
    assert page.locator(".svv-part img").count() == 0

    # a file that is no Python: the reason with its line, above the last save that could be used
    file.write_text("def f(:\n", "utf-8")
    expect(page.locator(".svv-problem")).to_contain_text("line 1 is no Python")
    expect(page.locator(".svv-problem")).to_contain_text("last save that could be used")
    write(file.parent)
    expect(page.locator(".svv-problem")).to_be_hidden()
    expect(page.locator(".svv-state")).to_have_text("save 4")

    # a step opens on Inspect, beside the recorded draft
    page.locator(".svv-step").first.click()
    expect(page.locator("section.svw")).to_be_visible()
    chosen = page.locator(".svw-choose select >> nth=0").locator("option:checked")
    expect(chosen).to_contain_text("Mine")
    nothing_wrong(page, port)
