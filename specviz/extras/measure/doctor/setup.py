"""Setup of an examination: a part by any name it has, the parts that a target has, and the prompts in other forms."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from decoders.draft_models.published import Published
from decoders.drafters.sps import open_drafter
from decoders.errors import UserError
from decoders.method.part import kinds
from decoders.model.target_model.target import Target
from decoders.parts import is_part, load_part, own_place, part_folders, read_part
from decoders.prompt.files import PromptRecord
from decoders.prompt.prompt import Prompt

from .doctor import Form
from .forced_drafts import Drafting, chain_type

SYSTEM = "You are a helpful assistant."


def drafting_of(target: Target, part: str) -> Drafting:
    """The drafter that ``part`` names for a target: a kind of part (the target's own is taken), the folder of a trained
    part, the folder, file or hub id of a published head, or of a causal LM with the target's tokenizer.

    Raises UserError for one that is missing or belongs to another target, and for prompt tokens, which are no drafter
    of their own.
    """
    place = Path(part).expanduser()
    if part in kinds():
        network = load_part(target, part)
    elif is_part(place):
        network = load_part(target, read_part(place).kind, place)
    elif (kind := _published_kind(part)) is not None:
        network = load_part(target, kind, part)
    else:
        network = open_drafter(target, part)
    try:
        chain_type(network)
    except UserError as error:
        drafter_names = ", ".join(_drafters())
        raise UserError(
            f"the part {part} drafts inside the target's own forward, so it has no drafts to force: the doctor takes "
            f"{drafter_names}, or a draft model (of prompt tokens, specviz tree design measures the guesses)"
        ) from error
    return Drafting(target, network)


@dataclass(frozen=True, slots=True)
class Place:
    """A trained part of a target: its ``kind``, the folder, and whether it is the user's ``own`` or one shipped."""

    kind: str
    folder: Path
    own: bool

    @property
    def title(self) -> str:
        return kinds()[self.kind].title


def parts_of(target: Target) -> list[Place]:
    """The parts of a target that can be examined: of each kind the user's own, then the one shipped."""
    places = ((kind, folder) for kind in _drafters() for folder in part_folders(target.key, kind))
    return [Place(kind, folder, folder == own_place(kind, target.key)) for kind, folder in places]


def _drafters() -> list[str]:
    """Kinds of parts that draft by themselves."""
    return [name for name, kind in kinds().items() if kind.chain is not None]


def _published_kind(part: str) -> str | None:
    """The kind of a published head; None where that is none, such as a whole model."""
    try:
        return Published.open(part).kind
    except UserError:
        return None


def forms_of(tokenizer: Any, records: Sequence[PromptRecord], prompts: Sequence[Prompt], raw: bool) -> list[Form]:
    """The prompts in the other forms that the tokenizer has: without the chat template, or (``raw``) through it, with
    another system prompt, and with thinking on and off. Records that are whole conversations have none.
    """
    texts = [text_of(record) for record in records]
    template = getattr(tokenizer, "chat_template", None)
    if not template or not all(texts):
        return []
    users = [[{"role": "user", "content": text}] for text in texts]
    current_ids = [prompt.tokens for prompt in prompts]
    advice = "send the prompts {0} the chat template: the drafter learnt from texts {0} it"
    if raw:
        changed_prompts = [Prompt.from_messages(tokenizer, messages) for messages in users]
    else:
        changed_prompts = [Prompt.from_text(tokenizer, text) for text in texts]
    word = "through" if raw else "without"
    forms = [Form("chat template", f"{word} the chat template", advice.format(word), changed_prompts)]
    for system, change in ((SYSTEM, f"with the system prompt “{SYSTEM}”"), ("", "with an empty system prompt")):
        messages = [[{"role": "system", "content": system}, *user] for user in users]
        forms += _form(tokenizer, messages, "system prompt", change, current_ids, {})
    if "enable_thinking" in str(template):
        for on in (True, False):
            change = f"thinking {'on' if on else 'off'}"
            forms += _form(tokenizer, users, "thinking", change, current_ids, {"enable_thinking": on})
    return forms


def prompts_of(tokenizer: Any, records: Sequence[PromptRecord], raw: bool) -> list[Prompt]:
    """The records' prompts; ``raw``: without the chat template. Raises UserError for raw conversations."""
    if not raw:
        return [record.prompt(tokenizer) for record in records]
    if not all(text_of(record) for record in records):
        raise UserError("prompts without the chat template (--raw) have one turn: these are conversations")
    return [Prompt.from_text(tokenizer, text_of(record)) for record in records]


def skip_reasons(target: Target, forms: Sequence[Form], server: bool) -> list[str]:
    """Controls that an examination leaves out, each with the reason; precision is the caller's."""
    reasons = [] if forms else ["chat template, system prompt, thinking: the model has no chat template"]
    if forms and not any(form.cause == "thinking" for form in forms):
        reasons.append("thinking on and off: the chat template has no such switch")
    if not is_rounded(target):
        reasons.append("precision: the target is in float32 already")
    return reasons if server else [*reasons, "a server: no log of one was given"]


def is_rounded(target: Target) -> bool:
    """True where the target computes in less than float32."""
    return target.info["dtype"] != "float32" or "weights" in target.info


def _form(
    tokenizer: Any,
    messages: Sequence[Any],
    cause: str,
    change: str,
    current_ids: Sequence[Any],
    options: dict[str, bool],
) -> list[Form]:
    """The form in a list; none where it is the prompts' own, or the template refuses it."""
    try:
        texts = [tokenizer.apply_chat_template(conversation, tokenize=False, add_generation_prompt=True, **options)
                 for conversation in messages]  # fmt: skip
    except Exception:  # a template is code of the model's own, which may raise anything
        return []
    ids = [tokenizer(text, add_special_tokens=False)["input_ids"] for text in texts]
    if [tuple(prompt_ids) for prompt_ids in ids] == list(current_ids):
        return []
    advice = f"write the prompts {change}: the drafter learnt from such texts"
    return [Form(cause, change, advice, [Prompt.from_ids(prompt_ids) for prompt_ids in ids])]


def text_of(record: PromptRecord) -> str:
    """A record's prompt as one user's text; "" of a conversation."""
    if record.messages:
        return record.messages[0][1] if len(record.messages) == 1 else ""
    if record.turns:
        return record.turns[0]
    return record.text or "\n\n".join(part for part in (record.instruction, *record.context, record.question) if part)
