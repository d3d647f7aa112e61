"""Limits on other packages: their messages on the screen and their threads."""

from __future__ import annotations

import os


def settle(threads: int | None = None) -> None:
    """Keep other packages' bars, warnings and retry messages off the screen, and set the CPU threads asked for."""
    os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")
    import huggingface_hub
    import transformers

    huggingface_hub.logging.set_verbosity_error()
    transformers.logging.set_verbosity_error()
    transformers.logging.disable_progress_bar()
    if threads:
        import torch

        torch.set_num_threads(threads)
