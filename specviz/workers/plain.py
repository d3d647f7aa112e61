"""Workers' code and model, compared with those of whoever they work for before they begin."""

from __future__ import annotations

import functools
import hashlib
import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from decoders.extra import extras
from decoders.method.plugin_files import VARIABLE, plugin_files
from decoders.model.files.catalog import precision_of

from .work import WorkerRefused

if TYPE_CHECKING:
    from decoders import Target

SOURCES = ("*.py", "*.toml", "*.txt")


@functools.cache
def code_of(packages: Sequence[str]) -> str:
    """A hash of the code of some packages ("specviz/server") and of the annexes that bring methods or verifiers, and of
    the versions of what computes for them.
    """
    import torch
    import transformers

    folders = [Path(__file__).resolve().parents[2] / name for name in packages]
    folders += [extra.folder for extra in extras().values() if extra.methods or extra.verifiers]
    files = [path for folder in folders for path in sorted(file for form in SOURCES for file in folder.rglob(form))
             if "tests" not in path.relative_to(folder).parts]  # fmt: skip
    hasher = hashlib.sha256(f"{torch.__version__.partition('+')[0]} {transformers.__version__}".encode())
    for path in [*files, *plugin_files()]:
        hasher.update(path.name.encode() + path.read_bytes())
    return hasher.hexdigest()[:24]


def open_alike(
    about: Mapping[str, Any], packages: Sequence[str], code: str, key: str, precision: str, worker: str, driver: str
) -> Target:
    """A worker's model, opened as ``about`` says (opening, plugins, threads, offered). Raises WorkerRefused where its
    code, or its model's fingerprint or precision, are others than of whoever it works for (``driver``).
    """
    os.environ[VARIABLE] = os.pathsep.join(about["plugins"])
    from decoders import load_target
    from decoders.drafters.sps import offer_drafter
    from specviz.quiet import settle

    settle(about["threads"])
    if code_of(packages) != code:
        raise WorkerRefused(
            f"{worker} has another version of the code (of specviz, torch or transformers) than {driver}: install the "
            "same "
            "everywhere"
        )
    target = load_target(**about["opening"])
    model_precision = precision_of(target.info)
    if (target.key, model_precision) != (key, precision):
        raise WorkerRefused(
            f"{worker} opened another model than {driver}: {target.name} in {model_precision}, with the fingerprint "
            f"{target.key} in "
            f"place of {key}"
        )
    if about["offered"]:
        offer_drafter(target, about["offered"])
    return target
