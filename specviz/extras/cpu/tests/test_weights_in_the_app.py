"""Weights of fewer bits where models are chosen: in the app, by commands, and their memory before they are opened."""

from __future__ import annotations

from collections import defaultdict
from pathlib import Path
from typing import Any

import pytest
import transformers as hf
from fastapi.testclient import TestClient

from decoders import load_target
from decoders.model.engines.joint import JointPart
from decoders.model.target_model import size
from decoders.model.target_model.size import size_of
from tests.command import specviz
from tests.models import GROUPED, save_model
from tests.test_checkpoints import verify_against_generate
from tests.test_picker import FORM, app, choose, home, models, serving_first, settle  # noqa: F401 (fixtures)
from tests.waiting import WAIT_S

from .. import compiling, engine, kernel
from ..compiled_layers import MAKER
from ..kernel import KERNELS
from ..rounding import RoundedLinear, _unable

pytestmark = pytest.mark.skipif(bool(_unable(8) or _unable(4)), reason="this build of torch has no such kernels")


@pytest.mark.slow("opens models in turn")
def test_every_model_is_opened_on_the_weights_that_the_app_was_started_with(models: Path, tmp_path: Path) -> None:
    with serving_first(models, tmp_path, weights="int8") as (client, desk):
        assert client.get("/api/status").json()["model"]["info"]["weights"] == "int8" and "int8" in desk.loader.text
        job = desk.submit(FORM, "pld", {}, {"max_new_tokens": 4})
        assert job.finished.wait(WAIT_S) and desk.store.get(job.id).run["model"]["weights"] == "int8"
        sizes = {one["model"]: one["memory_bytes"] for one in client.get("/api/models").json()["models"]}
        assert sizes[str(tmp_path / "first")] == size.size_of(tmp_path / "first", weights="int8").bytes
        assert choose(client, tmp_path / "second").status_code == 200
        settle(desk.loader)
        assert desk.loader.target.info["layers"] == 5 and desk.loader.target.info["weights"] == "int8"


