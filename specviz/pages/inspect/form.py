"""Page "Inspect": a prompt, a method, and what it did, step by step."""

from __future__ import annotations

import dataclasses
import logging
import secrets
from collections.abc import Callable
from typing import Any, TypeVar

import gradio as gr

from decoders.prompt.templates import templates
from specviz.server.desk import Desk
from specviz.server.forms import EMPTY, MODES, PromptForm, Rejected
from specviz.server.store import UnknownTrace
from specviz.shell.parts import note, owner, part, payload_of, tell
from specviz.views.examples import SEPARATOR, Example, listed_examples

from . import again as recorded
from . import reference as references

log = logging.getLogger(__name__)

Result = TypeVar("Result")
QUIET: dict[str, Any] = {"api_visibility": "private", "show_progress": "hidden"}
NO_POOL = ("", "")  # a pool's text and name
FILE: dict[str, Any] = {"size": "sm", "file_count": "single", "type": "filepath"}
CONTEXT = f"The text to work on. Put {SEPARATOR} on a line of its own between passages."
TEMPLATE = "CASD's prompt for a dataset, put into Instruction: {context} and {question} say where these stand."
TEXT = """Chat: what you would type to the model; for several turns begin lines with “User:” and “Assistant:”.
Plain text: continued as it stands."""
FAILED = "Something went wrong on the server; its log says what. Your input is kept."


