"""Synthetic traces that are structurally honest: the drafts are really copied, and really checked against an output.

A "target" that would write a given output token by token is drafted for by prompt lookup, so every count, status,
source and would-accept number of the trace is consistent. Probabilities are made up. Nothing here needs torch.

>>> trace = chain()
>>> trace.run["complete"], trace.rows("steps") > 10
(True, True)
"""

from __future__ import annotations

import math
import random
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import reduce
from operator import getitem
from typing import Any

from decoders.trace.files import save
from decoders.trace.metrics import compute, fill_would_accept, metric_help
from decoders.trace.tables import REQUIRED, TABLES
from decoders.trace.trace import Trace


def append(trace: Trace, table: str, row: Mapping[str, Any]) -> None:
    """Add one row; every column of the table is given."""
    for name, values in trace.tables[table].items():
        values.append(row[name])


def save_trace(trace: Trace) -> bytes:
    """The bytes of the trace's file."""
    data = save(trace, None)
    assert data is not None
    return data


def descend(document: Any, keys: Iterable[Any]) -> Any:
    """The part of a document that stands below these keys."""
    return reduce(getitem, keys, document)


def step_ids(trace: Trace, step: int) -> list[int]:
    """Output token ids emitted by a step."""
    tokens = trace.tables["tokens"]
    return [t for t, s in zip(tokens["id"], tokens["step"], strict=True) if s == step]


def number(value: float | None, digits: int = 6) -> float | None:
    """A float as it is stored: ``digits`` significant digits, None for what is not finite."""
    if value is None or not math.isfinite(value):
        return None
    return float(f"{value:.{digits}g}")


PIECE = re.compile(rb"\r\n|\n *| ?[A-Za-z]{1,9}|\d| ?[^\x00-\x20A-Za-z0-9\x80-\xff]+|[\x80-\xff]|[\x00-\x20]")

CODE = '''import time
import threading

class TokenBucket:
    """A simple token bucket rate limiter."""

    def __init__(self, rate, capacity):
        self.rate = rate
        self.capacity = capacity
        self.tokens = capacity
        self.updated = time.time()
        self.lock = threading.Lock()

    def _refill(self):
        now = time.time()
        elapsed = now - self.updated
        self.tokens = min(self.capacity, self.tokens + elapsed * self.rate)
        self.updated = now

    def try_acquire(self, n):
        with self.lock:
            self._refill()
            if self.tokens >= n:
                self.tokens -= n
                return True
            return False

    def acquire(self, n):
        while not self.try_acquire(n):
            time.sleep(n / self.rate)
'''
EDITED = (
    CODE.replace("time.time()", "time.monotonic()")
    .replace("(self, n)", "(self, n: float = 1.0) -> bool")
    .replace("rate, capacity", "rate: float, capacity: float")
    .replace("            time.sleep(n / self.rate)\n", "            time.sleep(n / self.rate)\n        return True\n")
)
PASSAGES = (
    "The Halvorsen bridge opened in 1932. It crosses the river Enna at Tormund, and it carries both trains and cars.\n",
    "Tormund is a town of 41,000 people. Its harbour froze every winter until the power station warmed the water.\n",
)
QUOTE = "According to the first passage, the Halvorsen bridge opened in 1932 and it carries both trains and cars."
NASTY = (
    "plain <b>bold</b> <img src=x onerror=window.__pwned=1> </script><script>window.__pwned=2</script>\r\n"
    "${window.__pwned=3} {{7*7}} tab\there  two  spaces\r\nemoji 👩‍👩‍👧 🇩🇪 👍🏽 naïve e\u0301 "
    "日本語の文 שלום עולם مرحبا\u2028line\u0000nul\u200b"
)


class Vocabulary:
    """Byte pieces numbered in order of appearance."""

    def __init__(self) -> None:
        self.ids: dict[tuple[bytes, bool], int] = {}

    def add(self, piece: bytes, special: bool = False) -> int:
        return self.ids.setdefault((piece, special), len(self.ids) + 3)

    def encode(self, text: str | bytes) -> list[int]:
        data = text.encode() if isinstance(text, str) else text
        return [self.add(piece) for piece in PIECE.findall(data)]


def _run(title: str, method: str, terms: list[dict[str, Any]], prompt_length: int, lossless: bool) -> dict[str, Any]:
    titles = {
        "plain": "Plain decoding",
        "pld+h": "PLD+ (hidden states)",
        "adapld": "AdaPLD",
        "casd": "CASD",
        "glide": "GLIDE",
        "glide+cape": "GLIDE with CAPE",
        "ppd": "PPD: prompt tokens",
    }
    return {
        "id": f"synthetic-{method}",
        "title": title,
        "created": "2026-01-01T00:00:00Z",
        "complete": False,
        "stop": "",
        "model": {"name": "synthetic target", "family": "llama", "layers": 6, "heads": 8, "hidden": 256, "vocab": 2048,
                  "parameters": 5_300_000, "context_length": 16384, "dtype": "float32", "device": "cpu"},
        "method": {
            "name": method,
            "title": titles.get(method, method),
            "paper": "Somasundaram et al. 2024",
            "summary": "Copies from the earlier place whose hidden state is most like the current one.",
            "lossless": lossless,
            "params": {} if method == "plain" else {"max_draft": 10, "layer": 2, "theta": None, "prompt_only": False},
            "controls": [
                {"name": "max_draft", "label": "Draft length", "help": "Tokens offered per step, at most."},
                {"name": "layer", "label": "Layer", "help": "Hidden states compared (0 = embeddings)."},
                {"name": "theta", "label": "Threshold", "help": "Keep only candidates that score above it."},
                {"name": "prompt_only", "label": "Prompt only", "help": "Copy from the prompt alone."},
            ],
        },
        "terms": terms,
        "sampling": {"temperature": 0.0, "top_k": 0, "top_p": 1.0, "seed": 0},
        "max_new_tokens": 512,
        "prompt_length": prompt_length,
        "stop_ids": [2],
        "versions": {"specviz": "0"},
        "timings": {"prefill_ms": 42.0, "decode_ms": 0.0},
        "metrics": {},
        "metric_help": metric_help(),
        "error": "",
    }  # fmt: skip


