"""The tab "Layers": agreement without each layer, equal to a forward of the other layers alone; followed."""

from __future__ import annotations

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


def test_a_run_of_another_model_is_refused(target: Any, trace: Any) -> None:
    with pytest.raises(UserError):
        report_of(tiny_target("qwen3"), trace)
    with pytest.raises(UserError, match="begin again"):
        skipping.advance(Holder(target, {}), {"key": "none"})


def test_the_page_reads_in_the_background(client: TestClient) -> None:
    assert client.get("/api/layers/run/run").json() == {"reason": "", "task": None}
    card = client.post("/api/layers/run/run", json={}).json()
    ask = lambda: client.get(f"/api/layers/of/{card['id']}").json()  # noqa: E731
    until(lambda: ask()["state"] not in ("queued", "running"), "the layers were left out")
    assert ask()["state"] == "done" and len(ask()["report"]["kept"]) == ask()["total"]
    assert client.get("/api/layers/run/run").json()["task"]["id"] == card["id"]
    assert client.get("/api/layers/run/none").status_code == 404
