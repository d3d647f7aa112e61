"""Logits processors: runs with drafts write what generate() writes, chains and trees, greedy and drawn."""

from __future__ import annotations

import json
import random
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import transformers as hf

from decoders import Prompt, UserError, divergence, generate, record
from decoders.engine.decoding import Decoding
from decoders.model.target_model.own_settings import NEUTRAL
from decoders.study.judge.judge import fault
from decoders.study.look.whatif import ReadRun, go_on
from decoders.trace.check import check
from decoders.verifiers.processors import has_state
from decoders.verifiers.sampling import Sampling, drawn_token
from specviz.cli import main
from specviz.pages.compare.outcome import plain_key
from specviz.server.forms import PromptForm

from .drafts import target_with_parts
from .models import network, prompt_ids, save_model
from .stubs import at_work, gallery_desk
from .tiers import matrix
from .waiting import until

NEW, STOPS = 20, (9, 40, 77)
METHODS = (
    "pld", "pld+h", "adapld", "recycling", "logitspec", "lookahead", "suffix", "sam", "llma", "sps", "glide",
    "glide+cape", "ppd", "composite", "recycling@ratio", "adapld@target-only", "pld@block",
)  # fmt: skip


BY_RATIO = ("sps", "glide", "glide+cape")  # drawn runs have generate()'s distribution, not its draws
MATCHED = [name for name in METHODS if "@" not in name and name not in BY_RATIO]


class Bump(hf.LogitsProcessor):
    """A user's own: lifts the token that the text's length names."""

    def __call__(self, input_ids: torch.Tensor, scores: torch.Tensor) -> torch.Tensor:
        scores[0, (37 * input_ids.shape[1]) % scores.shape[1]] += 3.0
        return scores


class Counts(Bump):
    """One with a state: it lifts by the number of its calls."""

    def __init__(self) -> None:
        self.calls = 0

    def __call__(self, input_ids: torch.Tensor, scores: torch.Tensor) -> torch.Tensor:
        self.calls += 1
        scores[0, (41 * self.calls) % scores.shape[1]] += 3.0
        return scores


class Forks(Counts):
    def fork(self) -> Forks:
        other = Forks()
        other.calls = self.calls
        return other


class Remembers(Bump):
    """One whose first call prepares what later ones use: no state."""

    lift: torch.Tensor | None = None

    def __call__(self, input_ids: torch.Tensor, scores: torch.Tensor) -> torch.Tensor:
        if self.lift is None:
            self.lift = torch.linspace(0, 1, scores.shape[1])
        return scores + self.lift


@pytest.fixture(scope="module")
def target(module_home: Any) -> Any:
    return target_with_parts(("glide", "drafter", "ppd"))


@pytest.fixture(scope="module")
def stock() -> Any:
    return network("llama")


def any_settings(rng: random.Random, is_drawn: bool, length: int) -> dict[str, Any]:
    """One to three settings of a generation config, with values that matter to a small vocabulary."""
    token = lambda: rng.randrange(3, 60)  # noqa: E731
    every = {
        "repetition_penalty": rng.choice([0.8, 1.3, 2.0]), "no_repeat_ngram_size": rng.choice([1, 2, 3]),
        "encoder_repetition_penalty": rng.choice([0.7, 1.5]), "encoder_no_repeat_ngram_size": rng.choice([2, 3]),
        "bad_words_ids": [[token()] for _ in range(8)] + [[token(), token()] for _ in range(30)],
        "min_new_tokens": rng.randrange(2, NEW), "min_length": length + rng.randrange(2, NEW),
        "suppress_tokens": [*range(rng.randrange(3), 320, 3)], "begin_suppress_tokens": [*range(5, 200)],
        "sequence_bias": [[[token()], 4.0], [[token(), token()], -9.0], [[token()], 2.5]], "forced_eos_token_id": 3,
        "exponential_decay_length_penalty": (4, 1.4), "renormalize_logits": True, "remove_invalid_values": True,
    }  # fmt: skip
    if is_drawn:
        every |= {"min_p": 0.2, "typical_p": 0.7, "epsilon_cutoff": 0.01, "eta_cutoff": 0.02, "top_h": 0.6}
    return {name: every[name] for name in rng.sample([*every], rng.choice([1, 1, 2, 3]))}


