"""A turn of a conversation, and how a user's turn is put together from its parts."""

from __future__ import annotations

from typing import TypedDict


class Message(TypedDict):
    """One turn, as chat templates take it."""

    role: str
    content: str


def turns(user: str, assistant: str) -> tuple[Message, Message]:
    """The user's words, and the assistant's answer."""
    return {"role": "user", "content": user}, {"role": "assistant", "content": assistant}


def user_message(instruction: str, context: tuple[str, ...], question: str) -> str:
    """The parts that are not empty, with blank lines between them; several passages are numbered."""
    if len(context) > 1:
        body = "\n".join(f"[{i}] {passage}" for i, passage in enumerate(context, 1))
    else:
        body = "".join(context)
    return "\n\n".join(part for part in (instruction, body, question) if part)
