"""Ablations: random subsets of an answer's sources, the sparse fit of its log p, and its measures."""

from __future__ import annotations

import numpy as np
import pytest

from decoders.study.attribute.ablations import (
    DECISIVE,
    Pair,
    ablate,
    ablation_report,
    describe_pair,
    lds,
    logp_without,
    sparse_fit,
    subsets,
    top_drop,
)
from decoders.study.attribute.evidence import evidence_sources, sentences
from decoders.study.attribute.without import ReadAnswer

from .models import tiny_target
from .test_without import PASSAGES, passages_run


def test_subsets_are_distinct_and_random_or_all_there_are() -> None:
    rows = {tuple(row) for row in subsets(3, 32).tolist()}
    assert len(rows) == 8 == len(subsets(3, 32))
    many = subsets(12, 32)
    assert len({tuple(row) for row in many.tolist()}) == 32 and 0.35 < many.mean() < 0.65
    assert (subsets(12, 32) == many).all() and (subsets(12, 32, seed=1) != many).any()


def test_the_fit_finds_the_few_sources_that_count() -> None:
    kept = subsets(20, 64)
    logp = -30.0 + kept[:, 3] * 12.0 + kept[:, 11] * 5.0 + np.random.default_rng(0).normal(0, 0.1, 64)
    weights, bias = sparse_fit(kept, logp, tokens=10)
    assert weights[3] == pytest.approx(12.0, abs=0.6) and weights[11] == pytest.approx(5.0, abs=0.6)
    assert bias == pytest.approx(-30.0, abs=1.0)
    assert sum(abs(weight) > 0.3 for weight in weights) == 2, "a lasso leaves the others out"
    loose, _ = sparse_fit(kept, logp, tokens=10, penalty=0.0)
    assert loose == pytest.approx(np.linalg.lstsq(np.c_[kept, np.ones(64)], logp, rcond=None)[0][:-1], abs=1e-4)
    same, _ = sparse_fit(np.ones((4, 2), dtype=int), np.arange(4.0), tokens=1)  # nothing varies
    assert same.tolist() == [0.0, 0.0]


def test_lds_is_spearmans() -> None:
    from scipy.stats import spearmanr

    random = np.random.default_rng(0)
    one, other = random.integers(0, 5, 16).astype(float), random.normal(size=16)
    assert lds(one, other) == pytest.approx(spearmanr(one, other).statistic)
    assert lds(one[:4], other[:4]) is None and lds(np.ones(9), other[:9]) is None


def test_an_answer_without_subsets_of_its_sources() -> None:
    target = tiny_target("llama")
    trace = passages_run(target)
    sources, answer = evidence_sources(trace), ReadAnswer(target, trace.prompt_ids, trace.output_ids)
    read = ablate(answer, sources)
    assert read.masks.shape == (8, 3) and read.logp.shape == (8, len(trace.output_ids)) and read.fit_rows == 6
    for row, logp in zip(read.masks.tolist(), read.logp, strict=True):
        part = [at for source, is_kept in zip(sources, row, strict=True) if not is_kept for at in source.at]
        assert logp == pytest.approx(answer.logp - np.array(answer.without(part).fall) if part else answer.logp)
    assert top_drop(answer, sources, [0.0, 2.0, 1.0], 2) == pytest.approx(
        float((answer.logp - logp_without(answer, [sources[1], sources[2]])).sum())
    )
    report = ablation_report(trace, answer)
    spans = [(fit["start"], fit["stop"]) for fit in report["fits"]]
    assert spans == [(0, len(trace.output_ids)), *sentences(trace)] and {*report["drops"]} == {"1", "3"}
    assert all(len(fit["weights"]) == 3 and fit["lds"] is None for fit in report["fits"])  # two are held back


def test_sources_that_stand_in_for_each_other_and_that_need_each_other() -> None:
    """Both alone worth little, together much; both alone worth all that they are worth together; and neither."""
    assert Pair(0, 1, 0, 9, (1.4, 0.9), 29.3).kind == "stand in" and Pair(0, 1, 0, 9, (20.0, 19.0), 21.0).kind == "need"
    assert not Pair(0, 1, 0, 9, (40.0, 8.0), 43.0).kind and not Pair(0, 1, 0, 9, (0.1, 0.1), DECISIVE).kind
    said = describe_pair(Pair(0, 1, 0, 9, (1.4, 0.9), 29.3), ["passage 1", "passage 2"])
    assert said == (
        "passage 1 and passage 2 stand in for each other: log p falls by 1.4 and 0.9 alone, by 29.3 without both."
    )
    target = tiny_target("llama")
    trace = passages_run(target, [PASSAGES[0], PASSAGES[1]])
    report = ablation_report(trace, ReadAnswer(target, trace.prompt_ids, trace.output_ids))
    assert all(pair["kind"] and pair["said"] for pair in report["pairs"])