def _delta(trace: Trace) -> dict[str, dict[str, list[Any]]]:
    return {name: {column: [] for column in columns} for name, columns in trace.tables.items()}


def _add(delta: dict[str, dict[str, list[Any]]], table: str, **row: Any) -> None:
    """A row; columns with a default and the method's own numbers may be left out."""
    defaults = {column.name: column.default for column in TABLES[table]}
    for column, values in delta[table].items():
        left_out = defaults.get(column)
        value = row.get(column, -1 if column == "pool" else left_out)
        if value is REQUIRED:
            raise KeyError(f"{table}.{column}")
        values.append(value)


class Synthetic:
    """A run over a known output. Iterating yields one delta per step, like ``decoders.Run``.

    ``kind`` is "chain" (one copied line), "tree" (the copy, branches and their successors) or "plain".
    ``segments`` are (segment, passage, text) triples; a segment named "special" is one special token.
    """

    def __init__(
        self,
        segments: Sequence[tuple[str, int, str | bytes]],
        output: str | bytes,
        kind: str = "chain",
        title: str = "Synthetic run",
        draft: int = 10,
        width: int = 26,
        seed: int = 1,
        slip: float = 0.0,
    ) -> None:
        self.kind, self.draft, self.width, self.seed, self.slip = kind, draft, width, seed, slip
        words = Vocabulary()
        ids: list[int] = []
        names: list[tuple[str, int]] = []
        for segment, passage, text in segments:
            special = segment == "special"
            data = text.encode() if isinstance(text, str) else text
            new = [words.add(data, True)] if special else words.encode(data)
            ids += new
            names += [("template" if special else segment, passage)] * len(new)
        self.ids, self.output = ids, [*words.encode(output), words.add(b"<|end|>", True)]
        terms = [] if kind == "plain" else [
            {"key": "cosine", "label": "Hidden cosine", "help": "of the states before both", "low": -1, "high": 1},
            {"key": "suffix", "label": "Same suffix", "help": "tokens before both that agree", "low": 0, "high": 12},
        ]  # fmt: skip
        method = {"chain": "pld+h", "tree": "adapld"}.get(kind, kind)
        self.trace = Trace.new({**_run(title, method, terms, len(ids), lossless=True), **self.more(words)})
        self.trace.run["stop_ids"] = [self.output[-1]]
        first = _delta(self.trace)
        for (piece, special), number_ in words.ids.items():
            _add(first, "pieces", id=number_, hex=piece.hex(), special=special)
        for token, (segment, passage) in zip(ids, names, strict=True):
            _add(first, "tokens", id=token, segment=segment, passage=passage, step=-1, kind="prompt", origin="",
                 source=-1, prob=None, rank=-1)  # fmt: skip
        self.trace.extend(first)

    def more(self, words: Vocabulary) -> dict[str, Any]:
        """Additions of a kind of run to its record, its own tokens known to ``words``."""
        return {}

    def node_numbers(self, node: int, origin: str, chosen: Any, rng: random.Random) -> dict[str, Any]:
        return {}

    def step_numbers(self, nodes: int, rng: random.Random) -> dict[str, Any]:
        return {}

    def route(self, chosen: dict[str, Any] | None) -> str:
        return "lexical"

    def prefers(self, position: int) -> int | None:
        """The token that the target would rather have had at a position than the one that was accepted."""
        return None

    def __iter__(self) -> Iterator[dict[str, dict[str, list[Any]]]]:
        rng = random.Random(self.seed)
        self.all = self.ids + self.output
        self.where: dict[int, list[int]] = {}
        for position, token in enumerate(self.ids):
            self.where.setdefault(token, []).append(position)
        self.clock = 0.0
        context = len(self.ids)
        while context < len(self.all):
            delta = self._step(context, rng)
            self.trace.extend(delta)
            for position in range(context, context + delta["steps"]["emitted"][0]):
                self.where.setdefault(self.all[position], []).append(position)
            context += delta["steps"]["emitted"][0]
            yield delta
        self._finish()

    def run(self) -> Trace:
        for _ in self:
            pass
        return self.trace

    def _agree(self, a: int, b: int) -> int:
        n = 0
        while n < 12 and a - n >= 0 and self.all[a - n] == self.all[b - n]:
            n += 1
        return n

    def _candidates(self, context: int, rng: random.Random) -> list[dict[str, Any]]:
        root, rows = self.all[context - 1], []
        for position in self.where.get(root, []):
            if position >= context - 1:
                continue
            suffix = self._agree(position - 1, context - 2)
            cosine = number(min(0.99, 0.2 + 0.09 * suffix + rng.random() * 0.15), 3)
            rows.append({"position": position, "score": cosine, "length": min(self.draft, context - 1 - position),
                         "excluded": "", "term:cosine": cosine, "term:suffix": suffix})  # fmt: skip
        rows.sort(key=lambda row: (-row["score"], row["position"]))
        return rows

    def _tree(self, chosen: dict[str, Any], rng: random.Random) -> list[tuple[int, int, str, int]]:
        """Nodes after the root as (token, parent, origin, source), depth-first with the copy first."""
        start = chosen["position"] + 1
        nodes = []
        for k in range(chosen["length"]):
            token = self.all[start + k]
            if rng.random() < self.slip:
                token = rng.choice(self.ids)
            nodes.append((token, k, "main", start + k))
        if self.kind == "tree":
            spine, taken = len(nodes), {(parent, token) for token, parent, _, _ in nodes}
            while len(nodes) < self.width:
                late = rng.random() < 0.35 and len(nodes) > spine
                early = rng.choice([0, 0, rng.randrange(spine + 1)])
                parent = rng.randrange(spine + 1, len(nodes) + 1) if late else early
                token = rng.choice(self.ids[-80:] + self.output[:60])
                if (parent, token) not in taken:
                    taken.add((parent, token))
                    places = self.where.get(token, [])
                    copied = parent > spine and places and rng.random() < 0.6
                    nodes.append((token, parent, "successor" if copied else "branch", places[0] if copied else -1))
        return nodes

    def _step(self, context: int, rng: random.Random) -> dict[str, dict[str, list[Any]]]:
        step, delta = self.trace.rows("steps"), _delta(self.trace)
        rows = [] if self.kind == "plain" else self._candidates(context, rng)
        chosen = rows[0] if rows else None
        nodes = self._tree(chosen, rng) if chosen else []
        _add(delta, "nodes", step=step, token=self.all[context - 1], parent=-1, depth=0, origin="root", source=-1,
             draft_prob=None, prob=None, rank=-1, status="root", reason="root")  # fmt: skip
        path, depths, statuses = [0], [0], ["root"]
        truth = [*self.all[context:]]
        for node, (token, parent, origin, source) in enumerate(nodes, 1):
            depth = depths[parent] + 1
            depths.append(depth)
            match = parent == path[-1] and depth <= len(truth) - 1 and truth[depth - 1] == token
            status = "accepted" if match else "rejected" if statuses[parent] in ("root", "accepted") else "unreached"
            statuses.append(status)
            if match:
                path.append(node)
            prob = rng.betavariate(9, 1.5) if match else rng.betavariate(1, 9)
            rank = 0 if match else rng.randrange(1, 400)
            if match and self.prefers(context + depth - 1) is not None:
                prob, rank = 0.14, 1
            pooled = {"source": -1, "pool": source} if origin == "datastore" else {"source": source}
            _add(delta, "nodes", step=step, token=token, parent=parent, depth=depth, origin=origin, **pooled,
                 draft_prob=number(rng.random(), 3) if origin == "branch" else None, prob=number(prob, 3), rank=rank,
                 status=status, reason={"accepted": "match", "rejected": "mismatch"}.get(status, "parent rejected"),
                 **self.node_numbers(node, origin, chosen, rng))  # fmt: skip
        accepted = len(path) - 1
        probs = []
        for place, node in enumerate(path):
            prob = delta["nodes"]["prob"][path[place + 1]] if place < accepted else number(rng.betavariate(6, 2), 3)
            probs.append(prob)
            left = 1 - (prob or 0)
            rather = self.prefers(context + place) if place < accepted else None
            if rather is not None:
                _add(delta, "targets", step=step, node=node, token=rather, prob=0.52)
            firsts = [truth[place]]
            while len(firsts) < 5:
                token = rng.choice(self.ids)
                if token not in firsts and token != rather:
                    firsts.append(token)
            for rank, token in enumerate(firsts):
                share = prob if rank == 0 else left / 2**rank
                _add(delta, "targets", step=step, node=node, token=token, prob=number(share, 3))
        for rank, row in enumerate(rows):
            _add(delta, "candidates", step=step, rank=rank, chosen=rank == 0, would_accept=-1, **row)
        for k in range(accepted + 1):
            kind = "accepted" if k < accepted else "bonus" if nodes else "plain"
            node = path[k + 1] if k < accepted else 0
            _add(delta, "tokens", id=truth[k], segment="output", passage=-1, step=step, kind=kind,
                 origin=delta["nodes"]["origin"][node] if k < accepted else "",
                 source=delta["nodes"]["source"][node], pool=delta["nodes"]["pool"][node], prob=probs[k],
                 rank=max(0, delta["nodes"]["rank"][node]) if k < accepted else 0)  # fmt: skip
        took = 24 + rng.random() * 4
        self.clock += took
        deepest = max(depths)
        outcome = "plain" if not nodes else "full" if accepted == deepest else "partial" if accepted else "none"
        reason = "the method never drafts" if self.kind == "plain" else "the last token occurs nowhere earlier"
        route = self.route(chosen) if nodes else "none"
        _add(delta, "steps", context=context, route=route, engine="eager", engine_rows=float(len(nodes)),
             engine_keys=None,
             **self.step_numbers(len(nodes), rng),
             drafted=len(nodes), depth=deepest,
             reason="" if nodes else reason, accepted=accepted, emitted=accepted + 1, bonus=truth[accepted],
             outcome=outcome, origins="+".join(dict.fromkeys(delta["nodes"]["origin"][node] for node in path[1:])),
             entropy=number(rng.random() * 2, 3), draft_ms=0.3, verify_ms=number(took - 0.5, 4),
             decide_ms=0.1, unlisted=0, commit_ms=0.2, elapsed_ms=number(self.clock, 6))  # fmt: skip
        return delta

    def _finish(self) -> None:
        trace = self.trace
        trace.run.update(complete=True, stop="eos")
        trace.run["timings"].update(decode_ms=number(self.clock))
        fill_would_accept(trace)
        trace.run["metrics"] = {key: number(value, 4) for key, value in compute(trace, 38.5).items()}


