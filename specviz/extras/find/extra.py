"""Runs found by what they read and wrote: prompts, outputs and rejected tokens."""

from decoders.extra import Command, Extra

EXTRA = Extra(
    name="find",
    about="Find recorded runs by their content: prompts, outputs and rejected tokens, with the step",
    commands={"find": Command(".find_command", "share", "find recorded runs by what is in them")},
    pages=(".page",),
    web="web",
)
