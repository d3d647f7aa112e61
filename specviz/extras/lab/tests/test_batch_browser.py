"""The batch mode in real Chromium, with a tiny model: choose methods, run, read the table, open a run, take it home."""

from __future__ import annotations

import itertools
import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from decoders.sweep.plan import Sample
from specviz.pages import pages
from specviz.server.desk import Desk
from specviz.server.loader import Loader
from specviz.server.runner import Runner
from specviz.server.store import TraceStore
from tests.models import tiny_target, tiny_tokenizer
from tests.stubs import at_work, nothing_wrong, serving
from tests.waiting import becomes, expect, fits

PROMPTS = "\n".join(
    json.dumps({"question_id": task, "category": task, "turns": ["the old lamp at the station the old lamp"]})
    for task in ("qa", "<b>rag</b>")
)


@pytest.fixture(scope="module")
def port(module_home: Path) -> Iterator[int]:
    target = tiny_target("llama")
    target.tokenizer = target.tokenizer or tiny_tokenizer()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("decoders.sweep.ledger.MAX_RETRIES", 0)
        pace = itertools.cycle((90.0, 91.0, 92.0, 93.0, 94.0))  # steps per second, whatever the machine does
        patch.setattr(Sample, "tokens_per_s", property(lambda self: next(pace) * (self.accepted / self.steps + 1)))
        store = TraceStore()
        desk = Desk(store, Runner(store), Loader(lambda: target, name="tiny"), pages=pages())
        with at_work(desk), serving(desk) as found:
            yield found


