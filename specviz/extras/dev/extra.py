"""The method workbench: a method in a file that is being written, drafted anew at every save."""

from decoders.extra import Command, Extra

EXTRA = Extra(
    name="dev",
    about="The method workbench: every save of your own method is drafted anew on recorded runs",
    commands={"dev": Command(".command", "build", "draft recorded runs anew at every save of a method of your own")},
    pages=(".page",),
    web="web",
)
