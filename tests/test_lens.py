"""The lens: layers read as if each were the last, against transformers' own hidden states; when it must refuse."""

from __future__ import annotations

import json

import pytest
import torch
from fastapi.testclient import TestClient

from decoders import Prompt, record, save
from decoders.errors import UserError
from decoders.model.target_model.target import Target
from decoders.study.look.lens import lens
from decoders.study.look.whatif import ReadRun
from specviz.cli import main
from tests.models import EVERY_FAMILY, network, prompt_ids, tiny_target, tiny_tokenizer

from .command import refusal
from .stubs import app_of, gallery_desk

NEW = 16


def read_run(target: Target, method: str = "adapld") -> ReadRun:
    return ReadRun(target, record(target, Prompt.from_ids(prompt_ids(3)), method, max_new_tokens=NEW))


def refused_node(read: ReadRun) -> tuple[int, int]:
    """A step, and a node in it, that the target refused."""
    nodes = read.trace.tables["nodes"]
    for row, status in enumerate(nodes["status"]):
        if status == "rejected":
            step = nodes["step"][row]
            return step, row - read.rows("nodes", step).start
    raise AssertionError("nothing was refused")


def text_before(read: ReadRun, step: int, node: int) -> list[int]:
    """The text up to the place of a node, from the run's record."""
    nodes, rows = read.trace.tables["nodes"], read.rows("nodes", step)
    path: list[int] = []
    while node := nodes["parent"][rows[node]]:
        path.insert(0, nodes["token"][rows[node]])
    return [*read.trace.tables["tokens"]["id"][: read.trace.tables["steps"]["context"][step]], *path]


@pytest.fixture(scope="module")
def read() -> ReadRun:
    return read_run(tiny_target("qwen3"))


@pytest.mark.parametrize("family", EVERY_FAMILY)
def test_layers_are_read_as_transformers_own_hidden_states_give_them(family: str) -> None:
    """The oracle: hidden states of the stock model, its own norm and its own head; the last layer is its prediction."""
    target = tiny_target(family)
    run = read_run(target)
    step, node = refused_node(run)
    seen = lens(run, step, node)
    ids = torch.tensor([text_before(run, step, node)])
    stock = network(family)
    with torch.inference_mode():
        out = stock(input_ids=ids, output_hidden_states=True, use_cache=False)
        names = (".norm", "ln_f", "layer_norm", "layernorm")
        norm = next(m for name, m in stock.named_modules() if name.endswith(names) and name.count(".") <= 2)
        states = out.hidden_states
        for layer in (0, 1, target.shape.layers - 1):
            logits = stock.get_output_embeddings()(norm(states[layer][:, -1]))[0] * target.shape.logits_scale
            if cap := target.shape.logits_softcap:
                logits = cap * torch.tanh(logits / cap)
            assert seen.drafted.probs[layer] == pytest.approx(float(logits.softmax(-1)[seen.drafted.token]), abs=1e-5)
            assert seen.tops[layer][0] == int(logits.argmax())
    assert len(seen.tops) == seen.layers + 1 == target.shape.layers + 1
    assert seen.tops[-1][1] == pytest.approx(float(out.logits[0, -1].softmax(-1).max()), abs=1e-5)
    assert seen.apart < 1e-3


def test_what_was_refused_is_below_the_targets_own_token_in_the_end(read: ReadRun) -> None:
    step, node = refused_node(read)
    seen = lens(read, step, node)
    rows = read.rows("nodes", step)
    recorded = read.trace.tables["nodes"]
    assert seen.drafted.token == recorded["token"][rows[node]] != seen.own.token
    assert seen.drafted.probs[-1] == pytest.approx(recorded["prob"][rows[node]], abs=1e-4)
    assert seen.drafted.ranks[-1] == recorded["rank"][rows[node]] > seen.own.ranks[-1] == 0
    assert seen.position == len(text_before(read, step, node))
    assert seen.decided is not None
    for layer in range(seen.layers + 1):
        if layer >= seen.decided:
            assert seen.own.ranks[layer] < seen.drafted.ranks[layer]
    if seen.decided:
        assert seen.own.ranks[seen.decided - 1] > seen.drafted.ranks[seen.decided - 1]


def test_an_accepted_token_is_the_targets_own(read: ReadRun) -> None:
    nodes = read.trace.tables["nodes"]
    row = nodes["status"].index("accepted")
    step = nodes["step"][row]
    seen = lens(read, step, row - read.rows("nodes", step).start)
    assert seen.own == seen.drafted and seen.decided is None
    assert seen.settled is not None and not any(seen.own.ranks[seen.settled :])


