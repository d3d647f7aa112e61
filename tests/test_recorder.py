"""Recording a user's own generate(): outputs stay generate()'s own, traces say what was seen, models are restored."""

from __future__ import annotations

import copy
import functools
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any

import pytest
import torch
import transformers as hf
from torch import Tensor
from transformers.modeling_layers import MtpModel

import specviz
from decoders import load, recording
from decoders.errors import UserError
from decoders.recorder.recorder import PLACES, Recorder
from decoders.study.look.whatif import ReadRun
from decoders.trace.check import check
from decoders.trace.trace import Trace

from .models import network, prompt_ids, tiny_target, tiny_tokenizer
from .tiers import matrix

FAMILIES = ("llama", "gpt2", "qwen3", "gemma2", "opt", "mistral-window")
PROMPT = [*prompt_ids(3, 24, 6), *prompt_ids(3, 24, 6)[:12]]  # repeats itself, so that lookups find something
TOKENS = 20


def ids() -> Tensor:
    return torch.tensor([PROMPT])


@functools.cache
def assistant(family: str = "llama") -> Any:
    """A model that is often right: the same with a little noise."""
    model = network(family)
    generator = torch.Generator().manual_seed(0)
    with torch.no_grad():
        for p in model.parameters():
            p.add_(torch.randn(p.shape, generator=generator) * 0.01)
    model.generation_config.num_assistant_tokens = 4
    model.generation_config.assistant_confidence_threshold = 0.0
    return model


@functools.cache
def other_tokenizer() -> Any:
    """Another byte-level tokenizer: other merges, hence other ids."""
    texts = ["museum lamps and stations were sold", "return the total of all items"]
    return tiny_tokenizer().train_new_from_iterator(texts, 300)


def text_ids() -> Tensor:
    return tiny_tokenizer()("the old lamp at the station, the old lamp at", return_tensors="pt")["input_ids"]


def both(model: Any, names: Any = None, seed: int = 0, prompt: Any = None, **options: Any) -> tuple[Any, Recorder]:
    """An unrecorded and a recorded call of generate() compared; gives the output and the recorder."""
    prompt = ids() if prompt is None else prompt
    options = {"max_new_tokens": TOKENS, "do_sample": False, "pad_token_id": 0, **options}
    fresh = options.pop("fresh", dict)  # makes what a call of generate() changes
    repeats = options.pop("repeats", True)
    torch.manual_seed(seed)
    plain = model.generate(prompt, **options, **fresh())
    made = fresh()
    torch.manual_seed(seed)
    before = vars(model).copy()
    with recording(model, names) as recorder:
        output = model.generate(prompt, **options, **made)
    assert torch.equal(output, plain) or not repeats
    assert vars(model) == before and not model._forward_hooks
    return output, recorder


def check_trace(trace: Trace, output: list[int]) -> Trace:
    """The trace is whole, survives its file, and holds the output."""
    check(trace)
    assert trace.output_ids == output and trace.run["complete"]
    return trace


@pytest.mark.parametrize("family", matrix(FAMILIES, 2, "the other families"))
@pytest.mark.parametrize("how", ["plain", "lookup", "assistant", "sampled"])
def test_output_is_generates_own_on_six_families(family: str, how: str):
    options: dict[str, Any] = {
        "plain": {}, "lookup": {"prompt_lookup_num_tokens": 5}, "assistant": {"assistant_model": assistant(family)},
        "sampled": {"assistant_model": assistant(family), "do_sample": True, "temperature": 0.8, "top_k": 40},
    }[how]  # fmt: skip
    output, recorder = both(network(family), **options)
    trace = check_trace(recorder.trace, output[0, len(PROMPT) :].tolist())
    assert trace.run["metrics"]["tokens"] == TOKENS
    assert (sum(trace.tables["steps"]["drafted"]) > 0) == (how != "plain")


