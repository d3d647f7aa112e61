"""The page as a whole: its frame, a tab for every page of the desk, its named API."""

from __future__ import annotations

import gradio as gr
from gradio.themes import Base

from specviz.server.desk import Desk

from . import api
from .parts import part, tell

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


MAX_SESSIONS = 200  # open pages whose state Gradio holds


def _session(request: gr.Request) -> str:
    """The open page's name, so that what it starts ends when it is closed."""
    return tell(session=request.session_hash or "")


def build(desk: Desk) -> gr.Blocks:
    """All pages."""
    with gr.Blocks(title="specviz", fill_width=True, analytics_enabled=False, delete_cache=(3600, 3600)) as blocks:
        brand = part("brand", "sv-brand", tells="named")
        brand.named(_session, None, brand, queue=False, api_visibility="private", show_progress="hidden")
        with gr.Tabs(elem_id="sv-tabs"):
            for page in desk.pages:
                if page.title:
                    with gr.Tab(page.title, id=page.name):
                        if page.form is not None:
                            page.form(desk)
                        else:
                            part(page.name, f"sv-{page.name}")
        api.build(desk)

        def left(request: gr.Request) -> None:
            desk.runner.leave(request.session_hash or "")

        blocks.unload(left)
    blocks.state_session_capacity = MAX_SESSIONS
    blocks.queue(default_concurrency_limit=16, max_size=200, api_open=True)
    return blocks
