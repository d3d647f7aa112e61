"""A plugin for SGLang that records every draft tree and what the target let stand of it, request by request.

SGLang loads it through the entry point ``sglang.srt.plugins`` in every process; it does nothing unless the environment
names a folder:

    SPECVIZ_RECORD=FOLDER python -m sglang.launch_server …                       # requests that ask for it
    SPECVIZ_RECORD=FOLDER SPECVIZ_RECORD_ALL=1 python -m sglang.launch_server …  # every request
    SPECVIZ_RECORD=FOLDER SPECVIZ_RECORD_TOP=20 python -m sglang.launch_server … # so many first choices, else 5

A request asks with ``"custom_params": {"specviz": 1}`` in its sampling parameters. The hook stands around
``eagle_sample``, which decides for EAGLE, MTP and n-gram drafts: it reads the whole tree and the target's logits before
the call, the accepted path behind it, and changes nothing. DFlash and DSpark decide elsewhere (for DSpark there is the
importer of ``/server_info``). A signature that is not the known one is refused in one log line.

**Not run:** a server of SGLang needs a GPU, and none was run with this hook, nor ``eagle_sample`` itself. Of sglang
0.5.23 the hook registry was run, and signatures and fields were compared with its files
(specviz/extras/servers/tests/test_sglang_recorder.py); trees and verdicts there are made by hand.
"""

from __future__ import annotations

import inspect
import logging
import time
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from decoders.importers.request import NO_DRAFT, PROMPT_STEP, ServerStep, Token
from decoders.top_k import top_k

from .recorder import FULL, RecordedBatch, RequestRecording, ServerRecorder, choices_of, on_device, ranks_of, to_host
from .requests import Requests, model_name, start, with_version

log = logging.getLogger("specviz.recorder")

SOURCE, TITLE = "sglang-recorder", "SGLang, recorded"
SAMPLE = ("sglang.srt.speculative.eagle_utils", "eagle_sample")
RESULT = ("sglang.srt.managers.scheduler_components.batch_result_processor", "SchedulerBatchResultProcessor")
DECODING = "process_batch_result_decode"
VERSIONS = {
    SAMPLE[1]: ("verify_input", "batch", "logits_output"),  # its first parameters; what follows is passed on
    DECODING: ("self", "batch", "result"),
}
REFUSED = "specviz records nothing: {name} begins with ({found}) in this SGLang, and ({known}) is known"
MAX_OVER = 4096  # requests that are over, of which a forward may still be under way
NO_TOKEN = -1


def register() -> None:
    """Hook the sampling of this process, where the environment names a folder. Never raises."""
    start(_install)


def _install(folder: Path, all_requests: bool) -> None:
    import importlib

    registry: Any = importlib.import_module("sglang.srt.plugins.hook_registry")
    sample = getattr(importlib.import_module(SAMPLE[0]), SAMPLE[1])
    processor = getattr(importlib.import_module(RESULT[0]), RESULT[1])
    install(registry, sample, getattr(processor, DECODING), folder, all_requests)


def install(registry: Any, sample: Any, decoded: Any, folder: Path, record_all: bool) -> TreeTaps | None:
    """Register both hooks; None, said in one line, where a signature is not the known one."""
    for function in (sample, decoded):
        name = function.__name__
        parameters = tuple(inspect.signature(function).parameters)[: len(VERSIONS[name])]
        if parameters != VERSIONS[name]:
            log.error(REFUSED.format(name=name, found=", ".join(parameters), known=", ".join(VERSIONS[name])))
            return None
    taps, hook_type, hooks = TreeTaps(folder, record_all), registry.HookType.AROUND, registry.HookRegistry
    hooks.register(".".join(SAMPLE), taps.sample, hook_type)
    hooks.register(".".join((*RESULT, DECODING)), taps.after_decoding, hook_type)
    return taps


@dataclass(slots=True)
class TreeBatch(RecordedBatch):
    """One verification of a tree per recorded request, as tensors of the host.

    ``drafted`` [requests, nodes] has the tree's tokens, the root first, ``parents`` the node above each (the root's:
    -1, and of places that the tree does not use), ``places`` the root's position, ``accepted`` [requests, depth] the
    nodes that stood, the root first, padded with -1, and ``tokens`` [requests, depth] what the target wrote behind
    each. ``top_ids``, ``top_logprobs`` have a row per node; ``logprobs`` and ``ranks`` a number per node.
    """

    parents: Any = None
    places: Any = None
    accepted: Any = None


