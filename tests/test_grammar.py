"""Grammars: answers keep to a form, drafts that it forbids are marked or left out, forced tokens are drafted."""

from __future__ import annotations

import json
import random
import re
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import jsonschema
import numpy as np
import pytest
import torch
import transformers as hf
from fastapi.testclient import TestClient

from decoders import Grammar, Prompt, UserError, divergence, generate, record
from decoders.engine.decoding import Decoding
from decoders.prompt import codec
from decoders.prompt.grammar import FILTER, MARK, REGEX, Matcher
from decoders.study.look.places import PlaceReplay, strip_of
from decoders.study.look.whatif import ReadRun, go_on
from decoders.trace.check import check
from decoders.verifiers.sampling import Sampling
from specviz.cli import main

from .drafts import target_with_parts
from .models import network, prompt_ids, save_model, tiny_tokenizer
from .stubs import client_of, gallery_desk
from .tiers import matrix
from .waiting import until

llguidance = pytest.importorskip("llguidance")
NEW, STOP = 48, 1
SCHEMA = {
    "type": "object", "properties": {"lamp": {"enum": ["old", "new"]}, "sum": {"type": "integer", "maximum": 99}},
    "required": ["lamp", "sum"], "additionalProperties": False,
}  # fmt: skip
GRAMMARS = (
    Grammar.of_schema(SCHEMA), Grammar.of_schema({"type": "array", "items": {"type": "boolean"}, "maxItems": 6}),
    Grammar(REGEX, "(total|items): [0-9]{2,5}(, [a-z]{1,4})*"),
)  # fmt: skip
METHODS = ("pld", "adapld", "recycling", "lookahead", "suffix", "sps", "glide", "ppd", "jump", "recycling@ratio")


@pytest.fixture(scope="module")
def target(module_home: Any) -> Any:
    return target_with_parts(("glide", "drafter", "ppd"))


def prompt_of(seed: int, grammar: Grammar) -> Prompt:
    """A prompt that holds the beginning of such answers, to be copied from."""
    tokenizer = tiny_tokenizer()
    text = 'the {"lamp": "old", "sum": 7} [true, false, true] total: 4711, abc {"lamp": "new", "sum": 12} '
    ids = tokenizer(text * 2, add_special_tokens=False)["input_ids"]
    return replace(Prompt.from_ids([*prompt_ids(seed, 8), *ids]), grammar=grammar)


class ConstrainedProcessor(hf.LogitsProcessor):
    """Constrained decoding by itself: a new matcher for every text."""

    def __init__(self, grammar: Grammar, length: int) -> None:
        words = llguidance.hf.from_tokenizer(tiny_tokenizer(), n_vocab=320, eos_token=[STOP])
        make = llguidance.LLMatcher
        source = make.grammar_from_regex(grammar.text) if grammar.kind == REGEX else (
            make.grammar_from_json_schema(grammar.text)
        )  # fmt: skip
        self.matcher, self.length = make(words, source), length

    def __call__(self, input_ids: torch.Tensor, scores: torch.Tensor) -> torch.Tensor:
        matcher = self.matcher.deep_copy()
        assert matcher.consume_tokens(input_ids[0, self.length :].tolist()) or input_ids.shape[1] == self.length
        bits = np.unpackbits(np.frombuffer(matcher.compute_bitmask(), dtype=np.uint8), bitorder="little")
        return scores.masked_fill(torch.from_numpy(bits[:320] == 0), -torch.inf)


