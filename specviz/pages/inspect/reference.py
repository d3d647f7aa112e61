"""The owner of the reference in the prompt's form: an example's, or a run's, belongs to its prompt and goes with it."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass

from specviz.server.forms import PromptForm
from specviz.views.examples import Example


@dataclass(frozen=True, slots=True)
class Reference:
    """The answer hoped for. ``prompt`` names the prompt that it belongs to, as ``prompt_key`` does; "" where a user
    typed it: that one stays, whatever the prompt becomes. ``of``: whose it is ("the example's").
    """

    text: str = ""
    prompt: str = ""
    of: str = "your own"


OWN_MACHINE = Reference()


def prompt_key(form: PromptForm) -> str:
    """The same for the same prompt, blanks around its parts and its pool apart."""
    fields = {name: getattr(form, name).strip() for name in ("instruction", "context", "question", "text")}
    return dataclasses.replace(form, **fields, pool_text="", pool_name="").key


def form_of(example: Example) -> PromptForm:
    """The prompt's form with an example in it."""
    return PromptForm(**example.fields)


def of_example(example: Example) -> Reference:
    """An example's reference, which belongs to its prompt."""
    return Reference(example.record.reference, prompt_key(form_of(example)), "the example's")


def claim(reference: Reference, form: PromptForm) -> Reference:
    """The reference after somebody wrote in its field: another text is theirs, as is none where the prompt had one."""
    reference_text, old_text = form.reference.strip(), reference.text.strip()
    is_removed = not reference_text and old_text and prompt_key(form) == reference.prompt
    return OWN_MACHINE if is_removed or reference_text not in ("", old_text) else reference


def apply(reference: Reference, form: PromptForm) -> PromptForm:
    """The form with the reference that its prompt is measured by: one that belongs to another prompt is dropped, and
    is back with its prompt.

    >>> mine = Reference("Paris.", prompt_key(PromptForm("text", text="The capital?")), "the example's")
    >>> apply(mine, PromptForm("text", text="The capital? ", reference="Paris.")).reference_of
    "the example's"
    >>> apply(mine, PromptForm("text", text="The river?", reference="Paris.")).reference
    ''
    """
    reference_text = form.reference.strip()
    if not reference.prompt or reference_text not in ("", reference.text.strip()):
        return dataclasses.replace(form, reference_of=OWN_MACHINE.of if reference_text else "")
    if prompt_key(form) != reference.prompt or not reference.text:
        return dataclasses.replace(form, reference="", reference_of="")
    return dataclasses.replace(form, reference=reference.text, reference_of=reference.of)


def describe(reference: Reference, form: PromptForm) -> str:
    """The reference of a settled form, in a sentence; "" where there never was one."""
    if form.reference.strip():
        return f"Quality is measured against {form.reference_of} reference (under More)."
    if reference.prompt and reference.text:
        return f"The prompt is not {reference.of} any more, nor is its reference used: quality is not measured."
    return ""
