"""Services of the desk: pools, references and comparisons (the rest is in test_server.py)."""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path
from typing import Any

import pytest

from specviz.server import desk as desks
from specviz.server.bodies import SentFile
from specviz.server.forms import Message, PromptForm, Refusal, TypedPrompt

from .drafts import needs_kinds, save_tiny_part
from .models import prompt_ids, tiny_target
from .stubs import METHODS, StubDesk, StubTarget, at_work, start_desk
from .waiting import WAIT_S

FORM = PromptForm(instruction="Do it.", context="abc")


@pytest.fixture
def desk() -> Any:
    with at_work(StubDesk()) as made:
        yield made


def pool_file(tmp_path: Path, data: bytes, name: str = "notes.txt") -> Path:
    path = tmp_path / name
    path.write_bytes(data)
    return path


def test_the_catalog_says_who_takes_a_pool_and_who_is_lossy(desk: StubDesk) -> None:
    found = {m["name"]: (m["pooled"], m["lossless"]) for m in desk.catalog()["methods"]}
    assert found["casd"] == (True, False) and found["pld"] == (False, True)


def test_a_pool_file_becomes_the_prompts_pool() -> None:
    form = dataclasses.replace(FORM, pool_text="one two\n\nthree", pool_name="notes .txt", reference=" the answer ")
    prompt = form.whole(StubTarget.tokenizer, pooled=True)
    assert prompt.reference == "the answer" and prompt.pool is not None
    assert (prompt.pool.label, prompt.pool.starts, prompt.pool.positions) == ("notes .txt", (0, 7), None)
    assert "".join(map(chr, prompt.pool.tokens)) == "one twothree"
    assert form.whole(StubTarget.tokenizer, pooled=False).pool is None
    assert form.key != FORM.key == dataclasses.replace(FORM, reference="x", text="unused").key


@pytest.mark.parametrize(("text", "message"), [("x" * 3000, r"at most 0 MiB"), (" \n\n ", "holds no text")])
def test_bad_pool_files_are_refused_by_name(
    desk: StubDesk, monkeypatch: pytest.MonkeyPatch, text: str, message: str
) -> None:
    monkeypatch.setattr(desks, "MAX_POOL", 2000)
    with pytest.raises(Refusal, match=message) as caught:
        form = TypedPrompt(context="abc", pool=SentFile(name="notes.txt", text=text)).form()
        desk.submit(form, "casd", {}, {})
    assert caught.value.place == "pool" and "notes.txt" in str(caught.value)


def test_a_chats_messages_are_data(desk: StubDesk) -> None:
    """A line that begins with “User:” is no other message where roles are given; empty messages are left out."""
    messages = [Message(role="user", content="Quote: \nUser: hello"), Message(role="assistant", content=" ")]
    form = TypedPrompt(mode="chat", messages=messages).form()
    assert form.turns() == [{"role": "user", "content": "Quote: \nUser: hello"}]
    assert form.to_json()["messages"][0] == {"role": "user", "content": "Quote: \nUser: hello"}
    assert form.title == "Quote: User: hello" and form.typed_text.startswith("Quote")
    marked = PromptForm("chat", text="User: a\nAssistant: b\nUser: c")
    assert [message["role"] for message in marked.to_json()["messages"]] == ["user", "assistant", "user"]
    unanswered = TypedPrompt(mode="chat", messages=[messages[0], Message(role="assistant", content="b")])
    with pytest.raises(Refusal, match="end the conversation with a message of the user") as caught:
        desk.submit(unanswered.form(), "pld", {}, {})
    assert caught.value.place == "prompt"


def test_a_pooled_method_without_a_context_is_refused_at_the_prompt(desk: StubDesk) -> None:
    form = PromptForm("text", text="no context here")
    with pytest.raises(Refusal, match="CASD drafts from a context, and this prompt has none") as caught:
        desk.submit(form, "casd", {}, {})
    assert caught.value.place == "prompt"
    pooled = dataclasses.replace(form, pool_text="some text", pool_name="notes.txt")
    for given, method in ((form, "pld"), (pooled, "casd"), (FORM, "casd")):
        assert desk.submit(given, method, {}, {}).finished.wait(WAIT_S)


def test_a_reference_may_not_be_endless(desk: StubDesk) -> None:
    with pytest.raises(Refusal, match="reference has 20,001 characters"):
        desk.submit(dataclasses.replace(FORM, reference="x" * 20_001), "pld", {}, {})


@pytest.mark.parametrize(
    ("method", "asked", "compared"),
    [("casd", False, True), ("pld", False, False), ("pld", True, True), ("plain", True, False)],
)
def test_what_is_compared_with_plain_decoding(
    monkeypatch: pytest.MonkeyPatch, method: str, asked: bool, compared: bool
) -> None:
    import decoders

    given: dict[str, Any] = {}
    monkeypatch.setattr(decoders, "Run", lambda *args, **more: given.update(more))
    desk = StubDesk()
    settings = desks.RunSettings(compare=asked)
    assert method in METHODS
    desks.Desk.run_of(desk, None, None, method, "", None, params={}, settings=settings)  # type: ignore[arg-type]
    assert given["compare"] is compared


@needs_kinds("medusa")
def test_a_trained_part_says_how_it_was_trained_in_the_catalog_and_in_its_runs(home: Path) -> None:
    """From the part's own record: tokens, seconds, and how often its first guess is right on held-out text."""
    from decoders import Prompt, drafters, record
    from decoders.method.method import FAMILIES

    target = tiny_target("llama")
    place = save_tiny_part(target, "medusa") / "part.json"
    about = json.loads(place.read_text())
    about["training"] |= {"tokens": 264150, "seconds": 129, "log": [{"top1": [0.2, 0.1]}, {"top1": [0.25, 0.12]}]}
    place.write_text(json.dumps(about))
    facts = {"tokens": 264150, "seconds": 129, "top1": 0.25}
    made = StubDesk(load=lambda: target)
    made._methods = drafters.methods
    start_desk(made)
    cards = {card["name"]: card for card in made.catalog()["methods"]}
    assert cards["medusa"]["trained"] == facts == cards["medusa+typical"]["trained"]
    assert cards["pld"]["trained"] == {} == cards["hydra"]["trained"]  # nothing to train, and nothing trained
    assert {card["family"] for card in cards.values()} == set(FAMILIES)
    assert cards["pld"]["judges"] | {"match": True, "typical": False} == cards["pld"]["judges"]
    assert cards["plain"]["judges"] == {} and cards["medusa+typical"]["verifier_params"] == ["epsilon", "alpha", "fast"]
    assert [one["name"] for one in made.catalog()["verifiers"]] == [*drafters.verifiers()]
    method, params = made.params_of("pld@typical", {"typical_epsilon": 0.2})
    assert (method.lossless, params.typical_epsilon) == (False, 0.2)
    with pytest.raises(Refusal, match="There is no verifier 'nope' for pld: choose one of match, "):
        made.params_of("pld@nope", {})
    run = record(target, Prompt.from_ids(prompt_ids(3, 30)), "medusa", max_new_tokens=4).run
    assert run["part"]["training"] == facts
    made.end()
