"""Runs pushed to a dataset of Parquet files and pulled again: all tables equal, nothing half, nothing lost."""

from __future__ import annotations

import copy
import shutil
from pathlib import Path
from types import SimpleNamespace

import huggingface_hub
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import yaml

from decoders import load, save
from decoders.errors import UserError
from decoders.trace.trace import Trace
from specviz.cli import main
from specviz.places import GALLERY
from tests.command import refusal
from tests.recordings import FROZEN_GALLERY as FROZEN

from .. import dataset, dataset_places


def everything(row) -> bool:
    return True


def pull(name: str, folder: Path) -> tuple[dict[str, Trace], dataset.DatasetRead]:
    read = dataset.pull(name, folder, everything, save)
    traces = [load(path) for path in sorted(folder.glob("*.spectrace"))]
    return {trace.run["id"]: trace for trace in traces}, read


def later(trace: Trace) -> Trace:
    """A run as a later version might write it: a column and a table that nobody knows."""
    trace = copy.deepcopy(trace)
    trace.run["id"], trace.run["title"] = "later", "=1+1 <b> \u202e"
    trace.tables["steps"]["mood"] = ["good", 1, None, *[True] * trace.rows("steps")][: trace.rows("steps")]
    trace.tables["weather"] = {"degrees": [1.5, None], "sky": ["grey", "=cmd()"]}
    return Trace.from_json(trace.to_json())


def test_every_table_comes_back_as_it_was(trace: Trace, tmp_path):
    place = str(tmp_path / "set")
    traces = {t.run["id"]: t for t in (trace, later(trace))}
    assert dataset.push(place, traces.values()) == dataset.PushResult(len(traces), 0, place)
    again, read = pull(place, tmp_path / "out")
    assert again.keys() == traces.keys() and not read.problems
    for key, one in traces.items():
        assert again[key].run == one.run and again[key].tables == one.tables


def test_gallery_and_files_of_earlier_versions_in_two_pushes(tmp_path, capsys):
    place, out = tmp_path / "set", tmp_path / "out"
    files = [*GALLERY.glob("*.spectrace"), *FROZEN.glob("*.spectrace")]
    assert main(["push", str(place), str(GALLERY)]) == 0
    assert main(["push", str(place), str(GALLERY), str(FROZEN)]) == 0
    assert f"{len(list(GALLERY.glob('*.spectrace')))} runs there already" in capsys.readouterr().out
    assert main(["pull", str(place), "--out", str(out)]) == 0
    for path in files:
        one = load(path)
        again = load(out / f"{one.run['id']}.spectrace")
        assert again.run == one.run and again.tables == one.tables, path.name
    assert main(["pull", str(place), "--out", str(tmp_path / "pld"), "--methods", "pld"]) == 0
    assert {load(path).run["method"]["name"] for path in (tmp_path / "pld").iterdir()} == {"pld"}


def test_each_config_has_one_schema_and_the_card_names_it(trace: Trace, tree: Trace, tmp_path):
    """As a viewer of datasets needs it, whichever methods the runs are of."""
    for number, one in enumerate((trace, tree)):
        one.run["id"] = f"run-{number}"
        dataset.push(str(tmp_path / "set"), [one])
    front = yaml.safe_load((tmp_path / "set" / "README.md").read_text("utf-8").split("---\n")[1])
    assert front["configs"][0] == {"config_name": "runs", "data_files": "data/runs/*.parquet", "default": True}
    for config in front["configs"]:
        files = sorted((tmp_path / "set").glob(config["data_files"]))
        assert len(files) == 2 and {str(pq.read_schema(file)) for file in files} == {str(pq.read_schema(files[0]))}


def test_what_people_wrote_into_the_card_stays(tree: Trace, trace: Trace, tmp_path):
    place = tmp_path / "set"
    tree.run["id"], trace.run["id"] = "a", "b"
    trace.run["model"]["name"] = "[x](javascript:alert(1)) <script>"
    dataset.push(str(place), [tree])
    card = place / "README.md"
    ours = card.read_text("utf-8").replace("---\n\n#", "license: mit\n---\n\n#", 1)
    card.write_text(ours + "\nMeasured on Monday.\n", "utf-8")
    dataset.push(str(place), [trace])
    text = card.read_text("utf-8")
    assert "license: mit" in text and "Measured on Monday." in text and text.count(dataset.BEGIN) == 1
    assert "2 runs recorded" in text and "<script>" not in text and "[x](javascript" not in text


def test_runs_whose_model_has_no_name_are_counted_in_the_card(tree: Trace, trace: Trace, tmp_path):
    tree.run["id"], trace.run["id"] = "a", "b"
    del tree.run["model"]["name"]
    dataset.push(str(tmp_path / "set"), [tree, trace])
    lines = (tmp_path / "set" / "README.md").read_text("utf-8").splitlines()
    assert sum(line.startswith("| – |") for line in lines) == 1 and "2 runs recorded" in "\n".join(lines)
    assert len(pull(str(tmp_path / "set"), tmp_path / "out")[0]) == 2


