"""Requests of pages: JSON as pydantic models, and the sentence for what does not fit them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, Any

import fastapi
from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, ValidationError, WrapValidator
from pydantic_core import PydanticCustomError

from specviz.words import sentence


class Body(BaseModel):
    """A page's request as JSON: no value is turned into another type, and names that are not fields are ignored."""

    model_config = ConfigDict(strict=True, frozen=True)


class SentFile(Body):
    """A file that is sent as text."""

    name: Annotated[str, Field(max_length=400)]
    text: str


def needs(text: str) -> WrapValidator:
    """The sentence for a value that does not fit its type; ``{given}`` in it stands for the value.

    >>> from pydantic import TypeAdapter
    >>> count = TypeAdapter(Annotated[int, Field(ge=1), needs("the count is {given}: a whole number from 1, please")])
    >>> try: count.validate_python(0)
    ... except ValidationError as problem: invalid(problem.errors())
    'The count is 0: a whole number from 1, please.'
    """

    def check(value: Any, validate: Any) -> Any:
        try:
            return validate(value)
        except ValidationError as problem:
            first = problem.errors()[0]
            if first["type"] == "needs":  # a part of it has its own sentence
                raise PydanticCustomError("needs", "{said}", {"said": first["msg"]}) from None
            value_text = repr(value) if len(repr(value)) <= 40 else f"{repr(value)[:40]} …"
            raise PydanticCustomError("needs", "{said}", {"said": text.replace("{given}", value_text)}) from None

    return WrapValidator(check)


def invalid(errors: Sequence[Any]) -> str:
    """The first thing that is wrong with what was sent, as a sentence."""
    error = errors[0]
    place = ".".join(str(part) for part in error["loc"] if part not in ("body", "query", "path"))[:80]
    if error["type"] == "needs":
        text = error["msg"]
    elif error["type"] == "json_invalid":
        text = "what was sent is not JSON"
    elif not place:
        text = "what is asked is one JSON object"
    else:
        text = f"“{place}” is missing" if error["type"] == "missing" else f"“{place}”: {error['msg'].lower()}"
    return sentence(ValueError(text))


PageSession = Annotated[str | None, Field(max_length=99)]  # the open page that asks: its runs end when it is closed
Id = Annotated[str, fastapi.Body(embed=True)]  # the only thing that is sent: {"id": …}
MOST_TEXTS = 500
Texts = Annotated[
    list[str], Field(max_length=MOST_TEXTS), needs(f"runs and tags are lists of at most {MOST_TEXTS} texts")
]
Ids = Annotated[Texts, fastapi.Body(embed=True)]
Listed = Annotated[  # texts in an address, with commas between them
    Sequence[str],
    fastapi.Query(),
    BeforeValidator(lambda values: [value for value in ",".join(values).split(",") if value]),
]
Params = Annotated[dict[str, Any], needs("parameters are given as names and values")]
