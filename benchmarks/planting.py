"""Faults planted in trained parts, and whether the doctor finds them: ``python -m benchmarks.planting``.

It plants them all in the parts that are shipped for SmolLM2 (or ``--model bundled``), examines these and the healthy
ones, and writes the outcome; exit code 1 where one was missed or a healthy one accused.
"""

from __future__ import annotations

import json
import sys
import tempfile
from pathlib import Path
from typing import Any

from benchmarks import parser_of
from specviz.extras.measure.doctor.doctor import Report, examine
from specviz.extras.measure.doctor.setup import drafting_of
from specviz.extras.measure.tests.planting import FAULTS, examine_fault, finds, is_possible

HEALTHY = ("drafter", "glide", "medusa", "hydra", "eagle", "eagle3")


def main() -> int:
    from decoders import generate, load_target
    from decoders.names import QUICK
    from decoders.prompt.files import by_category, read_prompts
    from specviz.views import examples

    parser = parser_of("planting", __doc__)
    parser.add_argument("--model", default="smollm2", help="smollm2 (default), or bundled")
    parser.add_argument("--prompts", type=Path, help="JSONL (default: the examples)")
    parser.add_argument("--limit", type=int, default=10, help="prompts (default: 10)")
    parser.add_argument("--places", type=int, default=160, help="places at which drafts are made (default: 160)")
    parser.add_argument("--max-new-tokens", type=int, default=40, help="of the target's answers (default: 40)")
    parser.add_argument("--part", choices=HEALTHY, help="plant in parts of this kind alone")
    parser.add_argument("--out", type=Path, help="write all numbers to this file too")
    chosen = parser.parse_args()
    target = load_target(chosen.model)
    records = by_category(read_prompts(chosen.prompts or examples.file(chosen.model == "bundled")))
    prompts = [record.prompt(target.tokenizer) for record in records]
    prompts = [prompt for prompt in prompts if len(prompt.tokens) < 400][: chosen.limit]
    settings: dict[str, Any] = {"max_new_tokens": chosen.max_new_tokens, "places": chosen.places}
    about = {"model": target.info, "prompts": len(prompts), **settings}
    settings["answers"] = [generate(target, prompt, QUICK, max_new_tokens=chosen.max_new_tokens) for prompt in prompts]
    rows, reports = list[dict[str, Any]](), dict[str, Report]()
    for kind in (chosen.part,) if chosen.part else HEALTHY:
        reports[kind] = report = examine(drafting_of(target, kind), prompts, part=kind, **settings)
        rows.append(_row(kind, "healthy", report, not report.faults))
    for fault in (fault for fault in FAULTS if fault.kind in reports and is_possible(fault, target)):
        with tempfile.TemporaryDirectory() as folder:
            report = examine_fault(fault, target, prompts, reports[fault.kind], Path(folder) / "part", **settings)
        rows.append(_row(fault.kind, fault.words, report, finds(fault, report)))
    if chosen.out:
        chosen.out.write_text(json.dumps({"about": about, "rows": rows}, indent=1, ensure_ascii=False) + "\n", "utf-8")
    missed = sum(not row["right"] for row in rows)
    print(f"{len(rows) - missed} of {len(rows)} right")
    return int(missed > 0)


def _row(kind: str, planted: str, report: Report, right: bool) -> dict[str, Any]:
    first = report.faults[0] if report.faults else None
    row = {
        "part": kind, "planted": planted, "right": right, "length": report.base.length, "beta": report.beta,
        "found": first.cause if first else "", "number": first.number if first else "", "places": report.places,
        "faults": [one.cause for one in report.faults],
    }  # fmt: skip
    print(f"{'ok  ' if right else 'MISS'} {kind:8} {planted:52} {row['faults']} {row['number']}", flush=True)
    return row


if __name__ == "__main__":
    sys.exit(main())