def _terms(text: str) -> list[dict[str, Any]]:
    """Lines of key | label | low | high."""
    found = []
    for line in text.strip().splitlines():
        key, label, low, high = (part.strip() for part in line.split("|"))
        found.append({"key": key, "label": label, "help": f"{label}, in one sentence.", "low": float(low),
                      "high": float(high)})  # fmt: skip
    return found


class Adapld(Synthetic):
    """As AdaPLD records: branches drawn at an anchor, successors, a semantic route, and times per component."""

    def more(self, words: Vocabulary) -> dict[str, Any]:
        return {
            "terms": _terms("cosine | hidden cosine | -1 | 1\nembedding | embedding cosine | -1 | 1"),
            "node_terms": _terms("""
                branch_anchor | anchor | 0 | 0
                branch_rank | rank at the anchor | 0 | 63
                branch_logprob | log-prob at the anchor | -12 | 0
                successor_cosine | successor's cosine | -1 | 1
                successor_embedding | successor's embedding | -1 | 1
            """),
            "step_terms": _terms("""
                retrieval_ms | retrieval ms | 0 | 0
                rerank_ms | rerank ms | 0 | 0
                branches_ms | branches ms | 0 | 0
                successors_ms | successors ms | 0 | 0
                semantic_seen | positions compared | 0 | 0
                semantic_passed | positions passing τ | 0 | 0
            """),
        }

    def _candidates(self, context: int, rng: random.Random) -> list[dict[str, Any]]:
        rows = super()._candidates(context, rng)
        if context % 4 == 0:  # earlier places whose tokens are of like meaning
            rows = [{"position": p, "score": number(0.9 - 0.1 * k, 3), "length": 0, "excluded": "",
                     "term:cosine": number(0.9 - 0.1 * k, 3), "term:embedding": number(rng.random(), 3)}
                    for k, p in enumerate(rng.sample(range(1, context - 1), 5))]  # fmt: skip
        return [{k: v for k, v in row.items() if k != "term:suffix"} for row in rows]

    def _tree(self, chosen: dict[str, Any], rng: random.Random) -> list[tuple[int, int, str, int]]:
        start, nodes = chosen["position"] + 1, []
        for k in range(chosen["length"]):
            nodes.append((self.all[start + k], k, "main", start + k))
        taken, follow = {nodes[0][0]} if nodes else set(), self.all[len(self.ids) :]
        for k in range(8):
            token = rng.choice(follow) if k else self.all[self.now]
            if token in taken:
                continue
            taken.add(token)
            nodes.append((token, 0, "branch", -1))
            places = [p for p in self.where.get(token, []) if p + 1 < self.now]
            if places and not chosen["length"]:
                wanted = [p for p in places if self.all[p + 1] == self.all[min(self.now + 1, len(self.all) - 1)]]
                place = (wanted or places)[-1] + 1
                nodes.append((self.all[place], len(nodes), "successor", place))
        return nodes

    def _step(self, context: int, rng: random.Random) -> dict[str, dict[str, list[Any]]]:
        self.now, self.branch = context, 0
        return super()._step(context, rng)

    def route(self, chosen: dict[str, Any] | None) -> str:
        return "lexical" if chosen is not None and chosen["length"] else "semantic"

    def node_numbers(self, node: int, origin: str, chosen: Any, rng: random.Random) -> dict[str, Any]:
        if origin == "branch":
            self.branch += 1
            return {"term:branch_anchor": chosen["position"], "term:branch_rank": self.branch - 1,
                    "term:branch_logprob": number(-0.2 - 0.6 * self.branch, 3)}  # fmt: skip
        return {"term:successor_cosine": number(rng.random(), 3)} if origin == "successor" else {}

    def step_numbers(self, nodes: int, rng: random.Random) -> dict[str, Any]:
        times = {f"term:{name}_ms": number(0.02 + 0.2 * rng.random(), 3) for name in ("retrieval", "rerank")}
        return {**times, "term:branches_ms": number(0.05 * nodes, 3), "term:semantic_seen": self.now}


