"""The page as a whole: its frame, a tab for every page of the desk, its named API."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from specviz.server.desk import Desk

from . import api
from .sound import Blocks
from .toolkit import building, gr, themes


def theme() -> themes.Base:
    """Fonts of the system only: nothing is fetched from elsewhere."""
    settings = json.loads((Path(__file__).parent / "theme.json").read_text(encoding="utf-8"))
    return themes.Base(**settings["base"]).set(**settings["set"])


QUIET: dict[str, Any] = {"api_visibility": "private", "show_progress": "hidden"}
TAB_EVENT = '() => document.dispatchEvent(new CustomEvent("specviz:tab", { detail: "%s" }))'
MAX_SESSIONS = 200  # open pages whose state Gradio holds


def _session(request: gr.Request) -> str:
    """The open page's name, so that what it starts ends when it is closed."""
    return json.dumps({"session": request.session_hash or ""})


def tab_titles(desk: Desk) -> dict[str, str]:
    """The tabs' titles by the pages' names, in order; tools have tabs of their own where no page lists them."""
    services = desk.services.values()
    has_list = any(page.lists_tools for page in services)
    titles = {page.name: page.title or ("" if has_list or not page.tool else page.name.title()) for page in services}
    return {name: title for name, title in titles.items() if title}


def part(name: str, elem_id: str, module: str, *, events: Sequence[str] = ()) -> gr.HTML:
    """The place that ``mount`` of ``specviz/<module>.js`` fills when Gradio first shows it.

    It is a ``gr.HTML`` with a constant template, through which neither prompt nor model text passes.
    ``mount`` gets ``element``, ``props``, ``watch`` and ``trigger`` as ``gr.HTML`` has them. (It is no subclass of
    ``gr.HTML``: Gradio writes an interface file beside the source of every subclass.)
    """
    return gr.HTML(
        "",
        html_template=f'<div class="svp-{name}"></div>',
        js_on_load=f"""const events = {json.dumps(list(events))}; // Gradio looks for their names here
            import("specviz/{module}.js").then(
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


@building()
def build(desk: Desk) -> gr.Blocks:
    """All pages."""
    titles = tab_titles(desk)

    def select(name: Any) -> Any:
        """Shows a tab, where there is one of that name."""
        return gr.Tabs(selected=name) if name in titles else gr.skip()

    def open_tab(request: gr.Request) -> Any:
        """Shows the tab that the address names."""
        return select(request.query_params.get("tab"))

    with Blocks(title="specviz", fill_width=True, analytics_enabled=False, delete_cache=(3600, 3600)) as blocks:
        brand = part("brand", "sv-brand", "shell/brand", events=("named", "go"))
        brand.named(_session, None, brand, queue=False, **QUIET)
        with gr.Tabs(elem_id="sv-tabs") as tabs:
            for page in (desk.services[name] for name in titles):
                with gr.Tab(titles[page.name], id=page.name) as tab:
                    module = page.module or f"{page.name}/{'page' if page.title else 'view'}"
                    part(page.name, f"sv-{page.name}", module)
                tab.select(None, None, None, js=TAB_EVENT % page.name, queue=False, **QUIET)
        brand.go(lambda value: select(payload_of(value).get("tab")), brand, tabs, queue=False, **QUIET)
        blocks.load(open_tab, None, tabs, queue=False, **QUIET)
        api.build(desk)

        def leave(request: gr.Request) -> None:
            desk.runner.leave(request.session_hash or "")

        blocks.unload(leave)
    blocks.state_session_capacity = MAX_SESSIONS
    blocks.queue(default_concurrency_limit=16, max_size=200, api_open=True)
    return blocks
