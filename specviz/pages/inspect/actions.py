"""Actions of the prompt's form: what its fields and buttons answer with, as Gradio sends and takes it."""

from __future__ import annotations

import dataclasses
import logging
import secrets
from collections.abc import Callable
from typing import Any, TypeVar

from decoders.prompt.templates import templates
from specviz.server.desk import Desk
from specviz.server.forms import EMPTY, PromptForm, Refusal
from specviz.server.store import UnknownTrace
from specviz.shell.parts import note, owner, payload_of, tell
from specviz.shell.toolkit import gr
from specviz.views.examples import Example, listed_examples

from . import again as recorded
from . import reference as references

log = logging.getLogger(__name__)

Result = TypeVar("Result")
FIELDS = ("mode", "instruction", "context", "question", "text", "reference")  # of a prompt's form, in their order
WHOLE = len(FIELDS) + 3  # with the example that they are of, whose the reference is, and the note on it
NO_POOL = ("", "")  # a pool's text and name
FAILED = "Something went wrong on the server; its log says what. Your input is kept."


class FormActions:
    """Answers of one form's fields and buttons; lists of results are in the order of the components that they fill."""

    def __init__(self, desk: Desk) -> None:
        self.desk = desk

    def count(self, form: PromptForm) -> str:
        """The note at the prompt: its number of tokens, or why it cannot be run."""
        try:
            return note(self.desk.count(form))
        except Refusal as problem:
            return note(str(problem), error=True)
        except Exception:
            log.exception("counting tokens failed")
            return note()

    def on_change(self, reference: references.Reference, *fields: Any) -> list[Any]:
        """The note at the prompt, the reference that it has, and the note that says which one."""
        form = _form(fields)
        run_reference = references.apply(reference, form)
        is_unchanged = run_reference.reference.strip() == form.reference.strip()
        count_note = self.count(form) if form.typed_text.strip() else note(EMPTY, error=True)
        return [
            count_note,
            gr.skip() if is_unchanged else run_reference.reference,
            note(references.describe(reference, run_reference)),
        ]

    def on_write(self, reference: references.Reference, *fields: Any) -> list[Any]:
        """The owner of the reference that stands in the form now, and the note that says so."""
        form = _form(fields)
        reference = references.claim(reference, form)
        return [reference, note(references.describe(reference, references.apply(reference, form)))]

    def offer(self, example_id: Any, *fields: Any) -> list[Any]:
        """Run (off where nothing can run), and the examples of the model in use: where those of another kind of model
        were listed, its first one takes the place of an example that nobody changed. ``changed`` follows with the
        notes: what was typed meanwhile is counted, not what stood there before.
        """
        run = gr.Button(interactive=not self.desk.catalog()["reason"])
        skips = [gr.skip()] * WHOLE
        old_example = _example_of(example_id, not self.desk.toy)
        if old_example is None or _example_of(example_id, self.desk.toy) is not None:
            return [run, gr.skip(), *skips]
        first, names = choices(self.desk)
        if not _is_same(old_example, _form(fields)):
            return [run, gr.Dropdown(names, value=None), *skips]
        return [run, gr.Dropdown(names, value=first.record.id), *self.example_fields(first)]

    def fill(self, example_id: Any) -> list[Any]:
        """A chosen example in the form, and the notes on it."""
        example = _example_of(example_id, self.desk.toy)
        if example is None:
            return [gr.skip()] * (WHOLE + 2)
        return [*self.example_fields(example), note(example.note), self.replacement("example")]

    def fill_from_another(self, example_id: Any, previous_id: Any) -> list[Any]:
        """Gradio's list says ``input`` whenever it loses the focus, too: what was typed since then stays."""
        return self.fill(None if example_id == previous_id else example_id)

    def example_fields(self, example: Example) -> list[Any]:
        """``fill_fields`` of an example."""
        return self.fill_fields(example.record.id, references.form_of(example), references.of_example(example))

    def fill_fields(self, example: str | None, form: PromptForm, reference: references.Reference) -> list[Any]:
        """Of all fields what a form holds, whose reference it has, the note that says so, and which example it is."""
        values = [getattr(form, name) for name in FIELDS]
        return [example, *values, reference, note(references.describe(reference, references.apply(reference, form)))]

    def again(self, settings: Any) -> list[Any]:
        """The prompt of a run, over or not, in the form, and the note at the button."""
        key = str(payload_of(settings).get("again"))

        def read() -> list[Any]:
            job = self.desk.runner.job(key)  # of a page that was loaded again, or opened by a link
            try:
                trace = (job.so_far() if job is not None else None) or self.desk.trace(key)
            except UnknownTrace as problem:
                raise Refusal("prompt", str(problem)) from None
            prompt = recorded.form_of(trace)
            reference = references.Reference(prompt.reference, references.prompt_key(prompt), "the run's")
            example_id = next((e.record.id for e in listed_examples(self.desk.toy) if _is_same(e, prompt)), None)
            return [
                gr.Dropdown(value=example_id),
                *self.fill_fields(example_id, prompt, reference),
                note(recorded.missing_note(trace)),
                self.replacement("run"),
            ]

        return _attempt(read, lambda _, words: [*[gr.skip()] * (WHOLE + 1), words, self.replacement("")])

    def replacement(self, by: str) -> str:
        """Message to the page: another prompt stands in the form, a "run"'s or an "example"'s, or none came ("")."""
        return tell(by=by, n=secrets.token_hex(4))

    def start(self, request: gr.Request, example_id: Any, settings: Any, *field_values: Any) -> tuple[Any, Any, Any]:
        """View, note at the pool, at the button. ``field_values``: the fields, whose reference, the pool."""
        payload, example = payload_of(settings), _example_of(example_id, self.desk.toy)
        *fields, reference, (pool_text, pool_name) = field_values
        prompt = references.apply(reference, _form(tuple(fields)))

        def begin() -> tuple[Any, Any, Any]:
            pool = {"pool_text": pool_text, "pool_name": pool_name} if payload.get("pooled") is True else {}
            form = dataclasses.replace(prompt, **pool)
            job = self.desk.submit(
                form,
                str(payload.get("method") or ""),
                payload.get("params") or {},
                payload.get("settings") or {},
                title=example.label if example is not None and _is_same(example, form) else "",
                owner=owner(request),
                session=request.session_hash or "",
            )
            view = tell(trace=job.id, own=True, prompt=form.key, n=secrets.token_hex(4))
            return view, gr.skip(), note()

        def refuse(place: str, words: str) -> tuple[Any, Any, Any]:
            # at the button: the prompt may be scrolled out of sight, and the note there is ``on_change``'s alone
            return gr.skip(), words if place == "pool" else gr.skip(), words

        return _attempt(begin, refuse)

    def take(self, path: Any) -> tuple[tuple[str, str], Any]:
        """The pool's text and name, and the note below the button."""

        def read() -> tuple[tuple[str, str], Any]:
            text, name = self.desk.read_pool(_upload(path))
            if not text.strip():
                raise Refusal("pool", f"The pool file {name} holds no text: give one with at least two words.")
            return (text, name), note(f"{name}: {len(text):,} characters")

        return _attempt(read, lambda _, words: (NO_POOL, words))

    def on_open(self, path: Any, request: gr.Request) -> tuple[Any, Any]:
        """An uploaded run's name for the view, and the note below the button."""

        def read() -> tuple[Any, Any]:
            key = self.desk.open_file(_upload(path), owner=owner(request))
            return tell(trace=key, n=secrets.token_hex(4)), note()

        return _attempt(read, lambda _, words: (gr.skip(), words))

    def lay_out(self, template_name: Any) -> list[Any]:
        """The form of segments, and a template in its instruction."""
        template = templates().get(template_name) if isinstance(template_name, str) else None
        return [gr.skip()] * 3 if template is None else ["segments", template.text, self.replacement("example")]


