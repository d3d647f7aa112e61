"""Files and folders are replaced whole or not at all."""

import os
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from decoders import folders
from decoders.folders import replacing, write_bytes, write_text

from .disk import refusing


def write(folder: Path) -> dict[str, str]:
    return {str(p.relative_to(folder)): p.read_text() for p in sorted(folder.rglob("*")) if p.is_file()}


def test_a_folder_is_replaced_with_nothing_of_the_old_one(tmp_path):
    for name in ("first", "second"):
        with replacing(tmp_path / "a" / "part") as new:
            (new / name).write_text(name)
    assert write(tmp_path) == {"a/part/second": "second"} and len(list((tmp_path / "a").iterdir())) == 1


def test_what_was_there_stays_where_writing_fails(tmp_path, monkeypatch):
    with replacing(tmp_path / "part") as new:
        (new / "good").write_text("good")
    with pytest.raises(KeyboardInterrupt), replacing(tmp_path / "part") as new:
        (new / "half").write_text("ha")
        raise KeyboardInterrupt
    assert write(tmp_path) == {"part/good": "good"}

    rename = Path.rename

    def refusing(self: Path, to: Path) -> Path:
        if ".new-" in self.name:
            raise OSError("no")
        return rename(self, to)

    monkeypatch.setattr(Path, "rename", refusing)
    with pytest.raises(OSError, match="no"), replacing(tmp_path / "part") as new:
        (new / "late").write_text("late")
    assert write(tmp_path) == {"part/good": "good"} and [p.name for p in tmp_path.iterdir()] == ["part"]


def test_threads_that_replace_one_folder_do_not_collide(tmp_path):
    """Each writes a whole folder of its own, and the last to end has the place."""

    def replace_often(name: str) -> None:
        for _ in range(50):
            with replacing(tmp_path / "part") as new:
                for file in ("a", "b"):
                    (new / file).write_text(name)

    with ThreadPoolExecutor(4) as pool:
        list(pool.map(replace_often, "0123"))
    files = write(tmp_path)
    assert set(files) == {"part/a", "part/b"} and files["part/a"] == files["part/b"]


def test_a_file_is_replaced_whole_or_not_at_all_and_keeps_its_mode(tmp_path):
    page = tmp_path / "page.html"
    page.write_text("old")
    page.chmod(0o640)
    link = tmp_path / "link.html"
    link.symlink_to(page)
    with refusing(tmp_path, 2), pytest.raises(OSError, match="No space"):
        write_bytes(link, b"new")
    assert page.read_text() == "old" and sorted(p.name for p in tmp_path.iterdir()) == ["link.html", "page.html"]
    write_bytes(link, b"new")
    assert link.is_symlink() and page.read_text() == "new" and oct(page.stat().st_mode)[-3:] == "640"
    write_bytes(Path(os.devnull), b"nothing")
    assert not Path(os.devnull).is_file()


def test_private_files_and_folders_are_their_owners_alone(tmp_path):
    write_text(tmp_path / "a" / "b" / "run.json", "{}", private=True)
    modes = {p.name: oct(p.stat().st_mode)[-3:] for p in tmp_path.rglob("*")}
    assert modes == {"a": "700", "b": "700", "run.json": "600"}


CHILD = """
import os, sys
from pathlib import Path
from decoders import folders
place, moment = Path(sys.argv[1]), sys.argv[2]
def kill(*_): os.kill(os.getpid(), 9)
if moment == "moved away":  # what was there is moved, and nothing has its place yet
    rename = Path.rename
    def then_kill(path, goal):
        rename(path, goal)
        if path == place: kill()
    Path.rename = then_kill
with folders.replacing(place) as new:
    (new / "a").write_text("new")
    if moment == "writing": kill()
"""


@pytest.mark.skipif(folders.fcntl is None, reason="this system has no locks of folders")
@pytest.mark.parametrize("moment", ["writing", "moved away"])
def test_what_a_killed_process_left_is_undone_by_the_next(tmp_path: Path, moment: str) -> None:
    place = tmp_path / "site"
    place.mkdir()
    (place / "a").write_text("first")
    command = [sys.executable, "-c", CHILD, str(place), moment]
    assert subprocess.run(command, cwd=Path(__file__).parents[1], check=False).returncode == -9
    assert len(list(tmp_path.iterdir())) == 2
    with replacing(place) as new:
        assert (place / "a").read_text() == "first"
        assert {path.name for path in tmp_path.iterdir()} == {"site", new.name}
        with replacing(place) as other:  # another one at the same time is no leftover
            (other / "a").write_text("second")
        (new / "a").write_text("third")
    assert (place / "a").read_text() == "third" and [path.name for path in tmp_path.iterdir()] == ["site"]
