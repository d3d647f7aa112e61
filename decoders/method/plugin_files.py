"""The files that are read as plug-ins, beside the installed packages (light: torch is not imported)."""

from __future__ import annotations

import os
from collections.abc import Iterable
from pathlib import Path

from decoders.errors import UserError

VARIABLE = "SPECVIZ_PLUGINS"
"""The environment variable that lists them, as PATH lists folders: what is started from here has them too."""


def plugin_files() -> list[Path]:
    """The files that are read as plug-ins, each once."""
    return [Path(name) for name in dict.fromkeys(os.environ.get(VARIABLE, "").split(os.pathsep)) if name]


def name_plugin_files(files: Iterable[Path]) -> None:
    """Have more files read as plug-ins. Raises UserError for one that is not there."""
    file_names = [*map(str, plugin_files())]
    for file in files:
        if not file.expanduser().is_file():
            raise UserError(f"there is no plug-in {file}: give a Python file, such as specviz methods new NAME writes")
        file_names.append(str(file.expanduser().resolve()))
    os.environ[VARIABLE] = os.pathsep.join(dict.fromkeys(file_names))
