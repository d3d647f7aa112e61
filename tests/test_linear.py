"""Packed linear layers: from how many rows on they are used is tried once per machine and shape, and noted."""

from __future__ import annotations

import json
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import nn

from decoders.folders import cache_folder
from decoders.model.engines import joint, linear
from decoders.model.engines.joint import JointPart, pack_joined
from decoders.model.engines.linear import NEVER, NOTES, TRIED_ROWS, PackedLinear, crossover, pack, packable

pytestmark = pytest.mark.skipif(
    not packable(torch.float32, torch.device("cpu")), reason="this build of torch packs no weights"
)


@pytest.fixture(autouse=True)
def _no_notes(home):
    crossover.cache_clear()
    yield
    crossover.cache_clear()


@pytest.fixture
def trials(monkeypatch):
    """Shapes that were tried, each of which is packed from 4 rows on."""
    shapes = []
    monkeypatch.setattr(linear, "_try", lambda *shape: shapes.append(shape) or 4)
    return shapes


def layers(*shapes: tuple[int, int]) -> nn.Module:
    return nn.Sequential(*(nn.Linear(inputs, outputs) for outputs, inputs in shapes)).requires_grad_(False)


def test_a_trial_gives_one_of_the_tried_rows_and_leaves_the_threads():
    before = torch.get_num_threads()
    assert crossover(48, 32) in (*TRIED_ROWS, NEVER) and torch.get_num_threads() == before


def test_each_shape_is_tried_once_per_machine(trials):
    model = layers((8, 16), (8, 16), (4, 8))
    assert pack(model) == 3 and trials == [(8, 16), (4, 8)]
    assert [layer.packed_from for layer in model] == [4, 4, 4]
    crossover.cache_clear()  # as in another process
    assert pack(layers((8, 16), (6, 16))) == 2 and trials == [(8, 16), (4, 8), (6, 16)]
    (shapes,) = json.loads((cache_folder() / NOTES).read_text()).values()
    assert shapes == {"8x16": 4, "4x8": 4, "6x16": 4}


@pytest.mark.parametrize("damage", ["", "[1]", '{"x": 3}', '{"MACHINE": {"8x16": "many"}}', '{"MACHINE": []}'])
def test_damaged_notes_count_for_nothing(trials, damage):
    file = cache_folder() / NOTES
    file.parent.mkdir(parents=True)
    file.write_text(damage.replace("MACHINE", linear.machine()))
    assert crossover(8, 16) == 4 and trials == [(8, 16)]
    crossover.cache_clear()
    assert crossover(8, 16) == 4 and trials == [(8, 16)]


def test_where_nothing_can_be_noted_it_is_tried_again(trials):
    cache_folder().parent.mkdir(parents=True, exist_ok=True)
    cache_folder().write_text("a file where the folder should be")
    for _ in range(2):
        assert crossover(8, 16) == 4
        crossover.cache_clear()
    assert len(trials) == 2


def test_few_rows_go_through_the_plain_layer_and_many_through_the_packed_one():
    torch.manual_seed(0)
    weight, bias = torch.randn(24, 16), torch.randn(24)
    layer = PackedLinear(weight, bias, packed_from=3)
    for rows in (1, 2, 3, 9):
        x = torch.randn(rows, 16)
        torch.testing.assert_close(layer(x), F.linear(x, weight, bias))
    assert pack(layers((8, 16)), packed_from=NEVER) == 0


def test_a_packed_copy_from_one_row_on_is_the_only_one():
    torch.manual_seed(0)
    weight, bias = torch.randn(24, 16), nn.Parameter(torch.randn(24), requires_grad=False)
    alone, both = (PackedLinear(weight, bias, rows) for rows in (1, 3))
    assert alone.plain is None and both.plain is not None and torch.equal(alone.weight, weight)
    assert sum(p.numel() for p in alone.parameters()) == 24
    for layer in (alone, both):
        stored = layer.state_dict()
        assert list(stored) == ["weight", "bias"] and torch.equal(stored["weight"], weight)
    with torch.inference_mode():
        weight_read = alone.weight
    assert not weight_read.is_inference(), "trainings read it"
    x = torch.randn(19, 16)
    whole = alone(x)
    for rows in (1, 2, 5, 8, 16):
        torch.testing.assert_close(alone(x[:rows]), whole[:rows])


class TiedHead(nn.Module):
    """A head that is tied to the embedding."""

    def __init__(self, vocab: int, width: int) -> None:
        super().__init__()
        self.embedding, self.head = nn.Embedding(vocab, width), nn.Linear(width, vocab, bias=False)
        self.head.weight = self.embedding.weight
        self.requires_grad_(False)


@pytest.mark.parametrize("vocab, width", [(320, 64), (193, 48), (100, 72)])
def test_a_tied_embedding_is_looked_up_in_the_packed_head(monkeypatch, vocab, width):
    torch.manual_seed(0)
    model = TiedHead(vocab, width)
    table = model.embedding.weight.clone()
    assert pack(model, packed_from=1) == 1
    ids = torch.tensor([[0, 1, 63, 64, vocab - 1], [5, 5, 7, 99, 2]])
    embedding = model.embedding
    assert torch.equal(embedding(ids), table[ids]) and torch.equal(
        linear.table_rows(embedding, ids[0].tolist()), table[ids[0]]
    )
    torch.testing.assert_close(model.head(table[:3]), table[:3] @ table.T)
    assert torch.equal(model.state_dict()["embedding.weight"], table)
    assert torch.equal(embedding.weight, table) and embedding.weight.data_ptr() == model.head.weight.data_ptr()
    if isinstance(embedding, nn.Embedding):  # laid out otherwise: both stay
        assert model.head.plain is not None and width % 16
    else:
        assert model.head.plain is None and not list(model.parameters())


