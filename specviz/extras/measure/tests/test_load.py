"""Drafting under load: measured steps of batches, the model made of them, servers' tables, other policies' lengths."""

from __future__ import annotations

import json
from itertools import product

import pytest
import torch
import transformers as hf

from decoders import Prompt, UserError, record, save
from decoders.model.target_model.target import Target
from decoders.study.measure.load import kept_load, save_load
from decoders.trace.load import Cell, Load
from specviz.cli import main
from tests.command import refusal
from tests.models import BASE, prompt_ids, tiny_target

from ..load import load_check, step_times
from ..load.batches import (
    at_batches,
    break_even,
    break_even_curve,
    for_sglang,
    for_vllm,
    speedup_at,
    tiers,
)
from ..load.policies import (
    Costs,
    Estimator,
    FixedLength,
    Offer,
    Schedule,
    Threshold,
    Tiers,
    compare,
    costs_of,
    offers_of,
    oracle_ms,
    replay,
)
from ..load.step_times import measure_load, unique_experts

NEW = 24


def load_of(ms, batches=(1, 2, 4, 8), rows=(1, 2, 4, 8), contexts=(64,)) -> Load:
    cells = tuple(Cell(b, r, c, ms(b, r, c), 0.0, 0.0) for c, b, r in product(contexts, batches, rows))
    return Load("tiny-llama", {}, cells, 1)


def test_steps_of_batches_are_timed_and_kept(home) -> None:
    """By a clock that goes on one millisecond a look: every step takes as long, in the order of the sizes."""
    target, ticks = tiny_target(), iter(range(10_000))
    load = measure_load(target, (2,), (3,), (8,), rounds=2, clock=lambda: next(ticks) / 1e3)
    assert (load.batches, load.rows, load.contexts) == ((1, 2), (1, 3), (8,))
    assert all(cell.ms == pytest.approx(1.0) and cell.experts is None for cell in load.cells)
    assert kept_load(target) is None
    place = save_load(load)
    assert kept_load(target) == load
    place.write_text(json.dumps({**load.to_json(), "cells": load.to_json()["cells"][1:]}))
    assert kept_load(target) is None, "a damaged one is left out"


def test_the_unique_experts_of_a_mixture_are_counted() -> None:
    config = hf.MixtralConfig(**{**BASE, "num_key_value_heads": 2, "num_local_experts": 4, "num_experts_per_tok": 2})
    torch.manual_seed(0)
    target = Target(hf.MixtralForCausalLM(config).eval(), None, "tiny-mixtral")
    load = measure_load(target, (1, 2), (1, 8), (8,), rounds=1)
    assert load.at(1, 1, 8).experts == 2.0, "one row reads its own two"
    assert 2.0 < (load.at(2, 8, 8).experts or 0) <= 4.0
    assert not [hook for module in target.model.modules() for hook in module._forward_hooks], "none is left"
    with unique_experts(tiny_target()) as counted:
        pass
    assert counted == []


@pytest.mark.parametrize(
    ("sizes", "words"),
    [
        (((0,), (1,), (8,)), "batches"), (((1, 65),), "batches"), (((1,), (129,)), "rows"),
        (((1,), (1,), (0,)), "contexts"), (((1,), (1,), (600,)), "contexts"),
    ],
)  # fmt: skip
def test_sizes_that_no_forward_has_are_refused(sizes, words) -> None:
    with pytest.raises(UserError, match=f"{words} .* not allowed"):
        measure_load(tiny_target(), *sizes)


def test_break_even_is_where_drafts_are_no_slower_than_none() -> None:
    load = load_of(lambda b, r, c: 10 + b * (r - 1))
    for batch, length in product((1, 4), (1, 4)):
        alpha = break_even(load, 0.05, length, batch)
        assert alpha is not None and speedup_at(load, alpha, 0.05, length, batch) == pytest.approx(1, abs=1e-6)
    assert break_even(load_of(lambda b, r, c: 10 * r), 0.1, 1, 1) is None, "rows are as dear as steps"


def test_the_curve_of_break_even_rises_with_the_batch_and_is_drawn() -> None:
    from ..load.charts import load_charts

    load = load_of(lambda b, r, c: 10 + 0.3 * b * r, batches=(1, 8))
    curve = break_even_curve(load, 0.05, max_length=3, batches=(1, 8, 64))
    assert all(curve[1][k] < curve[8][k] for k in range(3)) and curve[1][0] == break_even(load, 0.05, 1, 1)  # pyright: ignore[reportOperatorIssue]
    table = tiers(load, 0.8, 0.05, max_length=3, batches=(1, 8, 64))
    rows = [{name: getattr(tier, name) for name in tier.__slots__} for tier in table]
    data = {"model": "<b>", "acceptance": 0.8, "cost": 0.05, "measured_to": 8, "tiers": rows, "curve": curve}
    even, best = load_charts(data)
    assert [line.name for line in even.data] == ["batch 1", "batch 8", "batch 64", "α"]  # pyright: ignore
    assert list(even.data[1].y) == curve[8] and list(best.data[0].y) == [tier.length for tier in table]  # pyright: ignore
    assert best.data[0].marker.symbol[-1] == "circle-open" and "<b>" not in str(even.layout.title.text)  # pyright: ignore


