"""A recorded run's prompt in the editor: what was typed, without the template; its reference goes with it."""

from __future__ import annotations

from pathlib import Path

import pytest

from decoders import Prompt
from decoders.prompt.templates import templates
from decoders.trace import files
from decoders.trace.trace import Trace
from specviz.pages.inspect.again import form_of, missing_note
from specviz.server.forms import PromptForm
from specviz.views.examples import examples, listed_examples
from specviz.views.gallery import list_runs

from .models import tiny_tokenizer
from .stubs import StubDesk

GALLERY = Path(__file__).parents[1] / "assets" / "gallery"


def record(*parts: tuple[str, str, int], **run: object) -> Trace:
    """A run whose prompt has these parts (segment, text, passage), a token each."""
    trace = Trace.new({"prompt_length": len(parts), **run})
    trace.extend(
        {
            "tokens": {
                "id": list(range(len(parts))),
                "segment": [name for name, _, _ in parts],
                "passage": [passage for _, _, passage in parts],
            },
            "pieces": {
                "id": list(range(len(parts))),
                "hex": [text.encode().hex() for _, text, _ in parts],
                "special": [text.startswith("<|") for _, text, _ in parts],
            },
        }
    )
    return trace


@pytest.mark.parametrize("one", list_runs(), ids=lambda one: one.name)
def test_the_gallery_was_made_from_these_prompts(one) -> None:
    example = next(e for e in examples() if e.record.id == one.example)
    form = form_of(files.load(GALLERY / f"{one.id}.spectrace"))
    held = form.to_json()
    assert [str(value).strip() for value in held.values()] == [str(example.prompt[name]).strip() for name in held]


def test_what_a_template_token_holds_of_the_next_part_is_given_back() -> None:
    form = form_of(
        record(
            ("template", "<|user|>", -1),
            ("instruction", "Rename it.", -1),
            ("template", "\n\n``", -1),
            ("context", "`x`", 0),
        )
    )
    assert form == PromptForm("segments", instruction="Rename it.", context="```x`")


def test_a_prompt_in_a_template_is_its_context_and_question_again() -> None:
    tokenizer = tiny_tokenizer()
    own = "Say {question} of {context}."
    for text, context in [*((one.text, ["the lamp", "the mill"]) for one in templates().values()), (own, ["the lamp"])]:
        prompt = Prompt.from_segments(tokenizer, instruction=text, context=context, question="who was sold?")
        names = [(s.name, s.passage) for s in prompt.segments for _ in range(s.start, s.stop)]
        words = [tokenizer.decode([token]) for token in prompt.tokens]
        form = form_of(record(*((name, word, n) for (name, n), word in zip(names, words, strict=True))))
        assert form.prompt(tokenizer).tokens == prompt.tokens, text
        assert form.mode == ("chat" if text == own else "segments")


def test_passages_lose_the_numbers_that_the_prompt_gave_them() -> None:
    form = form_of(record(("context", "[1] One.", 0), ("template", "\n", -1), ("context", "[2] Two.", 1)))
    assert form.context == "One.\n---\nTwo."
    assert form_of(record(("context", "[1] One.", 0))).context == "[1] One."  # alone it had none: this was typed


def test_of_a_chat_the_messages_are_taken() -> None:
    chat = [
        ("template", "<|user|>", -1),
        ("chat", "Hi", -1),
        ("template", "<|end|>\nassistant\n", -1),
        ("chat", "Hello!", -1),
        ("template", "<|user|>", -1),
        ("chat", "Bye", -1),
        ("template", "<|end|>", -1),
    ]
    assert form_of(record(*chat)) == PromptForm(
        "chat", dialogue=(("user", "Hi"), ("assistant", "Hello!"), ("user", "Bye"))
    )
    assert form_of(record(*chat[4:])) == PromptForm("chat", dialogue=(("user", "Bye"),))
    assert form_of(record(*chat[2:])).dialogue == (("system", "Hello!"), ("user", "Bye"))


def test_plain_text_stays_as_it_is() -> None:
    assert form_of(record(("template", "<|begin|>", -1), ("text", "Once ", -1), ("text", "more", -1))) == PromptForm(
        "text", text="Once more"
    )


def test_a_pool_of_its_own_is_to_be_chosen_again() -> None:
    assert "choose that file again" in missing_note(record(pool={"in_prompt": False, "label": "notes.txt"}))
    assert "file" not in missing_note(record(pool={"in_prompt": True}))


def test_the_page_opens_on_a_step_with_a_tree() -> None:
    trace = files.load(GALLERY / f"{list_runs()[0].id}.spectrace")
    steps, opens = trace.tables["steps"], trace.run["opens"]
    assert steps["drafted"][opens] > steps["depth"][opens] > 0  # it branches


def test_the_form_holds_the_prompt_of_the_opening_run() -> None:
    """It is an example's, whose name it has then."""
    opening = files.load(GALLERY / "1-class-docstring-adapld.spectrace")
    desk = StubDesk(gallery=(opening,))
    page = desk.services["inspect"]
    offer, held = page.offer(), page.prompt("gallery-0")
    assert [entry["id"] for entry in offer["examples"]] == [e.record.id for e in listed_examples()]
    texts = {**held["prompt"], "reference": ""}
    same = next(e["id"] for e in offer["examples"] if {**e["prompt"], "reference": ""} == texts)
    assert (same, desk.catalog()["opening"]) == ("class-docstring", "adapld")
    assert offer["templates"] and held["note"] == "" and StubDesk().catalog()["opening"] == ""
