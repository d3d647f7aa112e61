"""A teacher-forced answer, read without a part of its prompt: the fall of each token's log-probability.

Two ways to leave a part out. *Masked*: no row behind the part may attend to it (the tree mask), and all positions stay.
*Read again*: the part's tokens are no longer in the text, and what stands behind them moves up. The first is one
forward over the rows behind the part; the second is what the model would really read. Both start from the rows before
the part, which do not know it.

>>> answer = ReadAnswer(target, prompt_ids, answer_ids)                # doctest: +SKIP
>>> [round(fall, 2) for fall in answer.without(range(20, 45)).fall]    # doctest: +SKIP
[0.01, 3.72, 0.4]
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor

from decoders.draft.needs import Needs
from decoders.errors import UserError
from decoders.model.files.shape import ROTARIES
from decoders.model.target_model.target import Target

from ..look.run_settings import check_ids
from ..look.teacher_forcing import check_answer


@dataclass(frozen=True, slots=True)
class Without:
    """An answer without a part of its prompt. Per token of the answer: ``fall``, log p with the part less log p with it
    masked (nats; None where the model cannot be masked); ``reread``, the same with the text read again (None where
    that was not asked for); ``instead``, the first choice that the model then has, and ``instead_p`` its probability.
    """

    fall: tuple[float, ...] | None
    reread: tuple[float, ...] | None
    instead: tuple[int, ...]
    instead_p: tuple[float, ...]

    @property
    def falls(self) -> tuple[float, ...]:
        """The masked form's fall; the other's where the model cannot be masked."""
        falls = self.reread if self.fall is None else self.fall
        assert falls is not None
        return falls


class ReadAnswer:
    """A prompt and an answer (token ids), read once: ``logp`` is each answer token's log-probability. ``mask_fault``:
    the reason why no part can be masked, "" where one can.
    """

    def __init__(self, target: Target, prompt: Sequence[int], answer: Sequence[int]) -> None:
        check_ids(target, [*prompt, *answer])
        check_answer(target, answer, len(prompt))
        self.target, self.answer, self.prompt_length = target, tuple(answer), len(prompt)
        self.ids = (*prompt, *answer)
        self.mask_fault = ""
        if target.shape.recurrent_layers:
            self.mask_fault = f"{target.name} has recurrent layers: what they have read cannot be masked"
        elif target.shape.rotary not in ROTARIES:
            self.mask_fault = f"{target.name}'s rotary positions depend on the length of the text"
        self.session = target.session(Needs(), len(self.ids))
        self.session.prefill(prompt)
        self.logp = self._logp(self._read(self.session.cache.length, self.ids))

    def without(self, part: Collection[int], *, reread: bool = True) -> Without:
        """The answer without these positions of the prompt; its last token stays, whatever is asked.

        Raises UserError for positions outside the prompt, and where nothing would be left out.
        """
        hidden = sorted({*part} - {self.prompt_length - 1})
        if not hidden or hidden[0] < 0 or hidden[-1] >= self.prompt_length:
            raise UserError(
                f"nothing can be left out: give positions of the prompt, from 0 to {self.prompt_length - 2}"
            )
        falls: list[tuple[float, ...] | None] = [None, None]
        first_rows: Tensor | None = None
        for number, is_asked in enumerate((not self.mask_fault, reread or bool(self.mask_fault))):
            if is_asked:
                rows = self._without(hidden, masked=number == 0)
                falls[number] = tuple((self.logp - self._logp(rows)).tolist())
                first_rows = rows if first_rows is None else first_rows
        assert first_rows is not None
        probs, choices = first_rows.softmax(-1).max(-1)
        return Without(falls[0], falls[1], tuple(choices.tolist()), tuple(probs.tolist()))

    def _logp(self, rows: Float[Tensor, "tokens vocab"]) -> Float[np.ndarray, " tokens"]:
        logp = torch.log_softmax(rows, -1)[torch.arange(len(self.answer)), torch.tensor(self.answer)]
        return logp.double().numpy()

    def _without(self, hidden: Sequence[int], *, masked: bool) -> Float[Tensor, "tokens vocab"]:
        """Logits of the answer's tokens without the hidden positions; the rows read before are as they were."""
        hidden_rows = np.zeros(len(self.ids), dtype=bool)
        hidden_rows[list(hidden)] = True
        text = self.ids if masked else tuple(np.asarray(self.ids)[~hidden_rows].tolist())
        if self.mask_fault:
            session = self.target.session(Needs(), len(text))
            session.prefill(text[: len(text) - len(self.answer)])
            return self._read(session.cache.length, text, cache=session.cache)
        cache = self.session.cache
        first = hidden[0]
        # the first row that could see what is hidden
        start = first + int(np.argmin(hidden_rows[first:])) if masked else first
        assert cache.store is not None
        with torch.inference_mode():
            saved_rows = cache.store[:, :, :, start : self.prompt_length - 1].clone()
            try:
                cache.cut(start)
                return self._read(start, text, hidden_rows if masked else None)
            finally:
                cache.store[:, :, :, start : self.prompt_length - 1] = saved_rows
                cache.cut(self.prompt_length - 1)

    def _read(
        self, start: int, text: Sequence[int], hidden_rows: np.ndarray | None = None, cache: Any = None
    ) -> Float[Tensor, "tokens vocab"]:  # fmt: skip
        """Read a text from a row on; logits [tokens, vocab] (CPU) of the rows that predict the answer."""
        target, cache = self.target, cache or self.session.cache
        root, stop = len(text) - len(self.answer) - 1, len(text) - 1
        logits: list[Tensor] = []
        while start < stop:
            edge = root if start < root else stop  # the answer's rows apart: of the others no logits are needed
            end = min(edge, start + target.rows_at_once(start, edge))
            positions = np.arange(start, end)
            sees, keys = None, None
            if hidden_rows is not None:
                keys = np.arange(int(np.argmax(hidden_rows)), end)  # keys from the first hidden one on
                sees = (keys <= positions[:, None]) & ~hidden_rows[keys] | (keys == positions[:, None])
            with target.lock:
                rows = target.forward(
                    cache, self.session.masks, text[start:end], positions, sees, own_positions=keys,
                    last_only=end <= root, whole=True,
                )  # fmt: skip
            cache.commit(range(end - start))
            if end > root:
                logits.append(rows.cpu())
            start = end
        return torch.cat(logits)
