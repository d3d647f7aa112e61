"""The null model is lossless, drafts with the acceptance that was asked for, and counts as no method."""

from __future__ import annotations

from decoders import Prompt, Sampling, generate, methods, record
from specviz.commands import common

from .models import prompt_ids

PROMPT = Prompt.from_ids(prompt_ids(2))


def test_it_is_lossless_and_all_is_accepted_at_one(target):
    plain = generate(target, PROMPT, max_new_tokens=41)
    for params in ({"alpha": 1.0}, {"alpha": 0.6, "decay": 0.8}, {"alpha": 0.0}):
        trace = record(target, PROMPT, "synthetic", {"k": 4, **params}, max_new_tokens=41)
        assert trace.output_ids == plain
        accepted = trace.tables["steps"]["accepted"]
        if params["alpha"] == 1.0:
            assert accepted[:8] == [4] * 8  # 41 = 8 × (4 + 1) + 1
        elif params["alpha"] == 0.0:
            assert not any(accepted)
        else:
            assert any(accepted) and not all(accepted)


def test_acceptance_by_depth_is_what_was_asked_for(target):
    tested, right = [0] * 3, [0] * 3
    for seed in range(6):
        params = {"k": 3, "alpha": 0.7, "decay": 0.7, "seed": seed}
        trace = record(target, PROMPT, "synthetic", params, max_new_tokens=60)
        for drafted, accepted in zip(*(trace.tables["steps"][name] for name in ("drafted", "accepted")), strict=True):
            for depth in range(min(drafted, accepted + 1)):
                tested[depth] += 1
                right[depth] += depth < accepted
    assert tested[0] > 150
    for depth, expected in enumerate((0.7, 0.49, 0.343)):
        spread = (expected * (1 - expected) / tested[depth]) ** 0.5
        assert abs(right[depth] / tested[depth] - expected) < 3 * spread


def test_drawn_tokens_repeat_under_a_seed_and_are_the_targets(target):
    sampling = Sampling(temperature=0.8, seed=3)
    outputs = [
        generate(target, PROMPT, name, sampling=sampling, max_new_tokens=20)
        for name in ("synthetic", "synthetic", "plain")
    ]
    assert outputs[0] == outputs[1] == outputs[2]


def test_it_counts_as_no_method(target):
    assert methods()["synthetic"].title == "synthetic (null model)" and methods()["synthetic"].null
    everything, left_out = common.chosen_methods(target, ["all"], [])
    assert "synthetic" not in {*everything, *left_out}
    named, _ = common.chosen_methods(target, ["all", "synthetic"], ["synthetic.alpha=0.5"])
    assert named["synthetic"].alpha == 0.5
