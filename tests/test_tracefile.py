"""Trace files: round trips, and every hostile or damaged file gives one sentence and nothing else."""

import copy
import io
import json
import random
import struct
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from decoders.trace import files as tracefile
from decoders.trace.files import MAX_FILE, MAX_UNPACKED, load, save
from decoders.trace.journal import Journal, recover
from decoders.trace.metrics import fill_would_accept
from decoders.trace.tables import OPTIONAL_TABLES, TABLES, TraceError
from decoders.trace.trace import Trace

from . import recordings
from .recordings import append, save_trace
from .work import calls, peak_bytes

SMALL = recordings.beginning(recordings.quote(), 7)
fuzzed = settings(max_examples=100, deadline=None, suppress_health_check=[HealthCheck.too_slow], derandomize=True)


GOOD = save_trace(SMALL)


def parts(data: bytes = GOOD) -> dict[str, bytes]:
    with zipfile.ZipFile(io.BytesIO(data)) as archive:
        return {name: archive.read(name) for name in archive.namelist()}


def pack(members: dict[str, bytes] | list[tuple[str, bytes]], method: int = zipfile.ZIP_DEFLATED) -> bytes:
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", method) as archive:
        for name, data in members.items() if isinstance(members, dict) else members:
            archive.writestr(name, data)
    return buffer.getvalue()


def change_part(part: str, change: Callable[[Any], Any]) -> bytes:
    """The good file with one part changed as JSON."""
    members = parts()
    value = json.loads(members[part])
    members[part] = json.dumps(change(value) or value).encode()
    return pack(members)


def refuse(data: bytes | Path, says: str = "") -> str:
    with pytest.raises(TraceError) as caught:
        load(data)
    sentence = str(caught.value)
    assert says in sentence and "\n" not in sentence and len(sentence) < 700
    return sentence


# --- round trips ------------------------------------------------------------------------------------------------------


def test_round_trip_through_bytes_and_file(trace: Trace, tmp_path: Path):
    data = save_trace(trace)
    assert load(data).to_json() == trace.to_json()
    assert save(trace, tmp_path / "a.spectrace") is None
    assert (tmp_path / "a.spectrace").read_bytes() == data
    assert save_trace(load(save_trace(load(data)))) == save_trace(load(data))
    assert [path.name for path in tmp_path.iterdir()] == ["a.spectrace"]


def test_probes_and_terms_that_were_not_measured_survive():
    trace = copy.deepcopy(SMALL)
    row = {"step": 0, "parent": 0, "offset": 1, "kind": "ppd", "token": trace.output_ids[0], "prob": None}
    append(trace, "probes", row)
    trace.tables["candidates"]["term:cosine"][0] = None
    assert load(save_trace(trace)).tables == trace.tables


def test_a_trace_that_contradicts_itself_is_not_saved(tmp_path: Path):
    trace = copy.deepcopy(SMALL)
    trace.tables["steps"]["accepted"][0] = 400
    with pytest.raises(TraceError, match=r"not saved: steps\.accepted"):
        save(trace, tmp_path / "a.spectrace")
    assert not list(tmp_path.iterdir())


def test_a_file_that_cannot_be_written_leaves_nothing(tmp_path: Path):
    with pytest.raises(TraceError, match="check the folder"):
        save(SMALL, tmp_path / "no such folder" / "a.spectrace")
    (tmp_path / "folder.spectrace").mkdir()
    with pytest.raises(TraceError, match="cannot be written"):
        save(SMALL, tmp_path / "folder.spectrace")
    assert [path.name for path in tmp_path.iterdir()] == ["folder.spectrace"]


def test_loading_goes_by_columns_not_by_values():
    """2,000 steps with 60,000 candidates load within a second: few calls for each value."""
    data = save_trace(recordings.repeat(recordings.chain(), 6, 10))
    trace = load(data)
    values = sum(trace.rows(table) * len(columns) for table, columns in trace.tables.items())
    assert values > 50_000
    assert calls(lambda: load(data)) / values < 0.4


# --- hostile and damaged files ----------------------------------------------------------------------------------------


