"""The target model: stock transformers weights behind three verbs — prefill, score, commit.

This folder alone knows transformers' insides.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from functools import cached_property, partial
from typing import Any

import numpy as np
import torch
from jaxtyping import Float, Int
from torch import Tensor

from decoders.draft.draft import Draft, Scored, Verdict, emitted_tokens, layout_of, reading_of
from decoders.draft.needs import Needs
from decoders.errors import UserError
from decoders.prompt.pieces import Pieces
from decoders.prompt.prompt import Pool, Prompt, Segment

from ..engines.engines import Engines
from ..engines.fewer_bits import round_model
from ..engines.joint import pack_joined
from ..engines.linear import Head, packable, top_tokens
from ..engines.norms import fuse_norms
from ..engines.static import StaticRows
from ..files import families
from ..files.calibration import Calibration, fingerprint, load_calibration
from ..files.shape import ROTARIES, ModelShape, token_ids
from ..state.attention import NAME, Masks, running
from ..state.cache import TreeCache
from ..state.cache_name import cache_input
from ..state.capture import Capture, Taps
from ..state.hybrid import follow_paths
from ..state.memory import Context, Memory
from ..state.observe import observe_target
from ..state.reading import read_with
from ..state.recurrent import SPACING
from ..state.room import RunSize, make_room
from ..state.storage import storage_sizes
from ..state.transfer import rows_of, send, stretches
from .anatomy import decoder_stack, one_device, put_in_place
from .reference import reference_logits, rereads_text
from .self_check import check_opened, check_rows

SPARE_ROWS = 512  # cache rows beyond the longest sequence: room for a tree and its probes
READ_ROWS, READ_ROWS_CPU = 2048, 512  # most rows of a forward that reads a prompt; on a CPU more are no faster
ReadWatch = Callable[[int, int], bool]  # told the rows that are read and those of the whole; True ends the reading
READ_SCORES = 1 << 27  # most entries of its mask, once per query head of a group

Tokens = Sequence[int] | Int[Tensor, "rows"]  # from the host, or on the device


class Target:
    """A causal language model ready to score trees.

    ``info`` describes it for traces: name, family, layers, heads, kv_heads, hidden, vocab, parameters, context_length,
    dtype, device, weights (where not fp32: ``names.weight_names``), activations (where rows are rounded), packed (on a
    CPU: packed weights are used where that was found to be faster; ``packed=True`` uses them always, False never).
    ``engine`` is how its verify forwards run: ``names.engine_names``. One forward runs at a time (``lock``); any number
    of sessions may be open.
    """

    def __init__(
        self, model: Any, tokenizer: Any, name: str, *, packed: bool | None = None, engine: str = "eager",
        weights: str | None = None,
    ) -> None:  # fmt: skip
        self.config: Any = model.config
        self.shape = shape = ModelShape.of(self.config)
        self.model: Any = model.eval().requires_grad_(False)
        self.tokenizer, self.name = tokenizer, name
        self.device = one_device(model, name)
        if self.device.type == "cuda":
            torch.backends.cuda.enable_cudnn_sdp(False)  # it plans anew for every number of keys: at almost every step
        self.dtype = next(model.parameters()).dtype
        self.stack, self.layers = decoder_stack(model, shape.layers)
        self.context_length = shape.context_length
        self.lock = threading.Lock()
        self.info: dict[str, Any] = {
            "name": name,
            **{key: getattr(shape, key) for key in ("family", "layers", "heads", "kv_heads", "hidden", "vocab")},
            "parameters": sum(p.numel() for p in {id(p): p for p in model.parameters()}.values()),
            "context_length": self.context_length,
            "dtype": str(self.dtype).removeprefix("torch."),
            "device": str(self.device),
        }
        self.shape = replace(shape, recurrent_layers=follow_paths(self.layers, shape.family))
        self.key = fingerprint(self.config, self.stack.parameters())  # which trained parts carry
        self.rounded_weights = round_model(model, shape, weights, name, engine)
        self.info |= {} if self.rounded_weights is None else self.rounded_weights.info
        self.cached_as = None if self.rounded_weights is None else self.rounded_weights.cached_as
        self._attend_by(NAME)
        self.info["packed"] = packable(self.dtype, self.device) and packed is not False
        if self.info["packed"]:
            pack_joined(model, packed_from=1 if packed else None)
        self.embeddings: Any = model.get_input_embeddings()
        self.info["fused_norms"] = fuse_norms(model)
        self.head = Head(model.get_output_embeddings(), shape.logits_softcap, shape.logits_scale)
        put_in_place(model, model.get_output_embeddings(), self.head)
        self.taps = Taps(self.stack, self.layers)
        self.engines = Engines(self)
        self.companions: dict[Any, Any] = {}  # draft models that methods loaded for this target, kept with it
        self.skips_masks = True  # a mask may be left out where rows are causal anyway
        self.observed = observation = observe_target(self)
        self.skips_masks = observation.skips_masks
        self.shape = replace(
            self.shape, layer_windows=observation.windows, kv_heads=observation.kv_heads,
            kv_layers=observation.kv_layers,
            state_bytes=observation.state_bytes, row_bytes=observation.row_bytes,
        )  # fmt: skip
        self.info["kv_heads"] = observation.kv_heads
        check_opened(self)
        if "weights" in self.info and shape.family not in families.LLAMA_LIKE:
            check_rows(self)
        if engine != "eager":
            self.engines = Engines(self, engine)

    @property
    def stop_ids(self) -> tuple[int, ...]:
        """Token ids that end a text, as the model's generation config names them."""
        generation = getattr(self.model, "generation_config", None)
        return token_ids(getattr(generation, "eos_token_id", None)) or self.shape.stop_ids

    @cached_property
    def storages(self) -> frozenset[int]:
        """Addresses of the model's weights."""
        return frozenset(storage_sizes([self.model]))

    @cached_property
    def pieces(self) -> Pieces | None:
        """The bytes behind token ids; None without a tokenizer."""
        return None if self.tokenizer is None else Pieces(self.tokenizer)

    @cached_property
    def calibration(self) -> Calibration | None:
        """The model's calibration by ``specviz calibrate`` (copying heads, best layer), or None."""
        return load_calibration(self.key, self.shape.layers, self.shape.heads)

    @property
    def no_attention(self) -> str | None:
        """The reason why attention rows of this model cannot be read, in one sentence; None where they can."""
        if not self.observed.unread:
            return None
        return f"attention weights of {self.name} ({self.shape.family}) cannot be read: {self.observed.unread}"

    def check_fits(self, prompt_length: int) -> None:
        """Raise UserError where a prompt leaves no room for one new token."""
        if prompt_length >= self.context_length:
            raise UserError(
                f"the prompt has {prompt_length} tokens, but {self.name} reads at most {self.context_length} with at "
                f"least one to write: shorten the prompt to {self.context_length - 1} tokens or choose a model "
                "with a longer context"
            )

    def rows_at_once(self, start: int, stop: int) -> int:
        """Number of rows behind ``start`` read ones that the next forward of a text of ``stop`` rows takes: all where
        they are few, or where the rotary positions of all depend on the last; else as many as its mask allows.
        """
        rows = stop - start
        limit = min(READ_ROWS, READ_ROWS_CPU) if self.device.type == "cpu" else READ_ROWS
        limit = min(limit, SPACING) if self.shape.recurrent_layers else limit
        if self.shape.rotary not in ROTARIES or rows <= limit:
            return rows
        group = self.shape.heads // self.shape.kv_heads
        return min(limit, max(64, READ_SCORES // (group * (start + limit))))

    def session(self, needs: Needs, capacity: int) -> Session:
        """A run of at most ``capacity`` committed tokens that keeps what ``needs`` names. Raises TooLarge, with both
        numbers, where that needs more memory than is free.
        """
        tokens = min(capacity, self.context_length)
        rows = self.rows_at_once(max(0, tokens - READ_ROWS), tokens)
        size = RunSize.of(self.shape, self.cached_as or self.dtype, needs, tokens, SPARE_ROWS, rows)
        make_room(self.name, size, tokens, SPARE_ROWS, self.device, self.engines.stores)
        return Session(self, needs, tokens)

    @torch.inference_mode()
    def forward(
        self, cache: TreeCache, masks: Masks, tokens: Tokens, positions: np.ndarray, sees: np.ndarray | None, *,
        embed: Callable[[Int[Tensor, " rows"]], Float[Tensor, "1 rows hidden"]] | None = None, last_only: bool = False,
        own_positions: np.ndarray | None = None, prefixes: np.ndarray | None = None, whole: bool = False,
    ) -> Tensor:  # fmt: skip
        """One stock forward over rows behind the cache: logits [rows, vocab] (fp32), or of the last row only.

        ``sees`` and ``prefixes``: which of the last rows (their ``own_positions`` where those are not this forward's
        alone), and which of the cache's prefix tokens, each row may look at. ``embed`` makes the rows' embeddings of
        the tokens, where these are not all; ``whole``: all rows are going to be committed. The model itself asks for
        the masks of its layers.
        """
        ids, places, visibility, own_places, prefix_rows = self._inputs(
            tokens, positions, sees, own_positions, prefixes
        )
        rows = masks.rows(cache.length, visibility, places, int(positions.max()), own_places, prefix_rows)
        row_masks = running.set(rows if self.skips_masks else lambda rule, reach, skip: rows(rule, reach, False))
        inputs = {"input_ids": ids[None]} if embed is None else {"inputs_embeds": embed(ids)}
        try:
            with cache.following(positions, sees, self.device, whole):
                output = self.model(
                    **inputs,
                    position_ids=places[None],
                    **cache_input(self.model, cache),
                    use_cache=True,
                    logits_to_keep=1 if last_only else 0,
                )
        finally:
            running.reset(row_masks)
        return output.logits[0].float()

    def _inputs(self, tokens: Tokens, positions: np.ndarray, *arrays: np.ndarray | None) -> list[Any]:
        """A forward's inputs from the host, sent together; nothing is sent for a chain of tokens that are there."""
        if isinstance(tokens, Tensor) and not (np.diff(positions) - 1).any() and all(array is None for array in arrays):
            first = int(positions[0])
            return [tokens, torch.arange(first, first + len(positions), device=self.device), *arrays]
        on_host = not isinstance(tokens, Tensor)
        ids = [np.asarray(tokens, dtype=np.int64)] if on_host else []
        parts: Iterator[Any] = iter(send(self.device, *ids, positions, *(o for o in arrays if o is not None)))
        return [next(parts) if on_host else tokens, next(parts), *(None if o is None else next(parts) for o in arrays)]

    rereads = property(rereads_text)
    reference_logits = reference_logits

    @contextmanager
    def by_own_attention(self) -> Iterator[None]:
        """The model's own attention and masks, in place of this engine's."""
        self._attend_by("eager")
        try:
            yield
        finally:
            self._attend_by(NAME)

    def _attend_by(self, name: str) -> None:
        """Have all modules compute attention by one of transformers' attention functions."""
        for module in self.model.modules():
            if getattr(module, "config", None) is not None:
                module.config._attn_implementation = name


class Session:
    """The state of one run: cache, memory, tokens. Positions [0, length - 1) are cached; the last token is the root."""

    def __init__(self, target: Target, needs: Needs, capacity: int) -> None:
        self.target, self.needs, self.capacity = target, needs, capacity
        self.cache = TreeCache(target.shape, capacity + SPARE_ROWS, target.cached_as, target.engines.stores)
        if needs.heads and target.no_attention:
            raise UserError(target.no_attention)
        self.masks = Masks(target.cached_as or target.dtype, target.device)
        self.memory = Memory()
        self.buffer = np.zeros(capacity + 1, dtype=np.int64)
        self.length = self.prompt_length = 0
        self.segments: tuple[Segment, ...] = ()
        self.pool: Pool | None = None
        self.whole = True  # False: a part of another session, which looks at it (``at``)
        self._scored: Draft | None = None
        self._logits: Tensor | None = None
        self._captured = Capture()

    @property
    def context(self) -> Context:
        return Context(
            self.buffer, self.length, self.prompt_length, self.segments, self.memory, self.cache, self.needs,
            self.target.shape, self.pool,
        )  # fmt: skip

    @torch.inference_mode()
    def prefill(
        self, prompt: Prompt | Sequence[int], prompt_length: int | None = None, stops: ReadWatch | None = None
    ) -> bool:
        """Process a prompt but for its last token, which becomes the root; keeps what the drafter reads. Of a text that
        was written behind a prompt, ``prompt_length`` tokens are that prompt. ``stops`` is asked between two pieces of
        a long text; False where it ended the reading.
        """
        tokens = prompt.tokens if isinstance(prompt, Prompt) else tuple(prompt)
        if isinstance(prompt, Prompt):
            self.segments = prompt.segments
            if self.needs.pool:
                self.pool = prompt.pool or prompt.context_pool()
        if len(tokens) > self.capacity:
            raise UserError(f"the prompt has {len(tokens)} tokens, but this run was opened for at most {self.capacity}")
        self.buffer[: len(tokens)] = tokens
        self.length, self.prompt_length = len(tokens), prompt_length or len(tokens)
        return self.length < 2 or self._read(stops)

    def _read(self, stops: ReadWatch | None = None) -> bool:
        """Process all tokens but the root, from the first one on, in pieces where the text is long."""
        target, rows = self.target, self.length - 1
        # the first text past the change of rotary positions: all of it is read as generate() reads it, the root too
        read = self.length if rows == target.shape.rotary_switch else rows
        self.cache.start(self.prompt_length)
        while (start := self.cache.length) < read:
            stop = start + target.rows_at_once(start, read)
            with target.lock, target.taps.reading(self.needs) as captured:
                target.head.keep = self.needs.top_tokens
                try:
                    self._read_rows(start, stop, last_only=not self.needs.top_tokens)
                    self.memory.write(start, self.capacity, captured, target.head.split_weight)
                finally:
                    target.head.keep, target.head.split_weight = 0, None
            if stops is not None and self.cache.length < read and stops(self.cache.length, read):
                return False
        self.cache.length = rows
        self.cache.keep(always=True)
        return True

    def _read_rows(self, start: int, stop: int, *, last_only: bool) -> None:
        """Process and commit tokens [start, stop)."""
        tokens, positions = self.buffer[start:stop].tolist(), np.arange(start, stop)
        self.target.forward(self.cache, self.masks, tokens, positions, None, last_only=last_only, whole=True)
        self.cache.commit(range(stop - start))

    @property
    def reach(self) -> int:
        """The depth that a draft may have here: where rotary positions change with the length of the text, one forward
        never stands on both sides of the change.
        """
        switch = self.target.shape.rotary_switch
        return self.capacity if switch is None or self.length > switch else switch - self.length

    @torch.inference_mode()
    def score(self, draft: Draft) -> Scored:
        """One forward over the root, the drafted nodes and the probes; nothing is committed yet."""
        target, tree = self.target, draft.tree
        nodes, probes = len(tree), len(draft.probes)
        reading = reading_of(draft)
        count = nodes + probes + (reading.prefixes if reading else 0)
        if count > SPARE_ROWS:
            raise UserError(f"a draft has {count} rows; at most {SPARE_ROWS} fit into one verify forward")
        layout = draft.layout or layout_of(draft)
        positions, sees = layout.offsets + (self.length - 1), layout.sees
        if target.shape.rotary not in ROTARIES:  # a row that stands too far would turn all others
            last = self.length - 1 + min(self.reach, target.context_length - self.length)
            if int(positions[:nodes].max()) > last:
                raise ValueError(f"a draft may be {last - self.length + 1} tokens deep here (Session.reach)")
            positions = np.minimum(positions, last)
        tokens = [*tree.tokens, *(probe.token or 0 for probe in draft.probes)]
        embed = None if layout.embeddings is None else partial(self._embed, draft, layout.embeddings)
        prefixes = reading.visibility(draft) if reading and reading.prefixes else None
        rows = StaticRows(self.cache, self.masks, tokens, positions, sees, embed, prefixes, special=reading is not None)
        self._captured = Capture()
        with target.lock, read_with(reading, self.cache, target.stack, target.layers, nodes) as read:
            logits, ran = target.engines.run(rows, self.needs, self._captured)
            logits = read(logits)
        self._logits = logits
        self._scored = draft
        return Scored(logits[:nodes], logits[nodes:] if probes else None, self._captured.queries, ran)

    @torch.inference_mode()
    def commit(self, verdict: Verdict) -> None:
        """Keep the accepted path of the draft just scored, append what it emits; the last token is the new root."""
        assert self._scored is not None and self._logits is not None, "score a draft before committing it"
        assert self.whole, "a session that looks at a part of another one commits nothing"
        target, tree, path = self.target, self._scored.tree, verdict.path
        # where an accepted token ends the run it becomes the root, and roots are unprocessed
        commit_path = path if verdict.bonus is not None else path[:-1]
        top_count = self.needs.top_per_step
        if self.needs.layers or self.needs.heads or top_count:
            top = top_tokens(rows_of(self._logits, commit_path), top_count) if top_count else None
            self.memory.write(self.length - 1, self.capacity, self._captured.of_rows(commit_path), top)
        self.cache.commit(commit_path)
        emitted = emitted_tokens(tree.tokens, verdict)
        self.buffer[self.length : self.length + len(emitted)] = emitted
        self.length += len(emitted)
        self._scored = None
        if self.length - 1 == target.shape.rotary_switch and target.rereads:
            self._read()

    @contextmanager
    def at(self, length: int, needs: Needs) -> Iterator[Session]:
        """This run as it was when ``length`` tokens were committed (the last of them the root), as a drafter with
        ``needs`` sees it. Drafts may be scored there; nothing can be committed.

        It shares keys, values and memory: rows that a forward writes over are put back when the block ends, and the
        whole session rests until then. Raises ValueError for a length beyond the run, or what this session did not
        keep.
        """
        if not 1 <= length <= self.length:
            raise ValueError(f"a run of {self.length} tokens cannot be cut at {length}; allowed: 1 to {self.length}")
        switch = self.target.shape.rotary_switch
        if switch is not None and self.prompt_length <= switch < self.length:
            raise UserError(
                f"no step of this run can be looked at again: {self.target.name}'s rotary positions changed in the "
                f"middle of it, behind {switch} tokens"
            )
        part = self._share(length, needs)
        part.whole = False
        store, first = self.cache.store, part.cache.length
        end = min(self.cache.length, length - 1 + SPARE_ROWS)
        saved_rows = None if store is None else store[:, :, :, first:end].clone()
        try:
            part.catch_up()
            yield part
        finally:
            if store is not None and saved_rows is not None:
                with torch.inference_mode():
                    store[:, :, :, first:end] = saved_rows

    def cut(self, length: int) -> None:
        """Go back to where ``length`` tokens were committed."""
        self.length, self._scored = length, None
        self.cache.cut(length - 1)
        self.catch_up()

    @torch.inference_mode()
    def catch_up(self) -> None:
        """Process what is not cached of the committed text: recurrent states are kept at some lengths only."""
        while (start := self.cache.length) < self.length - 1:
            with self.target.lock:
                self._read_rows(start, start + self.target.rows_at_once(start, self.length - 1), last_only=True)
        self.cache.keep()

    def check_again(self, needs: Needs) -> Session:
        """A new run of the prompt that this session has read, as a drafter with ``needs`` sees it; nothing is read
        again.

        The two share keys, values and memory, each behind the prompt in its turn: once the new one has gone on, this
        one and others made of it may only be made new again. Raises ValueError for a session that did not keep what is
        needed, or of a model that may have to read its prompt once more (``shape.rotary_switch``).
        """
        if self.target.shape.rotary_switch is not None:
            raise ValueError(f"{self.target.name}'s rotary positions change with the text: each run reads its prompt")
        return self._share(self.prompt_length, needs)

    def _share(self, length: int, needs: Needs) -> Session:
        """A session over the first ``length`` tokens of this one, on its keys, values and memory."""
        part = Session(self.target, needs, self.capacity)
        part.memory = self.memory.seen_by(needs, self.needs)
        part.masks, part.segments, part.pool = self.masks, self.segments, self.pool if needs.pool else None
        part.buffer[:length] = self.buffer[:length]
        part.length, part.prompt_length = length, min(length, self.prompt_length)
        part.cache = self.cache.part(length - 1)
        return part

    def _embed(
        self, draft: Draft, probe_rows: Float[Tensor, "probes hidden"], ids: Int[Tensor, " rows"]
    ) -> Float[Tensor, "1 rows hidden"]:
        """Embeddings of a draft's rows: looked up, but for probes that bring their own."""
        embedded, nodes = self.target.embeddings(ids[None]), len(draft.tree)
        own_rows = [row for row, probe in enumerate(draft.probes) if probe.embedding is not None]
        for start, stop in stretches(own_rows):
            embedded[0, nodes + start : nodes + stop] = probe_rows[start:stop]
        return embedded
