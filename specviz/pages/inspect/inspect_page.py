"""The page "Inspect": a prompt, a method, and what it did, step by step."""

from __future__ import annotations

from typing import Annotated, Any

from pydantic import Field

from specviz.server.backend_host import method_state
from specviz.server.bodies import Body, needs
from specviz.server.desk import Service, get, post
from specviz.server.http import Owner

from .form import build


class EmptyRequest(Body):
    """The method whose kept state is dropped."""

    method: Annotated[str, Field(max_length=60), needs("the method to empty is named by a text; given was {given}")]


class Inspect(Service):
    """Its form asks the desk; of its own it tells what the methods keep of the asking user's runs, and empties it."""

    name, title, order = "inspect", "Inspect", 10
    form = staticmethod(build)

    @get("kept")
    def method_state(self, owner: Owner) -> dict[str, Any]:
        """By method, how much it keeps of the user's runs with the model in use: {"count", "unit", "runs"}."""
        return self.desk.kept_at(owner, method_state, {"owner": owner})

    @post("empty")
    def empty(self, request: EmptyRequest, owner: Owner) -> list[str]:
        """Drop what a method keeps of the user's runs with the model in use; a run under way ends with what it had."""
        self.desk.target()
        return self.desk.kept_at(owner, method_state, {"owner": owner, "empty": request.method}).get("dropped", [])