def test_another_run_of_the_same_name_is_refused_and_nothing_is_written(tree: Trace, tmp_path):
    place = tmp_path / "set"
    dataset.push(str(place), [tree])
    before = {path: path.read_bytes() for path in place.rglob("*") if path.is_file()}
    other, new = copy.deepcopy(tree), copy.deepcopy(tree)
    other.run["title"], new.run["id"] = "another", "new"
    with pytest.raises(UserError, match=r"has another run that is called .*: nothing was written"):
        dataset.push(str(place), [new, other])
    with pytest.raises(UserError, match="two different runs are called"):
        dataset.push(str(tmp_path / "other"), [tree, other])
    assert {path: path.read_bytes() for path in place.rglob("*") if path.is_file()} == before
    save(other, tmp_path / f"{tree.run['id']}.spectrace")
    _, read = pull(str(place), tmp_path)
    assert read.traces == 0 and "is there with other content" in read.problems[0]


def test_a_push_that_broke_off_is_not_read(tree: Trace, trace: Trace, tmp_path, monkeypatch):
    place = tmp_path / "set"
    tree.run["id"], trace.run["id"] = "whole", "half"
    dataset.push(str(place), [tree])
    replace, moved = dataset_places.os.replace, []

    def full(source, goal):
        if len(moved) == 3:
            raise OSError(28, "No space left on device")
        moved.append(goal)
        replace(source, goal)

    monkeypatch.setattr(dataset_places.os, "replace", full)
    with pytest.raises(OSError):
        dataset.push(str(place), [trace])
    monkeypatch.undo()
    assert moved and list(pull(str(place), tmp_path / "out")[0]) == ["whole"]
    dataset.push(str(place), [trace])  # and the next one completes it
    assert set(pull(str(place), tmp_path / "all")[0]) == {"whole", "half"}


def test_foreign_files_are_refused_or_named(tree: Trace, tmp_path):
    place = tmp_path / "set"
    with pytest.raises(UserError, match="has no runs of specviz"):
        pull(str(tmp_path), tmp_path / "out")
    dataset.push(str(place), [tree])
    (steps,) = (place / "data" / "steps").iterdir()
    table = pq.read_table(steps)
    pq.write_table(table.append_column("mood", pa.array([1] * len(table))), steps)
    traces, read = pull(str(place), tmp_path / "out")
    assert "columns that are not read: mood" in read.problems[0] and traces[tree.run["id"]].tables == tree.tables
    pq.write_table(table.slice(1), steps)
    read = dataset.pull(str(place), tmp_path / "short", everything, save)
    assert read.traces == 0 and "was left out" in read.problems[0]
    pq.write_table(table.drop_columns(["accepted"]), steps)
    with pytest.raises(UserError, match=r"data/steps/\w+.parquet lacks the column accepted"):
        pull(str(place), tmp_path / "lacks")
    steps.write_bytes(b"PAR1 nothing")
    with pytest.raises(UserError, match="cannot be read"):
        pull(str(place), tmp_path / "broken")


BAD_RECORDS = {
    "nested": "[" * 100_000, "a list": "[1]", "null": "null", "no JSON": "{", "a number beyond floats": '{"id": 1e999}',
    "no run": "{}", "method is a text": '{"id": "x", "method": "pld", "terms": 3, "prompt_length": 1e400}',
}  # fmt: skip


@pytest.mark.parametrize("record", BAD_RECORDS)
def test_one_bad_record_does_not_stop_the_others(tree: Trace, tmp_path, record: str):
    place, trace = tmp_path / "set", later(tree)
    dataset.push(str(place), [tree, trace])
    (runs,) = (place / "data" / "runs").iterdir()
    table = pq.read_table(runs)
    bad = table.column("run").to_pylist()[0]
    records = [BAD_RECORDS[record], *table.column("record").to_pylist()[1:]]
    at = table.schema.get_field_index("record")
    pq.write_table(table.set_column(at, "record", pa.array(records)), runs)
    traces, read = pull(str(place), tmp_path / "out")
    assert traces.keys() == {tree.run["id"], trace.run["id"]} - {bad}
    assert len(read.problems) == 1 and read.problems[0].startswith(f"run {bad} of {runs.name} was left out: ")


def test_a_shard_that_cannot_be_read_does_not_stop_the_others(tree: Trace, tmp_path):
    place, trace = tmp_path / "set", later(tree)
    dataset.push(str(place), [tree])
    (first,) = (place / "data" / "runs").iterdir()
    dataset.push(str(place), [trace])
    first.write_bytes(b"PAR1 nothing")
    traces, read = pull(str(place), tmp_path / "out")
    assert traces.keys() == {trace.run["id"]}
    (problem,) = read.problems
    assert problem.startswith(f"the runs of {first.name} were left out: data/runs/{first.name} cannot be read")


