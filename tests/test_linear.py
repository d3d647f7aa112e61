"""Packed linear layers: from how many rows on they are used is tried once per machine and shape, and noted."""

from __future__ import annotations

import json

import pytest
import torch
import torch.nn.functional as F
from torch import nn

from decoders.folders import cache_folder
from decoders.model import linear
from decoders.model.linear import NEVER, NOTES, TRIED_ROWS, PackedLinear, crossover, pack, packable

pytestmark = pytest.mark.skipif(
    not packable(torch.float32, torch.device("cpu")), reason="this build of torch packs no weights"
)


@pytest.fixture(autouse=True)
def _untried(tmp_path, monkeypatch):
    monkeypatch.setenv("SPECVIZ_HOME", str(tmp_path))
    crossover.cache_clear()
    yield
    crossover.cache_clear()


@pytest.fixture
def tried(monkeypatch):
    """Shapes that were tried, each of which is packed from 4 rows on."""
    shapes = []
    monkeypatch.setattr(linear, "_tried", lambda *shape: shapes.append(shape) or 4)
    return shapes


def layers(*shapes: tuple[int, int]) -> nn.Module:
    return nn.Sequential(*(nn.Linear(inputs, outputs) for outputs, inputs in shapes)).requires_grad_(False)


def test_a_trial_gives_one_of_the_tried_rows_and_leaves_the_threads():
    before = torch.get_num_threads()
    assert crossover(48, 32) in (*TRIED_ROWS, NEVER) and torch.get_num_threads() == before


def test_each_shape_is_tried_once_per_machine(tried):
    model = layers((8, 16), (8, 16), (4, 8))
    assert pack(model) == 3 and tried == [(8, 16), (4, 8)]
    assert [layer.packed_from for layer in model] == [4, 4, 4]
    crossover.cache_clear()  # as in another process
    assert pack(layers((8, 16), (6, 16))) == 2 and tried == [(8, 16), (4, 8), (6, 16)]
    (shapes,) = json.loads((cache_folder() / NOTES).read_text()).values()
    assert shapes == {"8x16": 4, "4x8": 4, "6x16": 4}


@pytest.mark.parametrize("damage", ["", "[1]", '{"x": 3}', '{"MACHINE": {"8x16": "many"}}', '{"MACHINE": []}'])
def test_damaged_notes_count_for_nothing(tried, damage):
    file = cache_folder() / NOTES
    file.parent.mkdir(parents=True)
    file.write_text(damage.replace("MACHINE", linear.machine()))
    assert crossover(8, 16) == 4 and tried == [(8, 16)]
    crossover.cache_clear()
    assert crossover(8, 16) == 4 and tried == [(8, 16)]


def test_where_nothing_can_be_noted_it_is_tried_again(tried):
    cache_folder().parent.mkdir(parents=True, exist_ok=True)
    cache_folder().write_text("a file where the folder should be")
    for _ in range(2):
        assert crossover(8, 16) == 4
        crossover.cache_clear()
    assert len(tried) == 2


def test_few_rows_go_through_the_plain_layer_and_many_through_the_packed_one():
    torch.manual_seed(0)
    weight, bias = torch.randn(24, 16), torch.randn(24)
    layer = PackedLinear(weight, bias, packed_from=3)
    for rows in (1, 2, 3, 9):
        x = torch.randn(rows, 16)
        torch.testing.assert_close(layer(x), F.linear(x, weight, bias))
    assert pack(layers((8, 16)), packed_from=NEVER) == 0