def test_a_looked_up_draft_says_where_it_was_copied_from():
    output, recorder = both(network(), tiny_tokenizer(), prompt_lookup_num_tokens=5, max_matching_ngram_size=3)
    trace = check_trace(recorder.trace, output[0, len(PROMPT) :].tolist())
    nodes, tokens, candidates = (trace.tables[name] for name in ("nodes", "tokens", "candidates"))
    drafted = [row for row, origin in enumerate(nodes["origin"]) if origin == "main"]
    assert drafted and all(tokens["id"][nodes["source"][row]] == nodes["token"][row] for row in drafted)
    chosen = [row for row, one in enumerate(candidates["chosen"]) if one]
    assert len(chosen) == sum(d > 0 for d in trace.tables["steps"]["drafted"])
    assert all(candidates["rank"][row] == 0 for row in chosen)
    assert trace.run["method"]["params"] == {"prompt_lookup_num_tokens": 5, "max_matching_ngram_size": 3}


def test_an_assistants_probabilities_are_recorded_beside_the_models():
    """q is the assistant's own, p the model's: both computed here anew, from the same text."""
    model, helper = network(), assistant()
    output, recorder = both(model, assistant_model=helper)
    trace = check_trace(recorder.trace, output[0, len(PROMPT) :].tolist())
    nodes, steps = trace.tables["nodes"], trace.tables["steps"]
    text = trace.tables["tokens"]["id"]
    with torch.no_grad():
        for row, (step, depth) in enumerate(zip(nodes["step"], nodes["depth"], strict=True)):
            if depth != 1:
                continue
            before = torch.tensor([text[: steps["context"][step]]])
            p, q = (one(before).logits[0, -1].softmax(-1)[nodes["token"][row]] for one in (model, helper))
            assert nodes["prob"][row] == pytest.approx(float(p), abs=2e-4)
            assert nodes["draft_prob"][row] == pytest.approx(float(q), abs=2e-4)
    assert trace.rows("guesses") and trace.run["metrics"]["beta"] is not None


def test_drawn_drafts_tell_their_accept_ratio():
    _, recorder = both(network(), assistant_model=assistant(), do_sample=True, temperature=0.7)
    nodes = recorder.trace.tables["nodes"]
    rows = [r for r, s in enumerate(nodes["status"]) if s in ("accepted", "rejected")]
    assert rows and all(0 <= nodes["term:accept_ratio"][r] <= 1 for r in rows)
    assert all(nodes["term:accept_ratio"][r] < 1 for r in rows if nodes["status"][r] == "rejected")
    assert {nodes["reason"][r].split(": ")[1] for r in rows} <= {"stands", "redrawn from the residual"}
    assert recorder.trace.run["sampling"]["temperature"] == 0.7


def test_processors_do_not_change_the_recorded_probabilities():
    """A repetition penalty writes into the model's own logits; p is the model's all the same."""
    model = network()
    _, recorder = both(model, assistant_model=assistant(), repetition_penalty=1.5)
    trace = recorder.trace
    with torch.no_grad():
        raw = model(torch.tensor([trace.tables["tokens"]["id"]])).logits[0].softmax(-1)
    tokens = trace.tables["tokens"]
    for place in range(len(PROMPT), trace.rows("tokens")):
        assert tokens["prob"][place] == pytest.approx(float(raw[place - 1, tokens["id"][place]]), abs=2e-4)
    method = trace.run["method"]
    assert trace.run["metrics"]["differs"] > 0, "and the record says whose choice the others are"
    assert method["params"]["logits_processors"] == "RepetitionPenaltyLogitsProcessor"
    assert [control["name"] for control in method["controls"]] == ["logits_processors"]
    _, warped = both(model, do_sample=True, temperature=0.7, top_k=9)
    assert "logits_processors" not in warped.trace.run["method"]["params"]


def test_early_exit_drafts_with_the_model_itself():
    output, recorder = both(network(), assistant_early_exit=2)
    trace = check_trace(recorder.trace, output[0, len(PROMPT) :].tolist())
    assert len(recorder.traces) == 1 and trace.run["method"]["params"]["assistant_early_exit"] == 2


