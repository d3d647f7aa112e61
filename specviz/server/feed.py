"""Live events of a run: numbered, kept for a while, read by any number of watchers."""

from __future__ import annotations

import asyncio
import contextlib
import json
import threading
from collections import deque
from collections.abc import AsyncGenerator, Mapping
from typing import Any

FEED_BYTES = 8 << 20  # kept per running run; whoever falls further behind fetches the whole trace again


class EventFeed:
    """Numbered events of one run: kept for a while, read by any number of watchers at their own pace.

    A watcher is only a position in the list, so a slow or a vanished one costs nothing.

    >>> feed = EventFeed()
    >>> feed.publish({"state": "running"})
    0
    >>> feed.events_after(-1)
    (['{"seq":0,"state":"running"}'], 0)
    """

    def __init__(self, max_bytes: int = FEED_BYTES) -> None:
        self.max_bytes = max_bytes
        self.seq = -1
        self.closed = False
        self._events: deque[tuple[int, str]] = deque()
        self._size = 0
        self._lock = threading.Lock()
        self._wakers: set[tuple[asyncio.AbstractEventLoop, asyncio.Event]] = set()

    def publish(self, event: Mapping[str, Any], *, last: bool = False) -> int:
        """Add an event; returns its number."""
        with self._lock:
            self.seq += 1
            text = json.dumps({"seq": self.seq, **event}, separators=(",", ":"), ensure_ascii=False)
            self._events.append((self.seq, text))
            self._size += len(text)
            while len(self._events) > 1 and self._size > self.max_bytes:
                self._size -= len(self._events.popleft()[1])
            self.closed = self.closed or last
            wakers = list(self._wakers)
        for loop, event_ in wakers:
            with contextlib.suppress(RuntimeError):  # the loop is closed: the server is going down
                loop.call_soon_threadsafe(event_.set)
        return self.seq

    def events_after(self, seq: int) -> tuple[list[str] | None, int]:
        """Events numbered above ``seq`` and the last number; None for the events where some were dropped already."""
        with self._lock:
            if self._events and seq + 1 < self._events[0][0]:
                return None, self.seq
            return [text for number, text in self._events if number > seq], self.seq

    @property
    def watchers(self) -> int:
        return len(self._wakers)

    async def watch(self, sequence_number: int = -1, *, heartbeat_s: float = 15.0) -> AsyncGenerator[str | None, None]:
        """Events as they come, until the run is over; None every ``heartbeat_s`` in which nothing happens."""
        waker = (asyncio.get_running_loop(), asyncio.Event())
        self._wakers.add(waker)
        try:
            while True:
                waker[1].clear()
                closed = self.closed
                events, last = self.events_after(sequence_number)
                if events is None:  # fell behind
                    yield json.dumps({"seq": last, "reload": True})
                    events = []
                for text in events:
                    yield text
                sequence_number = last
                if closed:
                    return
                try:
                    await asyncio.wait_for(waker[1].wait(), heartbeat_s)
                except TimeoutError:
                    yield None
        finally:
            self._wakers.discard(waker)