def test_the_best_length_falls_with_the_batch_and_servers_take_it() -> None:
    load = load_of(lambda b, r, c: max(10.0, 0.6 * b * r), batches=(1, 8, 64))
    table = tiers(load, 0.8, batches=(1, 8, 64))
    assert [tier.length for tier in table] == sorted((tier.length for tier in table), reverse=True)
    assert table[0].length == 8 and table[-1].length == 0 and table[-1].speedup == 1.0
    vllm, sglang = json.loads(for_vllm(table)), json.loads(for_sglang(table))
    assert vllm["num_speculative_tokens"] == 8
    assert vllm["num_speculative_tokens_per_batch_size"] == [[1, 7, 8], [8, 63, table[1].length], [64, 64, 0]]
    assert sglang["1"]["candidate_steps"] == [6, 8, 10] and sglang["64"]["candidate_steps"] == [0]
    for bad in ({"acceptance": 1.1}, {"acceptance": 0.5, "max_length": 0}, {"acceptance": 0.5, "batches": (0,)}):
        with pytest.raises(ValueError, match="allowed|whole"):
            tiers(load, **bad)


def test_a_run_in_a_batch_is_its_steps_at_the_batchs_times() -> None:
    target = tiny_target()
    trace = record(target, Prompt.from_ids(prompt_ids(1) * 3), "pld", max_new_tokens=NEW)
    trace.tables["steps"]["draft_ms"] = [0.0] * trace.rows("steps")
    one, many = at_batches(trace, load_of(lambda b, r, c: 10.0 * b), (1, 32))
    assert one.speedup == many.speedup == pytest.approx(trace.run["metrics"]["tokens_per_step"]), "rows are free there"
    assert (one.measured, many.measured) == (True, False)
    with pytest.raises(ValueError, match="batch 0"):
        at_batches(trace, load_of(lambda b, r, c: 1.0), (0,))


def test_real_batches_are_held_against_the_model_measured_between_them(monkeypatch: pytest.MonkeyPatch) -> None:
    target, prompt, order = tiny_target(), Prompt.from_ids(prompt_ids(1) * 3), list[str]()
    runs = {name: record(target, prompt, name, max_new_tokens=8) for name in ("plain", "pld")}
    together, step = load_check.decode_together, step_times._step
    monkeypatch.setattr(load_check, "decode_together", lambda *a, **k: order.append("batch") or together(*a, **k))
    monkeypatch.setattr(step_times, "_step", lambda *a: order.append("step") or step(*a))
    made = load_check.check_load(target, prompt, runs, batches=(2,), rows=(1, 8), repeats=2)
    assert [(one.method, one.batch) for one in made] == [("plain", 2), ("pld", 2)]
    assert order == ["step"] * 8 + ["batch"] * 2 + ["step"] * 4 + ["batch"] * 2, "the first round is not timed"
    assert all(one.predicted > 0 and one.error == one.predicted / one.measured - 1 for one in made)


def test_runs_in_step_have_each_steps_rows_and_others_the_mean() -> None:
    trace = record(tiny_target(), Prompt.from_ids(prompt_ids(1) * 3), "pld", max_new_tokens=NEW)
    steps = trace.tables["steps"]
    steps["draft_ms"] = [0.0] * trace.rows("steps")
    bent = load_of(lambda b, r, c: 10.0 if r < 8 else 80.0)  # dear from some rows on
    mean, (one,) = at_batches(trace, bent, (2,))[0], at_batches(trace, bent, (2,), in_step=True)
    ms = [bent.ms(n + 1, 2, 64) for n in steps["drafted"]]
    assert len(set(ms)) > 1 and one.tokens_per_s == pytest.approx(2e3 * sum(steps["emitted"]) / sum(ms))
    assert mean.tokens_per_s != pytest.approx(one.tokens_per_s)


# --- policies


def chain(stands: int, q: tuple[float, ...]) -> list[Offer]:
    return [Offer(tuple(range(1, len(q) - k + 2)), q[k:], stands - k) for k in range(stands + 1)]


COSTS = Costs(lambda rows: 10.0 + rows)


def test_no_lengths_cost_less_than_the_oracles() -> None:
    offers = [chain(3, (0.9, 0.8, 0.7, 0.2)), chain(0, (0.1, 0.1)), chain(1, (0.6, 0.3, 0.3))]
    steps, drafted, ms = oracle_ms(offers, COSTS)
    assert (steps, drafted) == (3, 4) and ms == pytest.approx(3 * 11 + 4)
    for policy in (FixedLength(), FixedLength(0), FixedLength(1), Schedule(), Threshold(), Estimator(), Tiers()):
        made = replay(offers, policy, COSTS)
        assert made[2] >= ms and made[0] >= steps
    assert replay(offers, FixedLength(0), COSTS) == (7, 0, pytest.approx(7 * 11)), "one token a step"