@pytest.mark.parametrize("sampled", [False, True], ids=["text", "universal"])
def test_an_assistant_with_another_tokenizer(sampled: bool):
    def fresh() -> dict[str, Any]:
        helper = network(seed=2)
        helper.generation_config.num_assistant_tokens = 4
        helper.resize_token_embeddings(len(other_tokenizer()))
        return {"assistant_model": helper, "assistant_tokenizer": copy.deepcopy(other_tokenizer())}

    output, recorder = both(
        network(), tiny_tokenizer(), prompt=text_ids(), tokenizer=tiny_tokenizer(), do_sample=sampled, fresh=fresh,
        repeats=not sampled,  # unrecorded, the universal assistant does not repeat itself either
    )  # fmt: skip
    trace = check_trace(recorder.trace, output[0, text_ids().shape[1] :].tolist())
    assert trace.run["method"]["name"] == ("generate:universal" if sampled else "generate:assistant-text")
    assert sum(trace.tables["steps"]["drafted"]) > 0


def test_multi_token_prediction(monkeypatch: pytest.MonkeyPatch):
    def make_assistant(main_model: Any, **kwargs: Any) -> Any:
        torch.manual_seed(0)
        return MtpModel(main_model, 2).eval()

    monkeypatch.setattr(MtpModel, "from_pretrained", make_assistant)
    model = network()
    model.config.num_mtp_layers = 2
    output, recorder = both(model, use_mtp=True)
    trace = check_trace(recorder.trace, output[0, len(PROMPT) :].tolist())
    assert trace.tables["steps"]["drafted"][:2] == [0, 2]
    assert "reads the prompt" in trace.tables["steps"]["reason"][0]


