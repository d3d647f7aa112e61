"""Places of things and names of runs: the user's folder, the recorded runs and the model that come along."""

from __future__ import annotations

import os
import re
import secrets
from pathlib import Path

from decoders.folders import ASSETS
from decoders.model.files.catalog import BUNDLED_FOLDER
from decoders.trace.files import SUFFIX

__all__ = ["BUNDLED", "GALLERY", "LESSONS", "SUFFIX", "TRACES", "home", "is_id", "new_id"]

GALLERY = ASSETS / "gallery"
LESSONS = ASSETS / "lessons"
BUNDLED = BUNDLED_FOLDER
TRACES = "traces"  # the folder of an experiment's runs
ID = re.compile(r"[A-Za-z0-9_-]{1,80}")


def home() -> Path:
    """The folder of what belongs to the user: ``SPECVIZ_HOME``, or the platform's data folder."""
    home_folder = os.environ.get("SPECVIZ_HOME")
    if home_folder:
        return Path(home_folder).expanduser()
    import platformdirs

    return Path(platformdirs.user_data_dir("specviz", appauthor=False))


def new_id() -> str:
    """A trace id nobody can guess: whoever has the link may look, nobody else."""
    return secrets.token_urlsafe(9).replace("-", "x").replace("_", "y")


def is_id(text: object) -> bool:
    """True for a text that has the form of a trace id."""
    return isinstance(text, str) and ID.fullmatch(text) is not None