def build(desk: Desk) -> None:
    """The panel (what to run) and the view (what happened)."""
    first, names = choices(desk)
    start_with = [*first.fields.values()]
    with gr.Column(elem_id="sv-inspect"):
        with gr.Row(elem_id="sv-bar", equal_height=True):
            part("chooser", "sv-chooser")
            run = gr.Button("Run", variant="primary", elem_id="sv-run", interactive=False)
            stop = gr.Button("Stop", variant="stop", elem_id="sv-stop")
            upload = gr.UploadButton("Open …", elem_id="sv-open", **FILE)
        part("caution", "sv-caution")
        run_note = part("note", "sv-run-note")
        file_note = part("note", "sv-file-note")
        filled_note = part("filled", "sv-filled")
        with gr.Column(elem_id="sv-editor"), gr.Column(elem_id="sv-panel", min_width=280):
            with gr.Column(elem_id="sv-prompt-part"):
                example = gr.Dropdown(names, value=first.record.id, label="Example", elem_id="sv-example")
                mode = gr.Radio(
                    [(label, key) for key, label in MODES.items()], value=start_with[0], label="Prompt",
                    elem_id="sv-mode",
                )  # fmt: skip
                with gr.Column(elem_id="sv-segments", elem_classes=["sv-fields"]):
                    instruction = gr.Textbox(
                        start_with[1], label="Instruction", elem_id="sv-instruction", **_lines(2, 4)
                    )
                    context = gr.Textbox(
                        start_with[2], label="Context", elem_id="sv-context", placeholder=CONTEXT, **_lines(10, 18)
                    )
                    question = gr.Textbox(start_with[3], label="Question", elem_id="sv-question", **_lines(1, 3))
                with gr.Column(elem_id="sv-free", elem_classes=["sv-fields"]):
                    text = gr.Textbox(
                        start_with[4], label="Text", elem_id="sv-text", placeholder=TEXT, **_lines(16, 24)
                    )
                prompt_note = part("note", "sv-prompt-note")
                reference_note = part("note", "sv-reference-note")
                belongs = gr.State(references.of_example(first))
                source = gr.State(first.record.id)  # the example that the fields were last filled from
                with gr.Accordion("More", open=False, elem_id="sv-more"):
                    template = gr.Dropdown(
                        [(one.title, name) for name, one in templates().items()], value=None, label="Prompt template",
                        info=TEMPLATE, elem_id="sv-template",
                    )  # fmt: skip
                    info = "The answer you hope for: quality is measured against it."
                    reference = gr.Textbox(
                        start_with[5], label="Reference", info=info, elem_id="sv-reference", **_lines(2, 6)
                    )
                    with gr.Column(elem_id="sv-pool-field", elem_classes=["sv-fields"]):
                        help_ = "<b>Pool</b><br>A text file (UTF-8) to draft from instead of the context."
                        gr.HTML(help_, apply_default_css=False, padding=False, elem_id="sv-pool-help")
                        pool = gr.State(NO_POOL)
                        with gr.Row(elem_id="sv-pool-row"):
                            pool_file = gr.UploadButton("Choose a text file …", elem_id="sv-pool", **FILE)
                            pool_clear = gr.Button("Remove", size="sm", elem_id="sv-pool-clear")
                        pool_note = part("note", "sv-pool-note")
            form = part("form", "sv-form", events=("offered", "run", "again"))
        view = part("view", "sv-view")

    fields = [mode, instruction, context, question, text, reference]

    def count(form: PromptForm) -> str:
        try:
            return note(desk.count(form))
        except Rejected as problem:
            return note(str(problem), error=True)
        except Exception:
            log.exception("counting tokens failed")
            return note()

    def on_change(whose: references.Reference, *sent: Any) -> list[Any]:
        """The note at the prompt, the reference that it has, and the note that says which one."""
        form = _form(sent)
        used = references.apply(whose, form)
        kept = used.reference.strip() == form.reference.strip()
        counted = (
            count(form) if form.typed_text.strip() else note(EMPTY, error=True)
        )  # as Run says, whichever comes last
        return [counted, gr.skip() if kept else used.reference, note(references.describe(whose, used))]

    def on_write(whose: references.Reference, *sent: Any) -> list[Any]:
        """Whose the reference is that stands in the form now, and the note that says so."""
        form = _form(sent)
        whose = references.claim(whose, form)
        return [whose, note(references.describe(whose, references.apply(whose, form)))]

    def offer(chosen: Any, *sent: Any) -> list[Any]:
        """Run (off where nothing can run), and the examples of the model in use: where those of another kind of model
        were listed, its first one takes the place of an example that nobody changed. ``changed`` follows with the
        notes: what was typed meanwhile is counted, not what stood there before.
        """
        run = gr.Button(interactive=not desk.catalog()["reason"])
        kept = [gr.skip()] * len(whole)
        shown = _example_of(chosen, not desk.toy)
        if shown is None or _example_of(chosen, desk.toy) is not None:
            return [run, gr.skip(), *kept]
        first, names = choices(desk)
        if not _same(shown, _form(sent)):
            return [run, gr.Dropdown(names, value=None), *kept]
        return [run, gr.Dropdown(names, value=first.record.id), *example_fields(first)]

    def fill(chosen: Any) -> list[Any]:
        example = _example_of(chosen, desk.toy)
        if example is None:
            return [gr.skip()] * (len(whole) + 2)
        return [*example_fields(example), note(example.note), replaced("example")]

    def fill_from_another(chosen: Any, before: Any) -> list[Any]:
        """Gradio's list says ``input`` whenever it loses the focus, too: what was typed since then stays."""
        return fill(None if chosen == before else chosen)

    def example_fields(example: Example) -> list[Any]:
        return fill_fields(example.record.id, references.form_of(example), references.of_example(example))

    def fill_fields(example: str | None, form: PromptForm, whose: references.Reference) -> list[Any]:
        """Of all fields what a form holds, whose reference it has, the note that says so, and which example it is."""
        values = [getattr(form, name) for name in ("mode", "instruction", "context", "question", "text", "reference")]
        return [example, *values, whose, note(references.describe(whose, references.apply(whose, form)))]

    def again(settings: Any) -> list[Any]:
        """A recorded run's prompt in the form, and the note at the button."""

        def read() -> list[Any]:
            try:
                trace = desk.trace(payload_of(settings).get("again"))
            except UnknownTrace as problem:
                raise Rejected("prompt", str(problem)) from None
            prompt = recorded.form_of(trace)
            whose = references.Reference(prompt.reference, references.prompt_key(prompt), "the run's")
            same = next((e.record.id for e in listed_examples(desk.toy) if _same(e, prompt)), None)
            return [
                gr.Dropdown(value=same),
                *fill_fields(same, prompt, whose),
                note(recorded.missing_note(trace)),
                replaced("run"),
            ]

        return _attempt(read, lambda _, words: [*[gr.skip()] * (len(whole) + 1), words, replaced("")])

    def replaced(by: str) -> str:
        """Message to the page: another prompt stands in the form, a "run"'s or an "example"'s, or none came ("")."""
        return tell(by=by, n=secrets.token_hex(4))

    def start(request: gr.Request, chosen: Any, settings: Any, *rest: Any) -> tuple[Any, Any, Any, Any]:
        """View, note at the prompt, at the pool, at the button. ``rest``: the fields, whose reference, the pool."""
        wished, example = payload_of(settings), _example_of(chosen, desk.toy)
        *typed, whose, (pool_text, pool_name) = rest
        prompt = references.apply(whose, _form(tuple(typed)))

        def begin() -> tuple[Any, Any, Any, Any]:
            pool = {"pool_text": pool_text, "pool_name": pool_name} if wished.get("pooled") is True else {}
            form = dataclasses.replace(prompt, **pool)
            job = desk.submit(
                form,
                str(wished.get("method") or ""),
                wished.get("params") or {},
                wished.get("settings") or {},
                title=example.label if example is not None and _same(example, form) else "",
                owner=owner(request),
                session=request.session_hash or "",
            )
            shown = tell(trace=job.id, own=True, prompt=form.key, n=secrets.token_hex(4))
            return shown, gr.skip(), gr.skip(), note()

        def refuse(place: str, words: str) -> tuple[Any, Any, Any, Any]:
            if place == "prompt":
                return gr.skip(), words, gr.skip(), words  # at the button too: the prompt may be scrolled out of sight
            return gr.skip(), gr.skip(), words if place == "pool" else gr.skip(), words

        return _attempt(begin, refuse)

    def take(path: Any) -> tuple[tuple[str, str], Any]:
        """The pool's text and name, and the note below the button."""

        def read() -> tuple[tuple[str, str], Any]:
            text, name = desk.read_pool(_upload(path))
            if not text.strip():
                raise Rejected("pool", f"The pool file {name} holds no text: give one with at least two words.")
            return (text, name), note(f"{name}: {len(text):,} characters")

        return _attempt(read, lambda _, words: (NO_POOL, words))

    def on_open(path: Any, request: gr.Request) -> tuple[Any, Any]:
        def read() -> tuple[Any, Any]:
            key = desk.open_file(_upload(path), owner=owner(request))
            return tell(trace=key, n=secrets.token_hex(4)), note()

        return _attempt(read, lambda _, words: (gr.skip(), words))

    def laid_out(chosen: Any) -> list[Any]:
        """The form of segments, and a template in its instruction."""
        one = templates().get(chosen) if isinstance(chosen, str) else None
        return [gr.skip()] * 3 if one is None else ["segments", one.text, replaced("example")]

    whole = [source, *fields, belongs, reference_note]
    example.select(fill, example, [*whole, run_note, filled_note], queue=False, **QUIET)  # once more, too: as it was
    template.input(laid_out, template, [mode, instruction, filled_note], queue=False, **QUIET)
    example.input(fill_from_another, [example, source], [*whole, run_note, filled_note], queue=False, **QUIET)
    newest: dict[str, Any] = {"trigger_mode": "always_last", "queue": False, **QUIET}
    notes = [prompt_note, reference, reference_note]
    gr.on([f.change for f in fields[:-1]], on_change, [belongs, *fields], notes, **newest)
    reference.change(on_write, [belongs, *fields], [belongs, reference_note], **newest)
    renewed = form.offered(offer, [example, *fields], [run, example, *whole], **newest)
    renewed.then(on_change, [belongs, *fields], notes, queue=False, **QUIET)
    form.again(again, form, [example, *whole, run_note, filled_note], queue=False, **QUIET)
    inputs = [example, form, *fields, belongs, pool]
    for begins in (run.click, form.run):
        begins(start, inputs, [view, prompt_note, pool_note, run_note], queue=False, **QUIET)
    stop.click(None, None, None, js='() => document.dispatchEvent(new CustomEvent("specviz:stop"))', **QUIET)
    pool_file.upload(take, pool_file, [pool, pool_note], queue=False, **QUIET)
    pool_clear.click(lambda: (NO_POOL, note()), None, [pool, pool_note], queue=False, **QUIET)
    upload.upload(on_open, upload, [view, file_note], queue=False, **QUIET)


