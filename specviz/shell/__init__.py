"""The pages: Gradio blocks around one renderer that draws in the browser."""

from __future__ import annotations

from .assets import asset, assets, plotly, with_head
from .page import build, theme

__all__ = ["asset", "assets", "build", "plotly", "theme", "with_head"]
