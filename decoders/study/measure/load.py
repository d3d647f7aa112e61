"""L(rows, batch, context) of a target as it was measured on this machine, and where it is kept."""

from __future__ import annotations

from pathlib import Path

from decoders.folders import read_own, settings_folder, write_json
from decoders.model.target_model.target import Target
from decoders.prompt_tokens.latency import Setup
from decoders.trace.load import Load


def load_folder() -> Path:
    """The folder of measured loads: ``SPECVIZ_HOME``/load, or beside the user's settings."""
    return settings_folder() / "load"


def save_load(load: Load) -> Path:
    """Keep it where ``kept_load`` finds it, whole or not at all."""
    return write_json(load_folder() / f"{Setup(**load.setup).name}.json", load.to_json())


def kept_load(target: Target) -> Load | None:
    """The load of this model on this machine, with this engine and as many threads; None if none was measured."""
    return read_own(load_folder() / f"{Setup.of(target).name}.json", Load.from_json)
