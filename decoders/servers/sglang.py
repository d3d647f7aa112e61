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
(tests/test_sglang_recorder.py); trees and verdicts there are made by hand.
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

from .recorder import FULL, Batch, Recorder, Recording, choices_of, on_device, ranks_of, to_host
from .requests import Requests, model_name, start, with_version

log = logging.getLogger("specviz.recorder")

SOURCE, TITLE = "sglang-recorder", "SGLang, recorded"
SAMPLE = ("sglang.srt.speculative.eagle_utils", "eagle_sample")
RESULT = ("sglang.srt.managers.scheduler_components.batch_result_processor", "SchedulerBatchResultProcessor")
DECODING = "process_batch_result_decode"
KNOWN = {
    SAMPLE[1]: ("verify_input", "batch", "logits_output"),  # its first parameters; what follows is passed on
    DECODING: ("self", "batch", "result"),
}
REFUSED = "specviz records nothing: {name} begins with ({found}) in this SGLang, and ({known}) is known"
REMEMBERED = 4096  # requests that are over, of which a forward may still be under way
NONE = -1


def register() -> None:
    """Hook the sampling of this process, where the environment names a folder. Never raises."""
    start(_install)


def _install(folder: Path, everything: bool) -> None:
    import importlib

    registry: Any = importlib.import_module("sglang.srt.plugins.hook_registry")
    sample = getattr(importlib.import_module(SAMPLE[0]), SAMPLE[1])
    processor = getattr(importlib.import_module(RESULT[0]), RESULT[1])
    install(registry, sample, getattr(processor, DECODING), folder, everything)


def install(registry: Any, sample: Any, decoded: Any, folder: Path, everything: bool) -> TreeTaps | None:
    """Register both hooks; None, said in one line, where a signature is not the known one."""
    for found in (sample, decoded):
        name = found.__name__
        parameters = tuple(inspect.signature(found).parameters)[: len(KNOWN[name])]
        if parameters != KNOWN[name]:
            log.error(REFUSED.format(name=name, found=", ".join(parameters), known=", ".join(KNOWN[name])))
            return None
    taps, around, hooks = TreeTaps(folder, everything), registry.HookType.AROUND, registry.HookRegistry
    hooks.register(".".join(SAMPLE), taps.sample, around)
    hooks.register(".".join((*RESULT, DECODING)), taps.after_decoding, around)
    return taps


@dataclass(slots=True)
class TreeBatch(Batch):
    """One verification of a tree per recorded request, as tensors of the host.

    ``drafted`` [requests, nodes] has the tree's tokens, the root first, ``parents`` the node above each (the root's:
    -1, and of places that the tree does not use), ``places`` the root's position, ``accepted`` [requests, depth] the
    nodes that stood, the root first, padded with -1, and ``tokens`` [requests, depth] what the target wrote behind
    each. ``top_ids``, ``top_logprobs`` have a row per node; ``logprobs`` and ``ranks`` a number per node.
    """

    parents: Any = None
    places: Any = None
    accepted: Any = None


