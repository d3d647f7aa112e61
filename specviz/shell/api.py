"""The named endpoints for programs: ``run``, ``methods`` and ``trace_summary``. They trust none of their arguments."""

from __future__ import annotations

import asyncio
from functools import partial
from typing import Any

from decoders.names import QUICK
from decoders.trace.trace import Trace
from specviz.server.desk import Desk
from specviz.server.forms import PromptForm, Refusal
from specviz.server.http import owner_of
from specviz.server.limits import caller
from specviz.server.store import UnknownTrace, summary

from .toolkit import events, gr


def build(desk: Desk) -> None:
    """Register the endpoints; errors come back as {"error": sentence}."""

    async def run(
        prompt: str,
        method: str = QUICK,
        params: dict | None = None,
        settings: dict | None = None,
        chat: bool = True,
        request: gr.Request | None = None,
    ) -> dict[str, Any]:
        """Decode a prompt with a method; the answer has the run's id, its text and its metrics."""
        form = PromptForm("chat" if chat is True else "text", text=prompt if isinstance(prompt, str) else "")
        owner_id = owner_of(request.request) if request is not None and request.request is not None else ""
        if desk.rules.is_shared and request is not None and request.client is not None:  # not the context of its sender
            caller.set(owner_id if desk.rules.accounts else request.client.host)
        try:
            start = partial(desk.submit, form, str(method), params or {}, settings or {}, owner=owner_id)
            job = await asyncio.to_thread(start)
        except Refusal as problem:
            return {"error": str(problem)}
        await desk.runner.over(job)
        if job.id not in desk.store:
            return {"error": job.error}
        return {**_describe(desk.store.get(job.id)), **({"error": job.error} if job.error else {})}

    def methods() -> list[dict[str, Any]]:
        """The methods with their parameters; "missing" says why one cannot run here."""
        return desk.catalog()["methods"]

    def trace_summary(trace_id: str) -> dict[str, Any]:
        """Method, metrics and text of a recorded run."""
        try:
            return _describe(desk.trace(trace_id))
        except UnknownTrace as problem:
            return {"error": str(problem)}

    events.api(run, api_name="run", concurrency_limit=8)
    events.api(methods, api_name="methods")
    events.api(trace_summary, api_name="trace_summary")


def _describe(trace: Trace) -> dict[str, Any]:
    return {**summary(trace), "text": trace.text(trace.output_ids), "metrics": trace.run.get("metrics", {})}
