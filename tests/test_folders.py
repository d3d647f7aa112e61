"""Folders are replaced whole or not at all."""

from pathlib import Path

import pytest

from decoders.folders import replacing


def written(folder: Path) -> dict[str, str]:
    return {str(p.relative_to(folder)): p.read_text() for p in sorted(folder.rglob("*")) if p.is_file()}


def test_a_folder_is_replaced_with_nothing_of_the_old_one(tmp_path):
    for name in ("first", "second"):
        with replacing(tmp_path / "a" / "part") as new:
            (new / name).write_text(name)
    assert written(tmp_path) == {"a/part/second": "second"} and len(list((tmp_path / "a").iterdir())) == 1


def test_what_was_there_stays_where_writing_fails(tmp_path, monkeypatch):
    with replacing(tmp_path / "part") as new:
        (new / "good").write_text("good")
    with pytest.raises(KeyboardInterrupt), replacing(tmp_path / "part") as new:
        (new / "half").write_text("ha")
        raise KeyboardInterrupt
    assert written(tmp_path) == {"part/good": "good"}

    rename = Path.rename

    def refusing(self: Path, to: Path) -> Path:
        if ".new-" in self.name:
            raise OSError("no")
        return rename(self, to)

    monkeypatch.setattr(Path, "rename", refusing)
    with pytest.raises(OSError, match="no"), replacing(tmp_path / "part") as new:
        (new / "late").write_text("late")
    assert written(tmp_path) == {"part/good": "good"} and [p.name for p in tmp_path.iterdir()] == ["part"]
