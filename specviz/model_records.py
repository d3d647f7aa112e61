"""Models that were opened here: where they lie and what they are, for ``specviz models``."""

from __future__ import annotations

import contextlib
import json
import time
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from decoders.folders import settings_folder, write_json
from decoders.model.files.catalog import NAMES, SMOLLM2, current_key, missing_smollm2, precision_of, shipped_key

MAX_RECORDS = 20


@dataclass(frozen=True, slots=True)
class ModelRecord:
    """A model that was opened: its source (path or hub id), what its record says of it, and its fingerprint."""

    source: str
    name: str
    key: str
    parameters: int
    dtype: str
    opened: str


def remember(source: str | Path, target: Any) -> None:
    """Put a model that was just opened first in the list; where it cannot be written, it is not remembered."""
    place = str(Path(source).resolve()) if Path(source).exists() else str(source)
    info, timestamp = target.info, time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())
    entry = ModelRecord(place, target.name, target.key, info["parameters"], precision_of(info), timestamp)
    other_records = [record for record in list_records() if record.source != place]
    with contextlib.suppress(OSError):
        write_json(
            _file(), {"models": [asdict(record) for record in [entry, *other_records][:MAX_RECORDS]]}, private=True
        )


def list_records() -> list[ModelRecord]:
    """Models that were opened, the last one first."""
    try:
        entries = json.loads(_file().read_text(encoding="utf-8"))["models"] if _file().is_file() else []
        return [_read(entry) for entry in entries]
    except (OSError, ValueError, KeyError, TypeError):
        return []


def places_of(key: str) -> list[str]:
    """Places of models with this fingerprint: one with a name, and those that were opened and are still there."""
    sources = [record.source for record in list_records() if record.key == key and Path(record.source).exists()]
    names = [name for name in NAMES if key and key == shipped_key(name)]
    return [*(name for name in names if name != SMOLLM2 or not missing_smollm2()), *sources]


def source_of_key(key: str) -> str:
    """The value of ``--model`` for the model with this fingerprint, a hub id too; "" where none is known."""
    ids = [record.source for record in list_records() if record.key == key and not Path(record.source).is_absolute()]
    return next(iter([*places_of(key), *ids]), "") if key else ""


def _read(entry: Mapping[str, Any]) -> ModelRecord:
    texts = {name: str(entry[name]) for name in ("source", "name", "key", "dtype", "opened")}
    texts["key"] = current_key(texts["key"])
    return ModelRecord(**texts, parameters=int(entry["parameters"]))


def _file() -> Path:
    return settings_folder() / "models.json"