@pytest.mark.parametrize("text", ["0" * (1 << 20), "😀" * (1 << 18)])
def test_rows_that_unpack_to_more_than_is_allowed_are_refused_unread(tree: Trace, tmp_path, text: str):
    """A text of a megabyte in 5,000 rows is 60 kB of Parquet."""
    place = tmp_path / "set"
    dataset.push(str(place), [tree])
    (place / "data" / "more").mkdir(exist_ok=True)
    (runs,) = (place / "data" / "runs").iterdir()
    rows = pa.table({"run": [tree.run["id"]] * 5000, "table": ["x"] * 5000, "column": ["y"] * 5000,
                     "values": pa.DictionaryArray.from_arrays([0] * 5000, [text])})  # fmt: skip
    pq.write_table(rows, place / "data" / "more" / runs.name)
    with pytest.raises(UserError, match=r"more/.* unpacks to 5,000 MiB, and 4,096 are allowed"):
        pull(str(place), tmp_path / "out")
    rows = rows.set_column(3, "values", pa.array([["1"]] * 5000))
    pq.write_table(rows, place / "data" / "more" / runs.name)
    with pytest.raises(UserError, match="has lists in the column values"):
        pull(str(place), tmp_path / "out")


class Hub:
    """A hub in a folder: what ``huggingface_hub`` is asked for, and the commits it was given."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.commits = folder, 0

    def dataset_info(self, name, timeout):
        if not self.folder.exists():
            response = SimpleNamespace(status_code=404, headers={}, request=None)
            raise huggingface_hub.errors.RepositoryNotFoundError("404", response=response)
        return SimpleNamespace(sha=f"sha-{self.commits}")

    def create_repo(self, name, *, repo_type, private, exist_ok):
        assert repo_type == "dataset" and private
        self.folder.mkdir(exist_ok=True)

    def create_commit(self, name, operations, *, commit_message, repo_type, parent_commit):
        assert parent_commit == (f"sha-{self.commits}" if self.commits else None)
        for operation in operations:
            goal = self.folder / operation.path_in_repo
            goal.parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(operation.path_or_fileobj, goal)
        self.commits += 1

    def download(self, name, *, repo_type, revision, allow_patterns, local_dir):
        for pattern in allow_patterns:
            for path in self.folder.glob(pattern.replace("**", "*/*")):
                goal = Path(local_dir) / path.relative_to(self.folder)
                goal.parent.mkdir(parents=True, exist_ok=True)
                shutil.copyfile(path, goal)


def test_the_hub_gets_one_commit_and_gives_all_back(tree: Trace, trace: Trace, tmp_path, monkeypatch):
    hub = Hub(tmp_path / "hub")
    monkeypatch.setattr(huggingface_hub, "HfApi", lambda: hub)
    monkeypatch.setattr(huggingface_hub, "snapshot_download", hub.download)
    with pytest.raises(UserError, match="there is no dataset someone/drafts on the hub"):
        pull("someone/drafts", tmp_path / "none")
    tree.run["id"], trace.run["id"] = "a", "b"
    assert dataset.push("someone/drafts", [tree]).place == "https://huggingface.co/datasets/someone/drafts"
    pushed = dataset.push("someone/drafts", [tree, trace])
    assert (pushed.added_count, pushed.known_count, hub.commits) == (1, 1, 2)
    traces, read = pull("someone/drafts", tmp_path / "out")
    assert not read.problems and traces["a"].tables == tree.tables and traces["b"].tables == trace.tables


def test_a_hub_that_does_not_answer_is_a_sentence(tree: Trace, tmp_path, monkeypatch, capsys):
    def refuse(status):
        response = SimpleNamespace(status_code=status, headers={}, request=None)
        raise huggingface_hub.errors.HfHubHTTPError("no", response=response)

    def unreachable():
        raise OSError("no route")

    faults = {"sign in": lambda: refuse(401), "do it again": lambda: refuse(412), "does not answer": unreachable}
    for words, fault in faults.items():
        api = SimpleNamespace(dataset_info=lambda name, timeout, fault=fault: fault())
        monkeypatch.setattr(huggingface_hub, "HfApi", lambda api=api: api)
        save(tree, tmp_path / "run.spectrace")
        said = refusal(capsys, "push", "someone/drafts", tmp_path / "run.spectrace")
        assert words in said and "nothing was written" in said
    assert "is a file: give a folder" in refusal(capsys, "push", tmp_path / "run.spectrace", tmp_path / "run.spectrace")


def test_duckdb_and_datasets_read_it(tree: Trace, tmp_path, monkeypatch):
    """The examples of docs/commands.md, on a folder."""
    duckdb = pytest.importorskip("duckdb", reason="duckdb is not installed: pip install -e .[test]")
    datasets = pytest.importorskip("datasets", reason="datasets is not installed: pip install -e .[test]")
    monkeypatch.chdir(tmp_path)
    dataset.push("drafts", [tree])
    text = Path(__file__).parents[1].joinpath("README.md").read_text("utf-8")
    query = text.partition("<!-- duckdb -->\n```sql\n")[2].partition("```")[0]
    rows = duckdb.sql(query).fetchall()
    assert rows[0][0] == tree.run["method"]["name"]
    assert rows[0][-1] == pytest.approx(len(tree.output_ids) / tree.rows("steps"))
    steps = datasets.load_dataset("drafts", "steps", split="train", cache_dir=str(tmp_path / "cache"))
    assert steps["accepted"][:] == tree.tables["steps"]["accepted"]
