"""Many people at once on one server, for as long as asked: ``python -m benchmarks.load --sessions 20 --minutes 10``.

It starts the app as a user would (the bundled model, a folder of its own), keeps two runs going, lets simulated
sessions open the page, fetch and scrub runs, follow live ones, tag, download and delete, and Chromium pages do the same
by hand. At the end there is a table of requests and of the server's memory. The exit code is 1 where a request failed,
a page reported a problem, a run that was followed was not what was kept, the store outgrew its limits, or memory went
on growing after the store was full.
"""

from __future__ import annotations

import contextlib
import http.client
import json
import os
import random
import re
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections import Counter, defaultdict
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from benchmarks import parser_of

ROOT = Path(__file__).resolve().parent.parent
PAGES = ("status", "methods", "runs", "compare", "attribution", "lessons", "lab", "trees")
PROMPT = "Repeat after me, and add one word: the lamp at the old station was sold to the museum of the city. Round {}."
SLACK_MIB = 96  # what an allocator may hold back


@dataclass
class Tally:
    """Questions to the server, the time that they took, and what went wrong."""

    times: dict[str, list[float]] = field(default_factory=lambda: defaultdict(list))
    errors: Counter[str] = field(default_factory=Counter)
    lock: threading.Lock = field(default_factory=threading.Lock)

    def add(self, kind: str, ms: float) -> None:
        with self.lock:
            self.times[kind].append(ms)

    def wrong(self, text: str) -> None:
        with self.lock:
            self.errors[" ".join(text.split())[:160]] += 1


class Session:
    """One simulated browser: a cookie, and one connection at a time."""

    def __init__(self, port: int, tally: Tally, number: int, over: threading.Event) -> None:
        self.port, self.tally, self.number, self.over = port, tally, number, over
        self.random = random.Random(number)
        self.cookie = ""
        self.mine: list[str] = []
        self.rounds = 0

    def ask(self, kind: str, method: str, path: str, body: Any = None, *, fine: tuple[int, ...] = (200,)) -> bytes:
        """The answer's body; counted, and an error where its status is not ``fine``."""
        link = http.client.HTTPConnection("127.0.0.1", self.port, timeout=120)
        headers = {"cookie": self.cookie, "accept-encoding": "identity"}
        sent = None
        if body is not None:
            sent, headers["content-type"] = json.dumps(body), "application/json"
        began = time.perf_counter()
        try:
            link.request(method, path, sent, headers)
            answer = link.getresponse()
            data = answer.read()
            if found := re.search(r"specviz_browser=\w+", answer.headers.get("set-cookie") or ""):
                self.cookie = found[0]
            if answer.status not in fine:
                self.tally.wrong(f"{kind}: {answer.status} {data[:100]!r}")
                return b""
            return data
        except OSError as problem:
            if not self.over.is_set():
                self.tally.wrong(f"{kind}: {type(problem).__name__} {problem}")
            return b""
        finally:
            link.close()
            self.tally.add(kind, (time.perf_counter() - began) * 1000)

    def json(self, kind: str, method: str, path: str, body: Any = None, **more: Any) -> Any:
        data = self.ask(kind, method, path, body, **more)
        return json.loads(data) if data else {}

    def open(self) -> None:
        page = self.ask("page", "GET", "/").decode()
        for name in re.findall(r'(?:href|src)="(web/[^"]+)"', page):
            self.ask("asset", "GET", f"/{name}")

    def trace(self, key: str) -> Any:
        # a run that made room for others, or was deleted, is a sentence: 404
        return self.json("trace", "GET", f"/api/traces/{key}", fine=(200, 404))

    def follow(self, key: str) -> None:
        """Every event of a run, and that they add up to what is kept."""
        seen, tokens = -1, 0
        began = time.perf_counter()
        link = http.client.HTTPConnection("127.0.0.1", self.port, timeout=120)
        done: dict[str, Any] = {}
        gap = False
        try:
            snap = self.trace(key)
            if "tokens" in snap and "live" in snap:
                seen, tokens = snap["live"]["seq"], len(snap["tokens"]["id"])
            elif "live" not in snap:
                return
            link.request("GET", f"/api/live/{key}?after={seen}", headers={"cookie": self.cookie})
            answer = link.getresponse()
            while not done and (line := answer.readline()):
                if not line.startswith(b"data: "):
                    continue
                event = json.loads(line[6:])
                gap = gap or bool(event.get("reload")) or event["seq"] > seen + 1
                seen = event["seq"]
                if event.get("state") == "running":
                    tokens = len(self.trace(key).get("tokens", {}).get("id", ()))
                    gap = True  # its first steps may be in there already
                tokens += len(event.get("delta", {}).get("tokens", {}).get("id", ()))
                done = event if event.get("done") else {}
        except (OSError, ValueError, KeyError) as problem:
            if not self.over.is_set():
                self.tally.wrong(f"live: {type(problem).__name__} {problem}")
            return
        finally:
            link.close()
            self.tally.add("live", (time.perf_counter() - began) * 1000)
        if done.get("started"):
            whole = self.trace(key)
            if "tokens" in whole and not gap and len(whole["tokens"]["id"]) != tokens:
                self.tally.wrong(f"live: {tokens} tokens followed, {len(whole['tokens']['id'])} kept")

    def run(self) -> None:
        """A run by the named endpoint, followed while it goes on."""
        self.rounds += 1
        method = self.random.choice(("pld", "pld+h", "adapld", "plain"))
        given = [PROMPT.format(f"{self.number}.{self.rounds}"), method, {}, {"max_new_tokens": 96}, True]
        event = self.json("run", "POST", "/gradio_api/call/run", {"data": given}).get("event_id")
        if not event:
            return
        listed = self.json("runs", "GET", "/api/runs").get("runs", [])
        for run in listed:
            if run["kind"] == "live":
                self.follow(run["id"])
        said = self.ask("result", "GET", f"/gradio_api/call/run/{event}").decode()
        lines = [line for line in said.splitlines() if line.startswith("data:")]
        result = json.loads(lines[-1][5:])[0] if lines else {}
        if not isinstance(result, dict) or result.get("error") or not result.get("id"):
            if not self.over.is_set():
                self.tally.wrong(f"run: {str(result)[:120]}")
            return
        self.mine.append(result["id"])

    def work(self, runs: bool) -> None:
        """Until it is over: what a person does. The first sessions run one after another, the others mostly look."""
        self.open()
        while not self.over.is_set():
            listed = self.json("runs", "GET", "/api/runs")
            if not listed:
                self.over.wait(1)
                continue
            keys = [run["id"] for run in listed["runs"]]
            live = [run["id"] for run in listed["runs"] if run["kind"] == "live"]
            dice = self.random.random()
            if runs or dice < 0.05:
                self.run()
            elif live and dice < 0.1:
                self.follow(live[0])
            elif dice < 0.6 and keys:
                self.trace(self.random.choice(keys))
                self.over.wait(self.random.uniform(0.5, 3))  # scrubbing: it asks nothing of the server
            elif dice < 0.7 and keys:
                kind = self.random.choice(("html", "csv-steps", "trace"))
                key = self.random.choice(keys)
                self.ask("download", "GET", f"/api/traces/{key}/download?format={kind}", fine=(200, 404))
            elif dice < 0.8 and self.mine:
                tag = f"t{self.random.randrange(5)}"
                given = {"ids": [self.mine[-1]], "add": [tag], "title": f"round {self.rounds}"}
                self.json("change", "POST", "/api/runs/change", given)
            elif dice < 0.85 and self.mine:
                self.json("delete", "POST", "/api/runs/delete", {"ids": [self.mine.pop(0)]})
            else:
                name = self.random.choice(PAGES)
                self.ask(name, "GET", f"/api/{name}")
            if not runs:
                self.over.wait(self.random.uniform(0.1, 1.0))