@pytest.mark.slow("opens an app for one number")
def test_memory_is_told_for_the_engine_that_the_app_was_started_with(
    app: tuple[TestClient, Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """This project's own kernels, which some engines have, round the head, too."""
    client, desk = app
    monkeypatch.setattr(KERNELS, "can_compute", lambda engine: engine == "compiled")
    needed = list[int]()
    monkeypatch.setattr(size, "check_fits", lambda name, size, device: needed.append(size.bytes))
    for name in (None, "compiled"):
        desk.engine = name
        listed = client.get("/api/models", params={"weights": "int8"}).json()["models"]
        told = next(one["memory_bytes"] for one in listed if one["model"] == str(tmp_path / "first"))
        assert told == size.size_of(tmp_path / "first", weights="int8", engine=name or "eager").bytes
        desk.services["models"]._check_fits(str(tmp_path / "first"), "int8")
        assert needed[-1] == told
    assert needed[0] != needed[1]


def test_other_weights_are_chosen_while_the_app_runs(app: tuple[TestClient, Any], tmp_path: Path) -> None:
    client, desk = app
    here = str(tmp_path / "first")

    def memory(weights: str) -> int:
        listed = client.get("/api/models", params={"weights": weights}).json()
        return next(one["memory_bytes"] for one in listed["models"] if one["model"] == here)

    told = client.get("/api/models").json()
    assert told["weights"] == "fp32" and told["choices"] == ["fp32", "int8", "int4"]
    assert memory("int8") < memory("fp32") == memory("")
    answer = choose(client, here, weights="int2")
    assert answer.status_code == 422 and "one of fp32, int8, int4" in answer.json()["error"]
    assert choose(client, here, weights="int8").status_code == 200
    settle(desk.loader)
    assert desk.loader.target.info["weights"] == "int8" and client.get("/api/models").json()["weights"] == "int8"
    assert memory("") == memory("int8")
    job = desk.submit(FORM, "pld", {}, {"max_new_tokens": 4})
    assert job.finished.wait(WAIT_S) and desk.store.get(job.id).run["model"]["weights"] == "int8"
    assert choose(client, tmp_path / "second").status_code == 200  # on those in use
    settle(desk.loader)
    assert desk.loader.target.info["layers"] == 5 and desk.loader.target.info["weights"] == "int8"
    assert choose(client, tmp_path / "second", weights="fp32").status_code == 200
    settle(desk.loader)
    assert "weights" not in desk.loader.target.info


def test_smaller_weights_are_offered_on_a_cpu_in_float32_alone(models: Path, tmp_path: Path) -> None:
    with serving_first(models, tmp_path, dtype="bfloat16") as (client, _):
        assert client.get("/api/models").json()["choices"] == ["fp32"]


@pytest.mark.parametrize("weights", ["int8", "int4"])
@pytest.mark.parametrize("tied", [True, False])
def test_rounded_weights_are_as_large_as_said(tmp_path: Path, weights: str, tied: bool, monkeypatch: Any) -> None:
    """While they are read, they are as large as ever."""
    save_model(tmp_path, model=hf.LlamaForCausalLM(hf.LlamaConfig(**{**GROUPED, "tie_word_embeddings": tied})))
    size, plain = (size_of(tmp_path, device="cpu", weights=kind) for kind in (weights, None))
    model = load_target(tmp_path, weights=weights).model
    parts = {id(one.joint): one.joint.linear for one in model.modules() if isinstance(one, JointPart)}
    linears = [*parts.values(), *(layer for layer in model.modules() if isinstance(layer, RoundedLinear))]
    there = sum(layer.numbers.nbytes + layer.scale.nbytes for layer in linears)
    there += 4 * plain.parameters - 4 * sum(layer.in_features * layer.out_features for layer in linears)
    assert size.weights == pytest.approx(there, rel=0.03) and size.weights < 0.7 * plain.weights
    assert (size.parameters, size.opening, size.cache) == (plain.parameters, plain.opening, plain.cache)
    monkeypatch.setattr(KERNELS, "can_compute", lambda engine: engine == "auto")
    own, head = (
        size_of(tmp_path, device="cpu", weights=weights, engine="auto"),
        model.config.vocab_size * model.config.hidden_size,
    )
    assert own.weights - size.weights == (head if tied else -3 * head), "a byte a number, beside the embedding or alone"


@pytest.mark.parametrize("family", ["gemma2", "llama"])
def test_verify_compares_with_a_reference_on_the_same_weights(family: str, tmp_path: Path, capsys: Any) -> None:
    shown = verify_against_generate(family, tmp_path, capsys, "--weights", "int8")
    assert "ok: every output is identical" in shown


def test_compile_compiles_what_is_missing_and_says_so(capsys, model, monkeypatch):
    """The model's layers, then those of its draft models; what is there already stays."""
    opened, made = {}, []

    def wait(parts, cancel=None):
        opened.update(dict.fromkeys(part for part in parts if len(made) != 2))
        return len(made) != 2

    monkeypatch.setattr(compiling, "compiler", lambda: "g++")
    monkeypatch.setattr(engine, "packed_layers", lambda target: None)
    monkeypatch.setattr(kernel.KERNELS, "usable", lambda engine: engine == "compiled")
    monkeypatch.setattr(compiling.WORKSHOP, "open", lambda part: part if part in opened else None)
    monkeypatch.setattr(compiling.WORKSHOP, "make", lambda parts: made.extend(parts))
    monkeypatch.setattr(compiling.WORKSHOP, "wait", wait)
    monkeypatch.setattr(compiling.WORKSHOP, "failed", defaultdict(lambda: "compiling failed (no space)"))
    assert specviz("compile", "--model", model) == 1
    said = capsys.readouterr().out
    assert f"0 of {len(made)} parts are compiled" in said and "2 of " in said and "(no space)" in said
    assert "the model's layers, one row" in said and "the kernels for rounded weights are there" in said
    assert [part.maker for part in made[:2]] == [MAKER] * 2
    count, first = len(made), made[1]
    assert specviz("compile", "--model", model) == 0 and made[count:] == [first]
