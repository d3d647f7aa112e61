"""The notebook of the five papers in Colab, which opens notebooks of public repositories on GitHub by their address.

``python -m specviz.extras.publish.site.colab [ADDRESS]`` writes the badge, and the cell that clones the repository
there, into ``docs/five-papers.ipynb``. Without an address that of ``[project.urls]`` Repository in ``pyproject.toml``
is taken.
"""

from __future__ import annotations

import json
import re
import sys
import tomllib
from pathlib import Path
from typing import Any

from decoders.errors import UserError
from decoders.folders import write_text

ROOT = Path(__file__).resolve().parents[4]
NOTEBOOK = "docs/five-papers.ipynb"
BADGE = "https://colab.research.google.com/assets/colab-badge.svg"
ADDRESS = re.compile(r"(?:https?://)?github\.com/([\w.-]+/[\w.-]+?)(?:\.git)?/?")
CELL = "colab"  # the id of the cell that only Colab needs


def repository(root: Path) -> str:
    """The repository's address as ``pyproject.toml`` has it; "" where it has none, or where there is no checkout."""
    try:
        urls = tomllib.loads((root / "pyproject.toml").read_text("utf-8"))["project"].get("urls", {})
    except (OSError, KeyError, ValueError):
        return ""
    return next((str(url) for name, url in urls.items() if name.lower() in ("repository", "source", "homepage")), "")


def colab_link(address: str) -> str:
    """The address of a repository's notebook in Colab. Raises UserError for an address that is not one on GitHub.

    >>> colab_link("https://github.com/someone/drafts.git")
    'https://colab.research.google.com/github/someone/drafts/blob/main/docs/five-papers.ipynb'
    """
    match = ADDRESS.fullmatch(address)
    if match is None:
        raise UserError(f"{address[:80]!r} is no repository that Colab opens: give https://github.com/OWNER/NAME")
    return f"https://colab.research.google.com/github/{match[1]}/blob/main/{NOTEBOOK}"


def with_badge(notebook: dict[str, Any], address: str) -> dict[str, Any]:
    """The notebook with the badge on top and the cell that makes a checkout in Colab; those of before are replaced."""
    link, (first, *other_cells) = colab_link(address), notebook["cells"]
    place = re.sub(r".*github\.com/", "https://github.com/", address)
    text = [line for line in first["source"] if BADGE not in line]
    badge = f"[![Open in Colab]({BADGE})]({link})\n"
    clone = {
        "cell_type": "code", "id": CELL, "execution_count": None, "metadata": {}, "outputs": [],
        "source": [
            "import sys\n",
            'if "google.colab" in sys.modules:\n',
            f"    !git clone --depth 1 {place} specviz && pip install -q ./specviz",
        ],
    }  # fmt: skip
    cells = [{**first, "source": [badge, *text]}, clone, *(cell for cell in other_cells if cell["id"] != CELL)]
    return {**notebook, "cells": cells}


def main(arguments: list[str]) -> None:
    address = arguments[0] if arguments else repository(ROOT)
    if not address:
        sys.exit("pyproject.toml has no address of the repository ([project.urls] Repository): give it")
    path = ROOT / NOTEBOOK
    try:
        notebook = with_badge(json.loads(path.read_text("utf-8")), address)
    except UserError as fault:
        sys.exit(str(fault))
    write_text(path, json.dumps(notebook, ensure_ascii=False, indent=1) + "\n")
    print(f"{NOTEBOOK}: opens at {colab_link(address)}, once it is published there")


if __name__ == "__main__":
    main(sys.argv[1:])
