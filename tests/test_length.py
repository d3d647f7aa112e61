"""Draft length by costs and survival: what is left out of drafts, when a method rests, and what stays the same."""

from __future__ import annotations

from dataclasses import replace
from itertools import combinations
from typing import Any

import numpy as np
import pytest

from decoders import Prompt, Sampling, UserError, generate, load, record, save
from decoders.draft.draft import Candidates, Draft
from decoders.draft.params import controls
from decoders.draft.pruning import pruned_draft
from decoders.draft.survival import BINS, DEPTHS, HIGHEST, LOWEST, NO_SIGNAL, PROBABLE, Survival, count_match
from decoders.draft.survival import _of_candidate as of_candidate
from decoders.draft.tree import DraftTree
from decoders.draft.undrawn import Undrawn, without_draws
from decoders.drafters import methods, select_method
from decoders.drafters.sps import open_drafter
from decoders.engine.decoding import Decoding
from decoders.engine.length import REST_STEPS, ROUTE, TRIAL, AutoLength, DraftingTime
from decoders.engine.row_costs import Curve, RowCosts
from decoders.method.drafter import Drafter
from decoders.model.target_model.target import Session
from decoders.trace.reliability import outcomes, pool_runs, signals
from decoders.verifiers.match import judged

from .drafts import methods_here, needs_kinds, save_tiny_part
from .models import prompt_ids, save_model, tiny_target
from .tiers import matrix

pytestmark = pytest.mark.usefixtures("home")
NEW = 40
STEEP = Curve((1, 9), (10.0, 50.0), "a test")  # a row more costs half a plain step
PARTS = {"glide": "glide", "medusa": "medusa", "eagle": "eagle", "eagle2": "eagle", "ppd": "ppd", "hydra": "hydra"}
METHODS = methods_here("pld+h", "adapld", "recycling", "lookahead", "eagle2", "ppd", "glide")
OTHERS = methods_here("pld", "pld+a", "sam", "suffix", "logitspec", "llma", "medusa", "hydra", "eagle")


class Timeless(AutoLength):
    """Drafting takes no time, whatever the clock of a busy machine says."""

    def learn(self, draft, verdict, *, rows, emitted, drafting_ms, target_ms):
        taken = dict(rows=rows, emitted=emitted, drafting_ms=0.0, target_ms=target_ms)
        return super().learn(draft, verdict, **taken)


def price(target, prompt, method, curve=STEEP, **options) -> Decoding:
    """A run under lengths that pay, with costs that do not follow the clock."""
    run = Decoding.of(target, prompt, method, **options)
    run.length = Timeless(RowCosts(curve, follows=False))
    return run


@pytest.mark.parametrize("method", matrix([*METHODS, *OTHERS], METHODS, "the other methods"))
def test_the_output_is_plain_decodings_whatever_is_left_out(method: str) -> None:
    target = tiny_target()
    if kind := PARTS.get(method):
        save_tiny_part(target, kind)
    prompt = Prompt.from_ids(prompt_ids(1) * 3)
    steps = list(price(target, prompt, method, max_new_tokens=NEW))
    assert [token for step in steps for token in step.emitted] == generate(target, prompt, max_new_tokens=NEW)
    whole = list(Decoding.of(target, prompt, method, max_new_tokens=NEW))
    ours, theirs = (sum(step.draft.tree.drafted for step in run) for run in (steps, whole))
    assert ours < theirs or not theirs, "rows are dear here"


def test_a_sampled_run_draws_plain_decodings_tokens() -> None:
    target, prompt, drawing = tiny_target(), Prompt.from_ids(prompt_ids(2) * 3), Sampling(0.9, seed=3)
    made = [
        token
        for step in price(target, prompt, "adapld", sampling=drawing, max_new_tokens=NEW)
        for token in step.emitted
    ]
    assert made == generate(target, prompt, sampling=drawing, max_new_tokens=NEW)