def browse(port: int, tally: Tally, over: threading.Event, count: int) -> None:
    """Real pages: they scrub all the time and run something now and then."""
    from playwright.sync_api import Error, sync_playwright

    from tests.browser.conftest import found_chromium

    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=found_chromium(), args=["--no-sandbox", "--disable-gpu"])
        pages = [browser.new_context(viewport={"width": 1280, "height": 820}).new_page() for _ in range(count)]
        for page in pages:
            page.on("pageerror", lambda error: tally.wrong(f"page: {error}"))
            page.on("console", lambda said: tally.wrong(f"page: {said.text}") if said.type == "error" else None)
            page.goto(f"http://127.0.0.1:{port}/", timeout=120_000)
            page.wait_for_selector("#sv-run:not([disabled])", state="attached", timeout=120_000)
        turn = 0
        while not over.is_set():
            turn += 1
            for page in pages:
                try:
                    ms = page.evaluate(
                        """async () => { const v = specviz.app.inspector, t = performance.now();
                        for (let i = 0; i < 20; i++) { v.setStep(Math.floor(Math.random() * v.model.stepCount));
                        await new Promise(requestAnimationFrame); } return (performance.now() - t) / 20; }"""
                    )
                    tally.add("scrub", ms)
                    if turn % 15 == 5:
                        page.evaluate("specviz.app.mine.size || document.getElementById('sv-run').click()")
                    if turn % 15 == 12:
                        page.evaluate(
                            "() => { const r = specviz.app.runs.filter(r => r.kind !== 'live');"
                            " specviz.open(r[Math.floor(Math.random() * r.length)].id); }"
                        )
                except Error as problem:
                    tally.wrong(f"page: {problem}")
            over.wait(0.5)
        with contextlib.suppress(Error):
            heaps = [page.evaluate("performance.memory.usedJSHeapSize") / (1 << 20) for page in pages]
            print(f"JavaScript heap of the pages: {', '.join(f'{heap:.0f} MiB' for heap in heaps)}")
        browser.close()


def rss_mib(pid: int) -> float:
    """The resident memory of a process."""
    said = subprocess.run(["ps", "-o", "rss=", "-p", str(pid)], capture_output=True, text=True).stdout
    return int(said.strip() or 0) / 1024


