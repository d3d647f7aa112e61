"""Drafted tokens by depth, rank and drafter, second branches, and the command that prints them."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from decoders import Prompt, record, save
from decoders.trace.branches import branch_counts, depth_rank_map, second_branches, shares_by_drafter
from specviz.cli import main

from .models import network, prompt_ids, save_model, tiny_target


class FakeTrace:
    """A trace of trees given as (parent, status, mask) per node behind a root."""

    def __init__(self, *steps: list[tuple[int, str, int]], drafters: str = "") -> None:
        columns: dict[str, list[Any]] = {name: [] for name in ("parent", "depth", "status", "term:who")}
        for nodes in steps:
            depths = [0]
            for parent, status, mask in [(-1, "root", 0), *nodes]:
                if parent >= 0:
                    depths.append(depths[parent] + 1)
                row = {"parent": parent, "depth": depths[-1], "status": status, "term:who": mask or None}
                for name, value in row.items():
                    columns[name].append(value)
        self.tables = {"nodes": columns}
        self.run = {"method": {"name": "composite", "params": {"drafters": drafters} if drafters else {}}}


def test_the_map_and_second_branches_of_a_tree_by_hand():
    trace: Any = FakeTrace(
        # the chain 1-2 is rejected at 2, where the sibling 3 stands, and its child 4
        [(0, "accepted", 1), (1, "rejected", 1), (1, "accepted", 2), (3, "accepted", 2), (0, "rejected", 2)],
        [(0, "rejected", 3), (1, "unreached", 3)],  # no sibling
        [(0, "rejected", 1), (0, "accepted", 2)],  # a sibling without a child
        [(0, "accepted", 3)],  # no miss
        [],
        drafters="pld, eagle3",
    )
    cells = {place: (share.accepted, share.judged) for place, share in depth_rank_map(trace).items()}
    assert cells == {(1, 0): (2, 4), (1, 1): (1, 2), (2, 0): (0, 1), (2, 1): (1, 1), (3, 0): (1, 1)}
    counts = second_branches(trace)
    assert (counts.misses, counts.with_sibling, counts.sibling, counts.with_child, counts.child) == (3, 2, 2, 1, 1)
    shares = {who: (share.accepted, share.judged) for who, share in shares_by_drafter(trace).items()}
    assert shares == {(1, 2): (1, 3), (2, 1): (2, 3), (2, 0): (1, 1), (3, 0): (1, 2)}
    words = ["pld and eagle3", "pld beside eagle3", "eagle3 alone", "eagle3 beside pld"]
    assert [entry["who"] for entry in branch_counts([trace])["proposed_by"]] == words
    assert branch_counts([trace, trace])["second_branch"]["misses"] == 6
    trace.run["method"]["drafters"] = ["PLD", "EAGLE-3: a head"]
    assert branch_counts([trace])["proposed_by"][1]["who"] == "PLD beside EAGLE-3"
    trace.run["method"] = {"name": "composite", "params": {}}
    assert shares_by_drafter(trace) == {}


@pytest.mark.parametrize("method", ["adapld", "recycling", "composite"])
def test_counts_are_those_of_the_run(method: str):
    trace = record(tiny_target(), Prompt.from_ids(prompt_ids(3) * 2), method, max_new_tokens=40, stop_ids=())
    accepted = sum(trace.tables["steps"]["accepted"])
    assert sum(share.accepted for share in depth_rank_map(trace).values()) == accepted > 0
    if method == "composite":
        assert sum(share.accepted for share in shares_by_drafter(trace).values()) == accepted


def test_the_command_prints_counts_and_the_strip(tmp_path: Path, capsys: pytest.CaptureFixture):
    folder = save_model(tmp_path / "model", model=network("llama"))
    run = ["run", "--model", folder, "--prompt", "the old lamp the old lamp the", "--max-new-tokens", "24"]
    method = ["--method", "composite", "--set", "drafters=pld,adapld"]
    assert main([*run, *method, "--out", str(tmp_path / "a.spectrace")]) == 0
    plain = record(tiny_target(), Prompt.from_ids(prompt_ids(1)), max_new_tokens=4)
    save(plain, tmp_path / "b.spectrace")
    capsys.readouterr()
    trace = str(tmp_path / "a.spectrace")
    assert main(["drafts", trace, str(tmp_path / "b.spectrace")]) == 0
    printed = "".join(capsys.readouterr())
    assert "proposed by" in printed and "nothing was drafted" in printed
    options = ["--model", folder, "--methods", "pld", "adapld", "recycling"]
    assert main(["drafts", trace, *options, "--frontier"]) == 0
    printed = "".join(capsys.readouterr())
    assert "oracle |" in printed and "regret" in printed and "learns from verdicts" in printed
    assert main(["drafts", trace, *options, "--json"]) == 0
    report = json.loads(capsys.readouterr().out)
    assert len(report["strip"]["reach"]["pld"]) == 24 and report["strip"]["regret"] >= 0
    assert main(["drafts", trace, trace, *options]) == 2 and "name one trace" in capsys.readouterr().err
    assert main(["drafts", trace, "--frontier"]) == 2 and "needs --methods" in capsys.readouterr().err
