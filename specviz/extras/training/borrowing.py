"""Base of training runs of networks that borrow the target's embedding and head: draft models and heads."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import torch

from decoders.draft_models.borrowing import Borrowing

from .data import TrainingSource, vocabulary_documents
from .learning import commonest, cosine_factor
from .loop import PartRun


class BorrowingRun(PartRun):
    """A training run of ``network`` beside its frozen target ``model``, whose embedding and head it takes. What it can
    draft are the commonest tokens of the data, or those of the checkpoint that is gone on from.
    """

    def __init__(
        self,
        kind: str,
        folder: Path,
        model: Any,
        name: str,
        source: TrainingSource,
        recipe: Any,
        seed: int,
        network: Borrowing,
    ) -> None:
        self.config = network.config
        super().__init__(kind, folder, model, name, source, recipe, seed)
        self.model = model.eval().requires_grad_(False)
        self.trained = self.network = network.to(self.device)
        if network.drafted is not None:
            network.drafted.copy_(commonest(vocabulary_documents(source), self.config, model.generation_config))
        self._share()

    def factor(self, progress: float) -> float:
        return cosine_factor(self.step, progress, self.recipe.warmup_steps)

    def open(self, resume: bool) -> None:
        super().open(resume)
        self._share()  # the tokens that can be drafted are the checkpoint's

    def half(self) -> Any:
        """Matrix products in bf16, where the recipe says so."""
        return torch.autocast(self.device.type, torch.bfloat16, enabled=self.recipe.half)

    def _share(self) -> None:
        self.network.share(self.model.get_input_embeddings().weight, self.model.get_output_embeddings().weight)
