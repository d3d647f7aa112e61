"""A site published in parts: what is there stays, what broke off goes on, a Space on a hub gets what differs."""

from __future__ import annotations

import base64
import json
import os
import re
import shutil
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

from decoders import load, save
from decoders.errors import UserError
from specviz.cli import main
from specviz.commands import common
from specviz.places import GALLERY
from tests import recordings

from .. import hub as hub_module
from ..publish_command import pages_address
from ..site import build, documents, space
from ..site.entries import SiteEntry
from ..site.folder import RECORD, SiteFolder

PLAIN, COPIED = "5-class-docstring-plain.spectrace", "2-class-docstring-pld-h.spectrace"


@pytest.fixture
def runs(tmp_path: Path) -> Path:
    """A folder of runs: plain decoding and PLD+ of one prompt, and four small ones."""
    folder = tmp_path / "runs"
    folder.mkdir()
    for name in (PLAIN, COPIED):
        shutil.copy(GALLERY / name, folder)
    for number in range(4):
        trace = recordings.chain()
        trace.run |= {"id": f"r{number}", "title": f"Run {number}"}
        save(trace, folder / f"r{number}.spectrace")
    return folder


def contents(site: Path) -> dict[str, bytes]:
    return {
        path.relative_to(site).as_posix(): path.read_bytes()
        for path in sorted(site.rglob("*"))
        if path.is_file() and path.name != RECORD
    }


def publish(dest: Path | str, *words: Any) -> int:
    return main(["publish", str(dest), *map(str, words), "--no-lessons"])


def test_a_second_publish_makes_what_is_new_and_takes_away_what_is_gone(runs: Path, tmp_path: Path) -> None:
    site = tmp_path / "site"
    assert publish(site, runs) == 0
    before = {path: path.stat().st_mtime_ns for path in site.rglob("*.js")}
    trace = recordings.tree()
    save(trace, runs / "new.spectrace")
    (runs / "r0.spectrace").unlink()
    assert publish(site, runs) == 0
    assert publish(tmp_path / "afresh", runs) == 0
    assert contents(site) == contents(tmp_path / "afresh")
    rewritten = {path.relative_to(site).as_posix() for path in site.rglob("*.js") if path not in before}
    new = trace.digest[:16]
    assert rewritten >= {f"traces/{new}.js", f"players/{new}.js"}
    again = {path for path, when in before.items() if path.exists() and path.stat().st_mtime_ns != when}
    assert all(path.parent.name in ("answers", "prompts") for path in again)  # those that it is in


