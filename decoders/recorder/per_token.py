"""The rules that a call of generate() brings and that are asked token by token: criteria, processors, its streamer."""

from __future__ import annotations

from dataclasses import replace
from typing import Any, cast

import torch
from jaxtyping import Float, Int
from torch import Tensor
from transformers import StoppingCriteriaList

from decoders.draft.draft import Draft, Scored, Verdict, emitted_tokens
from decoders.engine.decoding import Attempt, Decoding
from decoders.model.target_model.target import Session
from decoders.names import BEHIND_END
from decoders.verifiers.match import MatchVerifier, cut_behind
from decoders.verifiers.processors import ProcessedStep

CRITERION = "stopped by a criterion"


class Output:
    """The text that plain generate() would hand to the call's rules: the call's own ids, then the tokens so far.

    ``scores`` and ``logits`` have a row for each token, where the call asked for them: after and before its processors.
    """

    def __init__(self, input_ids: Int[Tensor, "1 length"], config: Any) -> None:
        longest = max(int(config.max_length), input_ids.shape[1]) + 1
        self._ids = input_ids.new_zeros(1, longest)
        self.length = self.prompt_length = input_ids.shape[1]
        self._ids[:, : self.length] = input_ids
        returns_dict = bool(config.return_dict_in_generate)
        self.scores: tuple[Tensor, ...] | None = () if returns_dict and config.output_scores else None
        self.logits: tuple[Tensor, ...] | None = () if returns_dict and config.output_logits else None

    def ids(self, length: int) -> Any:
        """The first ``length`` tokens."""
        return self._ids[:, :length]

    def write(self, place: int, token: int) -> None:
        """Put a token at a place; those behind it are drafts and count for nothing."""
        self._ids[0, place] = token

    @property
    def sequences(self) -> Int[Tensor, "1 length"]:
        return self.ids(self.length).clone()


class CallDecoding(Decoding):
    """A decoding under a user's call: its criteria and its streamer are told every token, on the prefix up to it.

    ``follow`` gives it the call's rules. The output ends with the first token for which a criterion holds.
    """

    output: Output
    criteria: StoppingCriteriaList
    streamer: Any = None

    def follow(self, output: Output, criteria: StoppingCriteriaList, streamer: Any) -> None:
        """Ask these rules from now on."""
        self.output, self.criteria, self.streamer = output, criteria, streamer
        if self.processing is not None and not self.processing.anywhere:
            self.verifier = MatchVerifier(self.verifier.chooser)

    def attempt(self, session: Session) -> Attempt:
        attempt = super().attempt(session)
        verdict = self._tell(attempt.draft, attempt.scored, attempt.verdict, attempt.processed_step)
        return replace(attempt, verdict=verdict)

    def _tell(self, draft: Draft, scored: Scored, verdict: Verdict, processed: ProcessedStep | None) -> Verdict:
        """Tell the call's rules the step's tokens, one after the other; the verdict, cut where one ends the output."""
        output = self.output
        for count, token in enumerate(emitted_tokens(draft.tree.tokens, verdict), start=1):
            node = verdict.path[count - 1]
            self._keep(scored.logits[node][None], processed and processed.row(node))
            output.write(output.length, token)
            output.length += 1
            end_flags = self.criteria(output.ids(output.length), cast(Any, output.scores))
            if self.streamer is not None:
                self.streamer.put(torch.tensor([token]))
            if bool(end_flags.all()):
                self.stop = CRITERION  # a stop token or the length, where it is that, is named by the engine
                return cut_behind(draft, verdict, count, BEHIND_END)
        return verdict

    def _keep(self, logits: Float[Tensor, "1 vocab"], processed: Float[Tensor, "1 vocab"] | None) -> None:
        """Keep the logits of a token, before and after processors, where the call asks."""
        output = self.output
        if output.logits is not None:
            output.logits += (logits.clone(),)
        if output.scores is not None:
            row = logits if processed is None else processed
            output.scores += (self.verifier.chooser.warpers(cast(Any, None), row.clone()),)