def choices(desk: Desk) -> tuple[Example, list[tuple[str, str]]]:
    """The example to start with (that of the run the page opens on, else the first), and all of them for the list."""
    offered_examples = listed_examples(desk.toy)
    try:
        open_form = recorded.form_of(desk.trace(desk.first))
    except UnknownTrace:
        open_form = None
    first = next((e for e in offered_examples if open_form is not None and _is_same(e, open_form)), offered_examples[0])
    return first, [(e.label, e.record.id) for e in offered_examples]


def _example_of(example_id: Any, toy: bool) -> Example | None:
    return next((e for e in listed_examples(toy) if e.record.id == example_id), None)


def _attempt(work: Callable[[], Result], refused: Callable[[str, str], Result]) -> Result:
    """The result of ``work``; where it fails, that of ``refused`` for the place it belongs to and a note."""
    try:
        return work()
    except Refusal as problem:
        return refused(problem.place, note(str(problem), error=True))
    except Exception:
        log.exception("what the page asked for failed")
        return refused("", note(FAILED, error=True))


def _upload(path: Any) -> str:
    """An uploaded file. It stays: Gradio names files by what is in them, so somebody else's may be the same one, and
    removes them after an hour. Raises Refusal where none came.
    """
    if not isinstance(path, str):
        raise Refusal("file", "No file came through: choose one again.")
    return path


def _form(fields: tuple[Any, ...]) -> PromptForm:
    """A form from what the browser sent, whatever it is."""
    return PromptForm(*(value if isinstance(value, str) else "" for value in fields))


def _is_same(example: Example, form: PromptForm) -> bool:
    """Compare a prompt with the example's."""
    return references.prompt_key(form) == references.prompt_key(references.form_of(example))
