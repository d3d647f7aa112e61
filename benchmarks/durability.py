"""Servers and trainings that are killed: ``python -m benchmarks.durability --kills 50``.

The app is started as a user would, on one folder again and again. A run, a comparison of three methods, or an
experiment begins, its events are followed as a page follows them, and at a random moment the server is killed (SIGKILL)
and started anew: every step that a page was told of must be in the runs that the next server lists, and every finished
run of an experiment among its results. A training is killed and asked for again: it goes on at a checkpoint, and its
log has no step twice. The table counts what was told and what was lost; the exit code is 1 where anything was.
"""

from __future__ import annotations

import contextlib
import http.client
import json
import os
import random
import re
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Generator, Iterable
from dataclasses import dataclass, field
from functools import partial
from itertools import pairwise
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table

from benchmarks import parser_of
from benchmarks.load import ROOT, start
from tests.waiting import until

LANES = ("pld", "pld+h", "adapld")
SWEEP = {"free": {"methods": ["pld"], "vary": [{"param": "k", "values": "2, 4, 6, 8, 10, 12"}]}, "prompts": "examples"}


@dataclass
class Kill:
    """The cost of a kill: steps (of trainings: optimizer steps) that were told, and those that are gone."""

    kind: str
    told: int = 0
    lost: int = 0
    more: int = 0
    faults: list[str] = field(default_factory=list)


class Server:
    """The app in a process of its own."""

    def __init__(self, folder: Path, *how: str) -> None:
        self.process, self.port = start(str(folder), *how)
        self.cookie = ""
        until(self._ready, "the model is ready")

    def _ready(self) -> bool:
        try:
            return self.json("GET", "/api/status")["model"]["state"] == "ready"
        except ConnectionRefusedError:  # it tells its address a moment before it answers there
            return False

    def answer(self, method: str, path: str, body: Any = None) -> tuple[http.client.HTTPConnection, Any]:
        link = http.client.HTTPConnection("127.0.0.1", self.port, timeout=90)
        headers = {"cookie": self.cookie, "accept-encoding": "identity", "content-type": "application/json"}
        link.request(method, path, None if body is None else json.dumps(body), headers)
        answer = link.getresponse()
        if cookie := re.search(r"specviz_browser=\w+", answer.headers.get("set-cookie") or ""):
            self.cookie = cookie[0]
        return link, answer

    def json(self, method: str, path: str, body: Any = None) -> Any:
        link, answer = self.answer(method, path, body)
        with contextlib.closing(link):
            return json.loads(answer.read())

    def steps(self, key: str, seen: list[int]) -> None:
        """Adds to ``seen`` every step of a run that a page is told of, until the server is gone."""
        with contextlib.suppress(OSError, http.client.HTTPException, ValueError):
            link, answer = self.answer("GET", f"/api/live/{key}?after=-1")
            with contextlib.closing(link):
                while line := answer.readline():
                    if line.startswith(b"data: ") and line.endswith(b"\n"):
                        delta = json.loads(line[6:]).get("delta", {})
                        seen.extend(range(len(delta.get("steps", {}).get("context", ()))))

    def kill(self) -> None:
        self.process.kill()
        self.process.wait()
        if self.process.stdout:
            self.process.stdout.close()


def runs(server: Server, kind: str, chance: random.Random, kill: Kill) -> Generator[None, Server, None]:
    """A run alone, or beside two others: begun, killed at the yield, and looked for in the next server."""
    lanes = LANES[: 3 if kind == "comparison" else 1]
    recorded = max(server.json("GET", "/api/runs")["runs"], key=lambda run: run.get("tokens") or 0)
    asked = {
        "prompt": {"trace": recorded["id"]},
        "lanes": [{"method": name, "params": {}} for name in lanes],
        "settings": {"max_new_tokens": 512, "temperature": 0.8, "seed": chance.randrange(1000)},
    }
    keys = [lane["id"] for lane in server.json("POST", "/api/compare/start", asked)["lanes"]]
    seen: dict[str, list[int]] = {key: [] for key in keys}
    watching = [threading.Thread(target=server.steps, args=item, daemon=True) for item in seen.items()]
    for thread in watching:
        thread.start()
    until(lambda: any(seen.values()), "the first step")
    time.sleep(chance.uniform(0, 2.5 if kind == "comparison" else 1.0))
    after = yield
    for thread in watching:
        thread.join()
    for key, told in seen.items():
        kill.told += len(told)
        trace = _keep(after, key) if told else None
        have = len(trace["steps"]["context"]) if trace else 0
        kill.lost += max(0, len(told) - have)
        kill.more += max(0, have - len(told))


def _keep(server: Server, key: str) -> Any:
    until(lambda: any(run["id"] == key for run in server.json("GET", "/api/runs")["runs"]), f"run {key} is listed")
    return server.json("GET", f"/api/traces/{key}")


def experiment(server: Server, chance: random.Random, kill: Kill) -> Generator[None, Server, None]:
    """An experiment: its rows are runs that are over; the run that was under way is recovered like any other."""
    key = server.json("POST", "/api/lab/start", {**SWEEP, "count": 6, "max_new_tokens": 48, "yes": True})["id"]
    path = f"/api/lab/results/{key}"
    until(lambda: server.json("GET", path)["rows"] > 0, "the first row")
    end = time.monotonic() + chance.uniform(0, 4)
    told = 0
    while time.monotonic() < end:
        told = server.json("GET", path)["rows"]
        time.sleep(0.02)
    after = yield
    shown = after.json("GET", path)
    kill.told, kill.lost, kill.more = told, max(0, told - shown["rows"]), max(0, shown["rows"] - told)
    rows = after.json("GET", f"{path}/download?format=json")
    rows = rows["rows"] if isinstance(rows, dict) else rows
    for row in rows:
        if row["trace"] and "error" in after.json("GET", f"/api/traces/{row['trace']}"):
            kill.faults.append(f"the run {row['trace']} of a row is gone")