class Casd(Synthetic):
    """As CASD records: drafts from a pool that is not in the prompt, a lossy rule, a compressed context, a reference.

    ``rather`` maps words of the output to what the target preferred there: plain decoding writes those.
    """

    def __init__(self, pool: Sequence[str], rather: dict[str, str], reference: str, *given: Any, **more: Any) -> None:
        self.texts, self.rather, self.reference = pool, rather, reference
        super().__init__(*given, kind="casd", **more)

    def more(self, words: Vocabulary) -> dict[str, Any]:
        encoded = [words.encode(text) for text in self.texts]
        self.pool = [token for ids in encoded for token in ids]
        self.passage = [number_ for number_, ids in enumerate(encoded) for _ in ids]
        self.swaps = {words.add(a.encode()): words.add(b.encode()) for a, b in self.rather.items()}
        run = _run("", "casd", [], 1, lossless=False)
        return {
            "method": {
                **run["method"], "summary": "Accepts what the target finds likely enough.", "params": {"delta": 0.1},
                "controls": [{"name": "delta", "label": "Threshold δ", "help": "Accept above it."}],
            },
            "terms": _terms("matched | matched | 0 | 16\ncount | agreeing places | 0 | 0"),
            "node_terms": _terms("count | count | 0 | 0\np_eos | p(EOS) | 0 | 1"),
            "step_terms": _terms("matched | matched | 0 | 16\nhits | hits | 0 | 0"),
            "pool": {"label": "the full context", "tokens": len(self.pool), "passages": len(self.texts),
                     "in_prompt": False},
            "compression": {"compressor": "extractive", "ratio_asked": 5.0, "context_tokens": len(self.pool),
                            "kept_tokens": 40, "prompt_tokens_full": len(self.ids) + len(self.pool) - 40,
                            "compress_ms": 3.5},
            "memory": {"kv_bytes_per_token": 12288, "kv_bytes": 12288 * len(self.ids)},
            "timings": {"prefill_ms": 42.0, "prepare_ms": 2.5, "decode_ms": 0.0, "plain_tokens_per_s": 38.5},
            "reference": self.reference,
        }  # fmt: skip

    def __iter__(self) -> Iterator[dict[str, dict[str, list[Any]]]]:
        first = _delta(self.trace)
        for place, (token, passage) in enumerate(zip(self.pool, self.passage, strict=True)):
            _add(first, "pool", position=place, id=token, passage=passage)
        self.trace.extend(first)
        yield from super().__iter__()

    def _candidates(self, context: int, rng: random.Random) -> list[dict[str, Any]]:
        rows, last = [], self.all[context - 2 : context]
        for place in range(1, len(self.pool) - 1):
            whole = self.passage[place - 1] == self.passage[place + 1]
            if self.pool[place - 1 : place + 1] == last and whole:
                end = next((p for p in range(place, len(self.pool)) if self.passage[p] != self.passage[place]),
                           len(self.pool))  # fmt: skip
                rows.append({"position": -1, "pool": place, "score": 1.0, "length": min(self.draft, end - place - 1),
                             "excluded": "", "term:matched": 2, "term:count": 1})  # fmt: skip
        return rows

    def _tree(self, chosen: dict[str, Any], rng: random.Random) -> list[tuple[int, int, str, int]]:
        start = chosen["pool"] + 1
        nodes = [(self.pool[start + k], k, "datastore", start + k) for k in range(chosen["length"])]
        others = [place for place in range(len(self.pool)) if self.pool[place] not in {n[0] for n in nodes}]
        parents = {(parent, token) for token, parent, _, _ in nodes}
        for place in rng.sample(others, min(6, len(others))):
            parent = rng.randrange(chosen["length"])
            if (parent, self.pool[place]) not in parents:
                parents.add((parent, self.pool[place]))
                nodes.append((self.pool[place], parent, "datastore", place))
        return nodes

    def route(self, chosen: dict[str, Any] | None) -> str:
        return "pool"

    def prefers(self, position: int) -> int | None:
        return self.swaps.get(self.all[position])

    def node_numbers(self, node: int, origin: str, chosen: Any, rng: random.Random) -> dict[str, Any]:
        return {"term:count": 1.0, "term:p_eos": 0.002}

    def step_numbers(self, nodes: int, rng: random.Random) -> dict[str, Any]:
        return {"term:matched": 2.0, "term:hits": 3.0} if nodes else {}

    def _finish(self) -> None:
        plain = _delta(self.trace)
        accepted = self.trace.tables["tokens"]["rank"][len(self.ids) :]
        for token, rank in zip(self.output, accepted, strict=True):
            _add(plain, "plain", id=self.swaps[token] if rank else token)
        self.trace.extend(plain)
        super()._finish()


