"""Recorded runs under every verifier: rebuilt distributions, ranges, and the command."""

from __future__ import annotations

import json
from functools import cache

import numpy as np
import pytest
import torch

from decoders import Prompt, Sampling, load_target, record, save
from decoders.draft.draft import Scored
from decoders.engine.decoding import Decoding
from decoders.errors import UserError
from decoders.study.judge.judge import Draws, chosen_rules, fault, judge_steps, totals
from decoders.study.look.rebuilt import rebuilt
from decoders.verifiers.sampling import Chooser
from specviz.cli import main
from specviz.server.store import summary

from .command import refusal
from .drafts import methods_here
from .recordings import chain

TEXT = "Say it twice: the old lamp. the old"


@cache
def bundle():
    return load_target("assets/demo/target")


@cache
def run(method: str = "sps", temperature: float = 1.0, first: int | None = None, seed: int = 3, **options):
    prompt = Prompt.from_text(bundle().tokenizer, TEXT)
    sampling = Sampling(temperature=temperature, seed=seed)
    return record(bundle(), prompt, method, max_new_tokens=16, sampling=sampling, first_choices=first, **options)


def test_rules_judge_by_the_rows_of_the_run_itself():
    """Chances from what a trace holds, against those from the whole rows: equal, or inside the range."""
    sampling = Sampling(temperature=1.0, seed=3)
    decoding = Decoding.of(bundle(), Prompt.from_text(bundle().tokenizer, TEXT), "sps", sampling=sampling,
                           max_new_tokens=16)  # fmt: skip
    whole = [(step.draft, Scored(step.scored.logits.clone())) for step in decoding if step.draft.tree.drafted]
    rules = chosen_rules()
    for first, exact in ((None, False), (2048, True)):
        steps = list(judge_steps(run(first=first), rules))
        assert len(steps) == len(whole)
        for step, (draft, scored) in zip(steps, whole, strict=True):
            for name, (card, params) in rules.items():
                verifier = card.build(params, Chooser(sampling), frozenset())
                wanted, (low, high) = verifier.chances(draft, scored)[1:].sum(), step.rules[name].expected
                assert low - 0.01 <= wanted <= high + 0.01, (name, step.step)  # six decimals are recorded
                assert not exact or high - low < 0.01
        assert (max(steps[0].rest) > 0.2) != exact


@pytest.mark.slow("runs under every rule, judged again")
def test_the_recorded_rule_gives_the_recorded_verdict():
    """By the recorded draws; a greedy run is judged as itself by every rule that matches."""
    for method, name in (("sps", "ratio"), ("sps@block", "block"), ("pld", "match"), ("sps@typical", "typical")):
        settled = 0
        for first in (None, 2048):
            trace = run(method, first=first)
            for step in judge_steps(trace, chosen_rules([name])):
                one, bonus = step.rules[name], trace.tables["steps"]["bonus"][step.step]
                if not one.open:
                    assert one.accepted == step.accepted and one.status == step.status
                    assert not one.differing(step.status) and one.bonus in (bonus, None)
                    settled += one.bonus is not None
        assert settled >= trace.rows("steps") - trace.tables["steps"]["drafted"].count(0)  # all p and q settle all
    for step in judge_steps(run()):
        assert not step.rules["ratio"].open
    for method in methods_here("sps", "eagle2", "pld+h"):
        for step in judge_steps(run(method, 0.0)):
            assert step.rules["match"].status == step.status and step.rules["block"].expected == (step.accepted,) * 2
            relaxed = step.rules["relaxed"]
            assert relaxed.expected[0] >= step.accepted
            if not relaxed.open:
                assert relaxed.other[0] == pytest.approx(relaxed.other[1])


def test_nothing_behind_a_stop_token_is_accepted():
    """A run that ended inside a draft is judged as it ended."""
    for method, name, temperature in (("sps", "ratio", 1.0), ("pld+h", "match", 0.0)):
        nodes = run(method, temperature, first=2048).tables["nodes"]
        stood = zip(nodes["token"], nodes["parent"], nodes["status"], strict=True)
        stop = next(token for token, parent, status in stood if parent == 0 and status == "accepted")
        ended = run(method, temperature, first=2048, stop_ids=(stop,))
        last = list(judge_steps(ended))[-1]
        assert last.status.count("accepted") == last.accepted == 1 < last.drafted
        assert last.rules[name].status == last.status and last.rules[name].bonus == -1
        for one in last.rules.values():
            assert one.accepted <= 1 and one.expected[1] <= 1 and not np.any(one.chances[2:])


def test_a_rank_that_is_recorded_is_kept():
    """Unrecorded tokens are placed so that each child has its rank, and the first choices stay the first."""
    for trace in (run(), *(run(name, 0.0) for name in methods_here("eagle2")), run("pld+h", 1.0)):
        for at in rebuilt(trace):
            assert not at.missing
            for wide in (False, True):
                p, q, tokens = at.rows(wide)
                np.testing.assert_allclose(p.sum(-1), 1)
                for row in q.values():
                    assert float(row.sum()) == pytest.approx(1)
                for node in range(1, len(tokens)):
                    mine = p[at.parents[node], tokens[node]]
                    assert float(mine) == pytest.approx(at.own_probs[node], abs=2e-5)
                    if at.own_probs[node] > 1e-4:
                        above = int((p[at.parents[node]] > mine * (1 + 1e-6)).sum())
                        assert abs(above - at.ranks[node]) <= 1, (above, at.ranks[node], wide)