@pytest.mark.parametrize("number", matrix(range(24), 8, "further grammars and methods"))
def test_answers_are_valid_and_those_of_constrained_plain_decoding(target: Any, number: int):
    rng = random.Random(number)
    grammar = replace(rng.choice(GRAMMARS), drafts=rng.choice(["mark", FILTER]))
    prompt, method = prompt_of(number, grammar), METHODS[number % len(METHODS)]
    sampling = Sampling(rng.choice([0.0, 0.0, 1.0]), seed=number)
    options = {"sampling": sampling, "max_new_tokens": NEW, "stop_ids": [STOP]}
    plain = generate(target, prompt, **options)
    trace = record(target, prompt, method, **options)
    check(trace)
    output = list(trace.output_ids)
    if sampling.greedy:
        length = len(prompt.tokens)
        reference = network("llama").generate(
            torch.tensor([prompt.tokens]), max_new_tokens=NEW, do_sample=False, eos_token_id=STOP, pad_token_id=0,
            logits_processor=hf.LogitsProcessorList([ConstrainedProcessor(grammar, length)]),
        )  # fmt: skip
        assert plain == reference[0, length:].tolist()
    if sampling.greedy or method not in ("sps", "glide"):  # which draw otherwise
        assert output == plain
    text = target.tokenizer.decode(output[: -1 if output[-1] == STOP else None])
    assert Matcher(grammar, target.tokenizer, 320, [STOP], 0).move(output) or output[-1] == STOP
    if trace.run["stop"] == "eos":
        if grammar.kind == REGEX:
            assert re.fullmatch(grammar.text, text)
        else:
            jsonschema.validate(json.loads(text), json.loads(grammar.text))


def test_a_mask_is_that_of_its_text_whatever_was_looked_at_before():
    """The way back of llguidance itself left, behind ``[ true`` and a space, the mask of a text that has a comma."""
    grammar, tokenizer = GRAMMARS[1], tiny_tokenizer()
    begin, space_t, r, u, e, close, comma, f, al, t, space, line = tokenizer.convert_tokens_to_ids(
        ["[", "Ġt", "r", "u", "e", "]", ",", "f", "al", "t", "Ġ", "Ċ"]
    )
    matcher, fresh = (Matcher(grammar, tokenizer, 320, [STOP], 0) for _ in range(2))
    true = [begin, space_t, r, u, e]
    for draft in ([*true, close], [*true, line, space], [begin, t, r, u, e, comma, space]):
        for length in range(1, len(draft) + 1):
            matcher.move(draft[:length])
        matcher.mask(draft[:2])
    matcher.mask(draft)
    for length in (8, 9):
        matcher.move([*draft, f, al][:length])
    assert matcher.mask([*true, space]).tolist() == fresh.mask([*true, space]).tolist()

    rng, masks = random.Random(5), dict[tuple[int, ...], np.ndarray]()
    text: list[int] = []
    for _ in range(400):
        walk = text[: rng.randrange(len(text) + 1)]
        allowed = np.flatnonzero(masks.get(tuple(walk), matcher.mask(walk)))
        text = [*walk, int(rng.choice(allowed.tolist() or [begin]))][:40]
        masks.setdefault(tuple(text), Matcher(grammar, tokenizer, 320, [STOP], 0).mask(text))
        assert matcher.mask(text).tolist() == masks[tuple(text)].tolist(), text


def test_forbidden_drafts_are_marked_and_counted_or_left_out(target: Any):
    prompt = prompt_of(3, GRAMMARS[0])
    options = {"max_new_tokens": NEW, "stop_ids": [STOP]}
    marked = record(target, prompt, "recycling", **options)
    nodes, steps = marked.tables["nodes"], marked.tables["steps"]
    forbidden = [row for row, value in enumerate(nodes["term:forbidden"]) if value]
    assert sum(steps["term:forbidden"]) == len(forbidden) > 5
    reasons = {nodes["reason"][row] for row in forbidden if nodes["status"][row] == "rejected"}
    assert reasons == {"forbidden by GrammarProcessor"}
    assert marked.run["grammar"]["kind"] == "json schema" and marked.run["processing"]["names"] == ["GrammarProcessor"]
    assert codec.of_trace(marked).grammar == prompt.grammar == codec.from_json(codec.to_json(prompt)).grammar
    filtered = record(target, replace(prompt, grammar=replace(GRAMMARS[0], drafts=FILTER)), "recycling", **options)
    check(filtered)
    assert filtered.output_ids == marked.output_ids and sum(filtered.tables["steps"]["term:forbidden"]) == 0
    assert "grammar" in filtered.tables["pruned"]["why"]
    assert filtered.rows("nodes") < marked.rows("nodes")


