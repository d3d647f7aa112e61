"""The page "Inspect": a prompt, a method, and what it did, step by step."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

from pydantic import Field

from decoders.prompt.templates import templates
from specviz.server.backend_host import method_state
from specviz.server.bodies import Body, needs
from specviz.server.desk import Service, get, post
from specviz.server.forms import Refusal, TypedPrompt
from specviz.server.http import Owner
from specviz.shell.toolkit import upload_folder
from specviz.views.examples import listed_examples

from . import again


class EmptyRequest(Body):
    """The method whose kept state is dropped."""

    method: Annotated[str, Field(max_length=60), needs("the method to empty is named by a text; given was {given}")]


class Upload(Body):
    """A file that Gradio has taken: the path that it answered with."""

    path: Annotated[str, Field(max_length=1000)]


class Inspect(Service):
    """Its form is drawn in the browser; here are what the form offers, counts and reads, and what methods keep."""

    name, title, order, module = "inspect", "Inspect", 10, "prompt/page"

    @get("form")
    def offer(self) -> dict[str, Any]:
        """Content of the prompt's form: the examples for the model in use, and the templates of datasets."""
        examples = [
            {"id": example.record.id, "label": example.label, "note": example.note, "prompt": example.prompt}
            for example in listed_examples(self.desk.toy)
        ]
        named = [{"name": name, "title": entry.title, "text": entry.text} for name, entry in templates().items()]
        return {"examples": examples, "templates": named}

    @get("prompt")
    def prompt(self, run: str) -> dict[str, Any]:
        """A run's prompt as it would be typed, of one that goes on too, and a note on what a form cannot hold."""
        job = self.desk.runner.job(run)
        trace = (job.so_far() if job is not None else None) or self.desk.trace(run)
        return {"prompt": again.form_of(trace).to_json(), "note": again.missing_note(trace)}

    @post("count")
    def count(self, prompt: TypedPrompt) -> dict[str, Any]:
        """{"text", "error"}: the prompt's number of tokens, or why it cannot be run."""
        try:
            return {"text": self.desk.count(prompt.form()), "error": False}
        except Refusal as problem:
            return {"text": str(problem), "error": True}

    @post("open")
    def open(self, request: Upload, owner: Owner) -> dict[str, Any]:
        """Puts an uploaded file among the user's runs: {"id"}. Raises Refusal for what is no upload, or no run."""
        try:
            path = Path(request.path).resolve()
            is_upload = path.is_relative_to(upload_folder().resolve()) and path.is_file()
        except (ValueError, OSError):  # a name that no file can have
            is_upload = False
        if not is_upload:
            raise Refusal("file", "No file came through: choose one again.")
        return {"id": self.desk.open_file(path, owner=owner)}

    @get("kept")
    def method_state(self, owner: Owner) -> dict[str, Any]:
        """By method, how much it keeps of the user's runs with the model in use: {"count", "unit", "runs"}."""
        return self.desk.kept_at(owner, method_state, {"owner": owner})

    @post("empty")
    def empty(self, request: EmptyRequest, owner: Owner) -> list[str]:
        """Drop what a method keeps of the user's runs with the model in use; a run under way ends with what it had."""
        self.desk.target()
        return self.desk.kept_at(owner, method_state, {"owner": owner, "empty": request.method}).get("dropped", [])
