"""Training text: what a chat model writes itself, and conversations made by rule; on tiny models."""

from __future__ import annotations

import gzip
import json
import random
from collections import Counter
from pathlib import Path

import pytest
import torch

from decoders import UserError
from decoders.training.batches import PROMPT, RESPONSE
from decoders.training.data import FileSource
from decoders.training.text import making
from decoders.training.text.making import ANSWERS, REFERENCES, begun, write_answers, write_references
from decoders.training.text.passages import Passage, found_passages
from decoders.training.text.prompts import Passages, Prompt, draw_prompt
from decoders.training.text.references import RULES, draw_reference
from decoders.training.text.writer import Conversation, Writer
from specviz import cli

from .models import network, tiny_tokenizer

SENTENCES = "The old lamp was sold to the museum. It stood at the station for years. Nobody knows who made it."
CODE = """def total(items, start):
    # adds all of the items, one after the other
    value = start
    for item in items:
        value += item
    return value  # the sum of all of these items, and of the start"""


def passages(count: int = 40) -> list[Passage]:
    return [
        passage
        for i in range(count)
        for passage in (
            Passage("prose", "manual pages", f"page{i}", f"{SENTENCES} Lamp {i} is here."),
            Passage("code", "python code", f"module{i}.py", CODE.replace("total", f"total_{i}")),
        )
    ]


def ending(family: str = "llama"):
    """A model with a token that ends its answers now and then."""
    model = network(family)
    model.generation_config.eos_token_id = [23, 73, 190]
    return model


@pytest.fixture
def small(monkeypatch):
    monkeypatch.setattr(making, "CHUNK", 6)
    monkeypatch.setattr(making, "ROWS", 4)
    monkeypatch.setattr(making, "MOST_ANSWER", 5)


@pytest.mark.parametrize("family", ["llama", "qwen3"])
def test_answers_written_together_are_those_of_generate(family):
    model, tokenizer = ending(family), tiny_tokenizer()
    rows = [
        begun(tokenizer, Prompt(tuple(f"{'lamp ' * n}turn {turn}" for turn in range(turns)), 0.0, ""))
        for n, turns in ((1, 3), (9, 1), (4, 2), (2, 3), (6, 1))
    ]
    Writer(model).write(rows, 7, 0)
    ends, cut = set(model.generation_config.eos_token_id), 0
    for row in rows:
        ids = list(row.prompt)
        for turn, answer in enumerate(row.answers):
            given = torch.tensor([ids])
            out = model.generate(
                given, attention_mask=torch.ones_like(given), max_new_tokens=7, do_sample=False, pad_token_id=0
            )
            expected = out[0, len(ids) :].tolist()
            stop = next((i for i, token in enumerate(expected) if token in ends), len(expected))
            last = turn == len(row.answers) - 1
            assert answer == expected[:stop] or (last and row.cut and answer == expected[: len(answer)])
            assert answer or stop == 0
            ids += answer + (row.following[turn] if turn < len(row.following) else [])
        assert row.cut or len(row.answers) == len(row.following) + 1
        cut += row.cut
    assert 0 < cut < len(rows) or family != "llama", "both kinds of end are met"


def test_sampled_answers_depend_on_the_seed_alone():
    def written(seed: int) -> list[list[list[int]]]:
        rows = [Conversation([5, 6, 7, n], [], 1.0) for n in range(5)]
        Writer(network()).write(rows, 12, seed)
        return [row.answers for row in rows]

    assert written(1) == written(1) != written(2)


def test_turns_are_fed_as_the_template_has_them():
    tokenizer = tiny_tokenizer()
    conversation = begun(tokenizer, Prompt(("one", "two", "three"), 0.0, ""))
    messages = [{"role": "user", "content": "one"}, {"role": "assistant", "content": "A"}]
    messages += [{"role": "user", "content": "two"}, {"role": "assistant", "content": "B"}]
    messages += [{"role": "user", "content": "three"}]
    text = tokenizer.apply_chat_template(messages, tokenize=False, add_generation_prompt=True)
    fed = [tokenizer.decode(ids) for ids in (conversation.prompt, *conversation.following)]
    assert f"{fed[0]}A{fed[1]}B{fed[2]}" == text


def test_chunks_are_resumed_and_the_first_is_held_out(tmp_path, small):
    model, tokenizer = ending(), tiny_tokenizer()

    def write(folder: str, conversations: int, seed: int = 0) -> list[dict]:
        told = []
        path = write_answers(
            model, tokenizer, tmp_path / folder, conversations=conversations, seed=seed, passages=passages(),
            progress=told.append,
        )  # fmt: skip
        assert path.name == ANSWERS and (not told or told[-1].conversations == conversations)
        return [json.loads(line) for line in path.read_text().splitlines()]

    whole = write("whole", 18)
    write("parts", 12)
    path = tmp_path / "parts" / ANSWERS
    path.write_text("\n".join(path.read_text().splitlines()[:10]) + '\n{"messages": [')  # killed while writing
    assert write("parts", 18) == whole
    assert [record["chunk"] for record in whole] == [0] * 6 + [1] * 6 + [2] * 6
    assert all(record["held_out"] == (record["chunk"] == 0) for record in whole)
    assert all(record["temperature"] == 0 for record in whole[:6])
    assert len(write("parts", 18)) == 18, "nothing is left to write"
    with pytest.raises(UserError, match="was written with seed 0, not 1"):
        write("parts", 18, seed=1)


