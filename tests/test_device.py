"""Runs on a GPU, as far as a simulated one can tell: nothing is mixed, masks are aligned, and copies are few.

``benchmarks/gpu.py`` is what a real one is asked.
"""

from __future__ import annotations

import gc
from itertools import pairwise

import numpy as np
import pytest
import torch
import torch.nn.functional as F

from decoders import Sampling, UserError, generate, load_target, methods, record
from decoders.drafters.sps import offer_drafter, open_drafter
from decoders.engine.decoding import Decoding, Step
from decoders.method.part import kinds
from decoders.model.state.transfer import fetch, rows_of, send, stretches
from decoders.model.target_model.target import Target

from .drafts import methods_here, save_tiny_part
from .models import network, prompt_ids, save_model, session_behind, tiny_target, tiny_tokenizer
from .simulation import SimulatedDevice, simulate
from .tiers import matrix
from .whatifs import whatif

NEW = 9
FIRST = tuple(methods_here("plain", "pld+h", "adapld", "glide", "medusa"))
DRAWN = Sampling(temperature=0.9, seed=4)
# copies of a step, at most: the verify step's own, and one each for the draft. What is sent is not waited for.
COPIES = {
    "plain": (1, 1), "pld": (1, 1),
    "pld+h": (2, 2), "pld+a": (2, 2), "sps": (2, 2), "glide": (2, 2), "glide+cape": (2, 2),
    "ppd": (1, 2), "recycling": (1, 2),  # they draft from what the last forward said
    "composite": (2, 3),  # its drafters' together
    "casd": (2, 1), "ppd+typical": (2, 2),  # a verifier that asks for the drafted tokens' probabilities sends them
    "adapld": (4, 6),  # it decides on the host, one after the other: the place, the branches there, what follows them
    "sps+ppd": (6, 12),  # every draft forward, five at most, is a verify step of its own that reads twice
    "medusa": (4, 2), "medusa+typical": (5, 2), "hydra": (5, 2),  # a level each, for a tree of another depth
    "eagle": (6, 3), "eagle2": (2, 3),  # the state that was made is compared with the target's
    "synthetic": (10, 9),  # no method: it decodes K = 8 tokens plainly ahead, behind a prompt that it may read anew
}  # fmt: skip


@pytest.fixture(scope="module", params=["qwen3", "gpt2"])
def folder(request, module_home, tmp_path_factory):
    """A saved model with grouped heads, or without, and where it can be, parts and a drafter for it."""
    place = tmp_path_factory.mktemp(request.param)
    save_model(place, request.param)
    if request.param == "qwen3":
        here = load_target(place, device="cpu")
        for kind in kinds():
            save_tiny_part(here, kind)
        save_tiny_part(open_drafter(here, save_model(place / "drafter", "qwen3", 2)), "ppd")
    return place


@pytest.fixture(scope="module")
def here(folder) -> Target:
    return target_on(folder, "cpu")


def target_on(folder, device: str, engine: str = "eager") -> Target:
    target = load_target(folder, device=device, dtype="float32", engine=engine)
    if (folder / "drafter").exists():
        offer_drafter(target, str(folder / "drafter"))
    return target


def ties(probs):
    """Places whose neighbour has the same probability but for rounding: which comes first is not decided."""
    near = [i for i, (p, q) in enumerate(pairwise(probs)) if p is not None and q is not None and abs(p - q) < 1e-6]
    return {*near, *(i + 1 for i in near)}


def copying_seldom(device: SimulatedDevice, run: Decoding, name: str) -> list[Step]:
    """A run's steps, of which each behind the first waits for nothing, and copies no more than its method may."""
    steps = iter(run)
    behind, (there, back) = [next(steps)], COPIES.get(name, (2, 2))
    is_drawn = not run.sampling.greedy
    while True:
        with device.counting():
            step = next(steps, None)
        if step is None:
            return behind
        behind.append(step)
        more = is_drawn and step.draft.tree.drafted > 0
        lossy = is_drawn and not methods()[name].lossless
        assert device.copies["wait"] == 0
        assert device.copies["there"] <= there + more, device.sites
        assert device.copies["back"] <= back + lossy, device.sites


