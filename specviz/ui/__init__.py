"""The pages: Gradio blocks around one renderer that draws in the browser."""

from __future__ import annotations

from .assets import assets, with_head
from .page import build, theme

__all__ = ["assets", "build", "theme", "with_head"]
