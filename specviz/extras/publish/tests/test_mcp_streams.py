"""Streams of the assistants' protocol that are opened again."""

from __future__ import annotations

import asyncio
import json

from tests.fuzz import answer_to, routes_of
from tests.hostile import BEGIN, MCP_HEADERS, Request
from tests.stubs import StubDesk, annex_mounts, app_of
from tests.test_fuzz import desk  # noqa: F401


def test_an_assistants_stream_that_begins_again_is_answered(desk: StubDesk) -> None:
    """The protocol's library stores no events, and answered nothing to a client that named its last one."""
    app = app_of(desk, mounts=annex_mounts("--mcp"))
    kinds = (("host", "127.0.0.1"), ("content-type", "application/json"), *MCP_HEADERS)

    async def begin_again() -> int:
        async with app.router.lifespan_context(app):
            begun = await answer_to(app, Request("POST", "/mcp", kinds, json.dumps(BEGIN).encode()))
            session = (("mcp-session-id", begun.headers["mcp-session-id"]), ("last-event-id", "7"))
            return (await answer_to(app, Request("GET", "/mcp", (*kinds, *session), b""))).status

    assert "POST /mcp" in set(map(str, routes_of(app)))  # so the fuzz asks it
    assert asyncio.run(begin_again()) == 200