class TreeRecorder(ServerRecorder):
    """A recorder of draft trees."""

    def _add(self, batch: RecordedBatch) -> None:
        assert isinstance(batch, TreeBatch)
        batch.ready()
        numbers = [t.tolist() for t in (batch.drafted, batch.parents, batch.places, batch.accepted, batch.tokens)]
        probs, ranks = batch.logprobs.double().exp().tolist(), batch.ranks.tolist()
        tops = [choices_of(*pair) for pair in zip(batch.top_ids, batch.top_logprobs, strict=True)]
        q = None if batch.q is None else batch.q.tolist()
        draft_ms, verify_ms = batch.draft_ms(), batch.verify_ms()
        for place, recording in enumerate(batch.recordings):
            tokens, parents, root, path, wrote = (column[place] for column in numbers)
            if recording.truncated or recording.stop or not self._reaches(recording, root, tokens[0], batch):
                continue
            order = reachable(parents)
            number = {node: i for i, node in enumerate(order)}
            accepted = [number[node] for node in path[1:] if node in number]
            new_tokens = wrote[: len(accepted) + 1]
            step = ServerStep(len(new_tokens), len(accepted), len(order) - 1, reason="" if len(order) > 1 else NO_DRAFT)
            step.draft = [[(tokens[i], None, None if q is None else q[place][i])] for i in order[1:]]
            step.draft_choices = [(probs[place][i], ranks[place][i]) for i in order[1:]]
            step.tops = [tops[place][i] for i in order]
            step.parents, step.path = [number[parents[i]] for i in order[1:]], accepted
            step.draft_ms, step.verify_ms = draft_ms, verify_ms
            self._extend(recording, batch, step, new_tokens, [step.tops[node] for node in (0, *accepted)])
            probs_of = [step.draft_choices[node - 1][0] for node in accepted]
            for token, prob in zip(recording.tokens[-step.emitted :], probs_of, strict=False):
                token.prob = prob
        self._note_live(batch)

    def _reaches(self, recording: RequestRecording, root: int, token: int, batch: RecordedBatch) -> bool:
        """Say whether the recording goes up to the tree's root, at this position. The forward that reads a prompt has
        written the first token, and one more where a request was taken back: a step without a draft is added for it.
        """
        last_place = len(recording.prompt_ids) + len(recording.tokens) - 1
        if root == last_place + 1:
            recording.tokens.append(Token(token))
            recording.steps.append(ServerStep(1, 0, 0, reason=PROMPT_STEP, batch=batch.batch))
        elif root != last_place:
            reason = f"at token {root - len(recording.prompt_ids) + 1:,} of the answer, after {len(recording.tokens):,}"
            recording.truncated = FULL.format(reason=reason, steps=len(recording.steps))
            return False
        return True