def expected_ids(stock: Any, prompt: Prompt, sampling: Sampling, given: list[Any], **settings: Any) -> list[int]:
    """The output of generate(), whose draws are made with the run's numbers."""
    numbers = np.random.default_rng(sampling.seed)

    def multinomial(probs: torch.Tensor, num_samples: int) -> torch.Tensor:
        return torch.tensor([[drawn_token(probs[0], float(numbers.random()))]])

    warm = {} if sampling.greedy else {
        "temperature": sampling.temperature, "top_k": sampling.top_k, "top_p": sampling.top_p
    }  # fmt: skip
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(torch, "multinomial", multinomial)
        output = stock.generate(
            torch.tensor([prompt.tokens]), max_new_tokens=NEW, do_sample=not sampling.greedy, pad_token_id=0,
            eos_token_id=list(STOPS), logits_processor=hf.LogitsProcessorList(given), **warm, **settings,
        )  # fmt: skip
    return output[0, len(prompt.tokens) :].tolist()


@pytest.mark.parametrize("group", matrix(range(8), 1, "further triples"))
def test_random_processors_prompts_and_methods_write_what_generate_writes(target: Any, stock: Any, group: int):
    forbidden = 0
    for number in range(25 * group, 25 * group + 25):
        rng = random.Random(number)
        is_drawn = rng.random() < 0.4
        method = rng.choice(MATCHED if is_drawn else METHODS)
        drawn = Sampling(rng.choice([0.7, 1.0, 1.5]), rng.choice([0, 40]), rng.choice([1.0, 0.9]), number)
        sampling = drawn if is_drawn else Sampling()
        prompt = Prompt.from_ids(prompt_ids(number, rng.choice([12, 60])) * rng.choice([1, 2]))
        settings = any_settings(rng, is_drawn, len(prompt.tokens))
        given = [Bump()] if rng.random() < 0.3 else []
        expected = expected_ids(stock, prompt, sampling, given, **settings)
        trace = record(
            target, prompt, method, sampling=sampling, max_new_tokens=NEW, stop_ids=STOPS, generation=settings,
            processors=given,
        )  # fmt: skip
        assert list(trace.output_ids) == expected, (number, method, settings, sampling)
        check(trace)
        forbidden += sum(filter(None, trace.tables["steps"].get("term:forbidden", ())))
    assert forbidden > 20


def test_a_models_own_settings_are_applied_without_being_asked_for(target: Any, stock: Any):
    own = network("llama")
    own.generation_config.repetition_penalty, own.generation_config.no_repeat_ngram_size = 1.4, 2
    prompt = Prompt.from_ids(prompt_ids(3) * 2)
    expected = expected_ids(own, prompt, Sampling(), [])
    plain = expected_ids(stock, prompt, Sampling(), [])
    target.model.generation_config.repetition_penalty, target.model.generation_config.no_repeat_ngram_size = 1.4, 2
    try:
        options = {"max_new_tokens": NEW, "stop_ids": STOPS}
        assert generate(target, prompt, "adapld", **options) == expected != plain
        assert generate(target, prompt, "adapld", generation=NEUTRAL, **options) == plain
        assert generate(target, prompt, "adapld", generation={"no_repeat_ngram_size": None}, **options) not in (
            plain, expected
        )  # fmt: skip
    finally:
        target.model.generation_config.repetition_penalty = target.model.generation_config.no_repeat_ngram_size = None