def test_paths_that_are_no_file(tmp_path: Path):
    refuse(tmp_path / "missing.spectrace", "missing.spectrace cannot be opened: no such file")
    refuse(tmp_path, "cannot be opened")
    refuse(Path("a\0b"), "null byte")
    (tmp_path / "empty.spectrace").touch()
    refuse(tmp_path / "empty.spectrace", "it has 0 bytes")


def test_what_is_no_trace_file():
    refuse(b"", "0 bytes")
    refuse(b"hello world, this is a text file", "no zip directory")
    refuse(pack({"word/document.xml": b"<w/>"}), "1 entries")
    refuse(b"PK\x05\x06" + bytes(18), "0 entries")


@pytest.mark.parametrize("version", ["spectrace/2", "spectrace/0", 1, None, "x" * 10_000])
def test_another_version_is_refused_naming_both(version: object):
    sentence = refuse(change_part("trace.json", lambda head: {**head, "schema": version}), "spectrace/1")
    assert str(version)[:40] in sentence


def test_members():
    members = parts()
    refuse(pack(members | {"extra.json": b"{}"}), "announces other tables than it holds")
    refuse(pack(members | {f"extra{n}.json": b"{}" for n in range(9)}), "25 entries")
    refuse(pack({name: data for name, data in members.items() if name != "nodes.json"}), "lacks one")
    needed = {"trace.json": members["trace.json"]} | {n: d for n, d in members.items() if n > "pieces.json"}
    refuse(pack(needed), "entries, and 10 to 24 are allowed")
    for name in ("../nodes.json", "/nodes.json", "a/nodes.json", "nodes.json/", "NODES.JSON", "x\\..\\y", "nödes.json"):
        renamed = {name if old == "nodes.json" else old: data for old, data in members.items()}
        refuse(pack(renamed), "only trace.json")
    with pytest.warns(UserWarning, match="Duplicate name"):
        twice = pack([("tokens.json" if name == "nodes.json" else name, data) for name, data in members.items()])
    refuse(twice, "twice")


def test_a_file_from_before_draft_models_were_recorded_opens():
    members = {n: d for n, d in parts().items() if n.removesuffix(".json") not in OPTIONAL_TABLES}
    refuse(pack(members), "announces")
    head = json.loads(members["trace.json"])
    head["tables"] = {name: told for name, told in head["tables"].items() if name not in OPTIONAL_TABLES}
    opened = load(pack(members | {"trace.json": json.dumps(head).encode()}))
    assert opened.tables == SMALL.tables and not any(opened.rows(name) for name in OPTIONAL_TABLES)


def test_odd_zips():
    members = parts()
    assert load(pack(members, zipfile.ZIP_STORED)).tables == SMALL.tables
    refuse(pack(members, zipfile.ZIP_BZIP2), "not allowed")
    refuse(pack(members, zipfile.ZIP_LZMA), "not allowed")
    encrypted = bytearray(GOOD)
    at = encrypted.index(b"PK\x01\x02")
    encrypted[at + 8] |= 1
    refuse(bytes(encrypted), "encrypted")
    buffer = io.BytesIO(GOOD)
    with zipfile.ZipFile(buffer, "a") as archive:
        archive.comment = b"hello"
    refuse(buffer.getvalue(), "no zip directory")
    refuse(GOOD + b"\0", "no zip directory")
    refuse(GOOD[:-1], "no zip directory")
    end = GOOD[-22:]
    huge = struct.pack("<4sQ2H2L4Q", b"PK\x06\x06", 44, 45, 45, 0, 0, 10**6, 10**6, 10**8, 0)
    locator = struct.pack("<4sLQL", b"PK\x06\x07", 0, len(GOOD) - 22, 1)
    refuse(GOOD[:-22] + huge + locator + end, "entries")