def test_only_a_run_that_is_new_is_opened_and_those_of_its_prompt(
    runs: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    publish(tmp_path / "site", runs)
    opened: list[str] = []
    read = common.read_traces
    monkeypatch.setattr(common, "read_traces", lambda path: opened.append(path.name) or read(path))
    assert publish(tmp_path / "site", runs) == 0 and opened == []
    save(recordings.tree(), runs / "new.spectrace")
    assert publish(tmp_path / "site", runs) == 0 and sorted(opened) == sorted(["new.spectrace", COPIED, PLAIN])


def test_one_more_run_of_a_prompt_opens_that_run_and_its_plain_decoding_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Five runs of one prompt, a sixth, a second one of plain decoding, and a run that is gone: each time the site is
    the one that a first publish of the same runs writes.
    """
    runs, site = tmp_path / "runs", tmp_path / "site"
    runs.mkdir()

    def record(name: str, source: str, created: str) -> str:
        trace = load(GALLERY / source)
        trace.run |= {"id": name, "created": created}
        save(trace, runs / f"{name}.spectrace")
        return trace.digest[:16]

    opened: list[str] = []
    read = common.read_traces
    monkeypatch.setattr(common, "read_traces", lambda path: opened.append(path.stem) or read(path))

    def publish_again() -> list[str]:
        assert publish(tmp_path / "afresh", runs, "--no-rules") == 0
        opened.clear()
        assert publish(site, runs, "--no-rules") == 0 and contents(site) == contents(tmp_path / "afresh")
        shutil.rmtree(tmp_path / "afresh")
        return sorted(opened)

    record("b", PLAIN, "2026-11-01T00:00:00Z")
    for number in range(4):
        record(f"c{number}", COPIED, f"2026-11-02T00:0{number}:00Z")
    assert publish_again() == ["b", "c0", "c1", "c2", "c3"]
    key = record("c4", COPIED, "2026-11-03T00:00:00Z")
    assert publish_again() == ["b", "c4"] and f"lanes/{key}" in (site / RECORD).read_text("utf-8")
    # another plain run: that of the other runs stays the first that was recorded, by whatever name
    record("a", PLAIN, "2026-11-04T00:00:00Z")
    assert publish_again() == ["a", "b"]
    (runs / "c4.spectrace").unlink()
    assert publish_again() == [] and key not in (site / RECORD).read_text("utf-8")
    (runs / "b.spectrace").unlink()  # and with it what the others' speedups were formed with
    assert publish_again() == ["a", "c0", "c1", "c2", "c3"]


def test_a_publish_that_broke_off_goes_on(runs: Path, tmp_path: Path) -> None:
    """A process that is killed in its midst, then the same command again."""
    site = tmp_path / "site"
    code = (
        "import os, sys; from specviz.extras.publish.site import build; from specviz.cli import main\n"
        "player = build.player_document; made = []\n"
        "def killed(trace):\n"
        "    made.append(trace)\n"
        "    if len(made) == 4: os._exit(9)\n"
        "    return player(trace)\n"
        "build.player_document = killed\n"
        "main(sys.argv[1:])"
    )
    words = [sys.executable, "-c", code, "publish", str(site), str(runs), "--no-lessons"]
    assert subprocess.run(words, check=False).returncode == 9
    assert len([*(site / "players").iterdir()]) == 3 and not (site / "index.html").exists()
    assert publish(site, runs) == 0 and publish(tmp_path / "afresh", runs) == 0
    assert contents(site) == contents(tmp_path / "afresh")
    assert json.loads((site / RECORD).read_text("utf-8"))["complete"]


@pytest.mark.parametrize("record", ["", "[]", '{"schema": "specviz-site/1", "files": {"index.html": 3}}'])
def test_a_damaged_record_is_made_anew(runs: Path, tmp_path: Path, record: str) -> None:
    site = tmp_path / "site"
    publish(site, runs)
    first = contents(site)
    (site / RECORD).write_text(record, "utf-8")
    (site / "traces" / f"{'0' * 16}.js").write_text("left over", "utf-8")
    assert publish(site, runs) == 0 and contents(site) == first


def test_runs_of_one_name_and_one_title_are_both_there_and_a_run_twice_is_one(runs: Path, tmp_path: Path) -> None:
    for folder in ("a", "b"):
        (runs / folder).mkdir()
    save(recordings.tree(), runs / "a" / "same.spectrace")
    save(recordings.ppd(), runs / "b" / "same.spectrace")
    shutil.copy(runs / "r1.spectrace", runs / "a" / "again.spectrace")
    assert publish(tmp_path / "site", runs) == 0
    assert len([*(tmp_path / "site" / "traces").iterdir()]) == 8


def test_the_site_stands_before_drafts_are_judged(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    run, site = GALLERY / "9-class-docstring-ppd.spectrace", tmp_path / "site"
    assert publish(site, run, "--no-rules") == 0 and not (site / "judged").exists()
    capsys.readouterr()

    def stopped(trace: Any) -> Any:
        raise KeyboardInterrupt

    verdicts = build.verdicts
    monkeypatch.setattr(build, "verdicts", stopped)
    assert publish(site, run) == 130
    assert "The tab Rules of 1 run follows" in capsys.readouterr().out and (site / "index.html").is_file()
    monkeypatch.setattr(build, "verdicts", verdicts)
    assert publish(site, run) == 0 and len([*(site / "judged").iterdir()]) == 1
    assert '"judged":true' in (site / "index.html").read_text("utf-8")
    monkeypatch.setattr(build, "verdicts", stopped)
    assert publish(site, run) == 0 and publish(site, run, "--no-rules") == 0  # once is enough
    assert '"judged":true' in (site / "index.html").read_text("utf-8")


def test_a_hostile_run_among_others_is_left_out_and_named(
    runs: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    (runs / "bomb.spectrace").write_bytes(b"PK\x03\x04" + b"\0" * 100)
    (runs / "empty.spectrace").write_bytes(b"")
    assert publish(tmp_path / "site", runs) == 1
    said = capsys.readouterr()
    assert "6 runs" in said.out and "left out: bomb" in said.err and "left out: empty" in said.err

    # a run that opens, and that nothing can be made of
    player = build.player_document
    monkeypatch.setattr(build, "player_document", lambda trace: 1 / 0 if trace.run["id"] == "r2" else player(trace))
    assert publish(tmp_path / "other", runs) == 1
    said = capsys.readouterr()
    assert "5 runs" in said.out and "left out: 'Run 2' cannot be shown" in said.err
    assert "Run 2" not in (tmp_path / "other" / "index.html").read_text("utf-8")
    assert len([*(tmp_path / "other" / "traces").iterdir()]) == 5

    # two that cannot be compared
    def compared(traces: Any) -> Any:
        raise KeyError("lane")

    monkeypatch.setattr(build, "comparison", compared)
    assert publish(tmp_path / "third", runs) == 1
    assert "without Compare" in capsys.readouterr().err


def test_a_run_has_its_speedup_where_plain_decoding_of_its_prompt_stands_beside_it(runs: Path, tmp_path: Path) -> None:
    entries = [SiteEntry.of(load(runs / name)) for name in (COPIED, PLAIN)]
    alone, paired = entries[0].with_speedup([]), entries[0].with_speedup(entries[1:])
    assert alone.run["metrics"].get("speedup") is None and paired.run["metrics"]["speedup"] > 2
    assert entries[0].read().run["metrics"].get("speedup") is None  # the run is as it was
    build.write_site(tmp_path / "site", "x", entries, with_lessons=False)
    packed = (tmp_path / "site" / "traces" / f"{entries[0].key}.js").read_text("utf-8")
    assert unpacked(packed)["report"]["metrics"]["speedup"]["value"] == paired.run["metrics"]["speedup"]


def unpacked(script: str) -> Any:
    import gzip

    return json.loads(gzip.decompress(base64.b64decode(script.partition('"')[2].partition('"')[0])))


def test_github_pages_serves_docs_or_a_branch(tmp_path: Path, runs: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert pages_address("https://github.com/Ann/drafts.git", ".") == "https://ann.github.io/drafts/"
    assert pages_address("git@github.com:ann/drafts", "docs") == "https://ann.github.io/drafts/"
    assert pages_address("https://github.com/ann/drafts", "site") == ""
    assert pages_address("https://example.com/ann/drafts", "docs") == ""
    checkout = tmp_path / "checkout"
    for words in (["init", "-q", str(checkout)], ["remote", "add", "origin", "git@github.com:ann/drafts.git"]):
        subprocess.run(["git", *(["-C", str(checkout)] if words[0] != "init" else []), *words], check=True)
    assert publish(checkout / "docs", runs) == 0
    assert "https://ann.github.io/drafts/ shows it, once it is pushed" in capsys.readouterr().out
    assert (checkout / "docs" / ".nojekyll").is_file()
    (checkout / "docs" / "CNAME").write_text("drafts.example", "utf-8")
    assert publish(checkout / "docs", runs) == 0 and (checkout / "docs" / "CNAME").is_file()


# --- a hub on this machine ---


class FakeHub(BaseHTTPRequestHandler):
    """A hub: spaces by name, each {"private", "sdk", "files"}; ``fail_at``: the commit that it refuses."""

    spaces: dict[str, dict[str, Any]]
    commits: list[list[str]]
    fail_at: int
    silent: bool

    def answer(self, value: Any, status: int = 200, **headers: str) -> None:
        data = json.dumps(value).encode()
        self.send_response(status)
        for name, text in {"Content-Type": "application/json", "Content-Length": str(len(data)), **headers}.items():
            self.send_header(name.replace("_", "-"), text)
        self.end_headers()
        self.wfile.write(data)

    def body(self) -> bytes:
        return self.rfile.read(int(self.headers.get("Content-Length") or 0))

    def do_GET(self) -> None:
        if self.silent:
            time.sleep(3)
            return
        name, _, rest = self.path.partition("?")[0].removeprefix("/api/spaces/").partition("/tree/")
        if (found := self.spaces.get(name)) is None:
            return self.answer({"error": "Repository not found"}, 404, X_Error_Code="RepoNotFound")
        if rest:
            files = found["files"].items()
            return self.answer(
                [{"type": "file", "path": path, "size": len(d), "oid": space.blob_id(d)} for path, d in files]
            )
        self.answer({"id": name, "private": found["private"], "sdk": found["sdk"], "sha": "0" * 40})

    def do_PUT(self) -> None:
        name = self.path.removeprefix("/api/spaces/").removesuffix("/settings")
        settings = json.loads(self.body())
        self.spaces[name]["private"] = settings.get("private", settings.get("visibility") == "private")
        self.answer({})

    def do_POST(self) -> None:
        data = self.body()
        if self.path == "/api/validate-yaml":
            return self.answer({"errors": [], "warnings": []})
        if self.path == "/api/repos/create":
            asked = json.loads(data)
            name = f"{asked['organization']}/{asked['name']}"
            private = asked.get("private", asked.get("visibility") == "private")
            self.spaces[name] = {"private": private, "sdk": asked["sdk"], "files": {".gitattributes": b""}}
            return self.answer({"url": f"https://huggingface.co/spaces/{name}"})
        name, _, what = self.path.partition("?")[0].removeprefix("/api/spaces/").rpartition("/main")[0].rpartition("/")
        if what == "preupload":
            files = json.loads(data)["files"]
            modes = [{"path": f["path"], "uploadMode": "regular", "shouldIgnore": False} for f in files]
            return self.answer({"files": modes})
        if len(self.commits) == self.fail_at:
            return self.answer({"error": "no"}, 500)
        lines = [json.loads(line) for line in data.splitlines()]
        files = {line["value"]["path"]: line["value"] for line in lines if line["key"] == "file"}
        gone = [line["value"]["path"] for line in lines if line["key"] == "deletedFile"]
        self.spaces[name]["files"] |= {path: base64.b64decode(value["content"]) for path, value in files.items()}
        for path in gone:
            del self.spaces[name]["files"][path]
        self.commits.append([*files, *(f"-{path}" for path in gone)])
        self.answer({"commitUrl": f"https://huggingface.co/spaces/{name}/commit/1", "commitOid": "1" * 40})

    def log_message(self, *_: Any) -> None:
        """Nothing is printed."""


@pytest.fixture
def hub(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[type[FakeHub]]:
    import huggingface_hub
    from huggingface_hub import constants, hf_api

    class Handler(FakeHub):
        spaces, commits, fail_at, silent = {}, [], -1, False

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.daemon_threads = True
    threading.Thread(target=server.serve_forever, daemon=True).start()
    address = f"http://127.0.0.1:{server.server_address[1]}"
    monkeypatch.setenv("SPECVIZ_HOME", str(tmp_path / "home"))
    monkeypatch.setenv("HF_TOKEN", "hf_token")
    monkeypatch.setattr(constants, "ENDPOINT", address)
    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", False)
    monkeypatch.setattr(hf_api.HfApi, "__init__", given_endpoint(hf_api.HfApi.__init__, address))
    huggingface_hub.close_session()
    yield Handler
    huggingface_hub.close_session()
    server.shutdown()
    server.server_close()


def given_endpoint(make: Any, address: str) -> Any:
    """HfApi() at another address, as HF_ENDPOINT gives it to a new process."""

    def init(self: Any, endpoint: str | None = None, **settings: Any) -> None:
        make(self, endpoint=endpoint or address, **settings)

    return init


def test_a_space_gets_what_it_has_not_and_is_private(
    hub: type[FakeHub], runs: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert publish("hf:ann/drafts", runs) == 0
    said = capsys.readouterr().out
    assert re.match(r"http://127.0.0.1:\d+/spaces/ann/drafts: 6 runs", said) and "private" in said
    kept = hub.spaces["ann/drafts"]
    assert kept["private"] and kept["sdk"] == "static" and b"sdk: static" in kept["files"]["README.md"]
    assert publish(tmp_path / "site", runs) == 0
    uploaded = {path: data for path, data in kept["files"].items() if path not in ("README.md", ".gitattributes")}
    assert uploaded == contents(tmp_path / "site")  # and the record, which names files, is not there
    assert all("/" in path for commit in hub.commits[:-1] for path in commit) and "index.html" in hub.commits[-1]

    count = len(hub.commits)
    assert publish("hf:ann/drafts", runs) == 0 and len(hub.commits) == count
    assert "0 files uploaded" in capsys.readouterr().out
    trace = load(runs / "r1.spectrace")
    (runs / "r1.spectrace").unlink()
    assert publish("hf:ann/drafts", runs) == 0
    assert f"-traces/{trace.digest[:16]}.js" in hub.commits[-1]
    assert publish("hf:ann/drafts", runs, "--public") == 0 and not kept["private"]
    assert publish("hf:ann/drafts", runs) == 2  # it is public, and that was not asked for
    assert "add --public" in capsys.readouterr().err
    kept["sdk"] = "gradio"
    assert publish("hf:ann/drafts", runs, "--public") == 2
    assert "Space of another kind (gradio)" in capsys.readouterr().err


def test_an_upload_that_broke_off_goes_on(
    hub: type[FakeHub], runs: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(space, "COMMIT_FILES", 3)
    hub.fail_at = 2
    assert publish("hf:ann/drafts", runs) == 2
    assert "the same command goes on from there" in capsys.readouterr().err
    assert "index.html" not in hub.spaces["ann/drafts"]["files"] and len(hub.commits) == 2
    hub.fail_at = -1
    before = {path for commit in hub.commits for path in commit}
    assert publish("hf:ann/drafts", runs) == 0
    assert "index.html" in hub.commits[-1] and not before & {path for commit in hub.commits[2:] for path in commit}


def test_a_hub_that_does_not_answer_is_a_sentence(
    hub: type[FakeHub], runs: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    hub.silent = True
    monkeypatch.setattr(hub_module, "ANSWER_S", 0.2)
    assert publish("hf:ann/drafts", runs) == 2
    said = capsys.readouterr().err
    assert "the hub does not answer (ReadTimeout): nothing was uploaded" in said and "Traceback" not in said


@pytest.mark.parametrize("command", [["publish", "hf:ann/drafts"], ["push", "ann/drafts"]])
def test_where_nothing_listens_a_sentence_says_so(runs: Path, tmp_path: Path, command: list[str]) -> None:
    env = {**os.environ, "HF_ENDPOINT": "http://127.0.0.1:9", "SPECVIZ_HOME": str(tmp_path), "HF_HUB_OFFLINE": "0"}
    words = [sys.executable, "-m", "specviz", *command, str(runs / COPIED)]
    ended = subprocess.run(words, env=env, capture_output=True, text=True, check=False)
    assert ended.returncode == 2 and "Traceback" not in ended.stderr
    assert "the hub does not answer (ConnectError)" in ended.stderr


@pytest.mark.parametrize("dest", ["hf:", "hf:drafts", "hf:a/b/c", "hf:../x"])
def test_a_destination_that_names_no_space_is_refused(runs: Path, dest: str) -> None:
    assert publish(dest, runs) == 2


def test_a_folder_that_holds_anything_else_is_left_alone(tmp_path: Path, runs: Path) -> None:
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "index.html").write_text("mine", "utf-8")
    with pytest.raises(UserError, match="no site of ours"):
        SiteFolder(tmp_path / "mine")
    assert publish(tmp_path / "mine" / "index.html", runs) == 2
    assert publish(tmp_path / "site", runs, "--public") == 2


def test_a_document_of_few_runs_is_that_of_the_app() -> None:
    """What a site's Compare and the app's say is one function's."""
    from specviz.pages.compare.claim import claim_of

    traces = {name: SiteEntry.of(load(GALLERY / name)).with_speedup([]) for name in (PLAIN, COPIED)}
    lanes = {name: documents.lane(trace, traces[PLAIN], traces[PLAIN]) for name, trace in traces.items()}
    assert documents.comparison(lanes)["sets"][0]["claim"] == claim_of(traces)
