"""The notebook's badge and cell for Colab."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from specviz.extras.publish.site import colab
from tests.test_notebook import COLAB, NOTEBOOK, code_of


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


def test_the_cell_is_known_to_the_notebooks_test():
    assert colab.CELL == COLAB