def test_offsets_beyond_every_file():
    """A zip64 field that sends the reader to the far end of the number range."""
    at = GOOD.index(b"PK\x01\x02")
    for place in (2**31, 2**63 - 1, 2**63, 2**64 - 1):
        entry = bytearray(GOOD[at:-22])
        name, extra = struct.unpack_from("<2H", entry, 28)
        assert extra == 0
        struct.pack_into("<L", entry, 42, 0xFFFFFFFF)
        struct.pack_into("<H", entry, 30, 12)
        entry[46 + name : 46 + name] = struct.pack("<2HQ", 1, 8, place)
        end = bytearray(GOOD[-22:])
        struct.pack_into("<L", end, 12, len(entry))
        refuse(GOOD[:at] + bytes(entry) + bytes(end))


def test_a_directory_of_a_million_entries_is_not_read():
    entry = struct.pack("<4s6H3L5H2L", b"PK\x01\x02", *[0] * 6, *[0] * 3, 1, 0, 0, 0, 0, 0, 0) + b"a"
    directory = entry * 200_000
    for count in (200_000 % 65_536, len(TABLES) + 1):
        data = directory + struct.pack("<4s4H2LH", b"PK\x05\x06", 0, 0, count, count, len(directory), 0, 0)
        assert calls(lambda data=data: refuse(data, "entries")) < 500