@pytest.mark.parametrize("method", ["adapld", "recycling@ratio"])  # rows on one path, and all rows
def test_every_node_has_its_probability_behind_its_own_path(target: Any, stock: Any, method: str):
    prompt, settings = Prompt.from_ids(prompt_ids(5) * 2), {"no_repeat_ngram_size": 2, "repetition_penalty": 1.3}
    trace = record(target, prompt, method, generation=settings, max_new_tokens=NEW, stop_ids=())
    nodes, steps, tokens = (trace.tables[name] for name in ("nodes", "steps", "tokens"))
    own = [hf.RepetitionPenaltyLogitsProcessor(1.3), hf.NoRepeatNGramLogitsProcessor(2)]
    firsts = [row for row, parent in enumerate(nodes["parent"]) if parent < 0]
    counts, branched, is_dead = np.zeros(len(steps["drafted"])), False, list[bool]()
    for row, parent in enumerate(nodes["parent"]):
        if parent < 0:
            is_dead.append(False)
            continue
        step = nodes["step"][row]
        path, at = list[int](), parent
        while at > 0:
            path.insert(0, nodes["token"][firsts[step] + at])
            at = nodes["parent"][firsts[step] + at]
        branched |= row - firsts[step] != parent + 1
        ids = torch.tensor([[*tokens["id"][: steps["context"][step]], *path]])
        raw = stock(ids).logits[:, -1].detach()
        scores = hf.LogitsProcessorList(own)(ids, raw.clone())
        before, after = (float(s.softmax(-1)[0, nodes["token"][row]]) for s in (raw, scores))
        assert nodes["prob"][row] == pytest.approx(before, abs=2e-4)
        is_forbidden = bool(scores[0, nodes["token"][row]].isinf())
        if is_dead[firsts[step] + nodes["parent"][row]]:  # nothing is asked behind a forbidden token
            is_dead.append(True)
            assert nodes["term:forbidden"][row] is None is nodes["term:p_after"][row]
            continue
        is_dead.append(is_forbidden)
        assert nodes["term:p_after"][row] == pytest.approx(after, abs=2e-4)
        counts[step] += is_forbidden
        assert nodes["term:forbidden"][row] == is_forbidden
        if is_forbidden and nodes["status"][row] == "rejected":
            assert nodes["reason"][row] == "forbidden by NoRepeatNGramLogitsProcessor"
    assert counts.sum() > 0 and branched and steps["term:forbidden"] == counts.tolist()


def test_a_processor_with_a_state_is_refused_unless_it_says_how_to_fork(target: Any, stock: Any):
    prompt = Prompt.from_ids(prompt_ids(7) * 2)
    device = torch.device("cpu")
    states = {kind: has_state(kind(), 320, prompt.tokens, device) for kind in (Bump, Remembers, Counts, Forks)}
    assert states == {Bump: False, Remembers: False, Counts: True, Forks: True}
    with pytest.raises(UserError, match=r"Counts keeps a state.*fork\(\)"):
        generate(target, prompt, "pld", processors=[Counts()])
    for method in ("plain", "pld", "adapld", "recycling@ratio"):
        processor = Forks()
        trace = record(target, prompt, method, processors=[processor], max_new_tokens=NEW, stop_ids=STOPS, compare=True)
        assert list(trace.output_ids) == expected_ids(stock, prompt, Sampling(), [Counts()])
        assert not trace.tables["plain"]["id"] or list(trace.output_ids) == trace.tables["plain"]["id"]
        assert processor.calls == 0
        check(trace)


def test_drawn_drafts_are_judged_by_the_processed_p(target: Any):
    trace = record(
        target, Prompt.from_ids(prompt_ids(8) * 2), "glide", sampling=Sampling(1.0, seed=3), max_new_tokens=60,
        generation={"suppress_tokens": [*range(0, 320, 5)], "repetition_penalty": 1.5}, stop_ids=(),
    )  # fmt: skip
    nodes = trace.tables["nodes"]
    judged = [row for row, ratio in enumerate(nodes["term:accept_ratio"]) if ratio is not None]
    for row in judged:
        ratio = min(1.0, nodes["term:p_after"][row] / nodes["draft_prob"][row])
        assert nodes["term:accept_ratio"][row] == pytest.approx(ratio, abs=2e-3)
    assert len(judged) > 20 and not [token for token in trace.output_ids if token % 5 == 0]
    assert any(nodes["term:forbidden"][row] and nodes["status"][row] == "rejected" for row in judged)


def test_a_lossy_rule_judges_what_the_processors_leave(target: Any):
    banned = [*range(0, 320, 2)]
    for method in ("recycling@typical", "adapld@relaxed"):
        for temperature in (0.0, 1.0):
            trace = record(
                target, Prompt.from_ids(prompt_ids(4) * 2), method, {}, sampling=Sampling(temperature),
                generation={"suppress_tokens": banned}, max_new_tokens=NEW, stop_ids=(),
            )  # fmt: skip
            assert not set(trace.output_ids) & set(banned)
            check(trace)


def test_what_masks_everything_is_told(target: Any):
    for method in ("plain", "adapld"):
        with pytest.raises(UserError, match="every token is forbidden"):
            generate(target, Prompt.from_ids([5, 6]), method, generation={"suppress_tokens": [*range(320)]})


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        ({"repetition_penalty": -1.0}, "repetition_penalty = -1.0"),
        ({"temperature": 2.0}, "'temperature' is no setting that a run applies"),
        ({"bad_words_ids": 5}, "bad_words_ids = 5"),
    ],
)
def test_settings_that_there_are_not_are_refused(target: Any, settings: dict[str, Any], words: str):
    with pytest.raises(UserError, match=words):
        Decoding.of(target, Prompt.from_ids([5, 6]), "pld", generation=settings)