class TreeTaps(Requests):
    """The recordings of one process of SGLang, and the hooks that feed them."""

    def __init__(self, folder: Path, all_requests: bool) -> None:
        super().__init__(folder, all_requests)
        self.over = deque[str](maxlen=MAX_OVER)

    def sample(self, inner: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
        """Around ``eagle_sample(verify_input, batch, logits_output, …)``: read, call, read what stood."""
        finish = self.quiet(lambda: self._begin_step(*_first_arguments(args, kwargs)))
        output = inner(*args, **kwargs)
        if finish is not None:
            self.quiet(lambda: finish(*output))
        return output

    def after_decoding(self, inner: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
        """Around the processing of a batch's results: requests that are over are written."""
        output = inner(*args, **kwargs)
        batch = args[1] if len(args) > 1 else kwargs["batch"]
        self.quiet(lambda: self.end([str(request.rid) for request in batch.reqs if request.finished()]))
        return output

    def end(self, keys: Sequence[str]) -> None:
        """Requests that the server is done with."""
        self.over.extend(keys)
        super().end(keys)

    def _recording(self, request: Any, batch: Any) -> RequestRecording | None:
        key, params = str(request.rid), request.sampling_params
        if self.recorder is None:
            self.recorder, self.about = _recorder(batch, self.folder)
        if key in self.over:
            return None

        def begin() -> RequestRecording | None:
            prompt = list(request.origin_input_ids)
            if not self.asks(getattr(params, "custom_params", None)) or not prompt:
                return None
            stops = {*(getattr(params, "stop_token_ids", None) or ()), *(getattr(request, "eos_token_ids", None) or ())}
            if getattr(params, "ignore_eos", False):
                stops -= set(getattr(request, "eos_token_ids", None) or ())
            return RequestRecording(
                key, prompt, int(params.max_new_tokens or 1 << 30), frozenset(stops),
                {**self.about, "temperature": params.temperature, "top_p": params.top_p, "top_k": params.top_k},
            )  # fmt: skip

        return self.find_or_begin(key, begin)

    def _begin_step(self, verify: Any, batch: Any, output: Any) -> Callable[..., None] | None:
        """Read what the target decides on: trees [requests, nodes] and a row of logits per node."""
        if batch.forward_mode.is_idle():
            return None
        recordings = [self._recording(request, batch) for request in batch.reqs]
        live_rows = [i for i, recording in enumerate(recordings) if recording is not None and not recording.truncated]
        if not live_rows:
            return None
        nodes, count = int(verify.draft_token_num), len(recordings)
        at = on_device(live_rows, output.next_token_logits.device)
        tokens, first_child, next_sibling, places = (
            t.reshape(count, nodes)[at].long()
            for t in (verify.draft_token, verify.retrieve_next_token, verify.retrieve_next_sibling, verify.positions)
        )
        parents = parents_of(first_child, next_sibling)
        rows = output.next_token_logits.reshape(count, nodes, -1)[at].float()
        _, ids = top_k(rows.flatten(0, 1), self.choices)
        logprobs = rows.log_softmax(-1)
        flat = (torch.arange(len(live_rows), device=rows.device)[:, None] * nodes + parents.clamp_min(0)).flatten()
        node_logprobs = logprobs.flatten(0, 1)[flat, tokens.flatten()]
        numbers = [
            ids.unflatten(0, (-1, nodes)), logprobs.flatten(0, 1).gather(1, ids).unflatten(0, (-1, nodes)), tokens,
            node_logprobs.view(-1, nodes), ranks_of(rows.flatten(0, 1), flat, tokens.flatten()).view(-1, nodes),
        ]  # fmt: skip
        q = _drafting(verify, at, tokens)
        began, recorder = time.perf_counter(), self.recorder
        live_recordings = [recording for i in live_rows if (recording := recordings[i]) is not None]

        def finish(predict: Tensor, lens: Tensor, index: Tensor) -> None:
            rows, predictions = index[at].long(), predict.flatten()
            depth = torch.arange(index.shape[1], device=index.device) < lens[at, None]
            path = torch.where(depth, rows - at[:, None] * nodes, NO_TOKEN)
            wrote = torch.where(depth, predictions[rows.clamp_min(0)].long(), NO_TOKEN)
            host, ready = to_host([*numbers, wrote, None, q, parents, places[:, 0], path])
            assert recorder is not None
            recorder.step(TreeBatch(
                live_recordings, [nodes - 1] * len(live_rows), *host[:8], batch=count, at=began, ready=ready,
                parents=host[8],
                places=host[9], accepted=host[10],
            ))  # fmt: skip

        return finish


def _first_arguments(args: Sequence[Any], kwargs: dict[str, Any]) -> list[Any]:
    """The first three arguments of ``eagle_sample``, however they are passed."""
    return [args[i] if i < len(args) else kwargs[name] for i, name in enumerate(VERSIONS[SAMPLE[1]])]


def _drafting(verify: Any, at: Tensor, tokens: Tensor) -> Tensor | None:
    """q of every drafted token [requests, nodes] where the server keeps it: of chains, under rejection sampling."""
    draft_probs = getattr(verify, "draft_probs", None)
    if draft_probs is None or getattr(verify, "topk", 0) != 1 or draft_probs.shape[1] < tokens.shape[1] - 1:
        return None
    token_probs = draft_probs[at, : tokens.shape[1] - 1].float().gather(2, tokens[:, 1:, None])[..., 0]
    return torch.cat([token_probs.new_ones(len(token_probs), 1), token_probs], 1)


def parents_of(first_child: Tensor, next_sibling: Tensor) -> Tensor:
    """Parents [requests, nodes] out of each node's first child and next sibling (-1: none), on their device.

    >>> parents_of(torch.tensor([[1, 3, -1, -1]]), torch.tensor([[-1, 2, -1, -1]])).tolist()
    [[-1, 0, 0, 1]]
    """
    count, nodes = first_child.shape
    node_ids = torch.arange(nodes, device=first_child.device).expand(count, -1)

    def inverse(links: Tensor) -> Tensor:
        """The node that points at each; -1: none."""
        pointers = links.new_full((count, nodes + 1), NO_TOKEN)
        return pointers.scatter_(1, torch.where(links < 0, nodes, links), node_ids)[:, :nodes]

    prior_sibling, parents = inverse(next_sibling), inverse(first_child)
    first = torch.where(prior_sibling < 0, node_ids, prior_sibling)
    for _ in range(max(1, (nodes - 1).bit_length())):  # each turn doubles how far it looks back
        first = first.gather(1, first)
    return parents.gather(1, first)


def reachable(parents: Sequence[int]) -> list[int]:
    """The nodes below the root, it included, each behind its parent.

    >>> reachable([-1, 0, 3, 0, -1])
    [0, 1, 3, 2]
    """
    children: dict[int, list[int]] = {}
    for node, parent in enumerate(parents):
        if node and parent != NO_TOKEN:
            children.setdefault(parent, []).append(node)
    order = [0]
    for node in order:
        order += children.pop(node, ())
    return order


def _recorder(batch: Any, folder: Path) -> tuple[TreeRecorder, dict[str, Any]]:
    """The recorder of this process, and what its recordings say of the server."""
    config = batch.model_config
    path = str(getattr(config, "model_path", ""))

    def texts() -> Any:
        from transformers import AutoTokenizer

        from decoders.prompt.pieces import Pieces

        return Pieces(AutoTokenizer.from_pretrained(path, local_files_only=True, trust_remote_code=False))

    algorithm, server = getattr(batch, "spec_algorithm", None), with_version("SGLang", "sglang")
    about = {"model": model_name(path), "server": server, "method": str(getattr(algorithm, "name", "") or "").lower()}
    return TreeRecorder(folder, SOURCE, TITLE, texts), about
