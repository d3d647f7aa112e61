"""Compiled parts: a child process makes them in the background, they are kept on disk, and open in milliseconds.

A part is some function of tensors, compiled ahead of time (torch.export, inductor) for this processor and this torch;
weights are its arguments, so that it serves every model of the same sizes. The child computes on one thread; unless
somebody waits for it, it works while nothing runs, at the lowest priority: where a run begins it ends, and the part is
begun anew later. It also ends when it is cancelled, or whoever started it ends, however that ends.
"""

from __future__ import annotations

import ast
import atexit
import contextlib
import functools
import hashlib
import importlib
import json
import logging
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import torch

from decoders.folders import cache_folder, write_bytes, write_json
from decoders.model.engines.machine import compiler, machine

log = logging.getLogger(__name__)

ROOT = Path(__file__).resolve().parents[3]  # of the package `decoders`
FOLDER = "compiled"  # in the cache folder
PROBES = "probes"  # within it: what inductor compiles to learn what this processor and compiler can do, 10 s of a part
LOW = 19  # what is added to a child's niceness in the background, where it cannot be told to use idle time alone
REST_S = 5.0  # nothing ran for so long: compiling begins
LOOK_S = 0.2  # between two looks at whether anything runs
POSIX = os.name == "posix"
FORM = 1  # of the packages: counted up where they are made in another way
NO_COMPILER = "no C++ compiler was found (g++, clang++, or the one that CXX names): forwards run eagerly"


@dataclass(frozen=True)
class CompiledPart:
    """A compilation: ``maker`` is a module of this package with ``build(shape, package)``; ``shape`` is JSON."""

    maker: str
    shape: str

    @classmethod
    def of(cls, maker: str, shape: dict[str, Any]) -> CompiledPart:
        return cls(maker, json.dumps(shape, sort_keys=True))

    @cached_property
    def package(self) -> Path:
        """The package's path; another processor, torch or maker (with what it imports of this package) has another."""
        identity = [str(FORM), machine(), self.maker, self.shape, *_texts(self.maker)]
        name = hashlib.sha256("\n".join(identity).encode()).hexdigest()[:20]
        return cache_folder() / FOLDER / f"{name}.pt2"

    def load(self) -> Any:
        """The package, open."""
        return OpenPart(self.package)


@functools.cache
def _texts(module: str, root: Path = ROOT) -> tuple[str, ...]:
    """Texts of a module's file and of those of the same package under ``root`` that it imports, at any depth."""
    texts, waiting = dict[Path, str](), [root.joinpath(*module.split(".")).with_suffix(".py")]
    while waiting:
        file = waiting.pop()
        if file in texts or not file.is_file():  # a name in a module, or another package
            continue
        texts[file] = file.read_text(encoding="utf-8")
        for node in ast.walk(ast.parse(texts[file])):
            names = [alias.name for alias in node.names] if isinstance(node, ast.Import | ast.ImportFrom) else []
            if isinstance(node, ast.ImportFrom):
                parent_folder = file.parents[node.level - 1] if node.level else root
                base = parent_folder.joinpath(*(node.module or "").split("."))
                waiting += [base.with_suffix(".py"), *(base / f"{name}.py" for name in names)]
            else:
                waiting += [root.joinpath(*name.split(".")).with_suffix(".py") for name in names]
    return tuple(texts[file] for file in sorted(texts))


class _MadeWay(Exception):
    """A child was ended, as a run began: its part is begun anew."""


class OpenPart:
    """A compiled part, open: ``run`` takes its tensors as one flat list and returns a list."""

    def __init__(self, package: Path) -> None:
        from torch._C._aoti import AOTIModelPackageLoader  # what torch._inductor.aoti_load_package wraps

        self._loader = AOTIModelPackageLoader(str(package), "model", False, 1, -1)
        self.run: Callable[[list[torch.Tensor]], list[torch.Tensor]] = self._loader.run