def test_a_part_of_a_draft_leaves_the_rest_to_the_next_step() -> None:
    # 3 of 4 stand: 1 and the target's own, then 1 and the target's own
    assert replay([chain(3, (0.9,) * 4)], FixedLength(1), COSTS)[:2] == (2, 2)


def test_policies_move_as_their_servers_do() -> None:
    schedule = Schedule(5)
    schedule.learn(chain(5, (1.0,) * 5)[0], 5, 5)
    schedule.learn(chain(5, (1.0,) * 5)[0], 5, 3)
    assert schedule.tokens == 6
    threshold = Threshold()
    assert threshold.length(chain(0, (0.9, 0.3, 0.9))[0], COSTS) == 2, "the token below it is drafted, too"
    for _ in range(4):
        threshold.learn(chain(1, (0.9, 0.6))[0], 2, 1)
    assert threshold.threshold == pytest.approx(0.9)
    tiers_of = Tiers(1)
    lengths = []
    for _ in range(40):
        lengths.append(tiers_of.length(chain(7, (1.0,) * 7)[0], COSTS))
        tiers_of.learn(chain(7, (1.0,) * 7)[0], lengths[-1], lengths[-1])
    assert lengths[0] == 5 and lengths[-1] == 7
    for _ in range(60):
        length = tiers_of.length(chain(0, (1.0,) * 7)[0], COSTS)
        tiers_of.learn(chain(0, (1.0,) * 7)[0], length, 0)
    assert length == 1
    assert Tiers(64).length(chain(3, (1.0,) * 3)[0], COSTS) == 0


def test_the_estimator_learns_what_a_probability_is_worth() -> None:
    estimator, sure = Estimator(), chain(0, (0.99, 0.99, 0.99))[0]
    assert estimator.length(sure, COSTS) == 3
    for _ in range(100):
        estimator.learn(sure, 3, 0)
    assert estimator.length(sure, COSTS) == 0


def test_every_policy_is_held_against_the_oracle(tmp_path, capsys: pytest.CaptureFixture[str]) -> None:
    target, prompt = tiny_target(), Prompt.from_ids(prompt_ids(1) * 3)
    trace = record(target, prompt, "pld", max_new_tokens=NEW)
    offers = offers_of(trace)
    assert sum(map(len, offers)) == NEW and [len(places) - 1 for places in offers] == trace.tables["steps"]["accepted"]
    made = compare([(offers, costs_of(trace))])
    assert made[0].policy == "oracle" and made[0].regret == 0 and all((one.regret or 0) >= -1e-9 for one in made)
    own = next(one for one in made if one.policy == "the run's own length")
    assert own.steps == trace.rows("steps")
    assert {one.policy for one in made if one.why} == {"transformers, threshold", "vLLM, estimator"}
    save(trace, tmp_path / "run.spectrace")
    assert main(["load", "policies", str(tmp_path / "run.spectrace"), "--latency", "1:10,9:18", "--json"]) == 0
    rows = json.loads(capsys.readouterr().out)
    assert rows[0]["policy"] == "oracle" and len(rows) == len(made)
    assert "L(n)" in refusal(capsys, "load", "policies", tmp_path / "run.spectrace", "--latency", "8:10")


def test_the_commands_measure_and_show(home, tmp_path, capsys: pytest.CaptureFixture[str]) -> None:
    from decoders import load_target
    from decoders.model.files.catalog import BUNDLED

    name = str(BUNDLED) if not isinstance(BUNDLED, str) else BUNDLED
    sizes = ["--batches", "1,2", "--rows", "1,4", "--contexts", "16", "--rounds", "1"]
    model = ["--model", name, "--engine", "eager"]
    assert "specviz load measure" in refusal(capsys, "load", "table", *model)
    assert main(["load", "measure", *sizes, *model]) == 0 and "kept" in capsys.readouterr().out
    files = ["--vllm", str(tmp_path / "v.json"), "--sglang", str(tmp_path / "s.json")]
    assert main(["load", "table", "--acceptance", "0.9", *files, *model]) == 0
    assert json.loads((tmp_path / "v.json").read_text())["num_speculative_tokens_per_batch_size"][0][0] == 1
    assert json.loads((tmp_path / "s.json").read_text())["1"]["candidate_steps"]
    target = load_target(name, engine="eager")
    save(record(target, Prompt.from_ids([5, 6, 7] * 9), "pld", max_new_tokens=8), tmp_path / "run.spectrace")
    capsys.readouterr()
    assert main(["load", "at", str(tmp_path / "run.spectrace"), "--batches", "1,32", "--json", *model]) == 0
    data = json.loads(capsys.readouterr().out)
    assert [one["batch"] for one in data["runs"]] == [1, 32] and "model" in data["model"]
    odd = refusal(capsys, "load", "table", "--acceptance", 2, *model)
    assert "acceptance 2.0 is not allowed: a number from 0 to 1" in odd
