"""An HTTP connection that ends where a request's head does not come: uvicorn waits for it for ever."""

from __future__ import annotations

import asyncio
from typing import Any

import h11
from uvicorn.protocols.http.h11_impl import H11Protocol

HEAD_S = 20.0  # for a request's line and headers; what follows them may take its time


class Connection(H11Protocol):
    """Closed ``head_s`` after it was opened, or after a further request on it began, unless the head is there. It is
    h11's on every machine: httptools lets several Hosts and a target with a host of its own pass.
    """

    head_s = HEAD_S
    _late: asyncio.TimerHandle | None = None

    def connection_made(self, transport: Any) -> None:
        super().connection_made(transport)
        self._wait_for_head()

    def data_received(self, data: bytes) -> None:
        super().data_received(data)
        self._wait_for_head()

    def connection_lost(self, exc: Exception | None) -> None:
        self._come()
        super().connection_lost(exc)

    def _wait_for_head(self) -> None:
        if self.conn.their_state is not h11.IDLE:
            self._come()
        elif self._late is None:
            self._late = self.loop.call_later(self.head_s, self.transport.close)

    def _come(self) -> None:
        if self._late is not None:
            self._late.cancel()
            self._late = None
