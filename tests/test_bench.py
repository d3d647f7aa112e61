"""Measuring: the arithmetic by hand, the peers' tokens and times, and losslessness checks that can fail."""

from __future__ import annotations

import copy
import json
import math
from dataclasses import replace
from functools import partial

import pytest
import torch

from decoders import Prompt, Sampling, UserError, find_method, methods
from decoders.drafters import select_method
from decoders.model.target_model.target import Session, Target
from decoders.study.judge.divergences import first_difference
from decoders.study.judge.tool_calls import calls_in, changed_share
from decoders.study.measure.peers import GENERATE, Peer
from decoders.study.measure.stock import Generation, StockModel
from decoders.sweep.bench import (
    SpeedSpread,
    bench,
    lengthen,
    machine,
    pair,
    ratios_of,
    summarise,
    tracing,
)
from decoders.sweep.lossless import check_lossless
from decoders.sweep.plan import Contender, Measurement, Sample
from decoders.sweep.timing import find_disturbed
from specviz.commands import verify
from specviz.views.charts import bench_chart, heads_chart, layers_chart, write_page

from .models import network, prompt_ids, tiny_target

torch.set_num_threads(1)  # toys: more threads only cost

PROMPTS = [Prompt.from_ids(prompt_ids(seed, 40, 12)) for seed in range(2)]


def sample(name, prompt, seconds, *, number=0, decode_s=None, **more) -> Sample:
    given = {"tokens": 10, "decoded": 10, "steps": 5, "accepted": 5, **more}
    return Sample(name, prompt, number, seconds=seconds, decode_s=decode_s or seconds, **given)


SAMPLES = [
    sample("plain", 0, 4.0, decode_s=2.0, steps=10, accepted=0),
    sample("pld", 0, 3.0, decode_s=1.0, draft_ms=1.0, verify_ms=50.0),
    sample("pld traced", 0, 3.3, decode_s=1.25),
    sample(GENERATE, 0, 8.0, decode_s=3.0, decoded=9, steps=None, accepted=None),
    sample("plain", 1, 2.0, decode_s=1.0, steps=10, accepted=0),
    sample("pld", 1, 2.0, decode_s=1.0, draft_ms=3.0, verify_ms=150.0, steps=2, accepted=8, identical=False),
    sample("pld traced", 1, 2.0, decode_s=1.0),
]


def test_spread():
    assert SpeedSpread.of([3.0, 1.0, 2.0]) == SpeedSpread(2.0, 1.5, 2.5, 3)
    assert SpeedSpread.of([None]) is None and SpeedSpread.of([]) is None


def test_ratios_are_formed_run_by_run():
    # prompt 0: 10/1 against 10/2 tokens/s; prompt 1: equal. The median of 2 and 1, not the ratio of medians
    assert pair(SAMPLES, "pld", "plain") == SpeedSpread(1.5, 1.25, 1.75, 2)
    assert pair(SAMPLES, "plain", GENERATE) == SpeedSpread(pytest.approx(5 / 3), *(pytest.approx(5 / 3),) * 2, 1)
    assert pair(SAMPLES, "plain", GENERATE, end_to_end=True).median == pytest.approx(2.0)
    assert pair(SAMPLES, "pld", "nobody") is None


def test_a_row_by_hand():
    row = summarise(Contender("pld", "method", True, lambda prompt: None), SAMPLES)
    assert (row.tokens, row.differing, row.tokens_per_step) == (20, 1, 13 / 7 + 1)
    again = [*SAMPLES, *(replace(SAMPLES[1], round=number) for number in (1, 2))]  # was disturbed, so it was run again
    row_again = summarise(Contender("pld", "method", True, lambda prompt: None), again)
    assert row_again.tokens_per_step == pytest.approx(13 / 7 + 1), "a prompt counts once, however often it was run"
    assert (row.draft_ms, row.verify_ms, row.draft_share) == (2.0, 100.0, 0.02)
    assert row.speedup.median == 1.5 and row.end_to_end.median == pytest.approx((10 / 3 + 5) / 2)
    peer = summarise(Contender(GENERATE, "peer", True, lambda prompt: None), SAMPLES)
    assert peer.tokens_per_s.median == 3.0 and peer.tokens_per_step is peer.draft_share is None


