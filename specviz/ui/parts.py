"""Components of the pages: ``gr.HTML`` with a constant template, drawn by ``page.js``.

Their value is a small JSON string. Neither prompt nor model text ever passes through a template.
"""

from __future__ import annotations

import json
from typing import Any

import gradio as gr


class Part(gr.HTML):
    """A place in the page that ``SpecVizApp.<name>`` fills. The value given to Python is the decoded JSON (None if ill-formed)."""

    NAME = ""
    EVENT = ""  # what it triggers by itself

    def __init__(self, value: dict[str, Any] | None = None, **given: Any) -> None:
        settings = {
            "html_template": f'<div class="svp-{self.NAME}"></div>',
            "js_on_load": f"SpecVizApp.{self.NAME}({{element, props, watch, tell: () => trigger('{self.EVENT}')}});",
            "apply_default_css": False,
            "elem_classes": ["svp"],
            **given,
        }
        super().__init__(self.postprocess(value), **settings)

    def preprocess(self, payload: Any) -> Any:
        try:
            return json.loads(payload) if isinstance(payload, str) and len(payload) < 100_000 else None
        except (ValueError, RecursionError):
            return None

    def postprocess(self, value: Any) -> str | None:
        return json.dumps(value) if isinstance(value, dict) else value

    def api_info(self) -> dict[str, Any]:
        return {"type": "string"}


class View(Part):
    """The inspector. Value: {"trace": id, "own": started by this page, "n": differs every time}."""

    NAME = "view"


class MethodForm(Part):
    """Method, its parameters and the run's settings, made from the desk's catalog. Value: {"method", "params", "settings"}.

    Triggers "ready" when the model is loaded.
    """

    NAME = "form"
    EVENT = "ready"


class Note(Part):
    """A sentence next to what it is about. Value: {"text", "error": bool}."""

    NAME = "note"


class Chooser(Part):
    """The recorded runs to choose from, and the button that folds the panel."""

    NAME = "chooser"


class Brand(Part):
    """The name, the model's state and the switch between light and dark."""

    NAME = "brand"


class RunTable(Part):
    """All recorded runs as a table."""

    NAME = "table"


def note(text: str = "", *, error: bool = False) -> dict[str, Any]:
    """A Note's value."""
    return {"text": text, "error": error}
