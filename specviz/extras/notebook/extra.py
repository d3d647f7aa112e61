"""The inspector as a widget: Jupyter, Colab, VS Code, marimo."""

from decoders.extra import Extra

EXTRA = Extra(
    name="notebook",
    about="The inspector as a widget in notebooks, trace.widget(): its step, token and node are traits, both ways",
    widgets=(".widget",),
    web="web",
)
