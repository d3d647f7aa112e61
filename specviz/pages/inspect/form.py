"""Page "Inspect": a prompt, a method, and what it did, step by step."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from decoders.prompt.templates import templates
from specviz.server.desk import Desk
from specviz.server.forms import MODES
from specviz.shell.parts import note, part
from specviz.shell.toolkit import gr
from specviz.views.examples import SEPARATOR, Example

from . import reference as references
from .actions import NO_POOL, FormActions, choices

QUIET: dict[str, Any] = {"api_visibility": "private", "show_progress": "hidden"}
AT_ONCE: dict[str, Any] = {"queue": False, **QUIET}
FILE: dict[str, Any] = {"size": "sm", "file_count": "single", "type": "filepath"}
CONTEXT = f"The text to work on. Put {SEPARATOR} on a line of its own between passages."
TEMPLATE = "CASD's prompt for a dataset, put into Instruction: {context} and {question} say where these stand."
TEXT = """Chat: what you would type to the model; for several turns begin lines with “User:” and “Assistant:”.
Plain text: continued as it stands."""
REFERENCE = "The answer you hope for: quality is measured against it."
POOL = "<b>Pool</b><br>A text file (UTF-8) to draft from instead of the context."


@dataclass(frozen=True, slots=True)
class RunBar:
    """The row above the form: the method's chooser, Run, Stop, Open, and the notes below them."""

    run: gr.Button
    stop: gr.Button
    upload: gr.UploadButton
    run_note: Any
    file_note: Any
    filled_note: Any


@dataclass(frozen=True, slots=True)
class MoreFields:
    """Rarely used fields: a template, the reference, and a pool of text to draft from."""

    template: gr.Dropdown
    reference: gr.Textbox
    pool: gr.State
    pool_file: gr.UploadButton
    pool_clear: gr.Button
    pool_note: Any


@dataclass(frozen=True, slots=True)
class PromptFields:
    """The fields of a prompt. ``belongs``: whose the reference is; ``source``: the example that filled them last."""

    example: gr.Dropdown
    mode: gr.Radio
    instruction: gr.Textbox
    context: gr.Textbox
    question: gr.Textbox
    text: gr.Textbox
    prompt_note: Any
    reference_note: Any
    belongs: gr.State
    source: gr.State
    more: MoreFields

    @property
    def form_fields(self) -> list[Any]:
        """The fields that make a prompt (``actions.FIELDS``)."""
        return [self.mode, self.instruction, self.context, self.question, self.text, self.more.reference]

    @property
    def whole(self) -> list[Any]:
        """The components that a prompt from elsewhere fills."""
        return [self.source, *self.form_fields, self.belongs, self.reference_note]


def build(desk: Desk) -> None:
    """The panel (what to run) and the view (what happened)."""
    first, names = choices(desk)
    with gr.Column(elem_id="sv-inspect"):
        bar = _run_bar()
        with gr.Column(elem_id="sv-editor"), gr.Column(elem_id="sv-panel", min_width=280):
            with gr.Column(elem_id="sv-prompt-part"):
                prompt = _prompt_fields(first, names)
            form = part("form", "sv-form", events=("offered", "run", "again"))
        view = part("view", "sv-view")
    _connect(FormActions(desk), bar, prompt, form, view)


def _run_bar() -> RunBar:
    with gr.Row(elem_id="sv-bar", equal_height=True):
        part("chooser", "sv-chooser")
        run = gr.Button("Run", variant="primary", elem_id="sv-run", interactive=False)
        stop = gr.Button("Stop", variant="stop", elem_id="sv-stop")
        upload = gr.UploadButton("Open …", elem_id="sv-open", **FILE)
    part("caution", "sv-caution")
    notes = part("note", "sv-run-note"), part("note", "sv-file-note"), part("filled", "sv-filled")
    return RunBar(run, stop, upload, *notes)