def test_named_ratios():
    found = {r.name: r for r in ratios_of(SAMPLES)}
    assert list(found) == [
        "plain ÷ generate()", "plain ÷ generate(), end to end",
        "pld: tracing on ÷ off", "pld: tracing on ÷ off, end to end",
    ]  # fmt: skip
    assert found["plain ÷ generate()"].value.median == pytest.approx(5 / 3)
    off, on = 10.0, (8 + 10) / 2  # medians of tokens/s
    assert tracing(SAMPLES, "pld").median == pytest.approx(off / on)
    assert ratios_of(SAMPLES[:1]) == []


def test_peers_give_the_tokens_of_plain_decoding_and_their_times():
    stock = StockModel(network())
    plain = stock.time_run(PROMPTS[0].tokens, 30, ())
    lookup = stock.time_run(PROMPTS[0].tokens, 30, (), prompt_lookup_num_tokens=5, max_matching_ngram_size=2)
    assert plain.tokens == lookup.tokens == stock.generate(PROMPTS[0].tokens, 30, ()) and len(plain.tokens) == 30
    assert plain.first_tokens == 1 and 1 <= lookup.first_tokens <= 6
    assert 0 < plain.first_s < plain.seconds
    assert plain.tokens_per_s == pytest.approx(29 / (plain.seconds - plain.first_s))
    one = stock.time_run(PROMPTS[0].tokens, 1, ())
    assert one.first_tokens == 1 and one.tokens_per_s is None
    stop = plain.tokens[4]
    stopped = stock.generate(PROMPTS[0].tokens, 30, (stop,))
    assert stopped == plain.tokens[: plain.tokens.index(stop) + 1]


def test_a_models_own_settings_do_not_touch_the_reference():
    model = network()
    model.generation_config.repetition_penalty = 5.0
    assert StockModel(model).generate(PROMPTS[0].tokens, 12, ()) == StockModel(network()).generate(
        PROMPTS[0].tokens, 12, ()
    )


def test_a_benchmark_end_to_end(monkeypatch):
    target, seen, order = tiny_target(), [], []
    stock = StockModel(network())
    inner = stock.time_run
    stock.time_run = lambda *a, **k: order.append(k) or inner(*a, **k)
    methods = {"pld": {"k": "4", "max_ngram": 2}}
    monkeypatch.setattr("decoders.sweep.ledger.MAX_RETRIES", 0)  # whatever else the machine does
    lookup = Peer("looked up", partial(stock.time_run, prompt_lookup_num_tokens=4))
    report = bench(
        target, PROMPTS, methods, max_new_tokens=8, repeats=2, peers=[Peer(GENERATE, stock.time_run), lookup],
        progress=lambda done, total: seen.append((done, total)),
    )  # fmt: skip
    names = [row.name for row in report.rows]
    assert names == ["plain", "plain traced", "pld", "pld traced", GENERATE, lookup.name]
    assert seen[-1] == (30, 30) and len(report.samples) == 24  # the warm-up does not count
    assert all(row.differing == 0 for row in report.rows)
    assert {k.get("prompt_lookup_num_tokens") for k in order} == {None, 4}
    first = [next(s.name for s in report.samples if (s.prompt, s.round) == at) for at in ((0, 0), (1, 0), (0, 1))]
    assert len(set(first)) == 2  # the order rotates
    data = json.loads(json.dumps(report.to_json(), allow_nan=False))
    assert data["settings"]["methods"]["pld"]["k"] == 4 and data["model"]["name"] == "tiny-llama"
    assert data["rows"][2]["draft_share"] > 0 and data["rows"][0]["tokens_per_step"] == 1
    figure = bench_chart(data)
    assert list(figure.data[0].y) == ["plain", "pld", GENERATE, lookup.name]


