"""Measuring: why a drafter's acceptance is low, what drafting gains in batches, peers beside this engine."""

from decoders.extra import Command, Extra

EXTRA = Extra(
    name="measure",
    about="Measuring: why a drafter's acceptance is low",
    commands={
        "doctor": Command(".doctor_command", "measure", "why a head or draft model has little accepted"),
    },
    pages=(".doctor.page",),
    web="web",
)