def test_a_recorded_run_is_looked_at_again_with_its_processors(target: Any):
    prompt, settings = Prompt.from_ids(prompt_ids(6) * 2), {"no_repeat_ngram_size": 2, "min_new_tokens": 15}
    options = {"max_new_tokens": NEW, "stop_ids": STOPS}
    trace = record(target, prompt, "adapld", generation=settings, **options)
    assert trace.run["processing"]["settings"] == settings and "logits processors" in fault(trace)
    read = ReadRun(target, trace)
    for step in range(trace.rows("steps")):
        again = read.redraft(step)
        assert again.same and not again.notes, (step, again.notes)
    on = go_on(target, trace, 4, "pld")
    options = {name: on[name] for name in ("max_new_tokens", "stop_ids", "generation")}
    rest = generate(target, on["prompt"], on["method"], **options)
    assert [*trace.output_ids[: len(trace.output_ids) - len(rest)], *rest] == list(trace.output_ids)
    assert divergence(target, trace) is None
    given = record(target, prompt, "adapld", processors=[Bump()], max_new_tokens=NEW)
    assert "Bump" in ReadRun(target, given).redraft(0).notes[0]
    with pytest.raises(UserError, match="Bump, which no trace holds"):
        divergence(target, given)
    keys = {plain_key(each) for each in (trace, given, record(target, prompt, "adapld", max_new_tokens=NEW))}
    assert len(keys) == 3


def test_the_command_takes_settings_and_files(tmp_path: Path, capsys: pytest.CaptureFixture):
    save_model(tmp_path / "model")
    own, trace = tmp_path / "own.py", tmp_path / "run.spectrace"
    own.write_text(
        "class Ban:\n    def __call__(self, input_ids, scores):\n        scores[:, ::2] = float('-inf')\n"
        "        return scores\nnumber = 5\n"
    )
    base = ["run", "--model", str(tmp_path / "model"), "--prompt", "the old lamp the old lamp", "--method", "adapld"]
    again = ["run", "--model", str(tmp_path / "model"), "--again", str(trace)]
    assert main([*base, "--max-new-tokens", "12", "--json", "--processor", f"{own}:Ban", "--out", str(trace)]) == 0
    assert all(token % 2 for token in json.loads(capsys.readouterr().out)["output_ids"])
    assert main(again) == 2 and "Ban, which no trace holds" in capsys.readouterr().err
    assert main([*again, "--processor", f"{own}:Ban"]) == 0
    settings = ["--processor", "repetition_penalty=1.5", "--processor", "no_repeat_ngram_size=2"]
    assert main([*base, "--compare", "--max-new-tokens", "12", *settings, "--out", str(trace)]) == 0
    assert "identical to plain" in capsys.readouterr().err
    assert main(again) == 0
    for text, words in (
        ("nothing", "neither a setting"), ("repetition_penalty=high", "no JSON"), (f"{own}:number", "is called"),
        (f"{own}:Missing", "no 'Missing' in it"), ("num_beams=4", "no setting that a run applies"),
    ):  # fmt: skip
        assert main([*base, "--processor", text]) == 2
        assert words in capsys.readouterr().err


def test_the_page_applies_what_the_models_own_config_asks_for(monkeypatch: pytest.MonkeyPatch):
    target = target_with_parts(())
    desk = gallery_desk(target, {"first": record(target, Prompt.from_ids(prompt_ids(1)), max_new_tokens=4)})
    with at_work(desk):
        names = [control["name"] for control in desk.catalog()["settings"]]
        assert "max_new_tokens" in names and "processors" not in names  # this model asks for nothing
        monkeypatch.setattr(target.model.generation_config, "repetition_penalty", 1.5)
        (control,) = (control for control in desk.catalog()["settings"] if control["name"] == "processors")
        assert "repetition_penalty = 1.5" in control["help"] and control["default"] is True
        for value in (True, False):
            form = PromptForm("text", text="the old lamp the old lamp")
            job = desk.submit(form, "pld", {}, {"max_new_tokens": 6, "processors": value})
            until(lambda job=job: job.id in desk.store, "the run is over")
            assert bool(desk.store.get(job.id).run.get("processing")) is value
