"""L(n): what is timed, when it is timed again, and for whom it is kept; the clock and the steps are made up."""

from __future__ import annotations

import json
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest
import torch

from decoders.drafters.ppd import PpdDrafter
from decoders.errors import UserError
from decoders.model.target_model.target import Session
from decoders.prompt_tokens.design import best_size, design_sizes, sizes_up_to
from decoders.prompt_tokens.latency import Latency, Setup, latency_folder, load_latency, save_latency
from decoders.study.measure import latency as measuring
from decoders.study.measure.latency import ATTEMPTS, ROUNDS, WARM_UP, WARMUP_STEPS, latency_for, measure_latency

from .models import tiny_target

torch.set_num_threads(1)
VISIT = WARMUP_STEPS + 1  # steps of a size one behind the other


pytestmark = pytest.mark.usefixtures("home")


class Machine:
    """A target whose steps take ``cost(rows, number of the step)`` seconds on its own clock."""

    def __init__(self, cost: Any) -> None:
        self.now, self.cost = 0.0, cost
        self.scored: list[int] = []
        self.prepared: list[int] = []
        self.name, self.key, self.context_length = "machine", "key", 512
        self.device = torch.device("cpu")
        self.info = {"vocab": 40, "dtype": "float32", "packed": True}
        self.engines = SimpleNamespace(engine="eager")

    def clock(self) -> float:
        return self.now

    def steps(self, rows: int) -> Any:
        def step() -> None:
            self.now += self.cost(rows, len(self.scored))
            self.scored.append(rows)

        return lambda: self.prepared.append(rows), step

    def measure(self, most: int = 16, **options: Any) -> Latency:
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(measuring, "_steps", lambda target, context: self.steps)
            return measure_latency(self, most, clock=self.clock, **options)  # type: ignore[arg-type]


def steady(rows: int, number: int) -> float:
    return 0.002 + 0.0001 * rows


def test_an_untimed_step_changes_the_next_of_another_size_only():
    machine = Machine(lambda rows, number: steady(rows, number) * (1 + 3 * (machine.scored[-1:] != [rows])))
    assert machine.measure(10).median == pytest.approx([2 + 0.1 * n for n in (1, 2, 4, 8, 12)])


def test_medians_of_steps_in_turn():
    machine = Machine(steady)
    seen: list[tuple[int, int]] = []
    found = machine.measure(10, context=100, progress=lambda done, total: seen.append((done, total)))
    assert found.rows == (1, 2, 4, 8, 12) and found.context == 100 and machine.prepared == machine.scored
    assert found.median == pytest.approx([2 + 0.1 * n for n in found.rows])
    assert found.note == "" and found.attempts == 1 and found.rounds == ROUNDS
    visits = [machine.scored[i : i + VISIT] for i in range(0, len(machine.scored), VISIT)]
    timed = [visit[-1] for visit in visits]
    assert len(timed) == (WARM_UP + ROUNDS) * 5 and all(len(set(v)) == 1 for v in visits)  # each behind its own size
    rounds = [timed[i : i + 5] for i in range(0, len(timed), 5)]
    assert all(sorted(r) == [1, 2, 4, 8, 12] for r in rounds) and len({r[0] for r in rounds}) == 5
    assert seen[-1][0] == seen[-1][1] and [d for d, _ in seen] == sorted(d for d, _ in seen)
    assert [d for d, _ in seen[:-1]] == list(range(1, len(timed) + 1))  # a run may come first after every size


def test_between_the_points_and_beyond():
    found = Machine(steady).measure(10)
    assert found.ms(10) == pytest.approx(3.0) and found.ms(3) == pytest.approx(2.3) and found.largest == 12
    for rows in (0, 13):
        with pytest.raises(ValueError, match=f"latency of {rows} rows is not known: 1 to 12"):
            found.ms(rows)


def test_a_disturbed_measurement_is_repeated_until_it_is_quiet():
    first = (WARM_UP + ROUNDS) * 6 * VISIT

    def early(rows: int, number: int) -> float:
        return steady(rows, number) * (1 + (number % 7) * (number < first))

    found = Machine(early).measure()
    assert found.attempts == 2 and found.note == ""
    assert found.median == pytest.approx([2 + 0.1 * n for n in found.rows])


@pytest.mark.slow("measures until it gives up")
def test_one_that_stays_disturbed_says_so():
    machine = Machine(lambda rows, number: steady(rows, number) * (1 + (rows == 8) * (number % 7)))
    found = machine.measure()
    assert found.attempts == ATTEMPTS and len(machine.scored) == ATTEMPTS * (WARM_UP + ROUNDS) * 6 * VISIT
    assert "the latency of 8 rows varies by" in found.note and f"{ATTEMPTS} measurements" in found.note
    assert "specviz tree latency --again" in found.note


