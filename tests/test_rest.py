"""REST and its datastore: against a naive search, on disk, and with files that are no datastore."""

from __future__ import annotations

import json
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from decoders import Prompt, Sampling, generate, record
from decoders.drafters.rest import RestDrafter, RestParams
from decoders.errors import UserError
from decoders.prompt import datastore
from decoders.prompt.datastore import Datastore, fingerprint, open_datastore
from decoders.prompt.prompt import Pool
from decoders.study.look.whatif import ReadRun

from .models import prompt_ids, tiny_target, tiny_tokenizer
from .work import calls, lines, peak_bytes

NEW = 24


class Words:
    """A tokenizer of numbers: "70001 5" is [70001, 5]."""

    vocab = 100_000

    def get_vocab(self) -> dict[str, int]:
        return {"words": self.vocab}

    def __call__(self, texts: list[str], add_special_tokens: bool = True) -> dict[str, Any]:
        return {"input_ids": [[int(word) for word in text.split()] for text in texts]}


pytestmark = pytest.mark.usefixtures("home")


def write(path: Path, documents: list[list[int]]) -> Path:
    path.write_text("\n\n".join(" ".join(map(str, document)) for document in documents), "utf-8")
    return path


def naive(
    documents: list[list[int]], text: list[int], longest: int, shortest: int, depth: int, most: int
) -> dict[tuple[int, ...], int]:
    """Counts of first tokens of the longest suffix that stands somewhere with a token behind it; of more than ``most``
    continuations the first in the order of a suffix array are counted.
    """
    for n in range(min(longest, len(text)), shortest - 1, -1):
        ends = [
            (document, end) for document in documents for end in range(n, len(document))
            if document[end - n : end] == text[-n:]
        ]  # fmt: skip
        if ends:
            counts: dict[tuple[int, ...], int] = {}
            for document, end in sorted(ends, key=lambda found: found[0][found[1] :])[:most]:
                for k in range(1, min(depth, len(document) - end) + 1):
                    prefix = tuple(document[end : end + k])
                    counts[prefix] = counts.get(prefix, 0) + 1
            return counts
    return {}


