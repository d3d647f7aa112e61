"""The replay under a perfect ranking: by hand, against full knowledge, and what it cannot be told of."""

from __future__ import annotations

import random
from collections.abc import Callable
from pathlib import Path

import pytest

from decoders.trace import files
from decoders.trace.metrics import compute, fill_would_accept, measure, regrets
from decoders.trace.oracle import UNDECIDED_NOTE, UNRANKED_NOTE, Oracle, oracle, unknown
from decoders.trace.report import report
from decoders.trace.trace import Trace
from tests import recordings

GALLERY = sorted((Path(__file__).parents[1] / "assets" / "gallery").glob("*.spectrace"))


def run(accepted: list[int], best: dict[int, int], *, wide: int = 0) -> Trace:
    """A run by its steps' accepted tokens; ``best``: step → what its best candidate, not the chosen one, would have had
    accepted. ``wide``: drafted tokens beside the chain.
    """
    emitted = [n + 1 for n in accepted]
    trace = Trace.new({"prompt_length": 3, "complete": True})
    steps = {"context": [3 + sum(emitted[:k]) for k in range(len(emitted))], "accepted": accepted, "emitted": emitted}
    depth = [max(1, n) for n in accepted]
    drafts = {"depth": depth, "drafted": [n + wide for n in depth]}
    rows = [(k, n, True) for k, n in enumerate(accepted)] + [(k, n, False) for k, n in best.items()]
    step, would, chosen = map(list, zip(*sorted(rows, key=lambda row: row[0]), strict=True))
    ranked = {"step": step, "would_accept": would, "chosen": chosen, "length": [9] * len(rows)}
    trace.extend({"steps": {**steps, **drafts}, "candidates": ranked})
    return trace


def test_a_better_place_at_the_start_saves_a_step_or_two() -> None:
    # it stood at 0, 1, 2 and 5 of 6 tokens; from 0 the best place reaches 3. There nobody ranked: a step from 3 may
    # reach as far as the one from 5 (6: two steps in all) and surely goes on to where the one from 2 went (5: three)
    replay = oracle(run([0, 0, 2, 0], {0: 2}))
    assert replay is not None
    assert (replay.steps, replay.most, replay.recorded, replay.cost) == (2, 3, 4, 2)
    assert (replay.least, replay.branches) == (1, False)
    assert replay.ends == (3, 6)


def test_a_run_ends_where_its_text_does() -> None:
    # from 0 the best place reaches 3 and, with the target's own token, more than was written: one step
    replay = oracle(run([0, 1], {0: 3}))
    assert replay is not None and (replay.steps, replay.ends) == (1, (3,))


def test_where_the_best_was_chosen_nothing_is_saved() -> None:
    """Negative control: the same candidates, ranked rightly."""
    replay = oracle(run([3, 0, 2], {0: 1, 2: 2}))
    assert replay is not None and (replay.cost, replay.most) == (0, 3)
    assert replay.ends == (4, 5, 8)


def test_a_better_place_that_leads_where_the_run_went_anyway_saves_nothing() -> None:
    # regret is not steps: at 0 the best place gives a token more, and the next step reaches no further for it
    trace = run([1, 3], {0: 2})
    assert sum(one.tokens for one in regrets(trace)) == 1
    replay = oracle(trace)
    assert replay is not None and (replay.cost, replay.steps) == (0, 2)