def bomb(size: int, unit: bytes = b"0") -> bytes:
    """A file whose nodes.json unpacks to ``size`` bytes of ``unit``."""
    members = parts()
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, data in members.items():
            with archive.open(name, "w", force_zip64=False) as part:
                if name != "nodes.json":
                    part.write(data)
                    continue
                block = unit * (2**20 // len(unit))
                for _ in range(size // len(block)):
                    part.write(block)
    return buffer.getvalue()


def test_bombs_are_refused_before_they_are_unpacked():
    assert peak_bytes(lambda: refuse(BOMB, "times its size")) < 4 * 2**20
    data = bytearray(BOMB)
    struct.pack_into("<L", data, _unpacked_sizes(data)[0], MAX_UNPACKED + 2**20)
    assert peak_bytes(lambda: refuse(bytes(data), "257 MiB and 256 are allowed")) < 4 * 2**20


BOMB = bomb(32 * 2**20)


def _unpacked_sizes(data: bytearray) -> list[int]:
    """The two places of the unpacked size of nodes.json: the zip directory and the part's own header."""
    with zipfile.ZipFile(io.BytesIO(data)) as archive:
        size = struct.pack("<L", archive.getinfo("nodes.json").file_size)
    places = [data.rfind(size)]
    while (before := data.rfind(size, 0, places[-1])) >= 0:
        places.append(before)
    return places


def test_a_header_that_lies_about_the_size_is_caught():
    data = bytearray(BOMB)
    for place in _unpacked_sizes(data):
        struct.pack_into("<L", data, place, 1_000)
    assert peak_bytes(lambda: refuse(bytes(data), "damaged")) < 8 * 2**20


@pytest.mark.parametrize("unit", [b"[],", b"{},", b"[[", b'"",', b"0,"])
def test_few_bytes_of_json_cannot_become_much_memory(unit: bytes):
    members = parts()
    noise = random.Random(0).randbytes(60_000).hex().encode()  # keeps the ratio low, so that only the JSON is at fault
    members["nodes.json"] = b'{"x":"' + noise + b'","step":[' + unit * (4 * 2**20 // len(unit)) + b"0]}"
    data = pack(members)
    assert peak_bytes(lambda: refuse(data, "more than trace.json announces")) < 24 * 2**20


def test_few_bytes_of_json_in_the_head_cannot_become_much_memory():
    noise = random.Random(0).randbytes(60_000).hex()
    head = f'{{"noise":"{noise}","x":[{"{},[]," * 1_000_000}0]}}'.encode()
    data = pack(parts() | {"trace.json": head})
    assert peak_bytes(lambda: refuse(data, "more than trace.json announces")) < 32 * 2**20


def test_sizes_that_are_announced_too_large():
    rows = MAX_UNPACKED
    refuse(change_part("trace.json", lambda head: head["tables"]["nodes"].update(rows=rows)), "values and")
    refuse(change_part("trace.json", lambda head: head["tables"]["nodes"].update(rows=-1)), "announce")
    refuse(change_part("trace.json", lambda head: head["tables"]["nodes"].update(rows=3.5)), "announce")
    refuse(change_part("trace.json", lambda head: head["tables"]["nodes"].update(columns=["a"] * 1_000)), "announce")
    refuse(change_part("trace.json", lambda head: head["tables"].pop("nodes") and None), "announce")
    refuse(change_part("trace.json", lambda head: {**head, "tables": []}), "announce")
    refuse(change_part("trace.json", lambda head: head["tables"]["nodes"].update(rows=3)), "announces 3")


def test_a_file_too_large_is_not_read(tmp_path: Path):
    path = tmp_path / "large.spectrace"
    with open(path, "wb") as file:
        file.truncate(MAX_FILE + 2**20)
    assert peak_bytes(lambda: refuse(path, "MiB and 128 are allowed")) < 2**20


@pytest.mark.parametrize("text", ["NaN", "Infinity", "-Infinity", "1e999", "-1e999", "1" + "0" * 5_000, "1" * 400])
def test_numbers_that_are_none(text: str):
    members = parts()
    members["tokens.json"] = members["tokens.json"].replace(b'"prob":[null', b'"prob":[' + text.encode(), 1)
    assert text.encode() in members["tokens.json"]
    refuse(pack(members))
    members = parts()
    members["trace.json"] = members["trace.json"].replace(b'"seed":0', b'"seed":' + text.encode(), 1)
    refuse(pack(members))


@pytest.mark.parametrize(
    ("data", "says"),
    [
        (b"", "not JSON"),
        (b"[]", "not an object"),
        (b"null", "not an object"),
        (b"\xff\xfe{}", "not JSON"),
        (b'{"step":[0],"step":[0]}', "twice"),
        (b"{} {}", "not JSON"),
        (b'{"step":[}', "not JSON"),
        (b'{"a":' + b"[" * 900 + b"]" * 900 + b"}", "announces"),
        (b"\xef\xbb\xbf{}", "not JSON"),
    ],
)
def test_parts_that_are_no_table(data: bytes, says: str):
    refuse(pack(parts() | {"nodes.json": data}), says)


def test_deep_json_is_refused():
    deep = b'{"run":' + b"[" * 50_000 + b"]" * 50_000 + b"}"
    refuse(pack(parts() | {"trace.json": deep}), "nested too deeply")
    members = parts()
    deep = b'{"schema":"spectrace/1","run":' + b'{"a":' * 900 + b"1" + b"}" * 900 + b"}"
    refuse(pack(members | {"trace.json": deep}), "nested too deeply")


@fuzzed
@given(st.binary(max_size=2_000))
def test_random_bytes(data: bytes):
    refuse(data)


@fuzzed
@given(st.integers(0, len(GOOD) - 1))
def test_cut_files(length: int):
    refuse(GOOD[:length])


@fuzzed
@given(st.lists(st.tuples(st.integers(0, len(GOOD) - 1), st.integers(1, 255)), min_size=1, max_size=4))
def test_flipped_bits(flips: list[tuple[int, int]]):
    data = bytearray(GOOD)
    for at, mask in flips:
        data[at] ^= mask
    same_or_refused(bytes(data))


def same_or_refused(data: bytes, trace: Trace = SMALL) -> None:
    """Damage is noticed, unless it lies where a zip holds nothing that matters (dates, permissions)."""
    try:
        found = load(data)
    except TraceError:
        pass
    else:
        assert found.to_json() == trace.to_json()


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=8), inner, max_size=4),
    max_leaves=6,
)


