"""Verifiers in real Chromium: chosen in the form, run, and a recorded step under every rule."""

from __future__ import annotations

from typing import Any

import pytest

from decoders import Prompt, Sampling, load_target, record
from decoders.study.judge.judge import judge_steps
from decoders.trace.trace import Trace
from tests.browser.test_app import edit, open_app
from tests.stubs import gallery_desk, nothing_wrong
from tests.waiting import becomes, expect

pytestmark = pytest.mark.slow("a target with its draft model, opened and run")


@pytest.fixture(scope="module")
def target() -> Any:
    return load_target("assets/demo/target")


@pytest.fixture(scope="module")
def run(target: Any) -> Trace:
    prompt = Prompt.from_text(target.tokenizer, "Say it twice: the old lamp. the old")
    sampling = Sampling(temperature=1.0, seed=0)
    return record(target, prompt, "sps", max_new_tokens=12, sampling=sampling, first_choices=64)


@pytest.fixture(scope="module")
def desk(target: Any, run: Trace, module_home: Any) -> Any:
    return gallery_desk(target, {"mine": run})


def test_a_step_under_every_rule(page: Any, port: int, run: Trace) -> None:
    first = next(judge_steps(run))
    page.goto(f"http://127.0.0.1:{port}/?trace=mine&step={first.step + 1}")
    tab = page.get_by_role("tab", name="Rules")
    tab.click()
    table = page.locator(".svj-table")
    expect(table.locator(".svj-own").first).to_contain_text("as recorded")
    names = [name for cell in table.locator("tr[data-verifier]").all()
             for name in str(cell.get_attribute("data-verifier")).split()]  # fmt: skip
    assert sorted(names) == sorted(first.rules)
    ratio = table.locator("tr[data-verifier~=ratio]")
    expect(table.locator("tbody.svj-lossless", has=page.locator("tr[data-verifier~=ratio]"))).to_have_count(1)
    expect(ratio).to_contain_text(f"{1 + first.rules['ratio'].expected[0]:.2f}")
    expect(table.locator("tbody.svj-lossy", has=page.locator("tr[data-verifier~=typical]"))).to_have_count(1)
    struck = "all => all.map((one) => [one.closest('tr').dataset.verifier, one.textContent])"
    pairs = table.locator("tr[data-verifier] .svj-fell").evaluate_all(struck)
    differing = [rule for rule in first.rules.values() if rule.differing(first.status)]
    assert pairs or not any("rejected" in rule.status for rule in differing)
    labels = """([step, ids]) => ids.map((id) => {
        const { model } = specviz.app.inspector;
        return model.pieces.label(model.step(step).nodes[id].token, 14); })"""
    for verifiers, token in pairs:  # what a row strikes, its own rule refuses
        status = first.rules[verifiers.split()[0]].status
        ids = [node for node, one in enumerate(status) if one == "rejected"]
        assert token in page.evaluate(labels, [first.step, ids])
    assert not page.locator(".svj-place[class*=sv-is-]").count()  # the positions bear no rule's verdict
    expect(page.locator(".sv-judges .sv-mass")).to_be_visible()

    # by keyboard: a position, and the mass there
    places = page.locator(".svj-place")
    at = places.evaluate_all("all => all.findIndex((one) => one.getAttribute('aria-pressed') === 'true')")
    key, other = ("ArrowLeft", at - 1) if at else ("ArrowRight", 1)
    places.nth(at).press(key)
    expect(places.nth(other)).to_have_attribute("aria-pressed", "true")
    expect(places.nth(other)).to_be_focused()
    assert page.evaluate("specviz.app.inspector.number") == first.step
    nothing_wrong(page, port)


def test_a_rule_is_chosen_and_recorded(page: Any, port: int) -> None:
    edit(open_app(page, port, "?trace=mine"))
    rule = page.locator("#svf-verifier")
    expect(rule).to_be_hidden()
    expect(page.locator(".svf-params summary")).to_contain_text("all as the method has them")
    page.click(".svf-params summary")
    expect(rule).to_be_visible()
    assert "Typical acceptance (lossy)" in rule.inner_text()
    rule.focus()  # as a hand has it; select_option does not
    rule.select_option("typical")
    expect(rule).to_be_focused()
    page.evaluate("import('specviz/shell/request.js').then(({ reload }) => reload())")  # as where a model came
    expect(rule).to_be_focused()
    expect(rule).to_have_value("typical")
    expect(page.locator("#svf-verifier-help")).to_contain_text("the text may differ from the target's own")
    expect(page.locator("#svf-typical_epsilon")).to_be_visible()
    expect(page.locator(".svf-params summary")).to_contain_text("verifier typical")
    expect(page.locator(".svf-may-differ")).to_contain_text("Typical acceptance may give another answer")
    page.click(".svp-go:visible")
    shown = "specviz.app.inspector.model.run"
    becomes(page, lambda: page.evaluate(f"{shown}.complete && {shown}.method.name"), "sps@typical")
    expect(page.locator(".sv-metric[data-key=other_share]").first).to_contain_text("%")
    expect(page.locator(".sv-metric[data-key=divergence]").first).to_contain_text("%")
    becomes(page, lambda: "other tokens" in page.locator(".svp-run option:checked").inner_text(), True)

    # at temperature 0 tokens are matched: such rules cannot be chosen, and the one chosen says so
    page.click(".svp-edit")
    page.locator(".svf-sampling summary").click()
    page.fill("#svf-temperature", "0")
    expect(page.locator("#svf-verifier-help")).to_contain_text("At temperature 0 it matches")
    expect(page.locator("#svf-verifier option[value=block]")).to_be_disabled()
    expect(page.locator("#svf-verifier option[value=fly]")).to_be_enabled()
    nothing_wrong(page, port)


def test_the_whole_run_is_made_again_under_a_rule(page: Any, port: int, run: Trace) -> None:
    """From its first token on, as scores at the places that one run visited say little of another one."""
    page.goto(f"http://127.0.0.1:{port}/?trace=mine&step=1")
    page.get_by_role("tab", name="Rules").click()
    expect(page.locator(".svj-visited")).to_be_visible()
    page.wait_for_selector("#sv-run:not([disabled])", state="attached")
    page.get_by_label("Rule to run all of it with").select_option("block")
    page.locator(".svj-replay").click()
    shown = "specviz.app.inspector.model.run"
    another = f"{shown}.complete && {shown}.id !== 'mine' && {shown}.method.name"
    becomes(page, lambda: page.evaluate(another), "sps@block")
    sampling = page.evaluate(f"{shown}.sampling")
    assert (sampling["temperature"], sampling["seed"]) == (1.0, 0)
    assert page.evaluate(f"{shown}.prompt_length") == run.run["prompt_length"]
    nothing_wrong(page, port)
