"""Proves that annexes can be deleted: ``python .ci/without.py FOLDER`` copies the tree there without any of them, and
checks, in copies without each one, that the app answers and ``specviz --help`` lacks that annex's commands alone.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

from decoders.extra import extras, look_in

look_in("specviz")
ROOT = Path(__file__).resolve().parent.parent
ANNEXES = Path("specviz") / "extras"
PROBE = """
import sys
from fastapi.testclient import TestClient
from specviz.app import create_app, open_desk
from specviz.cli import commands_by_group
from decoders.extra import problems
desk = open_desk(read_only=True)
with TestClient(create_app(desk=desk), base_url="http://127.0.0.1") as client:
    assert client.get("/").status_code == 200 and "steps" in client.get("/api/first").text
from decoders import methods
assert "pld+h" in methods() and not problems(), problems()
sys.stdout.write(commands_by_group())
"""


def copy(place: Path, *deleted: Path) -> Path:
    """The tree in another place, without some folders; ``assets`` is a link."""
    skipped = shutil.ignore_patterns(".*", "__pycache__", "*.egg-info", "build", "dist", "assets")

    def ignored(folder: str, names: list[str]) -> set[str]:
        gone = {path.name for path in deleted if Path(folder) == ROOT / path.parent}
        return (skipped(folder, names) | gone) - ({".ci"} if Path(folder) == ROOT else set())

    shutil.copytree(ROOT, place, ignore=ignored)
    (place / "assets").symlink_to(ROOT / "assets")
    return place


def probe(place: Path) -> list[str]:
    """The lines of ``specviz --help`` in a tree, once its app has answered."""
    environment = os.environ | {"PYTHONPATH": str(place), "SPECVIZ_HOME": str(place / "home")}
    done = subprocess.run([sys.executable, "-c", PROBE], cwd=place, env=environment, capture_output=True, text=True)
    assert done.returncode == 0, f"{place.name}: {done.stderr[-4000:]}"
    return done.stdout.splitlines()


def main(folder: Path) -> None:
    annexes = {name: extra for name, extra in extras().items() if extra.package.startswith("specviz.extras.")}
    whole = probe(ROOT)
    for name in annexes:
        gone = [name, *(other for other, extra in annexes.items() if name in extra.uses)]
        place = copy(folder / f"without-{name}", *(ANNEXES / other for other in gone))
        own = {command for other in gone for command in annexes[other].commands}
        expected = [line for line in whole if not (line[:1] == " " and line.split()[0] in own)]
        said = probe(place)
        assert list(map(str.split, said)) == list(map(str.split, expected)), f"without {name}:\n" + "\n".join(said)
        shutil.rmtree(place)
        print(f"without {', '.join(gone)}: the app answers, and {len(whole) - len(said)} commands are gone")
    copy(folder / "core", *(ANNEXES / name for name in annexes))


if __name__ == "__main__":
    main(Path(sys.argv[1]).resolve())