class Workshop:
    """All compiled parts of this process; one child at a time makes what is missing, in the order it was asked for.

    A package is looked for once, until it is made here: so all runs of a command run alike.
    """

    def __init__(self) -> None:
        self.open_parts: dict[Path, Any] = {}
        self.failed: dict[Path, str] = {}  # why a part cannot be had, in one sentence
        self.condition = threading.Condition()
        self._absent = set[Path]()
        self._waiting: list[CompiledPart] = []
        self._busy: Callable[[], bool] | None = None  # whether anything runs
        self._urgent = False  # somebody waits
        self._cancel_count = 0  # how often
        self._child: subprocess.Popen[bytes] | None = None
        self._thread: threading.Thread | None = None

    def open(self, part: CompiledPart) -> Any:
        """The part, if it is there. A package that cannot be opened is removed: it is made anew when asked for."""
        package = part.package
        if package in self.open_parts:
            return self.open_parts[package]
        if package in self._absent or package in self.failed or not package.is_file():
            self._absent.add(package)
            return None
        try:
            self.open_parts[package] = part.load()
        except Exception as error:
            log.info("%s cannot be opened (%s): it is made anew", package.name, type(error).__name__)
            package.unlink(missing_ok=True)
        return self.open_parts.get(package)

    def make(self, parts: Iterable[CompiledPart], busy: Callable[[], bool] | None = None) -> None:
        """Have the missing ones of these parts made, by a thread: with ``busy`` in the background, while that is False,
        at the lowest priority; without it, somebody waits.
        """
        with self.condition:
            self._urgent |= busy is None
            self._busy = busy or self._busy
            for part in parts:
                self._absent.discard(part.package)
                missing = part not in self._waiting and part.package not in self.failed and not part.package.is_file()
                if missing and compiler() is None:
                    self.failed[part.package] = NO_COMPILER
                elif missing:
                    self._waiting.append(part)
            if self._waiting and self._thread is None:
                self._thread = threading.Thread(target=self._work, name="compiling", daemon=True)
                self._thread.start()

    def wait(self, parts: Iterable[CompiledPart], cancel: threading.Event | None = None) -> bool:
        """Until these parts were made or failed, or ``cancel`` is set; whether all are there."""
        requested_parts = list(parts)
        with self.condition:
            while any(part in self._waiting for part in requested_parts):
                self.condition.wait(0.1)
                if cancel is not None and cancel.is_set():
                    break
        return all(self.open(part) is not None for part in requested_parts)

    def cancel(self) -> None:
        """Make nothing more; a child at work ends now. What is made stays."""
        with self.condition:
            self._waiting.clear()
            self._cancel_count += 1
            child = self._child
        if child is not None:
            _end(child)

    def _makes_way(self) -> bool:
        """True while something runs for which compiling makes way."""
        return not self._urgent and self._busy is not None and self._busy()

    def why_not(self, parts: Iterable[CompiledPart]) -> str | None:
        """The reason why one of these cannot be had, in one sentence; None where nothing failed."""
        return next((self.failed[part.package] for part in parts if part.package in self.failed), None)

    def _work(self) -> None:
        while True:
            with self.condition:
                if not self._waiting:
                    self._thread = None
                    self.condition.notify_all()
                    return
                part, cancel_count = self._waiting[0], self._cancel_count
            try:
                problem = self._make(part)
            except _MadeWay:
                continue
            with self.condition:
                if cancel_count == self._cancel_count:  # else it may be asked for again
                    self._waiting.remove(part)
                    if problem:
                        self.failed[part.package] = problem
                        log.warning("%s", problem)
                self.condition.notify_all()

    def _make(self, part: CompiledPart) -> str | None:
        """Have a child make a part: None, or what went wrong."""
        try:
            part.package.parent.mkdir(parents=True, exist_ok=True)
            with tempfile.TemporaryDirectory(prefix="specviz-compiling-", ignore_cleanup_errors=True) as scratch:
                partial, probes = Path(scratch) / part.package.name, part.package.parent / PROBES
                if probes.is_dir():
                    shutil.copytree(probes, scratch, dirs_exist_ok=True)
                with self.condition:
                    quiet_since = time.monotonic()
                    while part in self._waiting and not self._urgent:
                        if self._makes_way():
                            quiet_since = time.monotonic()
                        elif time.monotonic() >= quiet_since + REST_S:
                            break
                        self.condition.wait(LOOK_S)
                    if part not in self._waiting:
                        return None
                    nice = 0 if self._urgent else LOW
                    job = {"nice": nice, "maker": part.maker, "shape": json.loads(part.shape), "package": str(partial)}
                    self._child = child = _child(_command(json.dumps(job)), scratch)
                try:
                    assert child.stdout is not None
                    while child.poll() is None:
                        if self._makes_way():
                            raise _MadeWay
                        with contextlib.suppress(subprocess.TimeoutExpired):
                            child.wait(LOOK_S)
                    message = child.stdout.read().decode(errors="replace").strip()
                except (OSError, ValueError):  # it was ended
                    message = ""
                finally:
                    _end(child)
                    self._child = None
                if not partial.is_file() or message != "made":
                    reason = message.splitlines()[-1][:200] if message else "the compiler was ended"
                    return f"compiling failed ({reason}): forwards run eagerly"
                near = part.package.with_name(f".{part.package.name}.{os.getpid()}")
                shutil.move(partial, near)
                near.replace(part.package)
                self._absent.discard(part.package)
                _keep_probes(Path(scratch), probes)
                about = {"torch": torch.__version__, "maker": part.maker, "shape": json.loads(part.shape)}
                write_json(part.package.with_suffix(".json"), about)
                _remove_stale(part.package.parent)
        except OSError as error:
            return f"compiling failed ({error}): forwards run eagerly"
        return None