class Drafting(Synthetic):
    """As GLIDE with CAPE records: a main chain with expansions beside it, or, ``drawn``, a chain verified by ratio.

    In turn the whole chain stands, its second token gives way to the third choice (drawn: to one from the residual),
    nothing stands, and the third token is wrong.
    """

    gamma, extra = 4, 3

    def __init__(self, drawn: bool, *given: Any, **more: Any) -> None:
        self.drawn = drawn
        super().__init__(*given, kind="glide" if drawn else "glide+cape", **more)
        if drawn:
            self.trace.run["sampling"]["temperature"] = 1.0

    def more(self, words: Vocabulary) -> dict[str, Any]:
        return {
            "terms": [],
            "node_terms": _terms("""
                confidence | confidence | 0 | 1
                bin | confidence bin | 0 | 9
                draft_rank | draft rank | 0 | 0
                overlap | overlap β | 0 | 1
                accept_ratio | accept ratio | 0 | 1
                draw | draw | 0 | 1
                kv_delay | KV delay | 0 | 0
            """),
            "step_terms": _terms("gamma | γ | 0 | 0\nkv_delay | KV delay | 0 | 0"),
            "attention": {"label": "the draft model's cross-attention", "layers": [5], "heads": 2},
        }

    def route(self, chosen: dict[str, Any] | None) -> str:
        return "drawn" if self.drawn else "cape"

    def _candidates(self, context: int, rng: random.Random) -> list[dict[str, Any]]:
        row = {"position": 0, "score": 1.0, "length": 0, "excluded": ""}  # so that there is a draft; not kept
        return [row] if context + 1 < len(self.all) else []

    def _tree(self, chosen: dict[str, Any], rng: random.Random) -> list[tuple[int, int, str, int]]:
        truth = self.all[self.now : self.now + self.gamma][: len(self.all) - self.now - 1]
        wrong = {1: 1, 2: 0, 3: 2}.get(self.trace.rows("steps") % 4, -1)
        self.said: list[list[int]] = []  # the drafter's first choices at each position
        nodes = []
        for k, token in enumerate(truth):
            others = [t for t in dict.fromkeys(rng.sample(self.ids, 12)) if t != token]
            first = others.pop() if k == wrong else token
            ranked = [first, *others[:5]]
            if k == wrong == 1:
                ranked[2] = token
            self.said.append(ranked)
            nodes.append((first, k, "drafter", -1))
        if not self.drawn:
            for k, ranked in enumerate(self.said):
                nodes += [(token, k, "expansion", -1) for token in ranked[1 : 1 + self.extra]]
        return nodes

    def _step(self, context: int, rng: random.Random) -> dict[str, dict[str, list[Any]]]:
        self.now, self.said = context, []
        delta = super()._step(context, rng)
        for values in delta["candidates"].values():
            values.clear()
        step, nodes = self.trace.rows("steps"), delta["nodes"]
        last = delta["steps"]["accepted"][0]
        for k, ranked in enumerate(self.said):
            truth = self.all[context + k]
            tokens = ranked if truth in ranked else [*ranked, truth]
            q = [round(0.6 * 0.4**rank, 6) for rank in range(len(tokens))]
            p = [0.9 if token == truth else round(0.1 / len(tokens), 6) for token in tokens]
            left = [max(0.0, b - a) for a, b in zip(q, p, strict=True)]
            beta = sum(min(a, b) for a, b in zip(q, p, strict=True))
            rejected = self.drawn and k == last
            for rank, token in enumerate(tokens):
                _add(delta, "guesses", step=step, node=k, token=token, rank=rank, draft_prob=q[rank], prob=p[rank],
                     residual=number(left[rank] / sum(left), 6) if rejected else None)  # fmt: skip
            for head, places in ((-1, (3, 12, 40)), (0, (12,)), (1, (40, context - 1))):
                for rank, position in enumerate(places):
                    _add(delta, "attention", step=step, node=k, layer=5, head=head,
                         position=min(position + k, context - 1), weight=number(0.5 / 2**rank, 6))  # fmt: skip
            for row, parent in enumerate(nodes["parent"]):
                if row == 0 or parent != k:
                    continue
                rank = tokens.index(nodes["token"][row])
                nodes["draft_prob"][row], nodes["prob"][row] = q[rank], p[rank]
                given = {"confidence": q[0], "bin": 6.0, "draft_rank": float(rank), "overlap": number(beta, 6),
                         "kv_delay": float(k + 1)}  # fmt: skip
                if self.drawn and k <= last:
                    ratio = min(1.0, p[rank] / q[rank])
                    given |= {"accept_ratio": number(ratio, 4), "draw": 0.2 if k < last else number((1 + ratio) / 2, 4)}
                for key, value in given.items():
                    nodes[f"term:{key}"][row] = value
        return delta