@fuzzed
@given(st.data())
def test_random_damage_to_columns(data: st.DataObject):
    """Whatever a file's tables say, it is refused, or what was read is a whole trace that can be saved again."""
    document = json.loads(json.dumps(SMALL.to_json()))
    for _ in range(data.draw(st.integers(1, 3))):
        table = data.draw(st.sampled_from(["run", *TABLES]))
        place = document[table]
        key = data.draw(st.sampled_from(sorted(place)))
        values = place[key]
        if isinstance(values, list) and values and data.draw(st.booleans()):
            row = data.draw(st.integers(0, len(values) - 1))
            values[row] = data.draw(st.integers(-2, 40) | st.sampled_from(values) | JSON)
        else:
            place[key] = data.draw(JSON)
    members = {f"{table}.json": json.dumps(document[table]).encode() for table in TABLES}
    members["trace.json"] = json.dumps({**json.loads(parts()["trace.json"]), "run": document["run"]}).encode()
    try:
        found = load(pack(members))
    except TraceError:
        return
    assert load(save_trace(found)).to_json() == found.to_json()


@fuzzed
@given(st.sampled_from(sorted(parts())), st.binary(max_size=200) | JSON.map(lambda value: json.dumps(value).encode()))
def test_random_parts(name: str, data: bytes):
    refuse(pack(parts() | {name: data}))


# --- the journal ------------------------------------------------------------------------------------------------------


def write_journal(path: Path, trace: Trace = SMALL) -> tuple[Journal, Trace, list[Any]]:
    opening, deltas = recordings.deltas(trace)
    journal = Journal(path)
    journal.start(opening)
    for delta in deltas:
        journal.append(delta)
    return journal, opening, deltas


def test_a_whole_journal_gives_the_whole_run(trace: Trace, tmp_path: Path):
    journal, _, _ = write_journal(tmp_path / "a.journal", trace)
    journal.close()
    journal.close()
    found = recover(tmp_path / "a.journal")
    assert not found.run["complete"] and found.run["stop"] == "interrupted"
    assert found.run["timings"]["decode_ms"] == trace.tables["steps"]["elapsed_ms"][-1]
    fill_would_accept(found)
    assert found.tables == trace.tables
    assert load(save_trace(found)).to_json() == found.to_json()


def test_a_journal_cut_at_any_byte_gives_every_whole_step(tmp_path: Path):
    path = tmp_path / "a.journal"
    opening, deltas = recordings.deltas(SMALL)
    journal = Journal(path)
    ends = []
    journal.start(opening)
    for delta in deltas:
        ends.append(path.stat().st_size)  # nothing is held back in this process
        journal.append(delta)
    ends.append(path.stat().st_size)
    journal.close()
    whole, cut = path.read_bytes(), tmp_path / "cut.journal"
    assert len(whole) == ends[-1] and len(ends) > 5
    near = {length for end in ends for length in range(end - 8, end + 8)}
    for length in sorted(near | set(range(0, len(whole), 101))):
        cut.write_bytes(whole[:length])
        if length < ends[0] - 1:  # the line's end itself is not needed
            with pytest.raises(TraceError, match="cannot be recovered"):
                recover(cut)
            continue
        found = recover(cut)
        assert found.rows("steps") == sum(length >= end - 1 for end in ends[1:])
        assert found.tables["tokens"]["id"] == SMALL.tables["tokens"]["id"][: found.rows("tokens")]


def test_a_damaged_journal_gives_a_beginning_of_the_run_or_a_sentence(tmp_path: Path):
    path = tmp_path / "a.journal"
    write_journal(path)[0].close()
    whole = path.read_bytes()
    chance = random.Random(1)
    for _ in range(150):
        data = bytearray(whole)
        data[chance.randrange(len(data))] ^= chance.randrange(1, 256)
        path.write_bytes(data)
        try:
            found = recover(path)
        except TraceError:
            continue
        assert found.rows("steps") <= SMALL.rows("steps")
        save_trace(found)


def test_a_step_that_was_appended_is_in_the_file(tmp_path: Path):
    opening, deltas = recordings.deltas(SMALL)
    journal = Journal(tmp_path / "a.journal")
    journal.start(opening)
    for done, delta in enumerate(deltas, 1):
        journal.append(delta)
        assert recover(journal.path).rows("steps") == done
    journal.close()