def _keep_probes(scratch: Path, probes: Path) -> None:
    """Keep the probes of a child for the next ones: small libraries, each named by its code, compiler and flags."""
    for library in scratch.glob("??/*.so"):
        place = probes / library.relative_to(scratch)
        if not place.exists():
            place.parent.mkdir(parents=True, exist_ok=True)
            write_bytes(place, library.read_bytes())


def _remove_stale(folder: Path) -> None:
    """Remove packages that another version of torch made: this one never opens them."""
    for about in folder.glob("*.json"):
        with contextlib.suppress(OSError, ValueError, KeyError, TypeError):
            if json.loads(about.read_text(encoding="utf-8"))["torch"] != torch.__version__:
                for suffix in (".pt2", ".so"):
                    about.with_suffix(suffix).unlink(missing_ok=True)
                about.unlink(missing_ok=True)


def _command(job: str) -> list[str]:
    """Command line of the child that does a job."""
    return [sys.executable, "-m", __name__, job]


def _child(run: Sequence[str], scratch: str) -> subprocess.Popen[bytes]:
    """A child that runs a command, in a process group of its own with all that it starts, and ends where its stdin
    does. It stays in this session: Linux may share out time by session first, and priority counts within one.
    """
    paths = os.pathsep.join([str(ROOT), *filter(None, [os.environ.get("PYTHONPATH")])])
    extra_env = {"TORCHINDUCTOR_CACHE_DIR": scratch, "TORCHINDUCTOR_COMPILE_THREADS": "1", "OMP_NUM_THREADS": "1"}
    return subprocess.Popen(
        run, env={**os.environ, **extra_env, "PYTHONPATH": paths}, stdin=subprocess.PIPE, stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL, process_group=0 if POSIX else None,
    )  # fmt: skip


def _end(child: subprocess.Popen[bytes]) -> None:
    """End a child with all that it started."""
    assert child.stdin is not None and child.stdout is not None
    if child.poll() is None:
        with contextlib.suppress(OSError):
            os.killpg(child.pid, signal.SIGKILL) if POSIX else child.kill()
        child.wait()
    for pipe in (child.stdin, child.stdout):
        with contextlib.suppress(OSError):
            pipe.close()


WORKSHOP = Workshop()
atexit.register(WORKSHOP.cancel)


def _end_with_stdin() -> None:
    """End this process, and all that it started, where its stdin ends: whoever started it is gone."""
    sys.stdin.read()
    if POSIX:
        os.killpg(0, signal.SIGKILL)
    os._exit(1)


def main() -> None:
    """The child: makes what the job on its command line says; prints "made", or what went wrong."""
    job = json.loads(sys.argv[1])
    with contextlib.suppress(AttributeError, OSError):  # not on every system
        os.nice(job["nice"])
        if job["nice"]:
            os.sched_setscheduler(0, os.SCHED_IDLE, os.sched_param(0))
    threading.Thread(target=_end_with_stdin, name="end with whoever started this", daemon=True).start()
    telling, sys.stdout = sys.stdout, sys.stderr  # what the compiler prints is nobody's answer
    torch.set_num_threads(1)
    try:
        importlib.import_module(job["maker"]).build(job["shape"], job["package"])
        message = "made"
    except Exception as error:
        message = f"{type(error).__name__}: {str(error).strip().splitlines()[0] if str(error).strip() else ''}"
    print(message, file=telling, flush=True)


if __name__ == "__main__":
    main()