def test_a_layer_that_adds_nothing_says_what_the_one_before_said() -> None:
    """A known model: with zeros behind its attention and its MLP, layer 2 hands on what it got."""
    model = network("llama")
    layer = model.model.layers[1]
    layer.self_attn.o_proj.weight.data.zero_()
    layer.mlp.down_proj.weight.data.zero_()
    run = read_run(Target(model, tiny_tokenizer(), "idle layer"))
    seen = lens(run, *refused_node(run))
    assert seen.tops[2] == seen.tops[1] != seen.tops[3]
    assert seen.drafted.probs[2] == seen.drafted.probs[1] and seen.own.ranks[2] == seen.own.ranks[1]


def test_a_model_that_does_more_behind_its_layers_is_refused() -> None:
    """The negative control: the last layer, read through norm and head, is not the model's own prediction there."""
    target = Target(network("llama"), tiny_tokenizer(), "halved")
    run = read_run(target)
    step, node = refused_node(run)
    lens(run, step, node)

    def halve(module: object, args: object, out: object) -> object:
        out.last_hidden_state = out.last_hidden_state * 0.5  # type: ignore[attr-defined]
        return out

    target.stack.register_forward_hook(halve)
    with pytest.raises(UserError, match=r"halved \(llama\) does more behind its last layer .* no layer is read"):
        lens(run, step, node)


def test_nothing_of_the_run_changes(read: ReadRun) -> None:
    step, node = refused_node(read)
    before, first = json.dumps(read.trace.to_json()), lens(read, step, node)
    read.redraft(step)
    again = lens(read, step, node)
    assert (again.drafted, again.own, again.tops) == (first.drafted, first.own, first.tops)
    assert read.redraft(step).same and json.dumps(read.trace.to_json()) == before


@pytest.mark.parametrize(("step", "node", "words"), [
    (0, 0, "there is no node 0 in step 1: it has"), (0, 999, "no node 999"), (999, 1, "there is no step 1000"),
])  # fmt: skip
def test_places_that_are_not_there(read: ReadRun, step: int, node: int, words: str) -> None:
    with pytest.raises(UserError, match=words):
        lens(read, step, node)


def test_the_server_answers_for_a_run_and_refuses_with_the_reason(read: ReadRun) -> None:
    step, node = refused_node(read)
    desk = gallery_desk(read.target, {"mine": read.trace})
    with TestClient(app_of(desk)) as client:
        answer = client.post("/api/whatif/mine/lens", json={"step": step, "node": node})
        seen = lens(read, step, node).to_json()
        given = answer.json()
        for name in ("drafted", "own", "tops", "decided", "settled", "layers", "limits", "pieces"):
            assert given[name] == json.loads(json.dumps(seen[name])), name
        assert client.post("/api/whatif/mine/draft", json={"step": step}).json()["same"]
        for body, words in (({"step": 999, "node": 1}, "There is no step 1000"), ({"step": 0}, "“node” is missing"),
                            ({"step": 0, "node": -1}, "whole numbers from 0")):  # fmt: skip
            wrong = client.post("/api/whatif/mine/lens", json=body)
            assert wrong.status_code == 422 and words in wrong.json()["error"]
        assert client.post("/api/whatif/other/lens", json={"step": 0, "node": 1}).status_code == 404
    desk.end()


def test_the_command_prints_a_row_per_layer(tmp_path, capsys, monkeypatch, read: ReadRun) -> None:
    from specviz.commands import common

    monkeypatch.setattr(common, "open_target", lambda args: read.target)
    file = tmp_path / "run.spectrace"
    save(read.trace, file)
    step, node = refused_node(read)
    place = ["--step", str(step + 1), "--node", str(node)]
    assert main(["lens", str(file), *place, "--json"]) == 0
    told = json.loads(capsys.readouterr().out)
    assert told["step"] == step + 1 and told["drafted"]["ranks"][-1] == lens(read, step, node).drafted.ranks[-1]
    assert main(["lens", str(file), *place]) == 0
    out = capsys.readouterr().out
    assert out.count("\n│") == 1 + told["layers"] and "embedding" in out and "no cause" in " ".join(out.split())
    assert "there is no node 99 in step 1" in refusal(capsys, "lens", file, "--step", "1", "--node", "99")