def test_what_was_disturbed_is_measured_again_with_its_partners():
    """A peer whose first runs of one prompt take one time and another; the runs in alternation are made up."""
    took = {0: [1.0, 1.0, 9.0, 1.0, 1.0, 1.0, 1.0], 1: [1.0] * 9}
    order: list[tuple[str, int]] = []

    def generate(tokens, most, stop_ids):
        prompt = next(n for n, one in enumerate(PROMPTS) if one.tokens == tuple(tokens))
        order.append(("peer", prompt))
        return Generation(list(range(5)), 1.0 + took[prompt].pop(0), 1.0, 1)

    target = tiny_target()
    with pytest.MonkeyPatch.context() as patch:
        steady = lambda name, decoding: Measurement(sample(name, 0, 1.0), [1])  # noqa: E731
        patch.setattr("decoders.sweep.contenders.run_unrecorded", steady)
        report = bench(
            target,
            PROMPTS,
            {"pld": None},
            max_new_tokens=4,
            repeats=2,
            with_traces=False,
            peers=[Peer(GENERATE, generate)],
        )
    assert [prompt for _, prompt in order] == [0, 0, 1, 0, 1, 0, 0]  # warm-up, two rounds, prompt 0 once more
    again = {s.name for s in report.samples if s.round >= 2}
    assert again == {"plain", GENERATE} and {s.prompt for s in report.samples if s.round >= 2} == {0}
    assert report.settings["repeated"] == 4 and report.settings["disturbed"] == 0
    assert find_disturbed([s for s in report.samples if s.round < 2]) == {0: {GENERATE}}
    steady = [replace(s, decode_s=1.0, decoded=4) for s in report.samples]
    assert find_disturbed(steady) == {}


def test_the_machine_is_described_without_its_name():
    import platform

    facts = machine()
    assert facts["torch_threads"] == 1 and facts["cores"] >= 1
    assert platform.node() not in json.dumps(facts)


def test_benchmarks_need_prompts_and_good_parameters():
    with pytest.raises(UserError, match="at least one prompt"):
        bench(tiny_target(), [], {}, max_new_tokens=4)
    with pytest.raises(ValueError, match="out of range"):
        bench(tiny_target(), PROMPTS, {"pld": {"k": 0}}, max_new_tokens=4)
    params = find_method("pld").params()
    assert select_method("pld", params)[1] is params


def test_lengthened_prompts():
    long = lengthen(PROMPTS, 100)
    assert [len(p.tokens) for p in long] == [100, 100]
    assert long[0].tokens[-40:] == PROMPTS[0].tokens and long[0].tokens[20:60] == PROMPTS[1].tokens
    assert [len(p.tokens) for p in lengthen(PROMPTS[:1], 90)] == [90]


def test_first_difference():
    assert [first_difference(*pair) for pair in (([1, 2], [1, 3]), ([1], [1, 2]), ([], []))] == [1, 1, 0]


@pytest.mark.slow("test_contract.py asks every method")
def test_every_method_is_lossless_and_generate_agrees():
    seen, target = [], tiny_target()
    able = [
        name for name, method in methods().items()
        if method.missing(target) is None and all(method.applies(prompt) is None for prompt in PROMPTS)
    ]  # fmt: skip
    outcomes = check_lossless(
        target, PROMPTS, dict.fromkeys(able), max_new_tokens=16, stock=StockModel(network()),
        progress=lambda done, total: seen.append((done, total)),
    )  # fmt: skip
    assert [o.method for o in outcomes] == able and len(able) >= 5
    assert all(o.identical == o.total == 2 and not o.failed for o in outcomes if o.lossless)
    assert outcomes[0].against == "generate()" and outcomes[0].tokens_per_step == 1
    assert seen[-1] == (2 * (len(outcomes) + 1),) * 2
    json.dumps([o.to_json() for o in outcomes], allow_nan=False)


class Meddling(Target):
    """A target whose forwards over several rows are wrong: as if its mask were missing."""

    def forward(self, *args, **kwargs):
        logits = super().forward(*args, **kwargs)
        return logits.roll(1, -1) if len(logits) > 1 else logits


def meddle() -> Target:
    target = Meddling(network(), None, "meddled")
    target.__dict__["calibration"] = None
    return target