def test_what_is_forced_is_drafted(target: Any):
    prompt = prompt_of(2, GRAMMARS[0])
    options = {"max_new_tokens": NEW, "stop_ids": [STOP]}
    first = next(iter(Decoding.of(target, prompt, "jump", **options)))
    assert target.tokenizer.decode(first.draft.tree.tokens[1:]).startswith("{")
    assert set(first.draft.origins[1:]) == {"forced"} and first.accepted > 0
    plain, jumped, joined = (
        record(target, prompt, method, params, **options)
        for method, params in (("plain", {}), ("jump", {}), ("composite", {"drafters": "jump,pld"}))
    )
    assert plain.output_ids == jumped.output_ids == joined.output_ids
    assert plain.rows("steps") > jumped.rows("steps") >= joined.rows("steps")
    replay = PlaceReplay(target, plain)
    strip = strip_of(replay, {"jump": dict(replay.drafts("jump"))})
    assert strip.steps_of("jump") == jumped.rows("steps") and strip.reach["jump"][0] == first.accepted
    free = record(target, replace(prompt, grammar=None), "jump", **options)
    assert set(free.tables["steps"]["drafted"]) == {0} and "there is no grammar" in free.tables["steps"]["reason"][0]


def test_a_recorded_run_goes_on_inside_its_grammar(target: Any):
    options = {"max_new_tokens": NEW, "stop_ids": [STOP]}
    trace = record(target, prompt_of(5, GRAMMARS[0]), "adapld", **options)
    assert divergence(target, trace) is None
    read = ReadRun(target, trace)
    assert all(read.redraft(step).same for step in range(trace.rows("steps")))
    on = go_on(target, trace, 3, "pld")
    rest = generate(target, on["prompt"], "pld", max_new_tokens=on["max_new_tokens"], stop_ids=on["stop_ids"])
    assert list(trace.output_ids[-len(rest) :]) == rest


@pytest.mark.parametrize(
    ("kind", "text", "words"),
    [
        ("json schema", "{", "is no JSON"), ("json schema", '{"type": 5}', "type must be a string"),
        ("json schema", "false", "Unsatisfiable"), ("json schema", "[]", "must be an object"),
        ("regex", "(a", "unclosed group"), ("regex", r"[^\s\S]", "no text satisfies"), ("lark", "a", "is not known"),
    ],
)  # fmt: skip
def test_what_is_no_grammar_is_refused(target: Any, kind: str, text: str, words: str):
    with pytest.raises(UserError, match=words):
        generate(target, prompt_of(1, Grammar(kind, text)), "pld", max_new_tokens=4, stop_ids=[STOP])


def test_a_run_without_a_stop_token_is_refused(target: Any):
    with pytest.raises(UserError, match="needs a stop token"):
        generate(target, prompt_of(1, GRAMMARS[0]), "pld", max_new_tokens=4, stop_ids=())