def test_what_was_written_is_what_parts_learn(tmp_path, small):
    model, tokenizer = ending(), tiny_tokenizer()
    path = write_answers(model, tokenizer, tmp_path, conversations=24, passages=passages())
    references = write_references(tmp_path, 30, passages=passages())
    assert references.name == REFERENCES
    source = FileSource(tokenizer, [path, references], 0)
    assert len(source.held_out()) == 6 and not any(document.held_out for document in source.chunk(0))
    for record in (json.loads(line) for line in path.read_text().splitlines()):
        [document] = [
            one for one in (*source.held_out(), *source.chunk(0)) if record["messages"][0]["content"] in text_of(one)
        ][:1]
        assert RESPONSE in document.kinds and PROMPT in document.kinds


def text_of(document) -> str:
    return tiny_tokenizer().decode(document.ids)


def test_a_cut_answer_ends_where_it_was_cut(tmp_path):
    record = {"messages": [{"role": "user", "content": "old lamp"}, {"role": "assistant", "content": "the old city"}]}
    lines = [{**record, "cut": cut} for cut in (True, False)] * 600
    (tmp_path / "a.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    ends = {text_of(document)[-9:] for document in FileSource(tiny_tokenizer(), [tmp_path / "a.jsonl"], 0).chunk(0)}
    assert {end.endswith("city") for end in ends} == {True, False}


def test_held_out_sources_are_no_others():
    found = passages(200)
    by_source = Counter(passage.source for passage in found if passage.held_out)
    assert 10 < len(by_source) < 60
    assert not {p.source for p in found if p.held_out} & {p.source for p in found if not p.held_out}


def test_text_is_found_in_libraries_packages_and_manuals(tmp_path):
    library, manuals = tmp_path / "lib", tmp_path / "man"
    (library / "sub").mkdir(parents=True)
    (library / "sub" / "a.py").write_text(f'"""{SENTENCES * 2}"""\n\n\nclass A:\n' + indented(CODE * 1 + "\n" * 2))
    (library / "bad.py").write_bytes(b"\xff\xfe def")
    (manuals / "man1").mkdir(parents=True)
    page = f".TH LAMP 1\n.SH DESCRIPTION\n\\fBlamp\\fR is old.\n{SENTENCES}\n.PP\n{SENTENCES}\n"
    (manuals / "man1" / "lamp.1.gz").write_bytes(gzip.compress(page.encode()))
    (manuals / "man1" / "cut.1.gz").write_bytes(gzip.compress(page.encode())[:40])
    status = tmp_path / "status"
    status.write_text(f"Package: lamp\nDescription: lamps\n {SENTENCES}\n .\n {SENTENCES}\nSection: x\n\n")
    found = found_passages(manuals, status, library)
    assert found == found_passages(manuals, status, library)
    origins = {passage.origin: passage for passage in found}
    assert {"python code", "python documentation", "manual pages", "debian packages"} <= {*origins}
    assert origins["python code"].text == CODE and origins["python code"].kind == "code"
    assert "\\f" not in origins["manual pages"].text and "lamp is old." in origins["manual pages"].text


def indented(code: str) -> str:
    return "".join(f"    {line}\n" if line else "\n" for line in code.splitlines())


def test_every_wording_and_rule_can_be_filled():
    drawn = Passages(passages())
    for seed in range(400):
        prompt = draw_prompt(random.Random(seed), drawn)
        assert all(prompt.users) and not any("{" in user and "}" in user and "{text}" in user for user in prompt.users)
        assert prompt.temperature == 0 or 0.8 <= prompt.temperature <= 1
    for passage in passages(3):
        for rule in RULES[passage.kind]:
            made = rule(random.Random(1), passage)
            assert made is not None and made[0] and made[1]
    user, answer, origin = draw_reference(random.Random(3), drawn)
    assert user and answer and origin in {"python code", "manual pages"}


def test_the_command_writes_references_without_a_model(tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(making, "found_passages", lambda: passages())
    assert cli.main(["train", "text", "--references", "5", "--out", str(tmp_path)]) == 0
    assert len((tmp_path / REFERENCES).read_text().splitlines()) == 5
    assert REFERENCES in capsys.readouterr().out


def test_too_little_text_and_models_without_a_template_are_refused(tmp_path: Path):
    model, tokenizer = ending(), tiny_tokenizer()
    with pytest.raises(UserError, match="too little text was found"):
        write_answers(model, tokenizer, tmp_path, conversations=1, passages=[])
    bare = type("Bare", (), {"chat_template": None})()
    with pytest.raises(UserError, match="no chat template"):
        write_answers(model, bare, tmp_path, conversations=1, passages=passages())
