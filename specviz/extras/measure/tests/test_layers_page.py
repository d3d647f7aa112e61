"""The tab "Layers": agreement without each layer, equal to a forward of the other layers alone; followed."""

from __future__ import annotations

import re
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from fastapi.testclient import TestClient
from torch import nn

from decoders import Prompt, UserError, record
from specviz.pages.whatif.reading import to_text
from specviz.server.backend_host import Holder
from tests.models import network, prompt_ids, tiny_target
from tests.stubs import client_of, gallery_desk
from tests.waiting import until

from ..layers import skipping
from ..stage_tasks import StagedTask, Turn

NEW = 20


@pytest.fixture(scope="module", params=["llama", "gpt2"])
def target(request: Any, module_home: Path) -> Any:
    return tiny_target(request.param)


@pytest.fixture(scope="module")
def trace(target: Any) -> Any:
    return record(target, Prompt.from_ids(prompt_ids(3)), "pld", max_new_tokens=NEW, stop_ids=())


@pytest.fixture(scope="module")
def client(target: Any, trace: Any) -> Iterator[TestClient]:
    with client_of(gallery_desk(target, {"run": trace})) as client:
        yield client


def report_of(target: Any, trace: Any) -> dict[str, Any]:
    holder, request = Holder(target, {}), {"key": "a", "trace": to_text(trace)}
    while "report" not in (stage := skipping.advance(holder, request)):
        request = {"key": "a"}
    return stage["report"]


def test_a_layer_left_out_is_a_model_without_it(target: Any, trace: Any) -> None:
    report, text = report_of(target, trace), [*trace.tables["tokens"]["id"]]
    assert report["places"] == NEW and len(report["kept"]) == target.shape.layers
    for layer, kept in enumerate(report["kept"]):
        model: Any = network(target.shape.family)
        stack = getattr(model, "model", None) or model.transformer
        name = "layers" if hasattr(stack, "layers") else "h"
        setattr(stack, name, nn.ModuleList(part for i, part in enumerate(getattr(stack, name)) if i != layer))
        model.config.num_hidden_layers -= 1
        with torch.no_grad():
            choices = model(torch.tensor([text]), use_cache=False).logits[0].argmax(-1)[-NEW - 1 : -1].tolist()
        same = [a == b for a, b in zip(choices, trace.output_ids, strict=True)]
        assert kept == pytest.approx(sum(same) / NEW)
        assert report["changed"][layer] == [len(text) - NEW + i for i, stays in enumerate(same) if not stays]
    assert not any(layer._forward_hooks for layer in target.layers)


def test_layers_are_shown_as_they_come(target: Any, trace: Any) -> None:
    holder, known = Holder(target, {}), list[dict[str, Any]]()
    stage = skipping.advance(holder, {"key": "a", "trace": to_text(trace)})
    while "report" not in stage:
        known.append(stage["partial"])
        stage = skipping.advance(holder, {"key": "a"})
    assert [len(report["kept"]) for report in known] == [*range(target.shape.layers)]
    assert all(stage["report"]["kept"][: len(report["kept"])] == report["kept"] for report in known)
    assert known[0]["ms"] >= 0 and known[0]["tokens"] == len(trace.tables["tokens"]["id"]) - 1


def test_work_of_another_page_is_waited_for_and_named() -> None:
    turn, first, second, third = Turn(), *(StagedTask(id=name, owner="") for name in "abc")
    begun = list[str]()

    def work(task: StagedTask) -> None:
        with turn.take(task, "Places"):
            begun.append(task.id)

    with turn.take(first, "Layers"):
        threads = [threading.Thread(target=work, args=(task,)) for task in (second, third)]
        for thread in threads:
            thread.start()
        until(lambda: (second.card()["waits"], third.card()["waits"]) == ("Layers", "Layers"), "both wait")
        third.cancel.set()
        until(lambda: begun == ["c"], "what is stopped waits no more")
    until(lambda: begun == ["c", "b"] and not second.card()["waits"], "its turn has come")
    for thread in threads:
        thread.join()


def test_a_run_of_another_model_is_refused(target: Any, trace: Any) -> None:
    with pytest.raises(UserError):
        report_of(tiny_target("qwen3"), trace)
    with pytest.raises(UserError, match="begin again"):
        skipping.advance(Holder(target, {}), {"key": "none"})


def test_the_page_reads_in_the_background(client: TestClient) -> None:
    first = client.get("/api/layers/run/run").json()
    assert first["reason"] == "" and first["task"] is None
    assert re.fullmatch(r"\d+ forwards of \d+ tokens", first["cost"])  # no time: none is measured yet
    card = client.post("/api/layers/run/run", json={}).json()
    ask = lambda: client.get(f"/api/layers/of/{card['id']}").json()  # noqa: E731
    until(lambda: ask()["state"] not in ("queued", "running"), "the layers were left out")
    assert ask()["state"] == "done" and len(ask()["report"]["kept"]) == ask()["total"]
    later = client.get("/api/layers/run/run").json()
    assert later["task"]["id"] == card["id"] and later["cost"] == first["cost"]
    assert client.get("/api/layers/run/none").status_code == 404