@pytest.mark.parametrize("chunk", [40, 1 << 22])
@pytest.mark.parametrize("seed", range(12))
def test_drafts_are_the_most_frequent_continuations(
    seed: int, chunk: int, home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also where the datastore has many chunks, and with token ids beyond 65,535."""
    monkeypatch.setattr(datastore, "CHUNK", chunk)
    chance = np.random.default_rng(seed)
    documents = [(70_000 + chance.integers(0, 4, int(n))).tolist() for n in chance.integers(1, 38, 12)]
    store = open_datastore(write(home / "texts.txt", documents), Words())
    assert store.tokens == sum(map(len, documents)) and (len(store.chunks) > 1) == (chunk == 40)
    params = RestParams(
        longest_suffix=6, shortest_suffix=2, depth=3, nodes=int(chance.integers(1, 30)),
        max_hits=int(chance.choice([1, 2, 4, 5000])),
    )  # fmt: skip
    drafter, pooled = RestDrafter(params, store), RestDrafter(params)
    starts = np.cumsum([0, *map(len, documents)])[:-1]
    pool = Pool(np.concatenate(documents), tuple(starts.tolist()), None, "the same documents")
    for _ in range(10):
        text = (70_000 + chance.integers(0, 5, 12)).tolist()
        context: Any = SimpleNamespace(tokens=np.array(text), root=text[-1], pool=pool)
        counts = naive(documents, text, 6, 2, 3, params.max_hits)
        best = sorted(counts.values(), reverse=True)[: params.nodes]
        for one in (drafter, pooled):
            draft = one.propose(context, 64)
            tree = draft.tree
            paths = {node: tuple(tree.tokens[n] for n in tree.path(node)[1:]) for node in range(1, len(tree))}
            assert all(counts[path] == draft.terms["count"][node] for node, path in paths.items())
            assert sorted((counts[path] for path in paths.values()), reverse=True) == best


def test_an_index_is_made_once_and_a_changed_file_is_indexed_again(home: Path, monkeypatch) -> None:
    path = write(home / "texts.txt", [[1, 2, 3, 4]])
    first = open_datastore(path, Words())
    with monkeypatch.context() as patch:
        patch.setattr(datastore, "_make", lambda *_: None)
        again = open_datastore(path, Words())
        assert isinstance(again.chunks[0].text, np.memmap) and again.tokens == first.tokens == 4
        write(path, [[1, 2, 3, 5], [9, 9]])
        assert open_datastore(path, Words()) is None, "another file is made anew"
    assert open_datastore(path, Words()).tokens == 6
    other = Words()
    other.vocab = 7
    assert fingerprint(path, other) != fingerprint(path, Words()), "another tokenizer, another index"


@pytest.mark.parametrize("damage", ["text-0.npy", "places-0.npy", "datastore.json", "gone"])
def test_a_damaged_index_is_made_again(home: Path, damage: str, monkeypatch) -> None:
    path = write(home / "texts.txt", [[1, 2, 3, 4], [5, 6]])
    open_datastore(path, Words())
    (folder,) = (home / "home" / "cache" / "datastores").iterdir()
    if damage == "gone":
        (folder / "places-0.npy").unlink()
    else:
        whole = (folder / damage).read_bytes()
        (folder / damage).write_bytes(whole[: len(whole) * 2 // 3])
    with monkeypatch.context() as patch:
        patch.setattr(datastore, "_make", lambda *_: None)
        assert open_datastore(path, Words()) is None, "it is made anew"
    assert open_datastore(path, Words()).tokens == 6
    assert [p.name for p in folder.parent.iterdir()] == [folder.name], "nothing half-written stays"


def test_files_that_are_no_datastore(home: Path) -> None:
    def refuse(data: bytes, name: str = "bad.txt") -> str:
        (home / name).write_bytes(data)
        with pytest.raises(UserError) as error:
            open_datastore(home / name, Words())
        assert not list((home / "home").rglob("*.npy"))
        return str(error.value)

    assert "bad.txt holds no text" in refuse(b"") and "holds no text" in refuse(b" \n\n ")
    assert "is no text in UTF-8" in refuse(b"\xff\xfe\x80abc") and "has NUL bytes" in refuse(b"1 2\0\0 3")
    assert "bad.jsonl, line 2 is no JSON" in refuse(b'{"text": "1 2"}\n{oops\n', "bad.jsonl")
    assert "line 1 has no text: it needs one of text" in refuse(b'{"title": "1 2"}\n', "bad.jsonl")
    with pytest.raises(UserError, match="there is no datastore file"):
        open_datastore(home / "missing.txt", Words())


def test_a_line_of_jsonl_that_never_ends_is_refused(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(datastore, "MOST_LINE", 20)
    for text, good in (('"short"\n"also short"\n', True), ('"short"\n"much longer than the others"\n', False)):
        path = home / "lines.jsonl"
        path.write_text(text)
        if good:
            assert [*datastore.documents(path)] == ["short", "also short"]
            continue
        with pytest.raises(UserError, match="line 2 is longer than 20 characters"):
            list(datastore.documents(path))


def test_jsonl_has_a_document_per_line(home: Path) -> None:
    lines = [
        {"text": "1 2 3"},
        "4 5",
        {"messages": [{"content": "6"}, {"content": "7 8"}]},
        {"conversations": [{"value": "9 1"}]},
    ]
    path = home / "texts.jsonl"
    path.write_text("\n".join(map(json.dumps, lines)), "utf-8")
    text = open_datastore(path, Words()).chunks[0].text
    assert text.tolist() == [-1, 1, 2, 3, -1, 4, 5, -1, 6, 7, 8, -1, 9, 1, -1]


@pytest.mark.parametrize("sampling", [None, Sampling(temperature=0.8, seed=2)])
def test_output_is_plain_decodings_and_a_step_is_drafted_again(home: Path, sampling: Sampling | None) -> None:
    target, prompt = tiny_target("qwen3"), Prompt.from_ids(prompt_ids(3))
    target.tokenizer = tiny_tokenizer()
    plain = generate(target, prompt, sampling=sampling, max_new_tokens=NEW)
    path = home / "texts.txt"
    path.write_text(target.tokenizer.decode([*prompt.tokens, *plain]) + " the old lamp at the station", "utf-8")
    params = {"datastore": str(path), "shortest_suffix": 1}
    trace = record(target, prompt, "rest", params, sampling=sampling, max_new_tokens=NEW)
    assert trace.output_ids == plain and trace.run["method"]["params"]["datastore"] == "texts.txt"
    assert sum(trace.tables["steps"]["drafted"]) > 0 and max(trace.tables["steps"]["term:hits"], key=lambda h: h or 0)
    step = next(i for i, count in enumerate(trace.tables["steps"]["drafted"]) if count)
    assert ReadRun(target, trace).redraft(step, "rest", params).same


def test_without_a_datastore_it_drafts_from_the_context_or_says_what_is_missing() -> None:
    target = tiny_target("qwen3")
    trace = record(target, Prompt.from_ids([5, 6]), "rest", max_new_tokens=3)
    assert "nothing to draft from: name a text or JSONL file" in trace.tables["steps"]["reason"][0]
    words = "the old lamp at the station was sold"
    prompt = Prompt.from_segments(tiny_tokenizer(), instruction="Copy.", context=[words], question="the old lamp")
    pool = prompt.context_pool()
    assert pool is not None and pool.positions is not None
    context: Any = SimpleNamespace(tokens=np.array([3, *pool.tokens[1:3]]), root=int(pool.tokens[2]), pool=pool)
    draft = RestDrafter(RestParams()).propose(context, 3)
    assert (draft.route, draft.tree.tokens[1:]) == ("pool", tuple(pool.tokens[3:6]))
    assert draft.sources[1:] == tuple(pool.positions[3:6]) and draft.pool == (-1, 3, 4, 5)


def test_a_lookup_does_not_grow_with_the_datastore() -> None:
    """Ten times the tokens: as much memory, and what bisecting costs."""
    chance = np.random.default_rng(0)

    def work(tokens: int) -> tuple[int, int, int]:
        text = np.append(chance.zipf(1.3, tokens) % 5000, -1)
        chunk = datastore.Chunk(text.astype(np.int32), datastore.sorted_places(text).astype(np.int32))
        store = Datastore("made", tokens, [chunk])
        starts = chance.integers(20, tokens - 20, 60).tolist()

        def look() -> None:
            for start in starts:
                found = store.find(text[start - 16 : start], 16, 2, 5000)
                store.continuations(found, 10, 64, 5000)

        return calls(look), lines(look), peak_bytes(look)

    (few, short, small), (many, long, large) = work(20_000), work(200_000)
    assert many < 2 * few and long < 2 * short and large < small + 50_000, "a pass over the tokens takes 200 kB"
