"""The page as a whole: its frame, a tab for every page of the desk, its named API."""

from __future__ import annotations

from typing import Any

import gradio as gr
from gradio.themes import Base

from specviz.server.desk import Desk

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
MAX_SESSIONS = 200  # open pages whose state Gradio holds


def _session(request: gr.Request) -> str:
    """The open page's name, so that what it starts ends when it is closed."""
    return tell(session=request.session_hash or "")


def build(desk: Desk) -> gr.Blocks:
    """All pages."""
    shown = [page for page in desk.services.values() if page.title]

    def selected(name: Any) -> Any:
        """Shows a tab, where there is one of that name."""
        return gr.Tabs(selected=name) if any(page.name == name for page in shown) else gr.skip()

    def asked(request: gr.Request) -> Any:
        """Shows the tab that the address names."""
        return selected(request.query_params.get("tab"))

    with gr.Blocks(title="specviz", fill_width=True, analytics_enabled=False, delete_cache=(3600, 3600)) as blocks:
        brand = part("brand", "sv-brand", events=("named", "go"))
        brand.named(_session, None, brand, queue=False, **QUIET)
        with gr.Tabs(elem_id="sv-tabs") as tabs:
            for page in shown:
                with gr.Tab(page.title, id=page.name) as tab:
                    if page.form is not None:
                        page.form(desk)
                    else:
                        part(page.name, f"sv-{page.name}", page.module or f"{page.name}/page")
                tab.select(None, None, None, js=SHOWN % page.name, queue=False, **QUIET)
        brand.go(lambda value: selected(told(value).get("tab")), brand, tabs, queue=False, **QUIET)
        blocks.load(asked, None, tabs, queue=False, **QUIET)
        api.build(desk)

        def left(request: gr.Request) -> None:
            desk.runner.leave(request.session_hash or "")

        blocks.unload(left)
    blocks.state_session_capacity = MAX_SESSIONS
    blocks.queue(default_concurrency_limit=16, max_size=200, api_open=True)
    return blocks
