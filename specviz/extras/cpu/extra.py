"""The annex's object."""

from decoders.extra import Extra

EXTRA = Extra(
    name="cpu",
    about="A CPU's speed: compiled layers and draft models, weights of eight and four bits by kernels in C++",
    engines={"compiled": ".engine"},
)
