"""Builds the wheel with what stands in ``assets``; everything else is in pyproject.toml.

In a wheel the folder is called ``specviz_assets`` and lies beside the packages (``decoders.folders.ASSETS``). All of it
goes in but the pictures of the README, and SmolLM2's trained parts as far as ``MOST`` bytes go, the smallest first;
``left-out.txt`` names the others. An editable install reads ``assets`` itself.
"""

import atexit
import shutil
import tempfile
import zlib
from pathlib import Path

from setuptools import setup
from setuptools.command.build_py import build_py

ASSETS = Path(__file__).resolve().parent / "assets"
MOST = 43_500_000  # of a wheel of 45 MB; the code takes 1 MB
OPTIONAL = ASSETS / "smollm2" / "parts"
NOT_READ = {ASSETS / "measured", ASSETS / "screenshots", ASSETS / "web" / "tsconfig.json"}


def packed_size(folder: Path) -> int:
    return sum(len(zlib.compress(path.read_bytes(), 6)) for path in folder.rglob("*") if path.is_file())


class BuildWithAssets(build_py):
    def run(self) -> None:
        super().run()
        if self.editable_mode:
            return
        place = Path(self.build_lib) / "specviz_assets"

        def not_read(folder: str, names: list[str]) -> set[str]:
            return {name for name in names if Path(folder, name) in {*NOT_READ, OPTIONAL} or name == "__pycache__"}

        shutil.copytree(ASSETS, place, ignore=not_read)
        room, left_out = MOST - packed_size(place), []
        for size, part in sorted((packed_size(part), part) for part in OPTIONAL.iterdir()):
            if size <= room:
                shutil.copytree(part, place / part.relative_to(ASSETS))
                room -= size
            else:
                left_out.append(part.relative_to(ASSETS).as_posix())
        (place / "left-out.txt").write_text("".join(f"{name}\n" for name in sorted(left_out)), "utf-8")


# a folder of its own for every build: nothing of an earlier one gets into the wheel
folder = tempfile.mkdtemp(prefix="specviz-build-")
atexit.register(shutil.rmtree, folder, ignore_errors=True)
setup(cmdclass={"build_py": BuildWithAssets}, options={"build": {"build_base": folder}})