def copying(text: list[int], prompt: int, length: int, choose: random.Random) -> tuple[Trace, int]:
    """A run that copies after an earlier occurrence of its last token, chosen blindly; and the steps of one that knows
    at every place, also where this one never stood, which copy goes furthest.
    """

    def offers(context: int) -> list[int]:
        places = [j for j in range(context - 1) if text[j] == text[context - 1]]
        accepted = []
        for j in places:
            stop = min(j + 1 + length, context)
            n = 0
            while j + 1 + n < stop and context + n < len(text) and text[j + 1 + n] == text[context + n]:
                n += 1
            accepted.append(n)
        return accepted

    def walk(pick: Callable[[list[int]], int]) -> list[tuple[int, int, list[int]]]:
        context, steps = prompt, []
        while context < len(text):
            accepted = offers(context)
            won = pick(accepted) if accepted else -1
            steps.append((context, won, accepted))
            context += 1 + (accepted[won] if accepted else 0)
        return steps

    blind = walk(lambda accepted: choose.randrange(len(accepted)))
    trace = Trace.new({"prompt_length": prompt, "complete": True})
    for k, (context, won, accepted) in enumerate(blind):
        n = accepted[won] if accepted else 0
        emitted = min(n + 1, len(text) - context)
        step = {"context": context, "accepted": n, "emitted": emitted, "drafted": n, "depth": n}
        chosen = [i == won for i in range(len(accepted))]
        rows = {"step": [k] * len(accepted), "would_accept": accepted, "chosen": chosen}
        trace.extend({"steps": {name: [value] for name, value in step.items()}, "candidates": rows})
    return trace, len(walk(lambda accepted: accepted.index(max(accepted))))


@pytest.mark.parametrize("letters", [2, 3, 5])
def test_a_ranking_that_knows_everything_lies_between_the_bounds(letters: int) -> None:
    gaps = 0
    for seed in range(120):
        draws = random.Random(seed)
        text = [draws.randrange(letters) for _ in range(draws.randrange(12, 50))]
        text += text[draws.randrange(6) : draws.randrange(8, 12)] * 2
        trace, perfect = copying(text, 8, draws.choice((2, 4, 20)), draws)
        replay = oracle(trace)
        if replay is None:
            continue
        assert replay.steps <= perfect <= replay.most <= replay.recorded
        gaps += replay.recorded > replay.steps
    assert gaps > 20  # there was something to save


def test_runs_without_a_ranking_say_so() -> None:
    plain = recordings.plain()
    assert oracle(plain) is None and unknown(plain) == UNRANKED_NOTE
    assert report(plain)["oracle"] == {"why": UNRANKED_NOTE} and compute(plain)["ranking_cost"] is None


def test_a_run_that_goes_on_is_not_judged() -> None:
    trace = recordings.chain()
    trace.run["complete"] = False
    trace.tables["candidates"]["would_accept"] = [-1] * trace.rows("candidates")
    assert oracle(trace) is None and unknown(trace) == UNDECIDED_NOTE
    fill_would_accept(trace)
    assert oracle(trace) is not None


def test_drafts_that_branch_are_told() -> None:
    narrow, wide = oracle(run([0, 2], {0: 2})), oracle(run([0, 2], {0: 2}, wide=3))
    assert narrow is not None and wide is not None and (narrow.branches, wide.branches) == (False, True)


@pytest.mark.parametrize("path", GALLERY, ids=lambda path: path.stem)
def test_every_run_of_the_gallery(path: Path) -> None:
    trace = files.load(path)
    replay, told = oracle(trace), report(trace)["oracle"]
    if replay is None:
        assert told == {"why": UNRANKED_NOTE} and not trace.rows("candidates")
        return
    assert replay.steps <= replay.most <= replay.recorded == trace.rows("steps")
    assert replay.ends[-1] == len(trace.output_ids) and list(replay.ends) == sorted(replay.ends) == told["ends"]
    assert replay.cost == 0 or any(one.tokens for one in regrets(trace))  # nothing lost, nothing to save
    cost = measure(trace)["ranking_cost"]
    assert cost.value == told["cost"] == replay.recorded - replay.steps and cost.parts["oracle"] == replay.steps


def test_the_cost_of_a_ranking_in_words():
    """Exactly, between bounds, about, nothing."""

    def tell(cost: int, least: int, branches: bool = False) -> str:
        return Oracle(10 - cost, 10 - least, 10, (), branches).words

    assert tell(2, 2) == "ranking costs 2 of 10 steps"
    assert tell(2, 1) == "ranking costs 1 to 2 of 10 steps"
    assert tell(2, 2, branches=True) == "ranking costs about 2 of 10 steps"
    assert tell(0, 0) == "ranking costs none of 10 steps"
    assert Oracle(8, 9, 10, (), False).needs == "8 to 9" and Oracle(8, 8, 10, (), False).needs == "8"
