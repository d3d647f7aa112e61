"""The annex's object."""

from decoders.extra import Extra

EXTRA = Extra(
    name="heads",
    about="Draft heads: Medusa, Hydra, EAGLE-1 to -3, and those that others published",
    optional=("cpu",),
    methods=(".medusa", ".hydra", ".eagle", ".sam"),
)