def test_a_journal_takes_any_text_and_number(tmp_path: Path):
    opening, deltas = recordings.deltas(SMALL)
    opening.tables["steps"]["note"] = []
    for delta, odd in zip(deltas, ("\x00", "\n \u2028", 2**53, 1.5, *[None] * len(deltas)), strict=False):
        delta["steps"]["note"] = [odd] * len(delta["steps"]["context"])
    journal = Journal(tmp_path / "a.journal")
    journal.start(opening)
    for delta in deltas[:4]:
        journal.append(delta)
    journal.close()
    assert recover(journal.path).tables["steps"]["note"] == ["\x00", "\n \u2028", 2**53, 1.5]


def test_finish_writes_the_file_and_removes_the_journal(tmp_path: Path):
    journal, _, deltas = write_journal(tmp_path / "runs" / "a.journal")
    assert journal.finish(SMALL) == tmp_path / "runs" / "a.spectrace"
    assert [path.name for path in (tmp_path / "runs").iterdir()] == ["a.spectrace"]
    assert load(tmp_path / "runs" / "a.spectrace").to_json() == SMALL.to_json()
    with pytest.raises(ValueError, match="finished"):
        journal.append(deltas[0])


def test_finish_keeps_the_journal_if_the_trace_cannot_be_saved(tmp_path: Path):
    journal, _, _ = write_journal(tmp_path / "a.journal")
    broken = copy.deepcopy(SMALL)
    broken.tables["steps"]["accepted"][0] = 9_999
    with pytest.raises(TraceError):
        journal.finish(broken)
    assert recover(tmp_path / "a.journal").rows("steps") == SMALL.rows("steps")


def test_journal_errors(tmp_path: Path):
    with pytest.raises(ValueError, match="not started"):
        Journal(tmp_path / "a.journal").append({})
    (tmp_path / "file").touch()
    with pytest.raises(TraceError, match="cannot be written"):
        Journal(tmp_path / "file" / "a.journal").start(SMALL)
    with pytest.raises(TraceError, match="check the path"):
        recover(tmp_path / "missing.journal")
    journal, _, _ = write_journal(tmp_path / "a.journal")
    journal.close()
    refuse(tmp_path / "a.journal", "recover() opens it")
    (tmp_path / "b.journal").write_text('{"journal":1,"schema":"spectrace/9","run":{},"tables":{}}\n')
    with pytest.raises(TraceError, match="cannot be recovered"):
        recover(tmp_path / "b.journal")


def test_a_journaled_step_costs_little(tmp_path: Path):
    """Far below 1 % of a 5 ms step for a chain (about 40 µs), as few calls."""
    opening, deltas = recordings.deltas(recordings.repeat(recordings.chain(), 8))
    journal = Journal(tmp_path / "a.journal")
    journal.start(opening)

    def append() -> None:
        for delta in deltas:
            journal.append(delta)

    assert calls(append) / len(deltas) < 40
    journal.close()


def test_the_checksum_of_a_block_is_checked(tmp_path: Path):
    journal, _, _ = write_journal(tmp_path / "a.journal")
    journal.close()
    data = bytearray((tmp_path / "a.journal").read_bytes())
    data[-3] ^= 1
    (tmp_path / "a.journal").write_bytes(data)
    assert recover(tmp_path / "a.journal").rows("steps") == SMALL.rows("steps") - 1


def test_limits_hold_for_saving_too(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(tracefile, "MAX_UNPACKED", 3_000)
    with pytest.raises(TraceError, match="record fewer tokens"):
        save(SMALL, None)


def test_a_trace_as_one_json_object_opens_too(tmp_path: Path):
    tree = recordings.tree()
    path = tmp_path / "run.json"
    path.write_text(json.dumps(tree.to_json()), encoding="utf-8")
    assert load(path).digest == load(save_trace(tree)).digest
    for damage, word in (({"schema": "spectrace/9"}, "version"), ({"steps": []}, "steps"), ({"run": {}}, "run")):
        path.write_text(json.dumps({**tree.to_json(), **damage}), encoding="utf-8")
        with pytest.raises(TraceError, match=word):
            load(path)
    path.write_bytes(b'{"schema": "spectrace/1", "run": NaN}')
    with pytest.raises(TraceError, match="not finite"):
        load(path)
