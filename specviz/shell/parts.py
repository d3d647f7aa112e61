"""Places in the page that modules of ours fill: ``gr.HTML`` with a constant template.

Their value is a small JSON string. Neither prompt nor model text ever passes through a template.
(They are no subclasses of ``gr.HTML``: Gradio writes an interface file beside the source of every subclass.)
"""

from __future__ import annotations

import json
import secrets
from collections.abc import Sequence
from typing import Any

from specviz.server.http import owner_of

from .toolkit import gr


def part(name: str, elem_id: str, module: str = "", *, events: Sequence[str] = ()) -> gr.HTML:
    """The place that ``mount`` of ``specviz/<module>.js`` fills, once that is fetched: when Gradio first shows it.

    ``mount`` gets ``element``, ``props``, ``watch`` and ``trigger`` as ``gr.HTML`` has them; a module of the shell
    says in front of its ``mount`` what its value holds and which ``events`` it triggers. ``module`` is
    ``shell/<name>`` where it is not named.
    """
    return gr.HTML(
        "",
        html_template=f'<div class="svp-{name}"></div>',
        js_on_load=f"""const events = {json.dumps(list(events))}; // Gradio looks for their names here
            import("specviz/{module or f"shell/{name}"}.js").then(
                ({{ mount }}) => mount({{ element, props, watch, trigger }}));""",
        apply_default_css=False,
        elem_classes=["svp"],
        elem_id=elem_id,
    )


def payload_of(payload: Any) -> dict[str, Any]:
    """The value that the browser sent for a part; empty if it is not what a part sends."""
    try:
        value = json.loads(payload) if isinstance(payload, str) and len(payload) < 100_000 else None
    except (ValueError, RecursionError):
        return {}
    return value if isinstance(value, dict) else {}


def tell(**value: Any) -> str:
    """A part's value."""
    return json.dumps(value)


def note(text: str = "", *, error: bool = False) -> str:
    """A note's value; an error's differs each time, as the page may have put the same one away since."""
    return tell(text=text, error=error, **({"n": secrets.token_hex(4)} if error else {}))


def owner(request: gr.Request | None) -> str:
    """The owner of the runs that one of Gradio's events is about."""
    return owner_of(request.request) if request is not None and request.request is not None else ""
