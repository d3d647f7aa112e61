"""Scores of an answer, by hand."""

from __future__ import annotations

import random
import sys

import pytest

from decoders import UserError
from decoders.trace.quality import edit_similarity, f1, quality, rouge_l


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


@pytest.mark.parametrize("seed", range(20))
def test_rouge_l_is_the_packages(seed):
    rouge_scorer = pytest.importorskip("rouge_score.rouge_scorer")
    scorer, chance = rouge_scorer.RougeScorer(["rougeL"]), random.Random(seed)
    pieces = ["Lamp", "lamp", "the", "don't", "x_1", "3.5", "über", "–", "\n", "A,B"]
    answer, reference = (" ".join(chance.choices(pieces, k=chance.randrange(30))) for _ in range(2))
    assert rouge_l(answer, reference) == scorer.score(reference, answer)["rougeL"].fmeasure


def test_edit_similarity_by_hand():
    assert edit_similarity("return total", "return total") == 1
    # "abcd" to "abd": one deletion, lengths 4 + 3
    assert edit_similarity("abcd", "abd") == pytest.approx(1 - 1 / 7)
    # a substitution counts twice (one deletion, one insertion), unlike Levenshtein's
    assert edit_similarity("cat", "car") == pytest.approx(1 - 2 / 6)
    assert edit_similarity("\n```python\n# sum\nabd\nabcd", "abd\nmore") == 1
    fenced = "```python\nabd\n```"
    assert edit_similarity(fenced, fenced) == 1
    assert edit_similarity("// nothing but a comment", "abd") == 0


def test_quality_is_empty_without_a_reference_and_skips_what_is_not_installed(monkeypatch):
    assert quality("anything", "  ") == {}
    whole = quality("the gunman", "gunman")
    assert set(whole) == {"f1", "rouge_l", "edit"} and whole["f1"] == 1 and whole["rouge_l"] == pytest.approx(2 / 3)
    monkeypatch.setitem(sys.modules, "rapidfuzz", None)
    monkeypatch.setitem(sys.modules, "rapidfuzz.distance", None)
    assert set(quality("the gunman", "gunman")) == {"f1"}
    with pytest.raises(UserError, match="pip install rapidfuzz"):
        edit_similarity("a", "b")


def test_scores_need_no_package_until_asked():
    import subprocess

    code = "import sys; from decoders.trace import quality; quality.f1('a b', 'b')"
    code += "; print({'rapidfuzz'} & set(sys.modules))"
    out = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert out.stdout.strip() == "set()"
