"""Places in the page that ``page.js`` fills: ``gr.HTML`` with a constant template.

Their value is a small JSON string. Neither prompt nor model text ever passes through a template.
(They are no subclasses of ``gr.HTML``: Gradio writes an interface file beside the source of every subclass.)
"""

from __future__ import annotations

import json
from typing import Any

import gradio as gr

from specviz.server.http import owner_of


def part(name: str, elem_id: str, *, value: str = "", tells: str = "") -> gr.HTML:
    """The place that ``SpecVizApp.<name>`` fills; ``tells`` names the event it triggers.

    ========  =========================================================================================================
    view      the inspector; value {"trace": id, "own": started by this page, "n": differs every time}
    form      method, its parameters and the run's settings, made from the desk's catalog; tells "ready" when the model
              is loaded; value {"method", "params", "settings"}
    note      a sentence next to what it is about; value {"text", "error"}
    chooser   the recorded runs to choose from, and the button that folds the panel
    brand     the name, the model's state and the switch between light and dark; tells "named" where the page's session
              is wanted; value {"session"}
    table     all recorded runs as a table (made in ``runs.js``)
    compare   methods side by side on one prompt (made in ``compare.js``)
    attribution  what an answer was copied from (made in ``attribution.js``)
    lessons   guided tours over recorded runs (made in ``lessons.js``)
    lab       experiments: what there is to run, what is asked, and the results (made in ``lab.js``)
    trees     PPD's trees by size and prompt budget, drawn, compared and timed (made in ``trees.js``)
    ========  =========================================================================================================
    """
    return gr.HTML(
        value,
        html_template=f'<div class="svp-{name}"></div>',
        js_on_load=f"SpecVizApp.{name}({{element, props, watch, tell: () => trigger('{tells}')}});",
        apply_default_css=False,
        elem_classes=["svp"],
        elem_id=elem_id,
    )


def told(payload: Any) -> dict[str, Any]:
    """What the browser sent as a part's value; empty if it is not what a part sends."""
    try:
        found = json.loads(payload) if isinstance(payload, str) and len(payload) < 100_000 else None
    except (ValueError, RecursionError):
        return {}
    return found if isinstance(found, dict) else {}


def tell(**value: Any) -> str:
    """A part's value."""
    return json.dumps(value)


def note(text: str = "", *, error: bool = False) -> str:
    """A note's value."""
    return tell(text=text, error=error)


def owner(request: gr.Request | None) -> str:
    """Whose runs are meant by one of Gradio's events."""
    return owner_of(request.request) if request is not None and request.request is not None else ""
