"""The cost of a change of a page. Tests assert what does not depend on the machine: nodes touched, styles and layouts
computed; the milliseconds are for the benchmark ``python -m benchmarks.pace``, which runs the same tests.
"""

from __future__ import annotations

import json
import os
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

TIMED = "SPECVIZ_PACE"  # a file: milliseconds are measured, too, and written to it, one JSON object a line
SLOWER = "SPECVIZ_THROTTLE"  # how many times slower the browser's processor is made, for the whole suite

COUNT = """async (count) => {
    let nodes = 0;
    const add = (records) => {
        for (const one of records) {
            nodes += one.removedNodes.length + (one.type === "childList" ? 0 : 1);
            for (const node of one.addedNodes) nodes += 1 + (node.querySelectorAll?.("*").length ?? 0);
        }
    };
    const observer = new MutationObserver(add);
    const what = { subtree: true, childList: true, attributes: true, characterData: true };
    observer.observe(document.documentElement, what);
    const change = CHANGE;
    for (let n = 0; n < count; n++) { await change(n); add(observer.takeRecords()); }
    observer.disconnect();
    return nodes;
}"""
# what comes into sight is laid out by a frame: until then a read inside it costs a layout of its own
FRAME = "() => new Promise((done) => requestAnimationFrame(() => requestAnimationFrame(() => done())))"
REPEAT = "async (count) => { const change = CHANGE; for (let n = 0; n < count; n++) await change(n); }"


@dataclass(frozen=True)
class Cost:
    """Of one change, on average.

    Args:
        nodes: DOM nodes that came, went, or got another attribute or text.
        layouts: Layouts computed.
        styles: Passes over styles.
        ms: Main-thread milliseconds (script, style, layout): the best of four batches; 0.0 where not measured.
    """

    nodes: float
    layouts: float
    styles: float
    ms: float = 0.0

    def within(self, nodes: float, layouts: float) -> None:
        """Asserts that a change is no more work than this, on any machine."""
        assert self.nodes <= nodes, f"{self.nodes} nodes a change, at most {nodes}"
        assert self.layouts <= layouts, f"{self.layouts} layouts a change, at most {layouts}"


def throttle(page: Any) -> None:
    """Makes a page's processor as slow as ``SPECVIZ_THROTTLE`` says."""
    if rate := float(os.environ.get(SLOWER, 0)):
        page.context.new_cdp_session(page).send("Emulation.setCPUThrottlingRate", {"rate": rate})


def cost(page: Any, name: str, change: str, count: int = 25) -> Cost:
    """The cost of a change.

    Args:
        page: A Playwright page at rest.
        name: The change's name in the benchmark's table.
        change: A function in JavaScript, of the change's number; it makes one and lets it be laid out.
        count: Changes to make.
    """
    session = page.context.new_cdp_session(page)
    session.send("Performance.enable", {"timeDomain": "threadTicks"})  # thread time: other work counts less

    def metrics() -> dict[str, float]:
        return {one["name"]: one["value"] for one in session.send("Performance.getMetrics")["metrics"]}

    page.evaluate(REPEAT.replace("CHANGE", change), 3)
    page.evaluate(FRAME)
    before = metrics()
    nodes = page.evaluate(COUNT.replace("CHANGE", change), count)
    after = metrics()
    layouts, styles = ((after[key] - before[key]) / count for key in ("LayoutCount", "RecalcStyleCount"))
    batches = []
    for _ in range(4 if os.environ.get(TIMED) else 0):
        before = metrics()
        page.evaluate(REPEAT.replace("CHANGE", change), count)
        batches.append(1000 * (metrics()["TaskDuration"] - before["TaskDuration"]) / count)
    session.detach()
    measured = Cost(nodes / count, layouts, styles, min(batches, default=0.0))
    print(f"{name}: {measured}")
    if batches:
        with Path(os.environ[TIMED]).open("a", encoding="utf-8") as file:
            file.write(json.dumps({"name": name, **asdict(measured)}) + "\n")
    return measured