@pytest.mark.slow("measures until it gives up")
def test_the_quietest_of_the_disturbed_is_given():
    per_attempt = (WARM_UP + ROUNDS) * 6 * VISIT

    def second_is_best(rows: int, number: int) -> float:
        return steady(rows, number) * (1 + (number % 7) * (0.3 if number // per_attempt == 1 else 3))

    machine = Machine(second_is_best)
    found = machine.measure()
    assert found.note and found.attempts == ATTEMPTS and max(found.spreads) < 1


def test_what_cannot_be_measured():
    for most in (0, 513):
        with pytest.raises(UserError, match="a verify forward has 1 to 512"):
            Machine(steady).measure(most)
    with pytest.raises(UserError, match="a context of 501 tokens is not allowed: 1 to 500"):
        Machine(steady).measure(context=501)


@pytest.mark.parametrize("family", ["qwen3", "gpt2"])
def test_the_steps_of_a_real_run(family, monkeypatch):
    """Each is a whole step of so many rows behind the same text, with prompt tokens and rejected guesses."""
    target, made = tiny_target(family), []
    score = Session.score

    def score_draft(session, draft):
        made.append((session.length, len(draft.tree) + len(draft.probes), draft.tree.drafted, draft.notes))
        return score(session, draft)

    monkeypatch.setattr(Session, "score", score_draft)
    learned, observe = [], PpdDrafter.observe
    monkeypatch.setattr(PpdDrafter, "observe", lambda *args: learned.append(observe(*args)))
    step_of = measuring._steps(target, 30)
    for rows in (1, 2, 4, 5, 8, 17, 64, 8):
        prepare, step = step_of(rows)
        for _ in range(2):
            prepare()
            step()
            length, counted, drafted, notes = made[-1]
            assert (length, counted) == (31, rows) and (drafted > 0) == (rows > 2)
            if rows > 1:
                next_state = learned[-1].notes["next_state"]
                assert next_state == notes["state"] > 0, "nothing was accepted: the root's are next"
    found = measure_latency(target, 16, context=30, rounds=1)  # one round has no spread
    assert found.rows == (1, 2, 4, 8, 12, 16) and all(0 < ms < 60_000 for ms in found.median)
    assert found.model == f"tiny-{family}" and found.setup.threads == 1 and found.setup.torch == torch.__version__


def test_it_is_kept_for_this_machine_and_model_only(monkeypatch):
    target = tiny_target("llama")
    found = replace(Machine(steady).measure(), setup=Setup.of(target))
    assert load_latency(target) is None
    path = save_latency(found)
    assert path.parent == latency_folder() and load_latency(target) == found
    assert Latency.from_json(json.loads(path.read_text("utf-8"))) == found
    assert load_latency(tiny_target("llama", seed=2)) is None
    assert load_latency(tiny_target("llama", dtype=torch.float64)) is None
    for what, value in (("get_num_threads", lambda: 7), ("__version__", "9.9")):
        with monkeypatch.context() as other:
            other.setattr(torch, what, value)
            assert load_latency(target) is None
    with monkeypatch.context() as other:
        other.setattr(target.engines, "engine", "compiled")
        assert load_latency(target) is None
    with monkeypatch.context() as other:
        other.setitem(target.info, "weights", "int4")
        assert load_latency(target) is None
        save_latency(replace(found, setup=Setup.of(target)))
        assert load_latency(target) is not None
        other.setitem(target.info, "activations", "int8")
        assert load_latency(target) is None, "own kernels take another time"
    with monkeypatch.context() as other:
        other.setattr("decoders.prompt_tokens.latency.device_name", lambda device: "another processor")
        assert load_latency(target) is None
    assert load_latency(target) == found


def test_it_is_measured_once(monkeypatch):
    target = tiny_target("llama")
    asked: list[int] = []

    def measure(target: Any, most: int, **options: Any) -> Latency:
        asked.append(most)
        return replace(Machine(steady).measure(most), setup=Setup.of(target))

    monkeypatch.setattr(measuring, "measure_latency", measure)
    first = latency_for(target, 16)
    assert latency_for(target, 12) == first and asked == [16]
    assert latency_for(target, 32).largest == 32 and latency_for(target, 16, refresh=True) and asked == [16, 32, 16]


def test_a_damaged_file_is_left_out(caplog):
    target = tiny_target("llama")
    good = replace(Machine(steady).measure(), setup=Setup.of(target)).to_json()
    path = save_latency(Latency.from_json(good))
    for damage in ("{", json.dumps([]), *(json.dumps({**good, **change}) for change in (
        {"rows": []}, {"rows": [2, 1]}, {"median": [1.0]}, {"median": [0.0] * 6}, {"setup": {}}, {"schema": "other"},
    ))):  # fmt: skip
        path.write_text(damage, "utf-8")
        caplog.clear()
        assert load_latency(target) is None and "is left out" in caplog.text


def test_a_slower_machine_gets_smaller_trees():
    designed = design_sizes([[0.5, 0.2, 0.1], [0.3, 0.1, 0.1]], sizes_up_to(32, 2))
    flat = Machine(lambda rows, number: 0.01).measure(32)
    steep = Machine(lambda rows, number: 0.001 * rows).measure(32)
    assert best_size(designed, steep) == min(designed) < best_size(designed, flat)
