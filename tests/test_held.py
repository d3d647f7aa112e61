"""Memory of drafting: tensors once, weights of a draft model, nothing of the target's, rows kept per position."""

import numpy as np
import torch

from decoders import Needs, Prompt, record
from decoders.model.state.memory import Memory
from decoders.model.state.storage import drafter_bytes

from .drafters_for_tests import WildTrees, method_of
from .models import network, prompt_ids, session_behind, tiny_target

PROMPT = Prompt.from_ids(prompt_ids(1, 30))


def test_every_tensor_counts_once_and_the_targets_never():
    target = tiny_target()
    session = session_behind(target, PROMPT, 64)
    drafter = WildTrees([5], 300)
    assert drafter_bytes(drafter, target, session) == 0  # of other packages, nothing is looked into
    table = torch.zeros(10, 3)
    memory = Memory({2: table}, {0: table.view(2, 5, 3)}, torch.zeros(4, 2, dtype=torch.int64))
    assert drafter_bytes(memory, target, session) == 120 + 64
    holds = [target, session, target.model, np.zeros((4, 2))[1:], {"model": network()}]
    held = [*network().parameters(), *network().buffers()]
    assert drafter_bytes(holds, target, session) == 64 + 4 * sum(tensor.numel() for tensor in held)


def test_rows_count_as_far_as_they_are_filled():
    memory = Memory({2: torch.zeros(10, 3)}, {1: torch.zeros(4, 10, 8)}, None, torch.zeros(10, 2))
    assert memory.bytes(5) == 5 * 4 * (3 + 2 + 4 * 8) and Memory().bytes(5) == 0
    memory.hidden[0] = torch.zeros(10, 3)
    assert memory.bytes(5) == 5 * 4 * (3 + 3 + 2 + 4 * 8), "every layer counts"


def test_runs_record_it():
    target = tiny_target()
    plain = record(target, PROMPT, "plain", max_new_tokens=4)
    assert plain.run["memory"]["draft_bytes"] == plain.run["metrics"]["draft_mb"] == 0
    reading = record(target, PROMPT, method_of(WildTrees([5], 300), Needs(layers=(1,))), max_new_tokens=4)
    rows = len(reading.prompt_ids) + len(reading.output_ids) - 1
    assert reading.run["memory"]["draft_bytes"] == rows * target.shape.hidden * 4