def choices(desk: Desk) -> tuple[Example, list[tuple[str, str]]]:
    """The example to start with, and all of them as the list shows them: the one that the run was made from which the
    page opens on, else the first.
    """
    there = listed_examples(desk.toy)
    try:
        opened = recorded.form_of(desk.trace(desk.first))
    except UnknownTrace:
        opened = None
    first = next((e for e in there if opened is not None and _same(e, opened)), there[0])
    return first, [(e.label, e.record.id) for e in there]


def _example_of(chosen: Any, toy: bool) -> Example | None:
    return next((e for e in listed_examples(toy) if e.record.id == chosen), None)


def _lines(lines: int, max_lines: int) -> dict[str, Any]:
    return {"lines": lines, "max_lines": max_lines}


def _attempt(work: Callable[[], Result], refused: Callable[[str, str], Result]) -> Result:
    """What ``work`` returns; where it fails, what ``refused`` makes of the place it belongs to and a note."""
    try:
        return work()
    except Rejected as problem:
        return refused(problem.place, note(str(problem), error=True))
    except Exception:
        log.exception("what the page asked for failed")
        return refused("", note(FAILED, error=True))


def _upload(path: Any) -> str:
    """An uploaded file. It stays: Gradio names files by what is in them, so somebody else's may be the same one, and
    removes them after an hour. Raises Rejected where none came.
    """
    if not isinstance(path, str):
        raise Rejected("file", "No file came through: choose one again.")
    return path


def _form(sent: tuple[Any, ...]) -> PromptForm:
    """A form from what the browser sent, whatever it is."""
    return PromptForm(*(value if isinstance(value, str) else "" for value in sent))


def _same(example: Example, form: PromptForm) -> bool:
    """Whether the prompt is still the example's."""
    return references.prompt_key(form) == references.prompt_key(references.form_of(example))