class Prompting(Synthetic):
    """As PPD records: trees of guesses made by the prompt tokens of the node where the step before ended.

    In turn all guesses hold, the second guess does, none does, and only the first distance does.
    """

    m = 3
    paths = ((0,), (0, 0), (0, 0, 0), (0, 1), (1,), (2,))

    def __init__(self, *given: Any, watched: bool = False, **more: Any) -> None:
        self.guesses: list[list[int]] = []  # per distance, by rank
        self.watched = watched  # two vectors each, with their attention
        super().__init__(*given, kind="ppd", **more)

    def more(self, words: Vocabulary) -> dict[str, Any]:
        looks = {"label": "the prompt tokens' attention", "layers": [2], "heads": 2, "probes": True}
        return {
            **({"attention": looks} if self.watched else {}),
            "terms": [],
            "node_terms": _terms("""
                distance | distance | 1 | 3
                guess_rank | guess rank | 0 | 0
                path_prob | path probability | 0 | 1
                next_state | next state | 0 | 3
            """),
            "step_terms": _terms("state | state | 0 | 3\nnext_state | next state | 0 | 3"),
        }

    def route(self, chosen: dict[str, Any] | None) -> str:
        return "guesses"

    def _candidates(self, context: int, rng: random.Random) -> list[dict[str, Any]]:
        row = {"position": 0, "score": 1.0, "length": 0, "excluded": ""}  # so that there is a draft; not kept
        return [row] if self.guesses else []

    def _tree(self, chosen: dict[str, Any], rng: random.Random) -> list[tuple[int, int, str, int]]:
        self.plan = [path for path in self.paths if len(path) <= len(self.guesses)]
        number_ = {path: node for node, path in enumerate([(), *self.plan])}
        return [(self.guesses[len(path) - 1][path[-1]], number_[path[:-1]], "prompt", -1) for path in self.plan]

    def prompts_at(self, node: int) -> int:
        """Prompt tokens on a node: all on the root, fewer on unlikely ones."""
        return self.m if not node else max(0, self.m - sum(self.plan[node - 1]) - len(self.plan[node - 1]))

    def node_numbers(self, node: int, origin: str, chosen: Any, rng: random.Random) -> dict[str, Any]:
        path = self.plan[node - 1]
        return {"term:distance": float(len(path)), "term:guess_rank": float(path[-1]),
                "term:path_prob": number(0.5 ** (len(path) + sum(path)), 6),
                "term:next_state": float(self.prompts_at(node))}  # fmt: skip

    def guess(self, start: int, count: int, rng: random.Random) -> list[list[int]]:
        """Guesses of ``count`` prompt tokens from position ``start`` on."""
        turn, found = self.trace.rows("steps") % 4, []
        for d in range(count):
            truth = self.all[start + d] if start + d < len(self.all) else self.ids[0]
            ranked = [t for t in dict.fromkeys(rng.sample(self.ids, 16)) if t != truth][:3]
            holds = {0: 0, 1: 1 if d == 0 else -1, 2: -1, 3: 0 if d == 0 else -1}[turn]
            if holds >= 0:
                ranked[holds] = truth
            found.append(ranked)
        return found

    def _step(self, context: int, rng: random.Random) -> dict[str, dict[str, list[Any]]]:
        state, self.plan = len(self.guesses), []
        delta = super()._step(context, rng)
        for values in delta["candidates"].values():
            values.clear()
        step, nodes = self.trace.rows("steps"), delta["nodes"]
        last = max(row for row, status in enumerate(nodes["status"]) if status in ("root", "accepted"))
        self.guesses = self.guess(context + delta["steps"]["emitted"][0], self.prompts_at(last), rng)
        nodes["term:next_state"][0] = float(self.m)
        joint: list[dict[str, Any]] = []
        for node, rank in enumerate(nodes["term:guess_rank"]):
            if node:
                nodes["draft_prob"][node] = number(0.5 * 0.4**rank, 6)
            for i in range(self.prompts_at(node)):
                token = self.guesses[i][0] if node == last else rng.choice(self.ids)
                kind = "joint" if self.watched and node == last else "prompt"
                joint.append({"step": step, "parent": node, "offset": i + 1, "kind": kind, "token": token, "prob": 0.5})
                if not self.watched:
                    continue
                if node == last:
                    number_ = len(delta["nodes"]["step"]) + len(delta["probes"]["step"])
                    for head, at in ((-1, i), (-1, context - 1 - i), (0, i + 2), (1, i + 3)):
                        _add(delta, "attention", step=step, node=number_, layer=2, head=head, position=at,
                             weight=0.4 if at < 9 else 0.2)  # fmt: skip
                for _ in range(2):
                    _add(delta, "probes", step=step, parent=node, offset=i + 1, kind="prompt",
                         token=rng.choice(self.ids), prob=0.5)  # fmt: skip
        for row in joint:
            if not self.watched or row["kind"] == "joint":
                _add(delta, "probes", **row)
        delta["steps"]["term:state"], delta["steps"]["term:next_state"] = [float(state)], [float(self.prompts_at(last))]
        return delta


