"""Texts that repeat for long: what is recorded of them stays bounded, and drafting goes on from the last step."""

from __future__ import annotations

import logging
from typing import Any

import numpy as np
import pytest

from decoders import Prompt, generate, load, record, save
from decoders.draft.draft import Candidates
from decoders.drafters import pld as pld_module
from decoders.drafters.pld import SuffixMatches, suffix_lengths
from decoders.engine import rows
from decoders.engine.decoding import Decoding
from decoders.engine.recording import Run
from decoders.trace import check as checks
from decoders.verifiers.forced import ForcedVerifier

from .models import tiny_target

LONG = 400


def repeating(kind: str, count: int) -> list[int]:
    random = np.random.default_rng(1)
    return np.resize({"one": [7], "two": [7, 8], "period": random.integers(5, 300, 40)}[kind], count).tolist()


@pytest.mark.parametrize("tokens", [1, 2, 4, 30])
def test_matches_that_are_carried_on_are_those_of_a_search(tokens: int) -> None:
    random = np.random.default_rng(tokens)
    for _ in range(40):
        text, matches, length = random.integers(0, tokens, 60), SuffixMatches(), 1
        while length < len(text):
            length = int(min(len(text), length + random.integers(0, 6)))
            if random.random() < 0.1:  # a run that is looked at again begins anywhere
                length = int(random.integers(1, len(text)))
            part = text[:length]
            ends = np.flatnonzero(part[:-1] == part[-1])
            found, matched = matches.of(part)
            assert found.tolist() == ends.tolist() and matched.tolist() == suffix_lengths(part, ends).tolist()


@pytest.mark.parametrize("method", ["sam", "suffix"])
def test_a_text_is_searched_as_a_whole_once(method: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """A step costs one pass a token that it wrote, however long the text's last tokens stand before."""
    searches, stock = [], pld_module.whole_matches
    monkeypatch.setattr(pld_module, "whole_matches", lambda text: (searches.append(len(text)), stock(text))[1])
    prompt = repeating("period", 120)
    params = {"fallback": "none"} if method == "sam" else {}
    run = Decoding.of(
        tiny_target(), Prompt.from_ids(prompt), method, params, max_new_tokens=200, stop_ids=(),
        verifier=ForcedVerifier(repeating("period", 320)[120:]),
    )  # fmt: skip
    steps = list(run)
    assert searches == [120] and len(steps) < 60 and sum(len(step.emitted) for step in steps) == 200


@pytest.mark.parametrize("method", ["pld", "sam", "suffix", "adapld", "pld+h"])
def test_the_best_candidates_are_recorded_and_the_rest_counted(method: str, tmp_path) -> None:
    target, prompt = tiny_target(), Prompt.from_ids(repeating("one", LONG))
    params: dict[str, Any] = {"fallback": "none"} if method == "sam" else {}
    verifier = ForcedVerifier([7] * 40)
    decoding = Decoding.of(target, prompt, method, params, max_new_tokens=40, stop_ids=(), verifier=verifier)
    proposals = dict[int, Candidates]()
    stock = decoding.attempt

    def attempt(session: Any) -> Any:
        made = stock(session)
        if made.draft.candidates is not None:
            proposals[decoding.index] = made.draft.candidates
        return made

    decoding.attempt = attempt  # type: ignore[method-assign]
    from decoders.drafters import select_method
    from decoders.engine.recording import describe

    trace = Run.of(decoding, describe(*select_method(method, params), decoding)).finish()
    table, unlisted = trace.tables["candidates"], trace.tables["steps"]["unlisted"]
    assert proposals
    for number, ranking in proposals.items():
        mine = [row for row, step in enumerate(table["step"]) if step == number]
        assert len(mine) <= rows.MAX_CANDIDATES + 1 and len(mine) + unlisted[number] == len(ranking)
        ranks = {table["rank"][row] for row in mine if not table["chosen"][row]}
        assert ranks | {table["rank"][row] for row in mine} >= set(range(min(len(ranking), rows.MAX_CANDIDATES)))
        assert [table["position"][row] for row in mine if table["chosen"][row]] == (
            [int(ranking.position[ranking.chosen])] if ranking.chosen >= 0 else []
        )
    save(trace, tmp_path / "run.spectrace")
    assert load(tmp_path / "run.spectrace").tables["steps"]["unlisted"] == unlisted


@pytest.mark.parametrize("method", ["pld", "adapld", "recycling", "lookahead", "suffix"])
def test_a_trace_near_its_limit_says_so_and_is_saved(
    method: str, tmp_path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    target, prompt = tiny_target(), Prompt.from_ids(repeating("two", 60))
    plain = record(target, prompt, method, max_new_tokens=90)
    cells = sum(len(values) for columns in plain.tables.values() for values in columns.values())
    assert "left_out" not in plain.run
    cells = int(1.2 * cells)
    monkeypatch.setattr(rows, "MAX_CELLS", cells)
    monkeypatch.setattr(checks, "MAX_CELLS", cells)
    monkeypatch.setattr("decoders.trace.files.MAX_CELLS", cells)
    monkeypatch.setattr("decoders.engine.recording.RECORD_STEPS", 1)
    monkeypatch.setattr("decoders.engine.recording.EVENT_SECONDS", 0.0)
    run, said = Run(target, prompt, method, max_new_tokens=90), []
    with caplog.at_level(logging.WARNING):
        for _ in run:
            said.append(bool(run.trace.run.get("left_out")))
    trace = run.trace
    assert said[0] is False and said[-1] is True and sum("of the" in r.message for r in caplog.records) == 1
    assert trace.output_ids == plain.output_ids == generate(target, prompt, method, max_new_tokens=90)
    assert "only what was drafted, judged and written is recorded" in trace.run["left_out"][0]
    save(trace, tmp_path / "run.spectrace")
    assert load(tmp_path / "run.spectrace").output_ids == plain.output_ids


def test_a_run_whose_trace_is_full_ends_and_is_saved(tmp_path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Trees of 80 nodes of which nothing stands: all that is left is what a trace cannot do without."""
    target, prompt = tiny_target(), Prompt.from_ids(repeating("two", 60))
    cells = 20_000
    for place in ("decoders.engine.rows", "decoders.trace.check", "decoders.trace.files"):
        monkeypatch.setattr(f"{place}.MAX_CELLS", cells)
    monkeypatch.setattr("decoders.engine.recording.RECORD_STEPS", 1)
    monkeypatch.setattr("decoders.engine.recording.EVENT_SECONDS", 0.0)
    trace = record(target, prompt, "recycling", max_new_tokens=400, stop_ids=())
    assert trace.run["stop"] == "trace full" and trace.run["complete"] and 0 < len(trace.output_ids) < 400
    assert "The run was ended here" in trace.run["left_out"][-1]
    save(trace, tmp_path / "run.spectrace")
    assert load(tmp_path / "run.spectrace").output_ids == trace.output_ids
