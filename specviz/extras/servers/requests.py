"""Ground of the plug-ins of servers: the environment that they obey, and the requests that they record."""

from __future__ import annotations

import contextlib
import logging
import os
from collections.abc import Callable, Sequence
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

from .recorder import TOP, RequestRecording, ServerRecorder

log = logging.getLogger("specviz.recorder")

FOLDER, RECORD_ALL, RECORD_REQUEST = "SPECVIZ_RECORD", "SPECVIZ_RECORD_ALL", "specviz"
CHOICES, MOST_CHOICES = "SPECVIZ_RECORD_TOP", 64


def start(install: Callable[[Path, bool], None]) -> None:
    """Call ``install`` with the folder that the environment names, where it names one, and whether every request is
    recorded. Never raises.
    """
    folder = os.environ.get(FOLDER)
    if not folder:
        return
    try:
        place = Path(folder).expanduser()
        place.mkdir(parents=True, exist_ok=True)
        if not os.access(place, os.W_OK):
            raise PermissionError(f"{place} cannot be written")
        install(place, bool(os.environ.get(RECORD_ALL)))
    except Exception as error:  # whatever it is, the server starts
        log.error("specviz records nothing: %s", error)


def model_name(name: str) -> str:
    """A model's id, or the name of its folder: a trace tells nothing of the server's disk."""
    return Path(name).name if Path(name).is_dir() else name


def with_version(server: str, *packages: str) -> str:
    """A server's name with the version of the first of its packages that is installed."""
    for package in packages:
        with contextlib.suppress(PackageNotFoundError):
            return f"{server} {version(package)}"
    return server


def choices_per_row() -> int:
    """Number of the target's first choices recorded per row, as the environment says. Raises ValueError."""
    text = os.environ.get(CHOICES) or str(TOP)
    if not text.isdecimal() or not 1 <= int(text) <= MOST_CHOICES:
        raise ValueError(f"{CHOICES} is {text[:40]!r}: a whole number from 1 to {MOST_CHOICES} is allowed")
    return int(text)


class Requests:
    """The requests of one process of a server, of which ``choices`` first choices of the target are recorded per row.
    ``about`` is what every recording says of the server.
    """

    def __init__(self, folder: Path, all_requests: bool) -> None:
        self.folder, self.record_all, self.choices = folder, all_requests, choices_per_row()
        self.recorder: ServerRecorder | None = None
        self.about: dict[str, Any] = {}
        self.skipped_ids: set[str] = set()  # requests that are not recorded
        self.failed = False

    def find_or_begin(self, key: str, begin: Callable[[], RequestRecording | None]) -> RequestRecording | None:
        """The recording of a request: the running one, or what ``begin`` makes; None where that is None, or too many
        run.
        """
        assert self.recorder is not None
        if (recording := self.recorder.running.get(key)) is not None:
            return recording
        if key in self.skipped_ids:
            return None
        new = begin()
        if new is None or not self.recorder.begin(new):
            self.skipped_ids.add(key)
            return None
        return new

    def asks(self, settings: Any) -> bool:
        """True where every request is recorded, or these settings of a request ask for it."""
        return bool(self.record_all or (settings or {}).get(RECORD_REQUEST))

    def end(self, keys: Sequence[str]) -> None:
        """Requests that the server is done with."""
        self.skipped_ids.difference_update(keys)
        if self.recorder is not None:
            self.recorder.end(keys)

    def quiet(self, work: Callable[[], Any]) -> Any:
        """Result of ``work``, of which the server must not notice anything: at the first fault, which is said, what
        runs is written as far as it goes, and from then on nothing is recorded, and this gives None.
        """
        if self.failed:
            return None
        try:
            return work()
        except Exception as error:
            self.failed = True
            log.exception("specviz stops recording: %s: %s", type(error).__name__, error)
            if self.recorder is not None:
                self.recorder.end(list(self.recorder.running))
            return None