class TreeRecorder(Recorder):
    """A recorder of draft trees."""

    def _add(self, batch: Batch) -> None:
        assert isinstance(batch, TreeBatch)
        batch.ready()
        numbers = [t.tolist() for t in (batch.drafted, batch.parents, batch.places, batch.accepted, batch.tokens)]
        probs, ranks = batch.logprobs.double().exp().tolist(), batch.ranks.tolist()
        tops = [choices_of(*both) for both in zip(batch.top_ids, batch.top_logprobs, strict=True)]
        q = None if batch.q is None else batch.q.tolist()
        draft_ms, verify_ms = batch.draft_ms(), batch.verify_ms()
        for place, recording in enumerate(batch.recordings):
            tokens, parents, root, path, wrote = (one[place] for one in numbers)
            if recording.truncated or recording.stop or not self._reaches(recording, root, tokens[0], batch):
                continue
            order = reachable(parents)
            number = {node: i for i, node in enumerate(order)}
            accepted = [number[node] for node in path[1:] if node in number]
            stood = wrote[: len(accepted) + 1]
            step = ServerStep(len(stood), len(accepted), len(order) - 1, reason="" if len(order) > 1 else NO_DRAFT)
            step.draft = [[(tokens[i], None, None if q is None else q[place][i])] for i in order[1:]]
            step.judged = [(probs[place][i], ranks[place][i]) for i in order[1:]]
            step.tops = [tops[place][i] for i in order]
            step.parents, step.path = [number[parents[i]] for i in order[1:]], accepted
            step.draft_ms, step.verify_ms = draft_ms, verify_ms
            self._extend(recording, batch, step, stood, [step.tops[node] for node in (0, *accepted)])
            probs_of = [step.judged[node - 1][0] for node in accepted]
            for token, prob in zip(recording.tokens[-step.emitted :], probs_of, strict=False):
                token.prob = prob
        self._note_live(batch)

    def _reaches(self, recording: Recording, root: int, token: int, batch: Batch) -> bool:
        """Say whether the recording goes up to the tree's root, at this position. The forward that reads a prompt has
        written the first token, and one more where a request was taken back: a step without a draft is added for it.
        """
        there = len(recording.prompt_ids) + len(recording.tokens) - 1
        if root == there + 1:
            recording.tokens.append(Token(token))
            recording.steps.append(ServerStep(1, 0, 0, reason=PROMPT_STEP, batch=batch.batch))
        elif root != there:
            reason = f"at token {root - len(recording.prompt_ids) + 1:,} of the answer, after {len(recording.tokens):,}"
            recording.truncated = FULL.format(reason=reason, steps=len(recording.steps))
            return False
        return True


class TreeTaps(Requests):
    """The recordings of one process of SGLang, and the hooks that feed them."""

    def __init__(self, folder: Path, everything: bool) -> None:
        super().__init__(folder, everything)
        self.over = deque[str](maxlen=REMEMBERED)

    def sample(self, inner: Callable[..., Any], *args: Any, **more: Any) -> Any:
        """Around ``eagle_sample(verify_input, batch, logits_output, …)``: read, call, read what stood."""
        finish = self.quiet(lambda: self._before(*_first_arguments(args, more)))
        output = inner(*args, **more)
        if finish is not None:
            self.quiet(lambda: finish(*output))
        return output

    def after_decoding(self, inner: Callable[..., Any], *args: Any, **more: Any) -> Any:
        """Around the processing of a batch's results: requests that are over are written."""
        output = inner(*args, **more)
        batch = args[1] if len(args) > 1 else more["batch"]
        self.quiet(lambda: self.end([str(one.rid) for one in batch.reqs if one.finished()]))
        return output

    def end(self, keys: Sequence[str]) -> None:
        """Requests that the server is done with."""
        self.over.extend(keys)
        super().end(keys)

    def _recording(self, request: Any, batch: Any) -> Recording | None:
        key, params = str(request.rid), request.sampling_params
        if self.recorder is None:
            self.recorder, self.about = _recorder(batch, self.folder)
        if key in self.over:
            return None

        def begin() -> Recording | None:
            prompt = list(request.origin_input_ids)
            if not self.asks(getattr(params, "custom_params", None)) or not prompt:
                return None
            stops = {*(getattr(params, "stop_token_ids", None) or ()), *(getattr(request, "eos_token_ids", None) or ())}
            if getattr(params, "ignore_eos", False):
                stops -= set(getattr(request, "eos_token_ids", None) or ())
            return Recording(
                key, prompt, int(params.max_new_tokens or 1 << 30), frozenset(stops),
                {**self.about, "temperature": params.temperature, "top_p": params.top_p, "top_k": params.top_k},
            )  # fmt: skip

        return self.find_or_begin(key, begin)

    def _before(self, verify: Any, batch: Any, output: Any) -> Callable[..., None] | None:
        """Read what the target decides on: trees [requests, nodes] and a row of logits per node."""
        if batch.forward_mode.is_idle():
            return None
        found = [self._recording(request, batch) for request in batch.reqs]
        wanted = [i for i, one in enumerate(found) if one is not None and not one.truncated]
        if not wanted:
            return None
        nodes, count = int(verify.draft_token_num), len(found)
        at = on_device(wanted, output.next_token_logits.device)
        tokens, below, beside, places = (
            t.reshape(count, nodes)[at].long()
            for t in (verify.draft_token, verify.retrieve_next_token, verify.retrieve_next_sibling, verify.positions)
        )
        parents = parents_of(below, beside)
        rows = output.next_token_logits.reshape(count, nodes, -1)[at].float()
        _, ids = top_k(rows.flatten(0, 1), self.choices)
        logprobs = rows.log_softmax(-1)
        flat = (torch.arange(len(wanted), device=rows.device)[:, None] * nodes + parents.clamp_min(0)).flatten()
        own = logprobs.flatten(0, 1)[flat, tokens.flatten()]
        numbers = [
            ids.unflatten(0, (-1, nodes)), logprobs.flatten(0, 1).gather(1, ids).unflatten(0, (-1, nodes)), tokens,
            own.view(-1, nodes), ranks_of(rows.flatten(0, 1), flat, tokens.flatten()).view(-1, nodes),
        ]  # fmt: skip
        q = _drafting(verify, at, tokens)
        began, recorder = time.perf_counter(), self.recorder
        chosen = [one for i in wanted if (one := found[i]) is not None]

        def finish(predict: Tensor, lens: Tensor, index: Tensor) -> None:
            rows, kept = index[at].long(), predict.flatten()
            depth = torch.arange(index.shape[1], device=index.device) < lens[at, None]
            path = torch.where(depth, rows - at[:, None] * nodes, NONE)
            wrote = torch.where(depth, kept[rows.clamp_min(0)].long(), NONE)
            host, ready = to_host([*numbers, wrote, None, q, parents, places[:, 0], path])
            assert recorder is not None
            recorder.step(TreeBatch(
                chosen, [nodes - 1] * len(wanted), *host[:8], batch=count, at=began, ready=ready, parents=host[8],
                places=host[9], accepted=host[10],
            ))  # fmt: skip

        return finish


