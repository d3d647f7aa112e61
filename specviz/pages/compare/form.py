"""Page "Compare": methods side by side on one prompt."""

from __future__ import annotations

import gradio as gr

from specviz.server.desk import Desk
from specviz.shell.parts import part, tell


def build(_: Desk) -> None:
    box = part("compare", "sv-compare", tells="seen")

    def session(request: gr.Request) -> str:
        """The open page's name, so that its runs end when it is closed."""
        return tell(session=request.session_hash or "")

    box.seen(session, None, box, queue=False, api_visibility="private", show_progress="hidden")
