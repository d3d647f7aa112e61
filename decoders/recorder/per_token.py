"""The rules that a call of generate() brings and that are asked token by token: criteria, processors, its streamer."""

from __future__ import annotations

from dataclasses import replace
from typing import Any, cast

import torch
from jaxtyping import Float, Int
from torch import Tensor
from transformers import LogitsProcessorList, StoppingCriteriaList

from decoders.draft.draft import Draft, Scored, Verdict, emitted_tokens
from decoders.engine.decoding import Attempt, Decoding
from decoders.errors import UserError
from decoders.model.target_model.target import Session
from decoders.names import BEHIND_END
from decoders.verifiers.match import MatchVerifier, cut_behind
from decoders.verifiers.sampling import Chooser, Sampling, drawn_token

CRITERION = "stopped by a criterion"


class Output:
    """The text that plain generate() would hand to the call's rules: the call's own ids, then the tokens so far.

    ``scores`` and ``logits`` have a row for each token, where the call asked for them: after and before its processors.
    """

    def __init__(self, input_ids: Int[Tensor, "1 length"], config: Any, processors: LogitsProcessorList) -> None:
        longest = max(int(config.max_length), input_ids.shape[1]) + 1
        self._ids = input_ids.new_zeros(1, longest)
        self.length = self.prompt_length = input_ids.shape[1]
        self._ids[:, : self.length] = input_ids
        self.processors = processors
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


class ProcessedChooser(Chooser):
    """Chooses from logits that went through the call's processors, each given the prefix of the node that is visited.

    A processor is asked once per visited node and in the order of the text, as plain decoding asks it: it may count.
    """

    def __init__(self, sampling: Sampling, output: Output) -> None:
        super().__init__(sampling)
        self.output = output
        self.processed: list[Float[Tensor, "1 vocab"]] = []  # of the step, node by node

    def choices(self, logits: Float[Tensor, "nodes vocab"], depths: Any = (0,)) -> Any:
        self.processed = []
        return _ProcessedChoices(self, logits)


class _ProcessedChoices:
    """The target's token after each visited node of one draft, by the call's processors."""

    def __init__(self, chooser: ProcessedChooser, logits: Float[Tensor, "nodes vocab"]) -> None:
        self.chooser, self.logits = chooser, logits

    def draw_after(self, node: int) -> int:
        chooser, output = self.chooser, self.chooser.output
        place = output.length + len(chooser.processed)
        scores = output.processors(output.ids(place), self.logits[node : node + 1].clone())
        chooser.processed.append(scores)
        if chooser.sampling.greedy:
            token = int(scores.argmax(-1))
        else:
            token = drawn_token(scores.softmax(-1)[0], float(chooser.random.random()))
        output.write(place, token)
        return token


class CallDecoding(Decoding):
    """A decoding under a user's call: its criteria and its streamer are told every token, on the prefix up to it.

    ``follow`` gives it the call's rules. The output ends with the first token for which a criterion holds.
    """

    output: Output
    criteria: StoppingCriteriaList
    streamer: Any = None

    def follow(self, output: Output, criteria: StoppingCriteriaList, streamer: Any) -> None:
        """Ask these rules from now on. Raises UserError for processors beside a verifier that has a rule of its own."""
        self.output, self.criteria, self.streamer = output, criteria, streamer
        warpers = Chooser(self.sampling).warpers
        if [(type(p), vars(p)) for p in output.processors] == [(type(p), vars(p)) for p in warpers]:
            return  # what the engine does by itself
        if not self.verifier.lossless:
            names = ", ".join(type(processor).__name__ for processor in output.processors)
            raise UserError(
                f"{names}: a verifier that lets other tokens stand than the target's own has no place for logits "
                "processors; leave them out, or take a lossless method"
            )
        self.verifier = MatchVerifier(ProcessedChooser(self.sampling, output))

    def attempt(self, session: Session) -> Attempt:
        attempt = super().attempt(session)
        verdict = self._tell(attempt.draft, attempt.scored, attempt.verdict)
        return replace(attempt, verdict=verdict)

    def _tell(self, draft: Draft, scored: Scored, verdict: Verdict) -> Verdict:
        """Tell the call's rules the step's tokens, one after the other; the verdict, cut where one ends the output."""
        output = self.output
        for count, token in enumerate(emitted_tokens(draft.tree.tokens, verdict), start=1):
            self._keep(scored.logits[verdict.path[count - 1]][None], count)
            output.write(output.length, token)
            output.length += 1
            end_flags = self.criteria(output.ids(output.length), cast(Any, output.scores))
            if self.streamer is not None:
                self.streamer.put(torch.tensor([token]))
            if bool(end_flags.all()):
                self.stop = CRITERION  # a stop token or the length, where it is that, is named by the engine
                return cut_behind(draft, verdict, count, BEHIND_END)
        return verdict

    def _keep(self, logits: Float[Tensor, "1 vocab"], count: int) -> None:
        """Keep the logits of the step's token number ``count``, before and after processors, where the call asks."""
        output = self.output
        if output.logits is not None:
            output.logits += (logits.clone(),)
        if output.scores is None:
            return
        chooser = self.verifier.chooser
        if isinstance(chooser, ProcessedChooser):
            scores = chooser.processed[count - 1]
        else:
            scores = output.processors(output.ids(output.length), logits.clone())
        output.scores += (scores,)
