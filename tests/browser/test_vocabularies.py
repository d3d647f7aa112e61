"""A draft of a model with another tokenizer in the inspector: its tokens beside those that their text became."""

from __future__ import annotations

from typing import Any

import pytest

from decoders import Prompt, record
from decoders.model.target_model.target import Target
from tests.stubs import StubDesk, nothing_wrong
from tests.test_universal import LOOP, network_copy, pair, save_model
from tests.waiting import expect


@pytest.fixture(scope="module")
def desk(module_home: Any, tmp_path_factory: pytest.TempPathFactory) -> StubDesk:
    model, ours, assistant, theirs = pair()
    place = save_model(tmp_path_factory.mktemp("assistant"), assistant, theirs)
    prompt = Prompt.from_ids(ours(LOOP + " the old", add_special_tokens=False)["input_ids"])
    trace = record(Target(network_copy(model), ours, "follower"), prompt, "sps", {"drafter": place}, max_new_tokens=12)
    return StubDesk(gallery=(trace,))


def test_tokens_of_both_vocabularies_stand_side_by_side(page: Any, port: int, desk: StubDesk) -> None:
    page.goto(f"http://127.0.0.1:{port}/?trace=gallery-0&step=1")
    rows = page.locator("section.sv-drafter .sv-assistant tbody tr")
    expect(rows).to_have_count(3)  # two of one, one of two, two of one
    expect(rows.nth(0).locator("code")).to_have_text(["␣la", "mp", "␣lamp"])
    expect(rows.nth(1).locator("code")).to_have_text(["␣museum", "␣mus", "eum"])
    expect(rows.nth(1).locator("td").nth(2)).to_contain_text("accepted")
    nothing_wrong(page, port)