def test_a_packed_head_that_lies_otherwise_keeps_the_embedding(monkeypatch):
    model = TiedHead(320, 64)
    table = model.embedding.weight.clone()
    monkeypatch.setattr(linear, "BLOCKS", (32,))
    assert pack(model, packed_from=1) == 1
    assert type(model.embedding) is nn.Embedding and torch.equal(model.embedding.weight, table)
    assert model.head.weight.data_ptr() == model.embedding.weight.data_ptr()


def test_weights_mapped_from_a_file_are_let_go(tmp_path, monkeypatch):
    """Packed weights are dropped from memory, and the rest gets memory of its own; whoever reads the file's tensors
    again has them still.
    """
    from safetensors.torch import load_file, save_file

    weights = {"0.weight": torch.randn(256, 256), "1.weight": torch.randn(16, 256), "1.bias": torch.randn(16)}
    save_file(weights, tmp_path / "w.safetensors")
    mapped = load_file(tmp_path / "w.safetensors")
    model = nn.Sequential(nn.Linear(256, 256, bias=False), nn.Linear(256, 16)).requires_grad_(False)
    model.load_state_dict(mapped, assign=True)
    monkeypatch.setattr(linear, "_try", lambda *shape: 1 if shape[0] == 256 else NEVER)
    given, give_back = [], linear.give_back
    monkeypatch.setattr(linear, "give_back", lambda *args: (given.append(args[0].shape), give_back(*args)))
    assert pack(model) == 1 and given == [(256, 256)]
    assert torch.equal(mapped["0.weight"], weights["0.weight"]), "from the file"
    assert torch.equal(model[0].weight, weights["0.weight"]) and torch.equal(model[1].weight, weights["1.weight"])
    own = model[1].weight.untyped_storage()
    assert own.nbytes() == 16 * 256 * 4


def test_memory_that_is_no_mapped_file_is_left_alone():
    model = layers((256, 256))
    before = model[0].weight
    kept = before.clone()
    pack(model, packed_from=1)
    assert torch.equal(before, kept)


class Attending(nn.Module):
    """Query, key and value of an attention, two of them with biases, and its gate and up."""

    def __init__(self, tied: bool = False) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.q_proj, self.k_proj = nn.Linear(16, 24), nn.Linear(16, 8, bias=False)
        self.v_proj, self.o_proj = nn.Linear(16, 8), nn.Linear(24, 16)
        self.gate_proj, self.up_proj = nn.Linear(16, 40, bias=False), nn.Linear(16, 40, bias=False)
        if tied:
            self.up_proj.weight = self.gate_proj.weight
        self.requires_grad_(False)

    def forward(self, x):
        return [layer(x) for layer in (self.q_proj, self.k_proj, self.v_proj, self.gate_proj, self.up_proj)]


def test_layers_that_read_the_same_rows_are_computed_as_one(monkeypatch):
    plain, model = Attending(), Attending()
    assert pack_joined(model, packed_from=1) == 6
    kinds = {name: type(layer) for name, layer in model.named_children()}
    assert kinds.pop("o_proj") is PackedLinear and set(kinds.values()) == {JointPart}
    calls = []
    forward = PackedLinear.forward
    monkeypatch.setattr(PackedLinear, "forward", lambda layer, x: calls.append(layer.out_features) or forward(layer, x))
    for rows in (1, 2, 9):
        x = torch.randn(1, rows, 16)
        torch.testing.assert_close(model(x), plain(x))
    assert calls == [40, 80] * 3
    calls.clear()
    x, other = torch.randn(2, 16), torch.randn(2, 16)
    for mine in (x, other, x):  # as two threads by turns
        torch.testing.assert_close(model.q_proj(mine), plain.q_proj(mine))
        torch.testing.assert_close(model.v_proj(other), plain.v_proj(other))
    query: Any = model.q_proj
    assert query.joint.last is None, "nothing is kept once the last one has been asked for"
    stored = model.state_dict()
    for name, value in plain.state_dict().items():
        assert torch.equal(stored[name], value), name
    assert not stored["k_proj.bias"].any()  # it has none of its own
    assert query.weight.shape == (24, 16) and not query.weight.is_inference()


def test_layers_are_joined_only_where_one_packed_copy_is_best(monkeypatch):
    monkeypatch.setattr(joint, "crossover", lambda outputs, inputs: 1 if outputs == 80 else 2)
    monkeypatch.setattr(joint, "pack", lambda model, packed_from: 0)
    model = Attending()
    assert pack_joined(model) == 2 and type(model.gate_proj) is JointPart and type(model.q_proj) is nn.Linear
    assert pack_joined(Attending(tied=True)) == 0, "a weight that is somebody else's too stays where it is"
    assert pack_joined(Attending(), packed_from=4) == 0