def start(
    folder: str, model: str = "bundled", *options: str, python: str = sys.executable, root: Path = ROOT
) -> tuple[subprocess.Popen[str], int]:
    """The app on a free port, its model on the way; with ``python``, in the checkout ``root``."""
    command = [python, "-u", "-m", "specviz.cli", "app", "--port", "0", *options]
    server = subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=sys.stderr, text=True, cwd=root,
        env={**os.environ, "SPECVIZ_HOME": folder, "SPECVIZ_MODEL": model},
    )  # fmt: skip
    assert server.stdout is not None
    line = server.stdout.readline()
    found = re.search(r":(\d+)/", line)
    if found is None:
        raise SystemExit(f"the server did not start: {line}")
    return server, int(found[1])


def main(argv: list[str] | None = None) -> int:
    parser = parser_of("load", __doc__)
    parser.add_argument("--sessions", type=int, default=20, help="simulated browsers (default: 20)")
    parser.add_argument("--minutes", type=float, default=10.0, help="for how long (default: 10)")
    parser.add_argument("--pages", type=int, default=2, help="real Chromium pages besides (default: 2; 0: none)")
    given = parser.parse_args(argv)
    tally, over = Tally(), threading.Event()
    with tempfile.TemporaryDirectory(prefix="specviz-load-") as folder:
        server, port = start(folder)
        try:
            first = Session(port, Tally(), -1, over)
            while first.json("status", "GET", "/api/status").get("model", {}).get("state") != "ready":
                if server.poll() is not None:
                    raise SystemExit("the server did not start")
                time.sleep(0.5)
            first.tally = tally
            sessions = [Session(port, tally, number, over) for number in range(given.sessions)]
            threads = [threading.Thread(target=one.work, args=(one.number < 2,), daemon=True) for one in sessions]
            if given.pages:
                threads.append(threading.Thread(target=browse, args=(port, tally, over, given.pages), daemon=True))
            for thread in threads:
                thread.start()
            samples = watch(server, first, given.minutes * 60)
            over.set()
            for thread in threads:
                thread.join(150)
                if thread.is_alive():
                    tally.wrong("a session never ended")
        finally:
            server.terminate()
            server.wait(20)
    return tell(tally, samples)


def watch(server: subprocess.Popen[str], session: Session, seconds: float) -> list[dict[str, float]]:
    """Memory and the store's room, every few seconds."""
    samples: list[dict[str, float]] = []
    end = time.monotonic() + seconds
    while time.monotonic() < end and server.poll() is None:
        room = session.json("room", "GET", "/api/runs").get("room") or {}
        load = session.json("status", "GET", "/api/status")
        numbers = {name: room.get(name, 0) for name in ("count", "max_count", "bytes", "max_bytes")}
        samples.append({**numbers, "rss": rss_mib(server.pid), "runs": load.get("running", 0) + load.get("waiting", 0)})
        time.sleep(min(5.0, seconds / 12))
    if server.poll() is not None:
        session.tally.wrong("the server ended by itself")
    return samples


def tell(tally: Tally, samples: list[dict[str, float]]) -> int:
    """The tables; 1 where something is wrong."""
    print(f"{'request':<12}{'count':>8}{'median ms':>12}{'p99 ms':>10}{'max ms':>10}")
    for kind, times in sorted(tally.times.items()):
        ordered = sorted(times)
        late = ordered[min(len(ordered) - 1, int(len(ordered) * 0.99))]
        print(f"{kind:<12}{len(times):>8}{statistics.median(times):>12.1f}{late:>10.0f}{ordered[-1]:>10.0f}")
    print(f"\n{'at':<8}{'RSS MiB':>9}{'runs kept':>11}{'MiB kept':>10}{'running, waiting':>18}")
    for share in (0, 0.1, 0.25, 0.5, 0.75, 1):
        one = samples[min(len(samples) - 1, int(share * (len(samples) - 1)))]
        kept = f"{one['count']:.0f}/{one['max_count']:.0f}"
        print(f"{share:<8.0%}{one['rss']:>9.0f}{kept:>11}{one['bytes'] / (1 << 20):>10.1f}{one['runs']:>18.0f}")
    for sample in samples:
        if sample["count"] > sample["max_count"] or sample["bytes"] > sample["max_bytes"]:
            tally.wrong("the store outgrew its limits")
    half, last = samples[len(samples) // 2], samples[-1]
    grew = last["rss"] - half["rss"]
    allowed = SLACK_MIB + 2 * max(0.0, last["bytes"] - half["bytes"]) / (1 << 20)
    print(f"\nmemory in the second half: {grew:+.0f} MiB (at most {allowed:.0f} are the store's and the allocator's)")
    if grew > allowed:
        tally.wrong(f"memory grew by {grew:.0f} MiB in the second half")
    for text, count in tally.errors.most_common(20):
        print(f"{count} × {text}")
    print("no errors" if not tally.errors else f"{sum(tally.errors.values())} errors")
    return 1 if tally.errors else 0


if __name__ == "__main__":
    sys.exit(main())