def _prompt_fields(first: Example, names: list[tuple[str, str]]) -> PromptFields:
    """The fields, filled from the first example."""
    start_with = [*first.fields.values()]
    example = gr.Dropdown(names, value=first.record.id, label="Example", elem_id="sv-example")
    modes = [(label, key) for key, label in MODES.items()]
    mode = gr.Radio(modes, value=start_with[0], label="Prompt", elem_id="sv-mode")
    with gr.Column(elem_id="sv-segments", elem_classes=["sv-fields"]):
        instruction = gr.Textbox(start_with[1], label="Instruction", elem_id="sv-instruction", **_lines(2, 4))
        context = gr.Textbox(
            start_with[2], label="Context", elem_id="sv-context", placeholder=CONTEXT, **_lines(10, 18)
        )
        question = gr.Textbox(start_with[3], label="Question", elem_id="sv-question", **_lines(1, 3))
    with gr.Column(elem_id="sv-free", elem_classes=["sv-fields"]):
        text = gr.Textbox(start_with[4], label="Text", elem_id="sv-text", placeholder=TEXT, **_lines(16, 24))
    notes = part("note", "sv-prompt-note"), part("note", "sv-reference-note")
    states = gr.State(references.of_example(first)), gr.State(first.record.id)
    with gr.Accordion("More", open=False, elem_id="sv-more"):
        more_fields = _more_fields(start_with[5])
    return PromptFields(example, mode, instruction, context, question, text, *notes, *states, more_fields)


def _more_fields(answer: str) -> MoreFields:
    titles = [(entry.title, name) for name, entry in templates().items()]
    template = gr.Dropdown(titles, value=None, label="Prompt template", info=TEMPLATE, elem_id="sv-template")
    reference = gr.Textbox(answer, label="Reference", info=REFERENCE, elem_id="sv-reference", **_lines(2, 6))
    with gr.Column(elem_id="sv-pool-field", elem_classes=["sv-fields"]):
        gr.HTML(POOL, apply_default_css=False, padding=False, elem_id="sv-pool-help")
        pool = gr.State(NO_POOL)
        with gr.Row(elem_id="sv-pool-row"):
            pool_file = gr.UploadButton("Choose a text file …", elem_id="sv-pool", **FILE)
            pool_clear = gr.Button("Remove", size="sm", elem_id="sv-pool-clear")
        pool_note = part("note", "sv-pool-note")
    return MoreFields(template, reference, pool, pool_file, pool_clear, pool_note)


def _connect(act: FormActions, bar: RunBar, prompt: PromptFields, form: Any, view: Any) -> None:
    """Every field and button with its action."""
    more_fields, fill_outputs = prompt.more, [*prompt.whole, bar.run_note, bar.filled_note]
    prompt.example.select(act.fill, prompt.example, fill_outputs, **AT_ONCE)  # once more, too: as it was
    more_fields.template.input(
        act.lay_out, more_fields.template, [prompt.mode, prompt.instruction, bar.filled_note], **AT_ONCE
    )
    prompt.example.input(act.fill_from_another, [prompt.example, prompt.source], fill_outputs, **AT_ONCE)
    newest: dict[str, Any] = {"trigger_mode": "always_last", **AT_ONCE}
    notes, form_inputs = (
        [prompt.prompt_note, more_fields.reference, prompt.reference_note],
        [prompt.belongs, *prompt.form_fields],
    )
    gr.on([f.change for f in prompt.form_fields[:-1]], act.on_change, form_inputs, notes, **newest)
    more_fields.reference.change(act.on_write, form_inputs, [prompt.belongs, prompt.reference_note], **newest)
    offer_outputs = [bar.run, prompt.example, *prompt.whole]
    offer_event = form.offered(act.offer, [prompt.example, *prompt.form_fields], offer_outputs, **newest)
    offer_event.then(act.on_change, form_inputs, notes, **AT_ONCE)
    form.again(act.again, form, [prompt.example, *fill_outputs], **AT_ONCE)
    inputs = [prompt.example, form, *prompt.form_fields, prompt.belongs, more_fields.pool]
    for begins in (bar.run.click, form.run):
        begins(act.start, inputs, [view, more_fields.pool_note, bar.run_note], **AT_ONCE)
    bar.stop.click(None, None, None, js='() => document.dispatchEvent(new CustomEvent("specviz:stop"))', **QUIET)
    more_fields.pool_file.upload(act.take, more_fields.pool_file, [more_fields.pool, more_fields.pool_note], **AT_ONCE)
    more_fields.pool_clear.click(lambda: (NO_POOL, note()), None, [more_fields.pool, more_fields.pool_note], **AT_ONCE)
    bar.upload.upload(act.on_open, bar.upload, [view, bar.file_note], **AT_ONCE)


def _lines(lines: int, max_lines: int) -> dict[str, Any]:
    return {"lines": lines, "max_lines": max_lines}