@pytest.mark.parametrize("method", ["adapld", "recycling"])
def test_targets_that_differ_in_the_judged_token_alone_get_the_same_draft(
    method: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The second target writes something else after step 6 than the first one; up to there, and in it, all is alike."""
    target, prompt, at = tiny_target(), Prompt.from_ids(prompt_ids(3) * 3), 6
    stock, calls = Session.score, [0]

    def other(self: Session, draft: Draft):
        scored = stock(self, draft)
        calls[0] += 1
        if calls[0] == at + 1:
            return replace(scored, logits=scored.logits.flip(-1))
        return scored

    first = [step for step, _ in zip(price(target, prompt, method, max_new_tokens=NEW), range(at + 2), strict=False)]
    monkeypatch.setattr(Session, "score", other)
    second = [step for step, _ in zip(price(target, prompt, method, max_new_tokens=NEW), range(at + 2), strict=False)]
    assert [s.draft.tree for s in first[: at + 1]] == [s.draft.tree for s in second[: at + 1]]
    assert [s.draft.nodes for s in first[: at + 1]] == [s.draft.nodes for s in second[: at + 1]]
    assert first[at].emitted != second[at].emitted


def random_tree(random: np.random.Generator, count: int) -> DraftTree:
    parents = [-1, *(int(random.integers(0, node)) for node in range(1, count))]
    return DraftTree(tuple(range(count)), tuple(parents))


@pytest.mark.parametrize("seed", range(12))
def test_no_part_of_a_tree_pays_better_than_the_one_that_stays(seed: int) -> None:
    random = np.random.default_rng(seed)
    tree = random_tree(random, 9)
    ms = np.cumsum(random.uniform(0.5, 4.0, 9)) + 10  # any shape that rises
    length = AutoLength(RowCosts(Curve(tuple(range(1, 10)), tuple(ms.tolist()), "a test"), follows=False))
    draft = Draft(tree, ("root", *("drafter",) * 8), (-1,) * 9, tuple(random.uniform(0.1, 0.99, 9).tolist()))
    survival = np.array(length.survival.estimate(draft, np.arange(3)).survival)
    kept = length.choose(draft, _context())
    rate, stays = length.rate, set(kept.nodes) if kept.nodes else set(range(9))

    def worth(nodes) -> float:
        return float(survival[sorted(nodes)].sum()) - rate * float(ms[len(nodes) - 1])

    trees = [
        {0, *some} for size in range(9) for some in combinations(range(1, 9), size)
        if all(tree.parents[node] in {0, *some} for node in some)
    ]  # fmt: skip
    assert worth(stays) == pytest.approx(max(map(worth, trees)))


class _context:  # of a draft that is copied from nowhere
    tokens = np.arange(3)


def test_what_is_left_out_is_recorded_with_expected_and_real_gain(tmp_path) -> None:
    target, prompt = tiny_target(), Prompt.from_ids(prompt_ids(1) * 3)
    trace = record(target, prompt, "adapld", max_new_tokens=NEW, length="auto")
    run, steps, nodes, pruned = trace.run, trace.tables["steps"], trace.tables["nodes"], trace.tables["pruned"]
    assert run["length"]["policy"] == "auto" and run["length"]["rows"][0] == 1 and run["length"]["fitted"]["judged"]
    left = [int(n or 0) for n in steps["term:left_out"]]
    assert sum(left) == len(pruned["step"]) and set(pruned["why"]) <= {"cost"}
    for number, drafted in enumerate(steps["drafted"]):
        mine = [s for s, step in zip(nodes["term:survival"], nodes["step"], strict=True) if step == number][1:]
        if drafted:
            assert steps["term:expected"][number] == pytest.approx(sum(mine), abs=1e-4)
    (signal,) = [one for one in signals([trace]) if one.key == "term:survival"]
    judged_tokens = pool_runs([outcomes(trace, signal)], signal)
    assert judged_tokens.count == sum(steps["drafted"]) and 0 <= judged_tokens.ece <= 1
    save(trace, tmp_path / "run.spectrace")
    assert load(tmp_path / "run.spectrace").tables["pruned"] == pruned


@needs_kinds("eagle")
def test_a_heads_own_list_of_what_it_left_out_stands_behind(tmp_path) -> None:
    target = tiny_target()
    save_tiny_part(target, "eagle")
    trace = record(
        target,
        Prompt.from_ids(prompt_ids(5)),
        "eagle2",
        {"depth": 2, "total_tokens": 12},
        max_new_tokens=8,
        length="auto",
    )
    pruned = trace.tables["pruned"]
    why = [w for w, step in zip(pruned["why"], pruned["step"], strict=True) if step == 0]
    assert why == sorted(why) and {*why} >= {"rank"}
    save(trace, tmp_path / "run.spectrace")
    load(tmp_path / "run.spectrace")


class Wrong(Drafter):
    """Drafts what is never written."""

    calls = 0

    def propose(self, context, budget):
        self.calls += 1
        return Draft(DraftTree.chain(context.root, (VOID,) * 4), ("root", *("drafter",) * 4), (-1,) * 5, (1.0,) * 5)


VOID = 319


def test_a_method_that_costs_more_than_it_brings_rests_and_is_tried_again() -> None:
    target, prompt, drafter = tiny_target(), Prompt.from_ids(prompt_ids(1)), Wrong()
    curve = Curve((1, 8), (1e-3, 1e-2), "a test")  # drafting takes longer than that
    length = AutoLength(RowCosts(curve, follows=False))
    steps = list(Decoding(target, prompt, drafter, max_new_tokens=100, stop_ids=(), length=length))
    resting = [step.draft.route == ROUTE for step in steps]
    assert resting[:TRIAL] == [False] * TRIAL and all(resting[TRIAL : TRIAL + REST_STEPS])
    assert resting[TRIAL + REST_STEPS] is False, "tried again"
    assert drafter.calls == resting[:-1].count(False) < 30, "in the last step nothing may be drafted"
    assert "tried again" in steps[TRIAL].draft.reason


def test_survival_comes_to_what_stands() -> None:
    """Tokens of probability q stand with q², by sibling rank and depth alike: the fitted numbers come near."""
    random, fitted = np.random.default_rng(0), Survival()
    losses = []
    for _ in range(1500):
        q = random.uniform(0.05, 0.95, 5)
        draft = Draft(DraftTree.chain(0, (1, 2, 3, 4, 5)), ("root", *("drafter",) * 5), (-1,) * 6, (1.0, *q.tolist()))
        made = fitted.estimate(draft, np.arange(3))
        stood = int((random.random(5) < q**2).cumprod().sum())
        fitted.fit(made, draft, judged(draft, list(range(stood + 1)), 9))
        losses.append(abs(np.array(made.conditional[1:]) - q**2).mean())
    assert np.mean(losses[-100:]) < 0.08 < np.mean(losses[:20])


@pytest.mark.parametrize("form", [list, np.float16, np.float32])
def test_a_plug_ins_scores_count_in_any_form(form: Any) -> None:
    """Lists and halves have no buffer of Python's own numbers."""

    def bins(form: Any) -> list[tuple[str, int]]:
        places, lengths, own = np.array([3, 7]), np.array([2, 2]), {"overlap": form([1.0, 3.0])}
        ranking = Candidates(places, form([0.25, 0.5]), lengths, 1, own)
        draft = Draft.copy_from(0, [1, 2], 8, route="copy", candidates=ranking)
        return of_candidate(draft)

    assert bins(form) == bins(np.array) and len(bins(form)) == 2


def test_a_fitted_model_goes_on_from_run_to_run_from_its_first_run_on() -> None:
    target = tiny_target()
    first = AutoLength.of(target, "pld").survival
    assert not len(first) and AutoLength.of(target, "pld").survival is first
    list(Decoding.of(target, Prompt.from_ids(prompt_ids(1) * 3), "pld", max_new_tokens=40, length="auto"))
    assert len(first)


def test_a_level_costs_what_deeper_drafts_take_longer() -> None:
    """A copy takes as long however deep it is, and is not cut for that; a draft model's forwards take theirs."""
    copies, model, alike = DraftingTime(), DraftingTime(), DraftingTime()
    for depth in (30, 2, 2, 12, 2, 1, 0, 2, 2) * 3:
        copies.observe(depth, 1.0)
        model.observe(depth, 0.2 + 3.0 * depth)
        alike.observe(4, 12.0)
    assert copies.ms == pytest.approx(1) and copies.level_ms < 1e-9
    assert model.level_ms == pytest.approx(3) and alike.level_ms == pytest.approx(3)


def test_drafts_that_cost_nothing_to_make_are_weighed_step_by_step() -> None:
    """A method whose rows alone do not pay goes on: of its drafts nothing is verified, but for a few tries."""
    length = Timeless(RowCosts(STEEP, follows=False))
    decoding = Decoding(
        tiny_target(), Prompt.from_ids(prompt_ids(1)), Wrong(), max_new_tokens=60, stop_ids=(), length=length
    )
    steps = list(decoding)[:-1]
    assert not any(step.draft.route == ROUTE for step in steps)
    assert sum(step.draft.tree.drafted for step in steps[TRIAL:]) < 12


def by_numpy(fitted: Survival, draft: Draft, tokens: np.ndarray, state: int) -> tuple[np.ndarray, np.ndarray]:
    """An estimate's conditional probabilities and survival, number by number over whole arrays."""

    def block(name: str) -> np.ndarray:
        at = fitted.blocks[name]
        return np.array(fitted.weights[at : at + BINS])

    parents, origins = draft.tree.parents, draft.origins
    depth, rank = np.array(draft.tree.depths), [0] * len(parents)
    for node, parent in enumerate(parents):
        rank[node] = min(sum(other == parent for other in parents[:node]), BINS - 1)
    kinds = dict.fromkeys(origins[1:])
    copies = draft.sources[1] > 0
    deep = block(f"{'copied' if copies else 'depth'} {next(iter(kinds)) if len(kinds) == 1 else 'all'}")
    z = np.array([0.0, *(block(f"origin {kind}")[r] for kind, r in zip(origins[1:], rank[1:], strict=True))])
    z += deep[[DEPTHS[d] if d < len(DEPTHS) else min(10 + (d - len(DEPTHS)) // 16, BINS - 1) for d in depth]]
    numbers = dict(draft.terms)
    if draft.probabilities is not None:
        numbers["confidence" if "confidence" in numbers else "q"] = np.array(draft.probabilities)
    for name, values in numbers.items():
        if name in NO_SIGNAL:
            continue
        values = np.array(values, dtype=np.float64)
        if name in PROBABLE:
            q = np.clip(values, 1e-4, 1 - 1e-4)
            bins = np.log(q / (1 - q))
        else:
            bins = np.copysign(2 * np.log2(1 + np.abs(values)), values)
        bins = np.clip(np.rint(bins) + BINS // 2, 1, BINS - 1)
        z += block(name)[np.where(np.isnan(bins), 0, bins).astype(int)]
    z += block("run")[0] + block("state")[state]
    z += sum(block(name)[place] for name, place in of_candidate(draft))
    if copies:
        z += block("matched")[count_match(tokens, draft.sources[1] - 1)]
    conditional = np.clip(1 / (1 + np.exp(-z)), LOWEST, HIGHEST)
    conditional[0] = 1.0
    survival = conditional.copy()
    for node in range(1, len(parents)):
        survival[node] *= survival[parents[node]]
    return conditional, survival


@pytest.mark.parametrize("method", ["adapld", "recycling", "pld+h"])
def test_what_is_decided_is_what_whole_arrays_decide(method: str) -> None:
    """On the steps of a run: each estimate, and the nodes that make Σ survival − ρ·L(rows) greatest."""
    target, prompt, decided = tiny_target(), Prompt.from_ids(prompt_ids(1) * 3), 0
    run = price(target, prompt, method, max_new_tokens=NEW)
    assert run.length is not None
    length, stock = run.length, run.length.choose

    def both(draft: Draft, context) -> Draft:
        nonlocal decided
        state, rate, unseen = length.state, length.rate, length.unseen
        patience, cut = length.patience, stock(draft, context)
        conditional, survival = by_numpy(length.survival, draft, context.tokens, state)
        made = length.estimates[-1]
        np.testing.assert_allclose(made.conditional, conditional, atol=1e-12)
        np.testing.assert_allclose(made.survival, survival, atol=1e-12)
        order = np.argsort(-np.array(made.survival), kind="stable")
        worth = np.cumsum(survival[order]) - rate * np.array(length.costs.base)[1 : len(order) + 1]
        stay = int(worth.argmax()) + 1
        if stay > 1 or unseen + 1 < patience:
            assert set(cut.nodes or range(len(draft.tree))) == set(order[:stay].tolist())
            decided += stay < len(order)
        return cut

    length.choose = both  # pyright: ignore[reportAttributeAccessIssue]
    assert [token for step in run for token in step.emitted] == generate(target, prompt, max_new_tokens=NEW)
    assert decided > 3


@pytest.mark.parametrize("deep", range(1, 6))
def test_a_drawn_chain_is_cut_by_nothing_that_stands_behind_the_cut(deep: int) -> None:
    """Position d is verified by facts known before its token was drawn: by positions 1 to d."""
    random = np.random.default_rng(deep)
    length = AutoLength(RowCosts(Curve((1, 9), (10.0, 34.0), "a test"), follows=False))
    one, other = (np.append(1.0, random.uniform(0.2, 0.95, 6)) for _ in range(2))
    other[: deep + 1] = one[: deep + 1]
    assert (length.drawn_depth(one) >= deep) == (length.drawn_depth(other) >= deep)


DRAWN = sorted(  # methods that draw their tokens in a sampled run
    name for name, method in methods().items()
    for control in controls(method.params) if control.name == "rule" and "ratio" in control.choices
)  # fmt: skip


class RandomWeights(Survival):
    """A model in which every number that it looks at moves the estimate."""

    def __init__(self, random: np.random.Generator) -> None:
        self.random = random
        super().__init__()

    def _block(self, name: str) -> int:
        known = name in self.blocks
        at = super()._block(name)
        if not known:
            self.weights[at : at + BINS] = self.random.normal(0, 0.6, BINS).tolist()
        return at


def ended_at(draft: Draft, depth: int, random: np.random.Generator) -> Draft:
    """The draft as it might be had another token been drawn at a depth: that one and all behind are other ones, with
    other numbers, and the draft ends somewhere there.
    """
    count = 1 + int(random.integers(depth, draft.tree.drafted + 3))
    more = tuple(int(token) for token in random.integers(0, 300, count - depth))
    q = draft.probabilities
    assert q is not None
    terms = {
        name: np.append(np.asarray(values, dtype=float)[: depth + (name == "confidence")], random.random(count))[:count]
        for name, values in draft.terms.items()
    }
    return replace(
        draft, tree=DraftTree.chain(draft.tree.tokens[0], (*draft.tree.tokens[1:depth], *more)),
        origins=(*draft.origins[:depth], *("other",) * (count - depth)), sources=(-1,) * count,
        probabilities=(*q[:depth], *random.random(count - depth).tolist()), terms=terms, distributions=None,
        notes={}, layout=None, looks=None, lattice=None,
    )  # fmt: skip


@pytest.mark.parametrize("rule", ["ratio", "block"])
@pytest.mark.parametrize("method", matrix(DRAWN, ("glide", "sps"), "the other methods that draw"))
def test_a_position_is_verified_or_not_before_its_token_is_drawn(method: str, rule: str, tmp_path) -> None:
    """Whatever else had been drawn from a position on, and however long the draft had become by it: the position is
    verified in all cases or in none. (DSpark with its threshold ends a draft by the token before.)
    """
    target, random = tiny_target(), np.random.default_rng(3)
    params: dict[str, Any] = {"rule": rule, **({"threshold": 0.4} if method == "dspark" else {})}
    part = select_method(method, {})[0].part
    assert part is not None
    if method == "sps+ppd":
        params["drafter"] = save_model(tmp_path, "llama", 2)
        save_tiny_part(open_drafter(target, params["drafter"]), "ppd")
    else:
        save_tiny_part(target, part.kind.name)
    decided = set[tuple[bool, bool]]()
    for seed in range(4):
        run = Decoding.of(
            target, Prompt.from_ids(prompt_ids(seed) * 2), method, params, sampling=Sampling(1.0, seed=seed),
            max_new_tokens=NEW,
        )  # fmt: skip
        run.prefill()
        assert run.session is not None
        for step, cost in zip(run, np.linspace(10.2, 15, 12).tolist(), strict=False):
            if not step.draft.drawn:
                continue
            curve = Curve((1, 2, 9), (10.0, cost, cost + 0.6), "a test")
            length = AutoLength(RowCosts(curve, follows=False), RandomWeights(random))
            stay = len(length.choose(step.draft, run.context).tree) - 1
            for depth in range(1, step.draft.tree.drafted + 1):
                for _ in range(3):
                    other = ended_at(step.draft, depth, random)
                    there = len(length.choose(other, run.context).tree) - 1
                    assert (stay >= depth) == (there >= depth), (depth, stay, there)
                    decided.add((stay >= depth, other.tree.drafted > step.draft.tree.drafted))
    assert {verified for verified, _ in decided} == {True, False} and len(decided) > 2


def test_the_rule_for_drawn_positions_is_given_no_drawn_value() -> None:
    assert Undrawn._fields == ("depth", "above", "conditional", "limit")
    draft = Draft(
        DraftTree.chain(3, (7, 9)), ("root", "a", "b"), (-1, 4, 5), (1.0, 0.2, 0.3), drawn=True, route="drawn",
        terms={"confidence": np.array([np.nan, 0.9, 0.8]), "rank": np.array([np.nan, 1.0, 2.0])}, notes={"hits": 1.0},
        candidates=Candidates(np.array([1]), np.array([2.0]), np.array([2]), 0),
    )  # fmt: skip
    blank = without_draws(draft)
    assert blank.tree.tokens == (0, 1, 2) and blank.probabilities is None and list(blank.terms) == ["confidence"]
    assert blank.candidates is None and not blank.notes and set(blank.origins) == {"root", "drafter"}


def test_a_drawn_token_does_not_tell_by_its_own_probability() -> None:
    sure = {"confidence": np.array([np.nan, 0.9, 0.8])}
    made = [
        Survival()
        .estimate(Draft(DraftTree.chain(0, (1, 2)), probabilities=(1.0, q, q), terms=sure, drawn=True), np.arange(3))
        .survival
        for q in (0.01, 0.9)
    ]
    assert made[0] == made[1]


def test_pruning_keeps_all_that_belongs_to_a_node() -> None:
    whole = Draft(
        DraftTree((9, 1, 2, 3), (-1, 0, 1, 0)), ("root", "main", "main", "branch"), (-1, 4, 5, -1),
        (1.0, 0.5, 0.4, 0.3), terms={"rank": np.array([np.nan, 0, 1, 2])},
    )  # fmt: skip
    cut = pruned_draft(whole, [0, 3], (1, 0.3, 0.2, 0.5))
    assert cut.tree == DraftTree((9, 3), (-1, 0)) and cut.origins == ("root", "branch") and cut.sources == (-1, -1)
    assert cut.probabilities == (1.0, 0.3) and cut.terms["rank"][1] == 2 and list(cut.proposed_nodes([0, 1])) == [0, 3]
    assert cut.left_out is not None and cut.left_out.tokens == (1, 2) and cut.left_out.parents == (0, 2)
    assert replace(cut, proposal=whole).proposed is whole


def test_a_length_that_there_is_not_is_refused() -> None:
    with pytest.raises(UserError, match="length='long' is not allowed: fixed .* or auto"):
        Decoding.of(tiny_target(), Prompt.from_ids([1, 2]), "pld", length="long")
