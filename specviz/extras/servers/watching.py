"""A server's acceptance while it answers: from the recorder's folder, or from the server's Prometheus metrics."""

from __future__ import annotations

import json
import time
from collections import deque
from dataclasses import dataclass, field
from itertools import zip_longest
from pathlib import Path
from typing import Any

from decoders.errors import UserError
from decoders.folders import typed_path

from .answer import HttpAnswer, ServerFault
from .importers.prometheus import PLACE, SERVERS, samples

LIVE_FILES = "live-*.jsonl"
WINDOW = 10.0  # seconds over which tokens per second are counted
MOST_POSITIONS = 64
MOST_METRICS = 8 << 20  # bytes of an answer to GET /metrics
COUNTS = ("requests", "drafts", "drafted", "accepted", "tokens")
COUNTER, TOKENS = "spec_decode_num_", ("generation_tokens", "tokens_predicted")


@dataclass(slots=True)
class ServerAcceptance:
    """Counts since watching began (a folder) or since the server started (metrics).

    >>> seen = ServerAcceptance(drafts=4, drafted=20, accepted=6, positions=[3, 2, 1])
    >>> seen.mean_length, seen.rate, seen.by_position
    (2.5, 0.3, [0.75, 0.5, 0.25])
    """

    requests: int = 0
    drafts: int = 0
    drafted: int = 0
    accepted: int = 0
    tokens: int = 0
    positions: list[int] = field(default_factory=list)
    per_second: float | None = None

    def add(self, drafted: int, accepted: int, emitted: int) -> None:
        """Count a step."""
        self.tokens += emitted
        if drafted > 0:
            self.drafts, self.drafted, self.accepted = self.drafts + 1, self.drafted + drafted, self.accepted + accepted
            reach = min(drafted, MOST_POSITIONS)
            self.positions += [0] * (reach - len(self.positions))
            for place in range(min(accepted, reach)):
                self.positions[place] += 1

    def since(self, earlier_state: ServerAcceptance) -> ServerAcceptance:
        """Counts since ``earlier_state``.

        >>> ServerAcceptance(drafts=4, positions=[3, 1]).since(ServerAcceptance(drafts=1, positions=[1])).positions
        [2, 1]
        """
        positions = [n - m for n, m in zip_longest(self.positions, earlier_state.positions, fillvalue=0)]
        counts = {name: getattr(self, name) - getattr(earlier_state, name) for name in COUNTS}
        return ServerAcceptance(**counts, positions=positions, per_second=self.per_second)

    @property
    def mean_length(self) -> float | None:
        """1 + accepted ÷ drafts, as vLLM defines it: steps without a draft are not counted."""
        return 1 + self.accepted / self.drafts if self.drafts else None

    @property
    def rate(self) -> float | None:
        """Accepted ÷ drafted."""
        return self.accepted / self.drafted if self.drafted else None

    @property
    def by_position(self) -> list[float]:
        """Of all drafts, the share that was accepted at least that far (unconditional)."""
        return [count / self.drafts for count in self.positions] if self.drafts else []


class WatchedFolder:
    """The recorder's folder: its files of running requests, read on from where the last look ended."""

    def __init__(self, folder: Path) -> None:
        if not typed_path(folder).is_dir():
            raise UserError(f"{folder} is no folder: give the one that SPECVIZ_RECORD names, or a server's address")
        self.folder, self.totals = folder, ServerAcceptance()
        self._at: dict[Path, int] = {}
        self._requests: set[str] = set()
        self._recent: deque[tuple[float, int]] = deque()

    def look(self) -> ServerAcceptance:
        """The counts so far."""
        for path in sorted(self.folder.glob(LIVE_FILES)):
            for line in self._new(path):
                self._add(path, line)
        moment = time.time()
        while self._recent and self._recent[0][0] < moment - WINDOW:
            self._recent.popleft()
        self.totals.requests = len(self._requests)
        self.totals.per_second = sum(tokens for _, tokens in self._recent) / WINDOW
        return self.totals

    def _new(self, path: Path) -> list[bytes]:
        """Whole lines behind those of before; all of a file that began anew."""
        try:
            size = path.stat().st_size
            begin = self._at.get(path, 0)
            begin = begin if begin <= size else 0
            with open(path, "rb") as file:
                file.seek(begin)
                data = file.read(size - begin)
        except OSError:
            return []
        whole = data.rfind(b"\n") + 1
        self._at[path] = begin + whole
        return data[:whole].splitlines()

    def _add(self, path: Path, line: bytes) -> None:
        try:
            step: Any = json.loads(line)
            drafted, accepted, emitted = (int(step[name]) for name in ("drafted", "accepted", "emitted"))
            at, request = float(step["t"]), f"{path.name} {step['request']}"
        except (ValueError, KeyError, TypeError, OverflowError, RecursionError):  # of another version, or of nobody
            return
        if not 0 <= accepted <= drafted or emitted < 0:
            return
        self._requests.add(request)
        self._recent.append((at, emitted))
        self.totals.add(drafted, accepted, emitted)


class Metrics:
    """A server's ``GET /metrics``: its own counters since it started."""

    def __init__(self, address: str) -> None:
        if not address.startswith(("http://", "https://")):
            raise UserError(f"{address} is no address: give http://HOST:PORT, or a recorder's folder")
        self.address = address if address.rstrip("/").endswith("/metrics") else address.rstrip("/") + "/metrics"
        self._last: tuple[float, int] | None = None

    def look(self) -> ServerAcceptance:
        """The server's counts now. Raises UserError where it does not answer, or has no such metrics."""
        try:
            text = HttpAnswer(self.address, "GET", "", seconds=5).read(MOST_METRICS).decode("utf-8", "replace")
        except (ServerFault, ValueError) as fault:
            raise UserError(f"{fault} Are its metrics on?") from None
        acceptance = read_metrics(text)
        moment = time.monotonic()
        if self._last is not None and moment > self._last[0]:
            acceptance.per_second = (acceptance.tokens - self._last[1]) / (moment - self._last[0])
        self._last = moment, acceptance.tokens
        return acceptance


def read_metrics(text: str) -> ServerAcceptance:
    """The counters of Prometheus' text, all engines of a server together.

    Raises UserError where there are none.

    >>> read_metrics('vllm:spec_decode_num_drafts_total{engine="0"} 2.0\\nvllm:generation_tokens_total 9').drafts
    2
    """
    acceptance, positions, any_there = ServerAcceptance(), dict[int, int](), False
    for name, labels, value in samples(text.splitlines()):
        server, _, counter = name.partition(":")
        if server not in SERVERS:
            continue
        if counter in TOKENS:
            acceptance.tokens += int(value)
        elif (kind := counter.removeprefix(COUNTER)) != counter:
            any_there = True
            if PLACE.fullmatch(place := labels.get("position", "")):
                if int(place) < MOST_POSITIONS:
                    positions[int(place)] = positions.get(int(place), 0) + int(value)
            elif kind == "drafts":
                acceptance.drafts += int(value)
            elif kind == "draft_tokens":
                acceptance.drafted += int(value)
            elif kind == "accepted_tokens":
                acceptance.accepted += int(value)
    if not any_there:
        raise UserError("the server's metrics tell of no drafts: start it with speculative decoding on")
    acceptance.positions = [positions.get(place, 0) for place in range(max(positions, default=-1) + 1)]
    return acceptance