def test_grammars_without_their_library_say_what_to_install(target: Any, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setitem(__import__("sys").modules, "llguidance", None)
    with pytest.raises(UserError, match=r"pip install .specviz-drafts\[grammar\]"):
        generate(target, prompt_of(1, GRAMMARS[0]), "pld", max_new_tokens=4, stop_ids=[STOP])


def test_the_command_takes_a_grammar(tmp_path: Any, capsys: pytest.CaptureFixture):
    model = network("llama")
    model.config.eos_token_id = model.generation_config.eos_token_id = STOP
    save_model(tmp_path / "model", model=model)
    schema, trace = tmp_path / "schema.json", tmp_path / "run.spectrace"
    schema.write_text('{"enum": ["old lamp", "new lamp"]}')
    base = ["run", "--model", str(tmp_path / "model"), "--prompt", "the old lamp", "--max-new-tokens", str(NEW)]
    run = [*base, "--method", "jump", "--json-schema", str(schema), "--grammar-filter", "--json", "--out", str(trace)]
    assert main(run) == 0, capsys.readouterr().err
    assert json.loads(json.loads(capsys.readouterr().out)["text"]) in ("old lamp", "new lamp")
    assert main(["run", "--model", str(tmp_path / "model"), "--again", str(trace)]) == 0
    for options, words in (
        (["--json-schema", "{}", "--regex", "a"], "leave one out"), (["--grammar-filter"], "needs a grammar"),
        (["--json-schema", str(tmp_path / "none")], "cannot read the JSON Schema file"),
    ):  # fmt: skip
        assert main([*base, *options]) == 2 and words in capsys.readouterr().err


def test_a_stop_token_ends_the_answer_and_nothing_is_asked_behind_it(target: Any):
    tokenizer = tiny_tokenizer()
    ids = tokenizer("ab", add_special_tokens=False)["input_ids"]
    matcher = Matcher(Grammar(REGEX, "ab"), tokenizer, 320, (STOP,), 0)
    assert matcher.move([*ids, STOP]) and matcher.mask([*ids, STOP]).all() and matcher.move([*ids, STOP, 7])
    assert not matcher.move([ids[0], STOP]) and not matcher.mask([ids[0], STOP]).any()
    assert matcher.find_continuation([*ids, STOP]) == []
    assert matcher.allows([], [0, *ids, STOP], [-1, *range(len(ids) + 1)]) == [*range(len(ids) + 2)]
    # a copy of the whole answer, its end and what follows it
    prompt = Prompt.from_ids([9, *ids, STOP, 7, 8, 9])
    for drafts in (MARK, FILTER):
        grammar = Grammar(REGEX, "ab", drafts)
        held = replace(prompt, grammar=grammar)
        run = record(target, held, "pld", {"clip": True}, max_new_tokens=9, stop_ids=(STOP,))
        assert run.output_ids == [*ids, STOP] and run.rows("steps") == 1


@pytest.fixture(scope="module")
def client(module_home: Any) -> Iterator[TestClient]:
    target = target_with_parts(())
    target.model.generation_config.eos_token_id = STOP
    run = record(target, Prompt.from_ids(prompt_ids(1)), max_new_tokens=4)
    with client_of(gallery_desk(target, {"first": run})) as client:
        yield client


def start(client: TestClient, grammar: dict[str, Any], **settings: Any) -> Any:
    prompt = {"mode": "text", "text": "the old lamp the", "grammar": grammar}
    return client.post("/api/runs", json={"prompt": prompt, "method": "pld", "settings": settings})


@pytest.mark.parametrize(("kind", "text", "words"), [
    ("json schema", "{oops", "is no JSON"), ("json schema", '{"type": "nothing"}', "cannot be read"),
    ("regex", "(", "cannot be read"), ("regex", "x" * 200_001, "at most 200,000"), ("xml", "<a>", "names and values"),
])  # fmt: skip
def test_a_bad_form_of_the_answer_is_refused_at_its_field(client: TestClient, kind: str, text: str, words: str):
    answer = start(client, {"kind": kind, "text": text})
    assert answer.status_code >= 400 and words in answer.json()["error"]
    assert kind == "xml" or answer.json()["place"] == "grammar"


@pytest.mark.parametrize("drafts", [MARK, FILTER])
def test_a_run_of_the_page_keeps_to_its_form(client: TestClient, drafts: str):
    form = {"kind": REGEX, "text": "[0-9]{2}-[a-z]", "filter": drafts == FILTER}
    answer = start(client, form, max_new_tokens=24).json()
    assert "run" in answer, answer
    key = answer["run"]["id"]
    until(lambda: client.get(f"/api/traces/{key}").json()["run"].get("complete"), "the run is over")
    run = client.get(f"/api/traces/{key}").json()["run"]
    assert run["grammar"]["text"] == form["text"] and run["grammar"]["drafts"] == drafts and not run.get("error")
    assert client.get(f"/api/inspect/prompt?run={key}").json()["prompt"]["grammar"] == form
    assert "grammar" not in client.get("/api/inspect/prompt?run=first").json()["prompt"]