TRAINING = """
import sys
from pathlib import Path
from tests.models import network, write_text
from specviz.extras.training.tests.training import source_for, train_kind
folder, out, steps = Path(sys.argv[1]), Path(sys.argv[2]), int(sys.argv[3])
folder.mkdir(parents=True, exist_ok=True)
def told(now):
    print('step', now.step, flush=True)
train_kind("drafter", out, network("llama"), source_for("drafter", write_text(folder)), steps=steps, progress=told,
           checkpoint_minutes=0.005)
"""
STEPS = 900  # of the training that is killed again and again


def train(folder: Path, out: Path, steps: int = STEPS) -> subprocess.Popen[str]:
    """A small training in a process of its own; it prints its steps."""
    command = [sys.executable, "-c", TRAINING, str(folder / "data"), str(out), str(steps)]
    home = {**os.environ, "SPECVIZ_HOME": str(out), "OMP_NUM_THREADS": "1"}
    return subprocess.Popen(command, cwd=ROOT, env=home, stdout=subprocess.PIPE, text=True)


def training(folder: Path, chance: random.Random, kill: Kill) -> None:
    """A training that is killed and asked for again goes on at a checkpoint of at most some seconds ago."""
    out = folder / "training"
    saved = _last_checkpoint(out)
    with train(folder, out) as process:
        assert process.stdout is not None
        try:
            first = _step(process.stdout)
            if first != saved + 1 and saved < STEPS:
                kill.faults.append(f"it went on at step {first}, and its checkpoint was of step {saved}")
            end = time.monotonic() + chance.uniform(0, 3)
            while time.monotonic() < end and _step(process.stdout) >= 0:
                kill.told += 1
            kept = _last_checkpoint(out)
        finally:
            process.kill()
    kill.lost = max(0, kept - _last_checkpoint(out))
    steps = [json.loads(line)["step"] for line in (out / "log.jsonl").read_text().splitlines() if line.endswith("}")]
    if any(b <= a for a, b in pairwise(steps)):
        kill.faults.append("its log has a step twice")


def _step(lines: Iterable[str]) -> int:
    """The next step that is printed, -1 where the process ended."""
    return next((int(line.split()[1]) for line in lines if line.startswith("step ")), -1)


def _last_checkpoint(out: Path) -> int:
    """The step of the last checkpoint."""
    import torch

    file = out / "checkpoint.pt"
    return int(torch.load(file, weights_only=True, map_location="cpu")["step"]) if file.exists() else 0


def whole(folder: Path) -> str:
    """The fault of the killed training's part, beside one that was never killed; "" where there is none."""
    parts = []
    for out in (folder / "training", folder / "undisturbed"):
        with train(folder, out) as process:
            process.communicate()
        files = sorted((out / "part").glob("*.safetensors"))
        parts.append([file.read_bytes() for file in files])
    return "" if parts[0] and parts[0] == parts[1] else "the training that was killed gave another part"


KINDS = ("run", "comparison", "experiment", "training")


def main(argv: list[str] | None = None) -> int:
    parser = parser_of("durability", __doc__)
    parser.add_argument("--kills", type=int, default=50, help="how often something is killed (default: 50)")
    parser.add_argument("--seed", type=int, default=0, help="of the moments (default: 0)")
    options = parser.parse_args(argv)
    chance = random.Random(options.seed)
    kills: list[Kill] = []
    with tempfile.TemporaryDirectory(prefix="specviz-kills-") as name:
        folder = Path(name)
        server = Server(folder / "home")
        try:
            for number in range(options.kills):
                kill = Kill(KINDS[number % len(KINDS)])
                kills.append(kill)
                if kill.kind == "training":
                    training(folder, chance, kill)
                else:
                    scene = experiment if kill.kind == "experiment" else partial(runs, kind=kill.kind)
                    steps = scene(server, chance=chance, kill=kill)
                    next(steps)
                    server.kill()
                    server = Server(folder / "home")
                    with contextlib.suppress(StopIteration):
                        steps.send(server)
                print(f"{number + 1:>3}  {kill}", flush=True)
        finally:
            server.kill()
        fault = whole(folder) if any(kill.kind == "training" for kill in kills) else ""
    return tell(kills, fault)


def tell(kills: list[Kill], fault: str = "") -> int:
    """The table; 1 where something was lost."""
    table = Table("what was killed", "kills", "steps or rows told", "lost", "kept though not told", "faults")
    for kind in KINDS:
        those = [kill for kill in kills if kill.kind == kind]
        counts = [sum(getattr(kill, name) for kill in those) for name in ("told", "lost", "more")]
        table.add_row(kind, str(len(those)), *map(str, counts), str(sum(len(kill.faults) for kill in those)))
    Console().print(table)
    faults = [text for kill in kills for text in kill.faults] + [fault] * bool(fault)
    for text in faults:
        print(text)
    return int(bool(faults) or any(kill.lost for kill in kills))


if __name__ == "__main__":
    sys.exit(main())
