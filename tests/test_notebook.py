"""docs/five-papers.ipynb runs, cell by cell, and shows what it says; ``python -m tests.test_notebook`` stores that."""

from __future__ import annotations

import ast
import json
from pathlib import Path
from typing import Any

import pandas as pd
import pytest

from specviz.site import colab

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
    return [cell for cell in notebook["cells"] if cell["cell_type"] == "code" and cell["id"] != colab.CELL]


def test_every_cell_runs_and_shows_what_is_stored():
    notebook = json.loads(NOTEBOOK.read_text("utf-8"))
    cells = code_of(notebook)
    assert len(cells) <= 10
    stored = ["".join(one["data"]["text/plain"]) for cell in cells for one in cell["outputs"]]
    assert [text for text in execute(cells) if text] == stored


def test_a_badge_and_a_cell_for_colab_where_the_repositorys_address_is_known(tmp_path: Path, monkeypatch):
    (tmp_path / "docs").mkdir()
    path = tmp_path / colab.NOTEBOOK
    path.write_bytes(NOTEBOOK.read_bytes())
    monkeypatch.setattr(colab, "ROOT", tmp_path)
    (tmp_path / "pyproject.toml").write_text('[project.urls]\nRepository = "https://github.com/a/b"\n', "utf-8")
    assert colab.repository(tmp_path) == "https://github.com/a/b" and colab.repository(tmp_path / "docs") == ""
    for arguments, place in (([], "a/b"), (["github.com/c/d.git"], "c/d"), (["https://github.com/c/d"], "c/d")):
        colab.main(arguments)
        notebook = json.loads(path.read_text("utf-8"))
        top = notebook["cells"][0]["source"]
        assert place in top[0] and sum(colab.BADGE in line for line in top) == 1
        assert [cell["id"] for cell in notebook["cells"]].count(colab.CELL) == 1
        assert f"https://github.com/{place}" in notebook["cells"][1]["source"][2]
    assert code_of(notebook) == code_of(json.loads(NOTEBOOK.read_text("utf-8")))
    for odd in ("https://gitlab.com/a/b", "github.com/a", "x](javascript:alert(1))"):
        with pytest.raises(SystemExit, match="no repository that Colab opens"):
            colab.main([odd])
    (tmp_path / "pyproject.toml").write_text("[project]\n", "utf-8")
    with pytest.raises(SystemExit, match="has no address"):
        colab.main([])


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
