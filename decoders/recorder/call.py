"""One call of generate() while it runs: what is seen of its steps, and the trace of each of its outputs."""

from __future__ import annotations

import platform
import time
import uuid
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

import torch
from jaxtyping import Float, Int
from torch import Tensor

from decoders.engine.rows import Recording
from decoders.errors import first_line
from decoders.model.files.shape import token_ids
from decoders.model.state.transfer import Mark, Span, mark
from decoders.model.target_model.load import versions
from decoders.prompt.pieces import Pieces
from decoders.trace import metrics
from decoders.trace.trace import Trace

from .kinds import PLAIN, describe, kind_of, sampling_of
from .observation import AsProcessed, ObservedStep, Steps
from .per_token import CRITERION

FIRST_FORWARD = "the first forward of generate() reads the prompt, too: its time is the prefill's"
WAITING_BYTES = {"cpu": 2 << 20, "cuda": 256 << 20}  # of logits that wait to be recorded; a CPU's fit its cache


@dataclass(slots=True)
class CallOutput:
    """One row of the batch: its trace as it grows, and whether it goes on."""

    trace: Trace
    rows: Recording
    steps: Steps
    processed: AsProcessed
    elapsed_ms: float = 0.0
    is_over: bool = False


class Call:
    """Follows one call, step by step: ``on_proposal``, ``take_logits`` and ``on_verdict`` take what was seen,
    ``step_ended`` closes a step. ``finish`` gives the traces, one per output.
    """

    def __init__(self, about: dict[str, Any], pieces: Pieces | None, device: torch.device, title: str) -> None:
        self.about, self.pieces, self.device, self.title = about, pieces, device, title
        self.config: Any = None  # the generation config, once it is prepared
        self.mask: Int[Tensor, "rows length"] | None = None  # of the prompts, where they are padded
        self.processors: list[str] = []  # logits processors, by their classes' names
        self.generator: Any = None
        self.outputs: list[CallOutput] = []
        self.first_ms: Span | None = None
        self._waiting: list[list[ObservedStep]] = []
        self._bytes = 0
        self._begun: Mark = None  # of the step
        self._drafted: tuple[Tensor, Tensor | None, Mark] | None = None
        self._logits: Tensor | None = None
        self._processed: Tensor | None = None
        self._verified: Mark = None
        self._length = 0  # of the sequences, padding included
        self._prompts = 0  # length of the prompts, padding included

    def begin(self) -> None:
        """Before the prompt is read."""
        self._begun = mark(self.device)

    def on_proposal(self, ids: Int[Tensor, "1 length"], candidates: Tensor, logits: Tensor | None) -> None:
        """Take the candidate generator's draft."""
        drafted = candidates[0, ids.shape[1] :].to(self.device)
        if not len(drafted):
            logits = None
        elif logits is not None:
            logits = logits[0, : len(drafted)].to(self.device)
        self._length = ids.shape[1]
        self._drafted = drafted, logits, mark(self.device)

    def take_logits(self, logits: Float[Tensor, "rows positions vocab"]) -> None:
        """The raw logits of a forward; those of the prompt are not kept. Processors may write into them."""
        nodes = 1 if self._drafted is None else len(self._drafted[0]) + 1
        node_logits = logits[:, -nodes:]
        if self.processors or logits.shape[1] > nodes:
            node_logits = node_logits.clone()
        self._logits = node_logits

    def on_verdict(self, processed: Float[Tensor, "1 nodes vocab"]) -> None:
        """The logits after the run's processors, once the draft was verified."""
        self._verified = mark(self.device)
        if self.config.do_sample and self._drafted is not None and self._drafted[1] is not None:
            self._processed = processed

    def step_ended(self, ids: Int[Tensor, "rows length"], end_flags: Tensor) -> None:
        """After the new tokens were chosen; ``end_flags`` says which outputs end here."""
        end_mark = mark(self.device)
        if self._drafted is None:
            self._length = ids.shape[1] - 1
        if not self.outputs:
            self._open(ids[:, : self._length])
        logits = self._logits
        if logits is None:  # no forward of the model that is recorded
            return
        drafted, draft_logits, proposed = self._drafted or (None, None, self._begun)
        marks = self._begun, proposed, self._verified or end_mark, end_mark
        for row, waiting in enumerate(self._waiting):
            if self.outputs[row].is_over:
                continue
            processed = None if self._processed is None else self._processed[row]
            new = ids[row, self._length :]
            observation = ObservedStep(drafted, draft_logits, logits[row].float(), processed, new, marks)
            waiting.append(observation)
            self._bytes += observation.nbytes
        if len(self.outputs) > 1:
            for output, over in zip(self.outputs, end_flags.tolist(), strict=True):
                output.is_over = output.is_over or over
        self._drafted = self._logits = self._processed = self._verified = None
        if self._bytes >= WAITING_BYTES.get(self.device.type, WAITING_BYTES["cpu"]):
            self.record()
        self._begun = mark(self.device)

    def record(self, final_outputs: Sequence[Sequence[int]] | None = None) -> None:
        """Write the rows of the steps that wait. ``final_outputs``: the outputs as generate() gave them, which may be
        shorter than what was seen.
        """
        for row, waiting in enumerate(self._waiting):
            if not waiting:
                continue
            output, steps, elapsed = self.outputs[row], [], []
            room = (
                None
                if final_outputs is None
                else len(final_outputs[row]) - (output.steps.length - len(output.trace.prompt_ids))
            )
            for observation in waiting:
                emitted = observation.emitted.tolist()
                if room is not None:
                    emitted = emitted[: max(room, 0)]
                    room -= len(emitted)
                if not emitted:
                    break
                step = output.steps.of(observation, emitted)
                if step.index == 0:
                    self.first_ms = step.verify_ms
                if step.draft.drawn and observation.processed is not None:
                    output.processed.rows.append(observation.processed[: step.draft.tree.drafted])
                first = 0.0 if step.index == 0 else float(step.verify_ms)
                output.elapsed_ms += float(step.draft_ms) + first + float(step.commit_ms)
                steps.append(step)
                elapsed.append(output.elapsed_ms)
            if steps:
                output.rows.steps(steps, elapsed)
            output.processed.rows.clear()
            waiting.clear()
        self._bytes = 0

    def finish(self, sequences: Tensor | None, error: BaseException | None = None) -> list[Trace]:
        """The traces of all outputs; ``sequences`` is what generate() gave, None where it raised ``error``."""
        final_outputs = None
        if sequences is not None and self.outputs:
            final_outputs = [row[self._prompts :] for row in sequences.tolist()]
        self.record(final_outputs)
        return [self._finish(output, error) for output in self.outputs]

    def _open(self, prompts: Int[Tensor, "rows length"]) -> None:
        """The outputs' traces, once it is known how generate() drafts."""
        self._prompts = prompts.shape[1]
        kind = PLAIN if self.generator is None else kind_of(self.generator)
        about = describe(kind, self.generator, self.config, self.processors)
        stops = token_ids(getattr(self.config, "eos_token_id", None))
        warp_settings = sampling_of(self.config)
        sampling = {name: value for name, value in asdict(warp_settings).items() if name != "seed"}
        room = (self.config.max_length or 0) - self._prompts
        masks = [None] * len(prompts) if self.mask is None else list(self.mask[:, : prompts.shape[1]].bool())
        for number, (row, mask) in enumerate(zip(prompts, masks, strict=True), start=1):
            ids: list[int] = (row if mask is None else row[mask.to(row.device)]).tolist()
            title = self.title or kind.title
            trace = Trace.new({
                "id": uuid.uuid4().hex[:16],
                "title": f"{title}, output {number} of {len(prompts)}" if len(prompts) > 1 else title,
                "created": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()),
                "complete": False, "stop": "", "error": "", "model": self.about, **about,
                "reads": {"hidden_layer": None, "heads": []}, "sampling": sampling, "max_new_tokens": max(room, 0),
                "prompt_length": len(ids), "stop_ids": sorted(stops),
                "versions": {**versions(), "python": platform.python_version()},
                "timings": {"prefill_ms": None, "prepare_ms": None, "decode_ms": None},
                "recorded_from": {"what": "transformers generate()", "notes": [FIRST_FORWARD]},
                "metrics": {}, "metric_help": metrics.metric_help(),
            })  # fmt: skip
            processed = AsProcessed(warp_settings)
            rows = Recording(trace, self.pieces, processed)
            rows.read(ids, "text")
            self.outputs.append(CallOutput(trace, rows, Steps(kind, about["method"]["params"], ids, stops), processed))
            self._waiting.append([])

    def _finish(self, output: CallOutput, error: BaseException | None) -> Trace:
        trace, run = output.trace, output.trace.run
        steps, output_ids = trace.tables["steps"], trace.output_ids
        if steps["verify_ms"]:
            steps["verify_ms"][0] = None
        run["timings"]["prefill_ms"] = None if self.first_ms is None else round(float(self.first_ms), 3)
        run["timings"]["decode_ms"] = round(output.elapsed_ms, 3)
        if error is not None:
            run["stop"] = "error"
            run["error"] = f"generate() raised {type(error).__name__}: {first_line(error, 400)}"
        elif output_ids and output_ids[-1] in output.steps.stop_ids:
            run["stop"] = "eos"
        else:
            run["stop"] = "max tokens" if len(output_ids) >= run["max_new_tokens"] else CRITERION
        metrics.fill_would_accept(trace)
        run["metrics"] = metrics.compute(trace)
        run["complete"] = True
        return trace
