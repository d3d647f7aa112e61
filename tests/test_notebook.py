"""docs/five-papers.ipynb runs, cell by cell, and shows what it says; ``python -m tests.test_notebook`` stores that."""

from __future__ import annotations

import ast
import json
from pathlib import Path
from typing import Any

import pandas as pd

COLAB = "colab"  # the id of a cell that prepares Colab
NOTEBOOK = Path(__file__).resolve().parent.parent / "docs" / "five-papers.ipynb"


def execute(cells: list[dict[str, Any]]) -> list[str]:
    """The text of each code cell's last expression, in one namespace, as a notebook runs them."""
    shown, names = [], {}
    pd.set_option("display.width", 100)
    for cell in cells:
        tree = ast.parse("".join(cell["source"]))
        last = tree.body.pop() if isinstance(tree.body[-1], ast.Expr) else None
        exec(compile(tree, "cell", "exec"), names)
        value = None if last is None else eval(compile(ast.Expression(last.value), "cell", "eval"), names)
        shown.append("" if value is None else repr(value))
    return shown


def code_of(notebook: dict[str, Any]) -> list[dict[str, Any]]:
    return [cell for cell in notebook["cells"] if cell["cell_type"] == "code" and cell["id"] != COLAB]


def test_every_cell_runs_and_shows_what_is_stored():
    notebook = json.loads(NOTEBOOK.read_text("utf-8"))
    cells = code_of(notebook)
    assert len(cells) <= 10
    stored = ["".join(one["data"]["text/plain"]) for cell in cells for one in cell["outputs"]]
    assert [text for text in execute(cells) if text] == stored


def main() -> None:
    """Run the cells, and store what they show."""
    notebook = json.loads(NOTEBOOK.read_text("utf-8"))
    cells = code_of(notebook)
    for number, (cell, text) in enumerate(zip(cells, execute(cells), strict=True), 1):
        data = {"text/plain": text.splitlines(keepends=True)}
        output = {"output_type": "execute_result", "execution_count": number, "metadata": {}, "data": data}
        cell["execution_count"], cell["outputs"] = number, [output] if text else []
    NOTEBOOK.write_text(json.dumps(notebook, indent=1, ensure_ascii=False) + "\n", "utf-8")


if __name__ == "__main__":
    main()