def test_a_stop_token_inside_the_draft_ends_the_run():
    model = network()
    plain = model.generate(ids(), max_new_tokens=TOKENS, do_sample=False)[0, len(PROMPT) :].tolist()
    stop = plain[TOKENS // 2]
    output, recorder = both(model, assistant_model=network(), eos_token_id=stop)
    trace = check_trace(recorder.trace, output[0, len(PROMPT) :].tolist())
    assert trace.run["stop"] == "eos" and trace.output_ids[-1] == stop
    assert trace.tables["steps"]["drafted"] and trace.run["stop_ids"] == [stop]


def test_a_padded_batch_is_recorded_row_by_row():
    rows = torch.tensor([[0] * 6 + PROMPT[:-6], PROMPT])
    mask = torch.ones_like(rows)
    mask[0, :6] = 0
    output, recorder = both(network(), prompt=rows, attention_mask=mask)
    assert [t.run["prompt_length"] for t in recorder.traces] == [len(PROMPT) - 6, len(PROMPT)]
    for trace, row in zip(recorder.traces, output, strict=True):
        check_trace(trace, row[len(PROMPT) :].tolist())
    with pytest.raises(UserError, match="2 outputs"):
        _ = recorder.trace


def test_rows_of_a_batch_end_at_their_own_stop_token(tmp_path: Path):
    rows = torch.tensor([PROMPT, prompt_ids(9, len(PROMPT), 90)])
    plain = network().generate(rows, max_new_tokens=TOKENS, do_sample=False)[:, len(PROMPT) :].tolist()
    stop = next(t for t in plain[0][:-1] if t not in plain[1])
    _, recorder = both(network(), prompt=rows, eos_token_id=stop)
    assert [t.run["stop"] for t in recorder.traces] == ["eos", "max tokens"]
    assert recorder.traces[0].output_ids == plain[0][: plain[0].index(stop) + 1]
    paths = recorder.save(tmp_path / "run.spectrace")
    assert [path.name for path in paths] == ["run-1.spectrace", "run-2.spectrace"]
    assert load(paths[1]).output_ids == recorder.traces[1].output_ids


def test_several_return_sequences_are_several_traces():
    output, recorder = both(network(), do_sample=True, num_return_sequences=3)
    assert [t.output_ids for t in recorder.traces] == output[:, len(PROMPT) :].tolist()


def test_beams_are_refused_before_anything_is_computed():
    model = network()
    with recording(model) as recorder, pytest.raises(UserError, match="num_beams=3"):
        model.generate(ids(), num_beams=3, max_new_tokens=4)
    with pytest.raises(UserError, match="nothing was recorded"):
        _ = recorder.trace
    assert not set(PLACES) & set(vars(model))


def test_a_generate_that_raises_leaves_what_was_seen_and_restores_the_model():
    model = network()

    class Failing(hf.LogitsProcessor):
        def __call__(self, input_ids: Tensor, scores: Tensor) -> Tensor:
            if input_ids.shape[1] > len(PROMPT) + 5:
                raise RuntimeError("no more")
            return scores

    with pytest.raises(RuntimeError, match="no more"), recording(model) as recorder:
        model.generate(ids(), max_new_tokens=TOKENS, do_sample=False, logits_processor=[Failing()])
    assert not set(PLACES) & set(vars(model)) and not model._forward_hooks
    trace = recorder.trace
    check(trace)
    assert trace.run["stop"] == "error" and "no more" in trace.run["error"] and len(trace.output_ids) == 6


def test_an_attribute_of_the_users_own_comes_back():
    model = network()
    own = vars(model)["generate"] = functools.partial(type(model).generate, model)
    with recording(model):
        assert model.generate is not own
    assert model.generate is own


@pytest.mark.parametrize(
    ("make", "word"),
    [
        (lambda: hf.LlamaModel(network().config), "language"),
        (lambda: torch.nn.Linear(2, 2), "no generate"),
        (lambda: hf.T5ForConditionalGeneration(hf.T5Config(
            vocab_size=32, d_model=8, d_kv=4, d_ff=8, num_layers=1, num_heads=2)), "encoder-decoder"),
    ],
)  # fmt: skip
def test_what_is_no_causal_language_model_is_refused(make: Any, word: str):
    with pytest.raises(UserError, match=word):
        recording(make())


def test_a_model_is_recorded_once_at_a_time():
    model = network()
    with recording(model), pytest.raises(UserError, match="recorded already"), recording(model):
        pass
    assert not set(PLACES) & set(vars(model))


def test_generate_in_a_thread_with_a_streamer():
    model = network()
    streamer = hf.TextIteratorStreamer(tiny_tokenizer(), skip_prompt=True)
    with recording(model, tiny_tokenizer()) as recorder:
        options = {"max_new_tokens": 8, "do_sample": False, "streamer": streamer}
        thread = threading.Thread(target=model.generate, args=(ids(),), kwargs=options)
        thread.start()
        text = "".join(streamer)
        thread.join()
    assert len(recorder.trace.output_ids) == 8 and text


def test_continuous_batching_is_refused_and_not_silently_left_out():
    model = network()
    with recording(model) as recorder:
        for name in ("generate_batch", "init_continuous_batching"):
            with pytest.raises(UserError, match=f"^{name}.*call generate"):
                getattr(model, name)([PROMPT])
    assert not recorder.traces and not set(PLACES) & set(vars(model))


def test_a_second_thread_is_refused_while_a_call_is_recorded():
    model, refusals = network(), []

    def second() -> None:
        try:
            model.generate(ids(), max_new_tokens=2)
        except UserError as refusal:
            refusals.append(str(refusal))

    class Beside(hf.LogitsProcessor):
        def __call__(self, input_ids: Any, scores: Any) -> Any:
            if not refusals:
                thread = threading.Thread(target=second)
                thread.start()
                thread.join()
            return scores

    with recording(model) as recorder:
        model.generate(ids(), max_new_tokens=4, do_sample=False, logits_processor=[Beside()])
    assert len(recorder.traces) == 1 and "let it end before the next begins" in refusals[0]


def test_hidden_states_and_attention_on_request():
    model = network()
    with recording(model, hidden=(0, 2), attention=(1,)) as recorder:
        model.generate(ids(), max_new_tokens=6, do_sample=False)
    trace = recorder.trace
    check(trace)
    assert recorder.hidden[2].shape == (len(PROMPT) + 6, 64)
    assert set(trace.tables["attention"]["layer"]) == {1} and set(trace.tables["attention"]["step"]) == set(range(6))
    assert model.config._attn_implementation == "eager"
    with pytest.raises(UserError, match="layer 3"):
        recording(model, attention=(3,))


def test_a_recorded_run_can_be_drafted_again_by_a_method():
    model = network()
    _, recorder = both(model, prompt_lookup_num_tokens=5)
    target = tiny_target()
    assert recorder.trace.run["model"]["key"] == target.key
    again = ReadRun(target, recorder.trace).redraft(3, "pld")
    assert again.emitted


@pytest.mark.parametrize("family", FAMILIES)
def test_our_engine_runs_under_the_users_own_call(family: str):
    model = network(family)
    plain = model.generate(ids(), max_new_tokens=TOKENS, do_sample=False)
    ours = {"custom_generate": specviz.generate, "method": "pld+h", "params": {"k": 6}}
    assert torch.equal(model.generate(ids(), max_new_tokens=TOKENS, do_sample=False, **ours), plain)
    assert torch.equal(model.generate(ids(), max_new_tokens=TOKENS, do_sample=False), plain)
    assert all(p.requires_grad for p in model.parameters())
    with recording(model, tiny_tokenizer()) as recorder:
        model.generate(ids(), max_new_tokens=TOKENS, do_sample=False, **ours)
    assert recorder.trace.run["method"]["name"] == "pld+h"
    assert recorder.trace.output_ids == plain[0, len(PROMPT) :].tolist()


def test_the_engine_sees_new_weights_and_the_calls_own_criteria():
    model = network()
    options: dict[str, Any] = {"max_new_tokens": TOKENS, "do_sample": False}
    ours = {"custom_generate": specviz.generate, "method": "pld"}
    model.generate(ids(), **options, **ours)
    with torch.no_grad():
        model.lm_head.weight.mul_(-1)
    assert torch.equal(model.generate(ids(), **options, **ours), model.generate(ids(), **options))

    class Five(hf.StoppingCriteria):
        def __call__(self, input_ids: Tensor, scores: Any, **kwargs: Any) -> Any:
            return torch.tensor([input_ids.shape[1] >= len(PROMPT) + 5])

    output = model.generate(ids(), **options, **ours, stopping_criteria=[Five()], return_dict_in_generate=True)
    assert output.sequences.shape[1] == len(PROMPT) + 5


OURS: dict[str, Any] = {"custom_generate": specviz.generate, "method": "pld+h", "params": {"k": 6}}


class Holds(hf.StoppingCriteria):
    """Holds for the first prefix that ends with one of some tokens; ``seen`` has every prefix that it was asked of."""

    def __init__(self, *tokens: int) -> None:
        self.tokens, self.seen, self.scores = tokens, list[list[int]](), list[Any]()

    def __call__(self, input_ids: Tensor, scores: Any, **kwargs: Any) -> Any:
        self.seen.append(input_ids[0].tolist())
        self.scores.append(None if scores is None else torch.cat(scores))
        return torch.tensor([self.seen[-1][-1] in self.tokens])


class CountingBias(hf.LogitsProcessor):
    """Moves the bias with every call, as a processor with a state of its own does; ``seen`` as of ``Holds``."""

    def __init__(self) -> None:
        self.seen = list[list[int]]()

    def __call__(self, input_ids: Tensor, scores: Tensor) -> Tensor:
        self.seen.append(input_ids[0].tolist())
        bias = torch.zeros_like(scores)
        bias[:, (37 * len(self.seen)) % scores.shape[1]] = 2.0
        return scores + bias


class Puts(hf.generation.streamers.BaseStreamer):
    def __init__(self) -> None:
        self.put_ids, self.ended = list[list[int]](), False

    def put(self, value: Tensor) -> None:
        self.put_ids.append(value.reshape(-1).tolist())

    def end(self) -> None:
        self.ended = True


@functools.cache
def code_to_go_on() -> tuple[Any, Any, Tensor]:
    """The bundled target, its tokenizer, and code whose beginning stands there twice: many copied tokens stand."""
    model = hf.AutoModelForCausalLM.from_pretrained("assets/demo/target")
    tokenizer = hf.AutoTokenizer.from_pretrained("assets/demo/target")
    head = "def total(items):\n    result = 0\n"
    text = f"{head}    for item in items:\n        result += item\n    return result\n\n{head}"
    prompt = tokenizer.apply_chat_template(
        [{"role": "user", "content": text}], add_generation_prompt=True, return_tensors="pt", return_dict=True
    )["input_ids"]
    return model, tokenizer, prompt


@pytest.mark.slow("two runs for every token of a text")
def test_a_criterion_ends_the_output_at_each_of_its_tokens_as_plain_generate_does():
    model, _, prompt = code_to_go_on()
    options: dict[str, Any] = {"max_new_tokens": 30, "do_sample": False}
    plain, ended_inside = model.generate(prompt, **options)[0, prompt.shape[1] :].tolist(), 0
    for token in dict.fromkeys(plain):
        rules = Holds(token), Holds(token)
        with recording(model) as recorder:
            outputs = [
                model.generate(prompt, **options, **more, stopping_criteria=[rule])
                for more, rule in zip(({}, OURS), rules, strict=True)
            ]
        assert torch.equal(*outputs) and rules[0].seen == rules[1].seen
        trace = recorder.traces[-1]
        check(trace)
        assert trace.run["complete"] and trace.run["stop"] in ("stopped by a criterion", "eos")
        ended_inside += "behind the output's end" in trace.tables["nodes"]["reason"]
    assert ended_inside > 1  # inside accepted drafts


@pytest.mark.slow("a run for every fifth place of a text")
def test_a_stop_string_over_several_tokens_ends_the_output_where_it_is_complete():
    model, tokenizer, prompt = code_to_go_on()
    options: dict[str, Any] = {"max_new_tokens": 30, "do_sample": False}
    text = tokenizer.decode(model.generate(prompt, **options)[0, prompt.shape[1] :])
    for start in range(0, len(text) - 5, 5):
        rule = [hf.StopStringCriteria(tokenizer, [text[start : start + 5]])]
        plain = model.generate(prompt, **options, stopping_criteria=rule)
        assert torch.equal(model.generate(prompt, **options, **OURS, stopping_criteria=rule), plain)


def test_a_streamer_is_given_each_token_and_told_the_end():
    model = network()
    streamers = Puts(), Puts()
    for more, streamer in zip(({}, OURS), streamers, strict=True):
        model.generate(ids(), max_new_tokens=TOKENS, do_sample=False, streamer=streamer, **more)
    assert streamers[0].put_ids == streamers[1].put_ids and len(streamers[1].put_ids) == 1 + TOKENS
    assert streamers[1].ended


@pytest.mark.parametrize(
    "settings",
    [
        {"repetition_penalty": 1.3}, {"no_repeat_ngram_size": 2}, {"min_new_tokens": 12, "eos_token_id": [9, 40, 77]},
        {"bad_words_ids": [[17], [5, 6]]}, {"suppress_tokens": [*range(0, 320, 3)]}, {"counting": True},
        {"temperature_in_a_greedy_call": True},
    ],
    ids=lambda settings: next(iter(settings)),
)  # fmt: skip
@pytest.mark.parametrize("method", ["pld", "adapld"])  # chains and trees
def test_logits_processors_are_asked_token_by_token(settings: dict[str, Any], method: str):
    model, seen = network(), []
    outputs = []
    for more in ({}, {**OURS, "method": method, "params": {}}):
        options = dict(settings)
        if options.pop("counting", False):
            seen.append(CountingBias())
            options["logits_processor"] = [seen[-1]]
        if options.pop("temperature_in_a_greedy_call", False):
            options["logits_processor"] = [hf.TemperatureLogitsWarper(0.5)]
        rule = Holds()
        asked = {"return_dict_in_generate": True, "output_scores": True, "output_logits": True}
        with recording(model) as recorder:
            output = model.generate(
                ids(), max_new_tokens=TOKENS, do_sample=False, stopping_criteria=[rule], **asked, **options, **more
            )
        outputs.append((output, rule))
        check(recorder.trace)
    (plain, plain_rule), (ours, our_rule) = outputs
    assert torch.equal(plain.sequences, ours.sequences) and plain_rule.seen == our_rule.seen
    for name in ("scores", "logits"):
        torch.testing.assert_close(torch.cat(ours[name]), torch.cat(plain[name]), atol=1e-4, rtol=1e-4)
    for theirs, own in zip(plain_rule.scores, our_rule.scores, strict=True):
        torch.testing.assert_close(own, theirs, atol=1e-4, rtol=1e-4)
    assert recorder.trace.run["processing"]["extra"] == recorder.trace.run["processing"]["names"] != []
    if seen:
        assert seen[1].seen[: len(seen[0].seen)] == seen[0].seen


def test_a_sampled_call_draws_from_what_its_processors_leave():
    model = network()
    allowed = [5, 6, 7, 8]
    for seed in range(4):
        torch.manual_seed(seed)
        output = model.generate(
            ids(), max_new_tokens=TOKENS, do_sample=True, temperature=1.5, **OURS,
            suppress_tokens=[t for t in range(model.config.vocab_size) if t not in allowed],
        )  # fmt: skip
        assert set(output[0, len(PROMPT) :].tolist()) <= set(allowed)


def test_no_time_left_ends_the_output_after_one_token():
    model = network()
    for more in ({}, OURS):
        output = model.generate(ids(), max_new_tokens=TOKENS, do_sample=False, max_time=1e-9, **more)
        assert output.shape[1] == len(PROMPT) + 1


@pytest.mark.parametrize(
    ("options", "word"),
    [
        ({"logits_processor": [CountingBias()], "do_sample": True, "method": "pld@typical"}, "CountingBias"),
        ({"num_return_sequences": 2, "do_sample": True}, "2 texts"),
        ({"method": "nothing"}, "no method"),
    ],
)
def test_what_the_engine_does_not_do_is_refused(options: dict[str, Any], word: str):
    with pytest.raises(UserError, match=word):
        network().generate(ids(), max_new_tokens=4, custom_generate=specviz.generate, **options)


@pytest.mark.slow("a fresh interpreter; test_layers.py has the same for the app")
def test_importing_specviz_stays_light():
    code = "import sys, specviz; assert 'torch' not in sys.modules; specviz.recording; assert 'torch' in sys.modules"
    assert subprocess.run([sys.executable, "-c", code], timeout=300).returncode == 0
    with pytest.raises(AttributeError, match="nothing"):
        _ = specviz.nothing


def test_what_is_told_of_a_model_is_found_out_again_where_it_changed(monkeypatch: pytest.MonkeyPatch):
    from decoders.recorder import recorder

    asked, right = [], recorder.fingerprint
    monkeypatch.setattr(recorder, "fingerprint", lambda *args: (asked.append(0), right(*args))[1])
    model = network()
    first, again = recorder.described_model(model), recorder.described_model(model)
    assert first == again and first is not again and len(asked) == 1
    with torch.no_grad():
        model.model.layers[0].mlp.up_proj.weight.add_(1.0)
    trained = recorder.described_model(model)
    model.config.rms_norm_eps = 0.5
    assert len({about["key"] for about in (first, trained, recorder.described_model(model))}) == 3
