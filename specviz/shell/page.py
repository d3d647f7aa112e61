"""The page as a whole: its frame, its tabs, its named API. Each tab is a module with ``build(desk, ...)``."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import gradio as gr
from gradio.themes import Base

from specviz.pages.attribution import form as attribution
from specviz.pages.compare import form as compare
from specviz.pages.inspect import form as inspect
from specviz.pages.lab import form as lab
from specviz.pages.lessons import form as lessons
from specviz.pages.runs import form as runs
from specviz.pages.trees import form as trees
from specviz.server.desk import Desk
from specviz.server.http import owner_of

from . import api
from .parts import part, tell, told

SANS = ["ui-sans-serif", "system-ui", "-apple-system", "Segoe UI", "Roboto", "Helvetica Neue", "Arial", "sans-serif"]
MONO = ["ui-monospace", "SFMono-Regular", "Cascadia Mono", "Menlo", "Consolas", "DejaVu Sans Mono", "monospace"]


def theme() -> Base:
    """Fonts of the system only: nothing is fetched from elsewhere."""
    base = Base(
        primary_hue="blue",
        neutral_hue="slate",
        radius_size="md",
        text_size="sm",
        spacing_size="sm",
        font=SANS,
        font_mono=MONO,
    )
    return base.set(
        body_background_fill="#f7f8fa",
        body_background_fill_dark="#0f1318",
        block_background_fill_dark="#161b22",
        block_border_width="0px",
        block_shadow="none",
        input_background_fill_dark="#0f1318",
        button_primary_background_fill="#1f56c9",
        button_primary_background_fill_hover="#17449f",
        button_primary_background_fill_dark="#2f6fe4",
        button_primary_background_fill_hover_dark="#4a84ee",
        button_primary_text_color="#ffffff",
    )


QUIET: dict[str, Any] = {"api_visibility": "private", "show_progress": "hidden"}
SHOWN = '() => document.dispatchEvent(new CustomEvent("specviz:tab", { detail: "%s" }))'
TABS: dict[str, Callable[[Desk], None]] = {
    "inspect": lambda desk: inspect.build(desk, owner),
    "compare": lambda _: compare.build(),
    "attribution": lambda _: attribution.build(),
    "lessons": lambda _: lessons.build(),
    "lab": lambda _: lab.build(),
    "trees": lambda _: trees.build(),
    "runs": lambda _: runs.build(),
}
MAX_SESSIONS = 200  # open pages whose state Gradio holds


def owner(request: gr.Request | None) -> str:
    """Whose runs are meant."""
    return owner_of(request.request) if request is not None and request.request is not None else ""


def _session(request: gr.Request) -> str:
    """The open page's name, so that what it starts ends when it is closed."""
    return tell(session=request.session_hash or "")


def _tab(name: Any) -> Any:
    """Shows a tab, where there is one of that name."""
    return gr.Tabs(selected=name) if name in TABS else gr.skip()


def _asked(request: gr.Request) -> Any:
    """Shows the tab that the address names."""
    return _tab(request.query_params.get("tab"))


def build(desk: Desk) -> gr.Blocks:
    """All pages."""
    with gr.Blocks(title="specviz", fill_width=True, analytics_enabled=False, delete_cache=(3600, 3600)) as blocks:
        brand = part("brand", "sv-brand", events=("named", "go"))
        brand.named(_session, None, brand, queue=False, **QUIET)
        with gr.Tabs(elem_id="sv-tabs") as tabs:
            for name, content in TABS.items():
                with gr.Tab(name.capitalize(), id=name) as tab:
                    content(desk)
                tab.select(None, None, None, js=SHOWN % name, queue=False, **QUIET)
        brand.go(lambda value: _tab(told(value).get("tab")), brand, tabs, queue=False, **QUIET)
        blocks.load(_asked, None, tabs, queue=False, **QUIET)
        api.build(desk, owner)

        def left(request: gr.Request) -> None:
            desk.runner.leave(request.session_hash or "")

        blocks.unload(left)
    blocks.state_session_capacity = MAX_SESSIONS
    blocks.queue(default_concurrency_limit=16, max_size=200, api_open=True)
    return blocks
