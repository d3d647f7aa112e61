"""The annex's object."""

from decoders.extra import Command, Extra

EXTRA = Extra(
    name="training",
    about="Training: draft models, prompt tokens and heads for any target, and the bundled target from nothing",
    commands={
        "train": Command(
            ".train_command", "build", "train the bundled target, or parts for a target", predecessor="calibrate"
        )
    },
)