@pytest.mark.parametrize("drawn", matrix([False, True], 1, "every method once more"))
@pytest.mark.parametrize("name", matrix(methods(), FIRST, "the other methods"))
def test_every_method_runs_there_as_on_a_cpu(folder, here, prompt, name, drawn):
    """Greedy and drawn, traced and not: the same tokens, the same trace, and few copies in every step."""
    if methods()[name].missing(here) or (drawn and here.shape.family == "gpt2"):
        pytest.skip("without the parts it needs, or drawn, which the other model shows")
    sampling = DRAWN if drawn else Sampling()
    tokens = generate(here, prompt, name, max_new_tokens=NEW, sampling=sampling)
    trace = record(here, prompt, name, max_new_tokens=NEW, sampling=sampling)
    with simulate() as device:
        run = Decoding.of(target_on(folder, "cuda"), prompt, name, max_new_tokens=NEW, sampling=sampling)
        assert [token for step in copying_seldom(device, run, name) for token in step.emitted] == tokens
        again = record(run.target, prompt, name, max_new_tokens=NEW, sampling=sampling)
        assert again.output_ids == trace.output_ids
        for table in ("nodes", "tokens", "candidates", "guesses", "targets", "probes", "attention"):
            assert again.rows(table) == trace.rows(table)
            for column in ("token", "status", "rank", "position"):
                if column in trace.tables[table] and table != "attention":
                    tied = ties(trace.tables[table]["draft_prob"]) if (table, column) == ("guesses", "token") else ()
                    both = zip(again.tables[table][column], trace.tables[table][column], strict=True)
                    assert all(a == b or i in tied for i, (a, b) in enumerate(both)), (table, column)


@pytest.mark.parametrize("name", matrix(methods(), methods_here("pld", "glide", "eagle3"), "the other methods"))
def test_every_method_runs_there_by_graphs(folder, here, prompt, name):
    """Captured forwards and drafts mix no devices, read no value, and copy as seldom as others."""
    if methods()[name].missing(here):
        pytest.skip("without the parts it needs")
    tokens = generate(here, prompt, name, max_new_tokens=NEW)
    with simulate() as device:
        target = target_on(folder, "cuda", "graph")
        assert generate(target, prompt, name, max_new_tokens=NEW) == tokens
        gc.collect()
        before = target.engines.graphs.captures
        steps = copying_seldom(device, Decoding.of(target, prompt, name, max_new_tokens=NEW), name)
        assert {step.scored.ran.engine for step in steps[1:]} <= {"graph"}
        assert [token for step in steps for token in step.emitted] == tokens and not target.engines.graphs.failed
        assert target.engines.graphs.captures == before


def test_attention_that_plans_at_every_step_is_off_once_a_target_is_open(folder):
    before = torch.backends.cuda.cudnn_sdp_enabled()
    torch.backends.cuda.enable_cudnn_sdp(True)
    try:
        target_on(folder, "cpu")
        assert torch.backends.cuda.cudnn_sdp_enabled()
        with simulate():
            target_on(folder, "cuda")
        assert not torch.backends.cuda.cudnn_sdp_enabled()
    finally:
        torch.backends.cuda.enable_cudnn_sdp(before)


def test_what_if_and_a_comparison_run_there(folder, prompt):
    with simulate():
        target = target_on(folder, "cuda")
        trace = record(target, prompt, "adapld", max_new_tokens=NEW, compare=True)
        assert trace.tables["plain"]["id"] == trace.output_ids and whatif(target, trace, 1).same
        assert whatif(target, trace, 2, "pld+a", {}).accepted >= 0


def test_copies_both_ways_bring_what_was_sent():
    arrays = [np.arange(3), np.asarray([[True], [False]]), np.zeros((0, 2)), np.float32([1.5]), np.int16([7, 8])]
    with simulate() as device, device.counting():
        there = send(torch.device("cuda"), *arrays)
        assert device.copies == {"there": 1} and send(torch.device("cuda")) == []
        back = fetch(*there, there[3].bfloat16()[0])
        assert device.copies == {"there": 1, "back": 1}
    for array, one in zip([*arrays, np.float32(1.5)], back, strict=True):
        assert one.dtype == array.dtype and one.shape == array.shape and (one == array).all()


def test_rows_of_a_path_are_joined_from_slices():
    values = torch.arange(12).view(2, 6)
    for rows in ([], [2], [0, 1, 2], [0, 3, 4, 5], [5, 0]):
        assert rows_of(values, rows, 1).tolist() == values[:, rows].tolist()
    assert list(stretches([])) == []