def _chat(instruction: str, context: Sequence[str | bytes], question: str = "") -> list[tuple[str, int, str | bytes]]:
    parts: list[tuple[str, int, str | bytes]] = [("special", -1, "<|user|>"), ("template", -1, "\n")]
    parts.append(("instruction", -1, instruction + "\n\n"))
    parts += [("context", k, text) for k, text in enumerate(context)]
    if question:
        parts.append(("question", -1, "\n" + question))
    return [*parts, ("special", -1, "<|assistant|>"), ("template", -1, "\n")]


CODE_SEGMENTS = _chat("Use time.monotonic(), add type hints and return the whole file.", [CODE])


def chain() -> Trace:
    """A code edit, copied along one line."""
    return Synthetic(CODE_SEGMENTS, EDITED, "chain", "Refactor ratelimit.py").run()


def tree(width: int = 26) -> Trace:
    """The same with a draft tree of ``width`` nodes."""
    return Synthetic(CODE_SEGMENTS, EDITED, "tree", "Refactor ratelimit.py", width=width).run()


def adapld() -> Trace:
    """The same as AdaPLD would record it."""
    return Adapld(CODE_SEGMENTS, EDITED, "adapld", "Refactor ratelimit.py").run()


def casd(rather: dict[str, str] | None = None) -> Trace:
    """A lossy answer from passages that the target saw a compressed form of; ``rather``: what it preferred."""
    question = "When did the bridge open, and what does it carry?"
    segments = _chat("Answer from the passages, word for word.", ["The Halvorsen bridge opened in 1932."], question)
    swaps = {" carries": " takes", " trains": " wagons"} if rather is None else rather
    return Casd(PASSAGES, swaps, "It opened in 1932 and carries trains and cars.", segments, QUOTE + "\n" + PASSAGES[1],
                title="Quoted answer").run()  # fmt: skip