@pytest.mark.slow("a whole batch; test_lab.py walks through the page")
def test_a_batch_from_the_first_click_to_its_files(page: Any, port: int, tmp_path: Path) -> None:
    page.goto(f"http://127.0.0.1:{port}/?tab=lab&recipe=batch")
    page.wait_for_selector("#svl-run:not([disabled])")
    page.wait_for_function("new URL(location.href).searchParams.get('lab') === 'batch'")
    expect(page.locator("[data-method='casd']")).to_contain_text("lossy")
    expect(page.locator(".svb-methods .svf-missing")).to_contain_text("specviz train glide")
    expect(page.locator("#svl-batch-glide")).to_have_count(0)
    expect(page.locator("#svl-batch-plain")).to_be_disabled()
    page.uncheck("#svl-batch-pld\\+h")
    if page.is_checked("#svl-batch-adapld"):
        page.uncheck("#svl-batch-adapld")
    page.click("[data-method='pld'] summary")
    page.click("[data-method='pld'] .svb-more button")  # once more, with other parameters
    page.fill("[data-method='pld'] details:nth-of-type(2) [data-param='k']", "0")
    page.wait_for_selector(".svl-note.svp-error:has-text('is out of range: a whole number from 1')", state="attached")
    page.fill("[data-method='pld'] details:nth-of-type(2) [data-param='k']", "2")
    rule = "[data-method='pld'] details:nth-of-type(2) select"  # the second one under another verifier
    page.select_option(rule, "relaxed")
    expect(page.locator(rule)).to_be_focused()
    expect(page.locator("[data-method='pld'] details:nth-of-type(2) summary")).to_have_text("@relaxed: k = 2")
    page.select_option("#svl-prompts", "file")
    page.set_input_files(
        "#svl-file", {"name": "mine.jsonl", "mimeType": "application/jsonl", "buffer": PROMPTS.encode()}
    )
    page.fill("#svl-max_new_tokens", "6")
    page.fill("#svl-repeats", "2")
    page.wait_for_selector(".svl-estimate:has-text('21 runs, about')")
    page.click("#svl-run")
    page.wait_for_selector(".svl-results[data-state=complete] .svb-table")
    tables = page.locator(".svb-table")
    assert [tables.nth(n).get_attribute("data-metric") for n in range(2)] == ["tokens_per_step", "speedup"]
    heads = tables.nth(1).locator("thead th").all_inner_texts()
    assert heads == ["task", "prompts", "Plain decoding", "PLD", "PLD, Relaxed acceptance † lossy"]
    assert tables.nth(1).locator("tbody th").all_inner_texts() == ["qa", "<b>rag</b>", "overall"]
    assert re.search(r"\d\.\d\d \d\.\d\d–\d\.\d\d", tables.nth(1).locator("tbody tr").last.inner_text())
    assert tables.nth(1).locator("tfoot td").all_inner_texts()[:3] == ["", "✓ 4/4", "✓ 4/4"]
    page.click(".svl-every summary:has-text('a column per category')")
    turned = page.locator(".svl-every table").first
    assert turned.locator("thead th").all_inner_texts() == ["method", "QA", "<b>rag</b>", "Overall", "same as plain"]
    assert turned.locator("tbody tr").last.locator("td").all_inner_texts() == ["prompts", "1", "1", "2", ""]
    with page.expect_download() as caught:
        page.click(".svl-every a:has-text('LaTeX')")
    caught.value.save_as(tmp_path / "field.tex")
    assert "method & QA & " in (tmp_path / "field.tex").read_text()
    for words in ("tiny", "(mine.jsonl)", "batch size 1"):
        expect(page.locator(".svb-remarks")).to_contain_text(words)
    page.select_option(".svl-draw select", "kv_mb")
    page.wait_for_selector(".svb-table[data-metric=kv_mb]")
    expect(tables).to_have_count(1)
    for text, suffix, words in (
        ("Table: CSV", ".table.csv", "kv_mb,MB"), ("LaTeX", ".tex", r"\toprule"), ("Markdown", ".md", "| overall |"),
    ):  # fmt: skip
        with page.expect_download() as caught:
            page.click(f".svl-bar a:has-text('{text}')")
        caught.value.save_as(tmp_path / "file")
        assert caught.value.suggested_filename.endswith(suffix) and words in (tmp_path / "file").read_text()
    page.click("summary:has-text('under every verifier')")
    judges, lines = page.locator(".svl-judges [data-verifier]"), page.locator(".svl-judges select option")
    expect(lines).to_have_count(2)  # not plain decoding's: it drafts nothing
    expect(judges.and_(page.locator("[data-verifier~=relaxed]"))).to_contain_text("lossy")
    chosen = page.locator(".svl-judges select")
    chosen.focus()
    page.keyboard.press("ArrowDown")
    expect(judges.and_(page.locator("[data-verifier~=match]"))).to_contain_text("lossless")
    expect(chosen).to_have_value(str(lines.nth(1).get_attribute("value")))
    expect(chosen).to_be_focused()
    asked = len([url for url in page.requests if "/lab/judged/" in url])
    assert asked
    page.evaluate("document.body.classList.toggle('dark')")  # the rest is drawn again
    page.select_option(".svl-bar select", "speedup")
    page.wait_for_selector(".svb-table[data-metric=speedup]")
    expect(chosen).to_have_value(str(lines.nth(1).get_attribute("value")))
    expect(judges.and_(page.locator("[data-verifier~=match]"))).to_be_visible()
    assert len([url for url in page.requests if "/lab/judged/" in url]) == asked
    page.evaluate("document.body.classList.toggle('dark')")
    page.click(".svb-table tbody tr:last-child td:nth-of-type(3) .svb-open")
    expect(page.locator(".svl-dialog[open] li")).to_have_count(2)
    trace = page.get_attribute(".svl-dialog [data-trace]", "data-trace")
    page.click(".svl-dialog [data-trace]")
    page.wait_for_function("id => specviz.app.shown === id", arg=trace)
    page.reload()  # on the same address: the results are found again, with what was asked
    page.click("[role=tab]:has-text('Lab')")
    page.wait_for_selector(".svl-results[data-state=complete] .svb-table")
    expect(page.locator("[data-method='pld'] .svb-params")).to_have_count(2)
    for width in (420, 1280):
        fits(page, width)

    # a sweep of one's own under other verifiers: those that only match in a greedy run cannot be chosen there
    page.click(".svl-item[data-name='own']")
    page.click(".svl-rules summary >> nth=0")
    rules = page.locator(".svl-rules >> nth=0").locator("input")
    base = rules.first.get_attribute("value").partition("@")[0]
    expect(page.locator(f"input[value='{base}@block']")).to_be_disabled()
    page.check(f"input[value='{base}@relaxed']")
    becomes(page, lambda: page.evaluate("specviz.app.pages.lab.forms.own.methods"), [base, f"{base}@relaxed"])
    expect(page.locator("#svl-param-0 option[value=relaxed_topk]")).to_have_count(1)  # the verifier's own parameter
    page.fill("#svl-temperature", "1")
    page.locator("#svl-temperature").blur()
    expect(page.locator(f"input[value='{base}@block']")).to_be_enabled()
    nothing_wrong(page, port, said=["status of 422", "status of 404"])
