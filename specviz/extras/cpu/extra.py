"""The annex's object."""

from decoders.extra import Command, Extra

EXTRA = Extra(
    name="cpu",
    about="A CPU's speed: compiled layers and draft models, weights of eight and four bits by kernels in C++",
    engines={"compiled": ".engine"},
    weights={"int8": ".weights", "int4": ".weights"},
    commands={
        "compile": Command(
            ".compile_command", "build", "compile a model's forwards at once; the app does it while nothing runs",
            predecessor="models",
        )
    },
)
