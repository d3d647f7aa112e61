"""Scores of an answer, by hand; CASD's oracles."""

from __future__ import annotations

import sys

import pytest

from decoders import UserError
from decoders.trace.quality import Oracle, edit_similarity, f1, oracle_d, oracle_s, quality, rouge_l, scores_by_delta


@pytest.mark.parametrize(
    ("answer", "reference", "expected"),
    [
        ("The Mahesh Bhatt!", "mahesh bhatt", 1.0),
        ("Pooja Bhatt's father is Mahesh Bhatt.", "Mahesh Bhatt", 2 * 2 / (6 + 2)),
        ("a a a", "the an", 1.0),  # articles only: no words on either side
        ("yes", "", 0.0),
        ("no no", "no", 2 / 3),  # bags, not sets
        ("Paris", "London", 0.0),
    ],
)
def test_f1_by_hand(answer, reference, expected):
    assert f1(answer, reference) == pytest.approx(expected)


def test_rouge_l_by_hand():
    """Longest common subsequence "police the gunman" is no span: 3 of 4 words on either side with one swapped."""
    assert rouge_l("police kill the gunman", "police killed the gunman") == pytest.approx(0.75)
    # lcs 2 ("the gunman" or "police the"), 4 and 4 words
    assert rouge_l("the gunman kill police", "police killed the gunman") == pytest.approx(0.5)
    assert rouge_l("gunman", "police killed the gunman") == pytest.approx(2 * 1 * 0.25 / 1.25)
    assert rouge_l("", "police") == 0


def test_edit_similarity_by_hand():
    assert edit_similarity("return total", "return total") == 1
    # "abcd" to "abd": one deletion, lengths 4 + 3
    assert edit_similarity("abcd", "abd") == pytest.approx(1 - 1 / 7)
    # a substitution counts twice (one deletion, one insertion), unlike Levenshtein's
    assert edit_similarity("cat", "car") == pytest.approx(1 - 2 / 6)
    assert edit_similarity("\n```python\n# sum\nabd\nabcd", "abd\nmore") == 1
    assert edit_similarity("// nothing but a comment", "abd") == 0


def test_quality_is_empty_without_a_reference_and_skips_what_is_not_installed(monkeypatch):
    assert quality("anything", "  ") == {}
    whole = quality("the gunman", "gunman")
    assert set(whole) == {"f1", "rouge_l", "edit"} and whole["f1"] == 1 and whole["rouge_l"] == pytest.approx(2 / 3)
    monkeypatch.setitem(sys.modules, "rapidfuzz", None)
    assert set(quality("the gunman", "gunman")) == {"f1", "rouge_l"}
    with pytest.raises(UserError, match="pip install rapidfuzz"):
        edit_similarity("a", "b")


def test_scores_need_no_package_until_asked():
    import subprocess

    code = "import sys; from decoders.trace import quality; quality.f1('a b', 'b')"
    code += "; print({'rouge_score', 'rapidfuzz'} & set(sys.modules))"
    out = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert out.stdout.strip() == "set()"


def test_oracles_by_hand():
    """δ = .01 is best on the whole (mean .6); by sample .1, .01 and .1 win, the last on a tie with .001."""
    scores = {0.1: [0.9, 0.1, 0.5], 0.01: [0.5, 1.0, 0.3], 1e-3: [0.0, 0.2, 0.5]}
    assert oracle_d(scores) == Oracle((0.01,) * 3, pytest.approx(0.6))
    assert oracle_s(scores) == Oracle((0.1, 0.01, 0.1), pytest.approx(0.8))
    assert oracle_d({0.1: [0.5], 0.01: [0.5]}).deltas == (0.1,)


@pytest.mark.parametrize("scores", [{}, {0.1: []}, {0.1: [1.0], 0.01: [1.0, 0.0]}])
def test_oracles_want_the_same_samples_everywhere(scores):
    for oracle in (oracle_d, oracle_s):
        with pytest.raises(UserError, match="same samples at every δ"):
            oracle(scores)


def test_the_oracles_table_comes_from_runs(trace):
    import copy

    text = trace.text(trace.output_ids)
    runs = []
    for delta, reference in ((0.1, text), (0.1, "qqq"), (0.01, "qqq"), (0.01, text)):
        run = copy.deepcopy(trace)
        run.run["method"]["params"] = {"delta": delta}
        run.run["reference"] = reference
        runs.append(run)
    score = lambda answer, reference: float(answer == reference)  # noqa: E731
    assert scores_by_delta(runs, score) == {0.1: [1.0, 0.0], 0.01: [0.0, 1.0]}
    assert oracle_s(scores_by_delta(runs, score)).score == 1 and oracle_d(scores_by_delta(runs, score)).score == 0.5
    runs[0].run["reference"] = ""
    with pytest.raises(UserError, match="has not a reference"):
        scores_by_delta(runs, score)
    runs[1].run["method"]["params"] = {}
    with pytest.raises(UserError, match="threshold δ"):
        scores_by_delta(runs[1:], score)