def test_other_tokens_are_none_of_a_lossless_rule():
    sums = totals(list(judge_steps(run())))
    for name, (card, _) in chosen_rules().items():
        share = sums[name].to_json()["other_share"]
        assert (share == [0.0, 0.0]) == card.lossless if name != "fly" else share is None
    milder = totals(list(judge_steps(run(), chosen_rules(["diverse"], {"diverse": {"ensemble_weight": 0.95}}))))
    assert milder["diverse"].other[1] < sums["diverse"].other[0]


def test_a_lossy_run_says_how_far_it_went():
    """Measured while it ran, with all of p and q; the record, judged again by the run's rule, comes to the same."""
    for method, temperature in (("sps@typical", 1.0), ("sps@relaxed", 0.0)):
        trace = run(method, temperature, first=2048)
        values, rule = trace.run["metrics"], method.partition("@")[2]
        (total,) = totals(list(judge_steps(trace, chosen_rules([rule])))).values()
        if temperature:
            assert values["other_share"] == pytest.approx(total.to_json()["other_share"][0], abs=1e-4)
            assert total.other[0] > 0
        nodes = trace.tables["nodes"]
        away = [one for one in nodes.get("term:tv", ()) if one is not None]
        assert bool(away) == bool(temperature) and all(0 <= one <= 1 for one in away)
        if temperature:
            assert values["divergence"] == pytest.approx(sum(away) / len(away))
            assert values["other_share"] == pytest.approx(sum(away) / len(trace.output_ids))
        else:
            others = [rank > 0 for rank, s in zip(nodes["rank"], nodes["status"], strict=True) if s == "accepted"]
            assert values["other_share"] == pytest.approx(sum(others) / len(trace.output_ids))
        assert summary(trace)["other_share"] == pytest.approx(values["other_share"], abs=1e-4)
    for method in ("sps", "sps@fly"):  # no loss, and one that is not known
        trace = run(method)
        assert trace.run["metrics"]["other_share"] is None and "divergence" not in summary(trace)
        assert all(one is None for one in trace.tables["nodes"].get("term:tv", ()))


def test_more_first_choices_are_recorded_where_asked_for():
    few, many = run(), run(first=64)
    assert few.output_ids == many.output_ids and many.run["first_choices"] == 64 and "first_choices" not in few.run
    assert len(many.tables["guesses"]["step"]) > 3 * len(few.tables["guesses"]["step"])
    width = [step.rules["block"].expected for trace in (few, many) for step in judge_steps(trace)]
    half = len(width) // 2
    assert sum(h - low for low, h in width[half:]) < sum(h - low for low, h in width[:half])


def test_runs_that_cannot_be_judged_say_why():
    trace = chain()
    trace.run["forced"] = True
    assert "its answer was given" in fault(trace)
    trace = chain()
    trace.run["unknown"] = ["nodes.prob"]
    assert "its source does not say" in fault(trace)
    with pytest.raises(UserError, match="cannot be judged again: it drafted nothing"):
        list(judge_steps(run("plain", 0.0)))


def test_draws_are_the_recorded_ones_first():
    draws = Draws([0.25, 0.5], (1, 2))
    assert draws.random(2).tolist() == [0.25, 0.5] and 0 <= draws.random() < 1
    assert Draws([], (1, 2)).random() == Draws([], (1, 2)).random() != Draws([], (1, 3)).random()
    assert torch.is_tensor(next(rebuilt(run())).rows(False)[0])


def test_judging_on_the_command_line(tmp_path, capsys):
    file, plain = tmp_path / "a.spectrace", tmp_path / "plain.spectrace"
    save(run(), file)
    save(run("plain", 0.0), plain)
    assert main(["judge", str(file), str(plain)]) == 0
    out = capsys.readouterr().out
    assert "typical" in out and "lossy" in out and "plain.spectrace was left out: it drafted nothing" in out
    assert main(["judge", str(file), "--json", "--verifier", "ratio", "block"]) == 0
    data = json.loads(capsys.readouterr().out)
    assert list(data["totals"]) == ["ratio", "block"] and data["runs"][0]["steps"][0]["rules"]["block"]["reasons"]
    step = next(i for i, n in enumerate(run().tables["steps"]["drafted"], 1) if n)
    assert main(["judge", str(file), "--step", str(step), "--verifier", "typical", "--set", "typical_epsilon=.9"]) == 0
    assert "expected" in capsys.readouterr().out
    for more, message in (
        (["--step", "99"], "--step 99 is out of range: the trace has steps 1 to"),
        (["--step", "0"], "argument --step: 0 is out of range: a whole number of at least 1"),
        (["--set", "x=1"], "--set x=1 is of no use: no verifier that judges has a parameter 'x'"),
        (["--verifier", "nope"], "there is no verifier 'nope': choose one of match"),
        (["--set", "typical_epsilon=2"], "typical_epsilon='2' is out of range: a number from 0 to 1"),
        ([str(plain), "--step", "1"], "--step is of one run, and 2 are given"),
    ):
        assert message in refusal(capsys, "judge", file, *more)
    assert "it drafted nothing" in refusal(capsys, "judge", plain)