def draft_model_trace(drawn: bool = False) -> Trace:
    """The same by a draft model: with expansions, or with drawn tokens."""
    return Drafting(drawn, CODE_SEGMENTS, EDITED, title="Refactor ratelimit.py").run()


def prompt_token_trace(watched: bool = False) -> Trace:
    """The same by prompt tokens; watched: of two vectors each, with what they guess together and where they look."""
    return Prompting(CODE_SEGMENTS, EDITED, title="Refactor ratelimit.py", watched=watched).run()


def plain() -> Trace:
    """No drafts at all."""
    return Synthetic(CODE_SEGMENTS, EDITED[:300], "plain", "Plain decoding").run()


def quote() -> Trace:
    """Two passages and a question."""
    question = "When did the bridge open, and what does it carry?"
    segments = _chat("Answer from the passages, word for word.", PASSAGES, question)
    return Synthetic(segments, QUOTE, "chain", "Quoted answer").run()


def nasty() -> Trace:
    """Markup, CRLF, emoji, right-to-left text, split characters and lone bytes; the output repeats itself."""
    raw = NASTY.encode() + b" lone \xf0\x9f byte \xff end"
    segments = _chat("Repeat it <i>twice</i>.", [raw])
    return Synthetic(segments, raw + b"\n" + raw, "tree", "<script>alert(1)</script> ${x}").run()


def steps(count: int = 300, kind: str = "tree") -> Trace:
    """A run of at least ``count`` steps."""
    rng = random.Random(5)
    lines = CODE.splitlines(keepends=True)
    context = CODE * 3
    output, made = "", 0
    while True:
        made += 40
        for _ in range(40):
            line = rng.choice(lines)
            output += line if rng.random() < 0.5 else line.replace("self", rng.choice(["this", "me", "it"]))
        trace = Synthetic(_chat("Mix the lines.", [context]), output, kind, f"{count} steps", slip=0.06).run()
        if trace.rows("steps") >= count:
            return trace


def long(context: int = 8000, output: int = 2000, kind: str = "chain") -> Trace:
    """About ``context`` prompt tokens in prose and code over several passages, and about ``output`` output tokens."""
    rng = random.Random(9)
    nouns = [
        "river",
        "harbour",
        "bridge",
        "winter",
        "engine",
        "letter",
        "garden",
        "window",
        "teacher",
        "market",
        "island",
    ]
    verbs = [
        "crosses",
        "carries",
        "warms",
        "opens",
        "measures",
        "follows",
        "repairs",
        "describes",
        "reaches",
        "answers",
    ]

    def sentence() -> str:
        return f"The {rng.choice(nouns)} {rng.choice(verbs)} the {rng.choice(nouns)} near the {rng.choice(nouns)}. "

    passages, size = [], 0
    while size < context - 60:
        prose = "".join(sentence() for _ in range(40)) + "\n"
        passages.append(prose if len(passages) % 3 else prose + CODE)
        size += len(Vocabulary().encode(passages[-1]))
    words = Vocabulary()
    body = ""
    sources = [s for p in passages for s in re.findall(r"[^.\n]+[.\n] ?", p)]
    while len(words.encode(body)) < output - 20:
        at = rng.randrange(len(sources) - 3)
        body += "".join(sources[at : at + 3]) if rng.random() < 0.7 else sentence()
    return Synthetic(_chat("Summarise.", passages, "What is said?"), body, kind, "Long context").run()


def deltas(trace: Trace) -> tuple[Trace, list[dict[str, dict[str, list[Any]]]]]:
    """The trace as it is streamed: an opening trace with the prompt and the pool only, and one delta per step; the
    last one has plain decoding's output too.
    """
    opening = Trace.new({**trace.run, "complete": False, "metrics": {}})
    prompt = trace.run["prompt_length"]
    opening.tables["pieces"] = {name: list(values) for name, values in trace.tables["pieces"].items()}
    opening.tables["tokens"] = {name: values[:prompt] for name, values in trace.tables["tokens"].items()}
    opening.tables["pool"] = {name: list(values) for name, values in trace.tables["pool"].items()}
    parts = [_delta(trace) for _ in range(trace.rows("steps"))]
    parts[-1]["plain"] = {"id": list(trace.tables["plain"]["id"])}
    for table in TABLES:
        if table in ("pieces", "pool", "plain"):
            continue
        columns = trace.tables[table]
        owners = range(trace.rows("steps")) if table == "steps" else columns["step"]
        for row, step in enumerate(owners):
            if step < 0:
                continue
            for name, values in columns.items():
                parts[step][table][name].append(-1 if name == "would_accept" else values[row])
    return opening, parts