def test_outputs_are_judged_as_a_program_reads_them(monkeypatch):
    target = meddle()
    target.tokenizer = tiny_target().tokenizer
    texts = iter(['{"name": "f", "arguments": {"x": 1}}', '{"name": "f", "arguments": {"x": 2}}', "[]", "[ ]"])
    stop = type(target.tokenizer)
    monkeypatch.setattr(stop, "decode", lambda self, ids, **more: next(texts) if len(ids) > 1 else "</s>")
    _, pld = check_lossless(target, PROMPTS, {"pld": {"k": 3}}, max_new_tokens=20)
    assert pld.calls == ["other call", "same call"] and changed_share(pld.calls) == (1, 2, 0.5)
    assert pld.to_json()["calls"] == pld.calls
    (line,) = verify._calls([pld])
    assert line.startswith("pld: tool calls or JSON in 2 outputs; 1 read otherwise (50.0%): 1 other calls, 0 broken")


@pytest.mark.parametrize(
    ("text", "calls"),
    [
        ('Sure:\n```json\n{"a": [1.0, true]}\n```\n', [["json", {"a": [1, True]}]]),
        ('[TOOL_CALLS][{"name": "f", "arguments": {}}, {"name": "g", "arguments": {"y": null}}]',
         [["call", "f", {}], ["call", "g", {"y": None}]]),
        ('<|python_tag|>{"type": "function", "function": {"name": "f", "parameters": {"q": "é"}}}',
         [["call", "f", {"q": "é"}]]),
        ("[m.f(x=-1, y=['a'])]", [["call", "m.f", {"x": -1, "y": ["a"]}]]),
        ("[f(x=open('/etc/passwd'))]", None), ("[" * 5000, None), ("[f(x=1)", None), ("", None), ("[x]", None),
        ('<tool_call>{"name": "f", "arguments": "{"}</tool_call>', None),
    ],
)  # fmt: skip
def test_calls_are_read_and_never_run(text, calls):
    assert calls_in(text) == calls


def test_a_difference_is_found_and_described():
    plain, pld = check_lossless(meddle(), PROMPTS, {"pld": {"k": 3}}, max_new_tokens=20)
    assert plain.against == "" and plain.total == 0
    assert pld.failed == len(pld.divergences) == pld.total - pld.identical >= 1
    first = pld.divergences[0]
    assert first.expected != first.got and first.gap > 0 and first.shortfall > 0 and math.isfinite(first.shortfall)


def test_a_prompt_is_read_once_and_every_method_is_still_caught(monkeypatch):
    """Negative control: with a shared reading too, a wrong commit of one method alone shows in that method alone."""
    read, target = [], tiny_target()
    prefill, commit = Session.prefill, Session.commit
    monkeypatch.setattr(Session, "prefill", lambda self, text, **to: read.append(text) or prefill(self, text, **to))

    def meddled_commit(self, verdict):
        commit(self, verdict)
        if self.needs.heads and self.length > self.prompt_length + 4:
            with torch.inference_mode():
                self.cache.store[:, :, :, self.length - 2] *= -1  # a committed row is not what it should be

    heads, calls = {name: None for name in ("pld", "pld+h", "pld+a", "adapld")}, []
    assert check_lossless(target, PROMPTS, heads, max_new_tokens=20)[-1].failed == 0 and len(read) == len(PROMPTS)
    monkeypatch.setattr(Session, "commit", meddled_commit)
    outcomes = check_lossless(
        target, PROMPTS, heads, max_new_tokens=20, on_check=lambda index, so_far: calls.append((index, len(so_far)))
    )
    assert {o.method: bool(o.failed) for o in outcomes} == {
        "plain": False, "pld": False, "pld+h": False, "pld+a": True, "adapld": False
    }  # fmt: skip
    assert calls == [(0, 5), (1, 5)] and [len(o.runs) for o in outcomes] == [2] * 5


