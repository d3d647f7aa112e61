"""Measuring: why a drafter's acceptance is low, the gain in batches, peers beside this engine."""

from decoders.extra import Command, Extra

EXTRA = Extra(
    name="measure",
    about="Measuring: why a drafter's acceptance is low, what drafting gains in batches, peers beside this engine",
    commands={
        "load": Command(
            ".load_command", "measure", "drafting in batches: L(rows, batch, context), the best lengths, other policies"
        ),
        "doctor": Command(".doctor_command", "measure", "why a head or draft model has little accepted"),
    },
    pages=(".doctor.doctor_page", ".load.lengths_page", ".places.places_page", ".layers.layers_page"),
    peers={".peers.alternatives": "llama.cpp"},
    web="web",
)