class TestTheSimulation:
    """It would notice: each of these is refused or counted."""

    def test_devices_are_not_mixed(self):
        with simulate():
            there, here = torch.ones(2, device="cuda"), torch.ones(2)
            for wrong in (lambda: there + here, lambda: here[there.long()], lambda: torch.cat([here, there])):
                with pytest.raises(RuntimeError, match="two devices|index of the device"):
                    wrong()
            with pytest.raises(TypeError, match="numpy of a tensor"):
                there.numpy()

    def test_copies_are_counted(self):
        with simulate() as device:
            there = torch.zeros(4, device="cuda")
            for copying, kind in (
                (lambda: there.tolist(), "back"), (lambda: int(there[0]), "back"), (lambda: there.cpu(), "back"),
                (lambda: there[[0, 1]], "there"), (lambda: torch.as_tensor([1], device="cuda"), "there"),
                (lambda: there[there > 0], "back"), (lambda: torch.ones(1).to("cuda"), "there"),
            ):  # fmt: skip
                with device.counting():
                    copying()
                assert device.copies == {kind: 1}

    def test_masks_begin_aligned(self):
        with simulate():
            query = torch.ones((1, 2, 3, 8), device="cuda")
            triangle = torch.zeros((64, 164), device="cuda")
            with pytest.raises(RuntimeError, match="a mask that begins at byte"):
                F.scaled_dot_product_attention(query, query, query, attn_mask=triangle[:3, 97:100][None, None])

    def test_grouped_attention_with_all_scores_is_refused(self):
        with simulate():
            query, key = torch.ones((1, 4, 3, 8), device="cuda"), torch.ones((1, 2, 3, 8), device="cuda")
            with pytest.raises(RuntimeError, match="forms all scores"):
                F.scaled_dot_product_attention(query, key, key, is_causal=True, enable_gqa=True)


def test_a_long_prompt_is_read_in_pieces(monkeypatch):
    """And what is kept of it is the same: hidden states, likeliest tokens, queries, and what is said after it."""
    from decoders.draft.needs import Needs
    from decoders.model.target_model import target as engine

    target, tokens = tiny_target("mistral-window"), prompt_ids(3, 150)
    needs = Needs(layers=(1, 3), heads=((0, 1), (2, 3)), top_tokens=4)
    whole = session_behind(target, tokens, 200, needs)
    read = []
    monkeypatch.setattr(engine, "READ_ROWS", 32)
    monkeypatch.setattr(engine, "READ_SCORES", 1)
    forward = target.forward
    monkeypatch.setattr(target, "forward", lambda *args, **more: read.append(len(args[2])) or forward(*args, **more))
    pieces = session_behind(target, tokens, 200, needs)
    assert read == [32] * 4 + [21]
    for layer in needs.layers:
        torch.testing.assert_close(pieces.context.hidden_at(layer), whole.context.hidden_at(layer))
    assert pieces.context.top_ids.tolist() == whole.context.top_ids.tolist()
    torch.testing.assert_close(pieces.context.attention(), whole.context.attention())
    torch.testing.assert_close(pieces.context.keys(2), whole.context.keys(2))


@pytest.mark.parametrize("family", ["llama", "gemma2", "mistral-window"])
def test_reference_logits_of_a_long_text_are_read_in_pieces(family, monkeypatch):
    from decoders.model.target_model import reference

    target, tokens = tiny_target(family), prompt_ids(5, 150)
    whole = target.reference_logits(tokens), target.reference_logits(tokens, rows=70)
    monkeypatch.setattr(reference, "REFERENCE_SCORES", 1)  # pieces of 64
    torch.testing.assert_close(target.reference_logits(tokens), whole[0], atol=1e-4, rtol=1e-4)
    torch.testing.assert_close(target.reference_logits(tokens, rows=70), whole[1], atol=1e-4, rtol=1e-4)


def test_a_model_on_two_devices_is_refused():
    spread = network()
    spread.model.layers[2].to("meta")
    with pytest.raises(UserError, match=r"tiny is spread over cpu, meta, and keys and values are kept on one device"):
        Target(spread, tiny_tokenizer(), "tiny")