def test_a_method_that_fails_is_a_row_with_its_reason_and_the_others_go_on(monkeypatch):
    monkeypatch.setattr("decoders.sweep.ledger.MAX_RETRIES", 0)
    target, broken = tiny_target(), {"layer": 99}
    said = "layer=99"
    report = bench(target, PROMPTS, {"pld+h": broken, "pld": None}, max_new_tokens=4, repeats=1, with_traces=False)
    rows = {row.name: row for row in report.rows}
    assert said in rows["pld+h"].error and rows["pld+h"].tokens == 0 and rows["pld+h"].tokens_per_s is None
    assert not rows["pld"].error and rows["pld"].speedup.count == 2 and said in report.settings["lost"]["pld+h"]
    plain, lost, pld = check_lossless(target, PROMPTS, {"pld+h": broken, "pld": None}, max_new_tokens=4)
    assert [error["prompt"] for error in lost.errors] == [0, 1] and said in lost.errors[0]["error"]
    assert (lost.failed, lost.identical, lost.total) == (2, 0, 2) and not lost.runs
    assert (plain.failed, pld.failed, pld.identical) == (0, 0, 2)
    json.dumps(lost.to_json(), allow_nan=False)


@pytest.mark.slow("every method again, drawn")
def test_drawn_tokens_are_compared_and_never_fail():
    drawn = Sampling(temperature=1.0, seed=3)
    outcomes = check_lossless(tiny_target(), PROMPTS, {"pld": None, "pld+h": None}, max_new_tokens=20, sampling=drawn)
    assert all(o.identical == 2 for o in outcomes[1:])
    _, pld = check_lossless(meddle(), PROMPTS, {"pld": {"k": 3}}, max_new_tokens=20, sampling=drawn)
    assert not pld.failed and {d.verdict for d in pld.divergences} == {"other draws"}


def test_a_lossy_method_is_reported_not_failed(monkeypatch):
    from dataclasses import replace

    from decoders import drafters

    monkeypatch.setitem(drafters._methods, "pld", replace(find_method("pld"), lossless=False))
    _, pld = check_lossless(meddle(), PROMPTS, {"pld": {"k": 3}}, max_new_tokens=20)
    assert pld.divergences and not pld.failed and not pld.lossless


@pytest.mark.slow("every method again, in half precision")
def test_half_precision_allows_near_ties_only():
    model = network(dtype=torch.bfloat16)
    stock = StockModel(copy.deepcopy(model))
    target = Target(model, None, "half")
    target.__dict__["calibration"] = None
    outcomes = check_lossless(target, PROMPTS, {"pld": None}, max_new_tokens=24, stock=stock)
    assert not any(o.failed for o in outcomes)
    stock.generate = lambda tokens, n, stop_ids: [9] * n  # no near tie
    (plain,) = check_lossless(target, PROMPTS, {}, max_new_tokens=24, stock=stock)
    assert plain.divergences and not plain.failed  # plain's own tokens are the best ones: the fault is generate()'s
    (strict,) = check_lossless(target, PROMPTS, {}, max_new_tokens=24, stock=stock, tolerance=1e-9)
    assert strict.failed == sum(d.shortfall > 1e-9 for d in strict.divergences)


def test_charts_escape_names_and_stand_alone(tmp_path):
    calibration = {
        "model": "<b>x</b>", "tokens_counted": 10, "head_counts": [[0, 5], [10, 1]], "tokens_per_step": [1.0, 2.5, 2.0],
        "best_layer": 1, "draft_length": 20,
    }  # fmt: skip
    heads, layers = heads_chart(calibration), layers_chart(calibration)
    assert [list(row) for row in heads.data[0].z] == [[0, 0.5], [1, 0.1]] and heads.data[0].customdata[1][0] == 10
    assert "&lt;b&gt;" in heads.layout.title.text and list(layers.data[0].text) == ["1.00", "2.50 best", "2.00"]
    write_page(tmp_path / "page.html", "</title><script>alert(1)</script>", [heads, layers])
    page = (tmp_path / "page.html").read_text()
    assert "<script>alert(1)" not in page and "default-src 'none'" in page
    assert [f.name for f in tmp_path.iterdir()] == ["page.html"]