def _first_arguments(args: Sequence[Any], more: dict[str, Any]) -> list[Any]:
    """The first three arguments of ``eagle_sample``, however they are passed."""
    return [args[i] if i < len(args) else more[name] for i, name in enumerate(KNOWN[SAMPLE[1]])]


def _drafting(verify: Any, at: Tensor, tokens: Tensor) -> Tensor | None:
    """q of every drafted token [requests, nodes] where the server keeps it: of chains, under rejection sampling."""
    drawn = getattr(verify, "draft_probs", None)
    if drawn is None or getattr(verify, "topk", 0) != 1 or drawn.shape[1] < tokens.shape[1] - 1:
        return None
    own = drawn[at, : tokens.shape[1] - 1].float().gather(2, tokens[:, 1:, None])[..., 0]
    return torch.cat([own.new_ones(len(own), 1), own], 1)


def parents_of(below: Tensor, beside: Tensor) -> Tensor:
    """Parents [requests, nodes] out of each node's first child and next sibling (-1: none), on their device.

    >>> parents_of(torch.tensor([[1, 3, -1, -1]]), torch.tensor([[-1, 2, -1, -1]])).tolist()
    [[-1, 0, 0, 1]]
    """
    count, nodes = below.shape
    own = torch.arange(nodes, device=below.device).expand(count, -1)

    def inverse(links: Tensor) -> Tensor:
        """The node that points at each; -1: none."""
        made = links.new_full((count, nodes + 1), NONE)
        return made.scatter_(1, torch.where(links < 0, nodes, links), own)[:, :nodes]

    before, above = inverse(beside), inverse(below)
    first = torch.where(before < 0, own, before)
    for _ in range(max(1, (nodes - 1).bit_length())):  # each turn doubles how far it looks back
        first = first.gather(1, first)
    return above.gather(1, first)


def reachable(parents: Sequence[int]) -> list[int]:
    """The nodes below the root, it included, each behind its parent.

    >>> reachable([-1, 0, 3, 0, -1])
    [0, 1, 3, 2]
    """
    children: dict[int, list[int]] = {}
    for node, parent in enumerate(parents):
        if node and parent != NONE:
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
