"""``specviz doctor``: why a head or draft model has little accepted."""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING, Any

from decoders.folders import write_json, write_text
from specviz.commands import common, options
from specviz.words import plural

if TYPE_CHECKING:
    from decoders import Target

    from .doctor.doctor import Report

DESCRIPTION = (
    "Find out why a head or draft model has little accepted: it drafts along the target's own answers, as it is and "
    "with one thing changed at a time. A change that helps names the fault. Exit code 1 where there is a fault."
)
PROMPTS, TOKENS = 12, 48


def add(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--part", required=True, metavar="PART",
        help="a kind (drafter, glide, medusa, hydra, eagle, eagle3, dflash, dspark, dflash2, peagle, mtp), a trained "
        "part's folder, a published head, or a draft model: a folder, file or hub id",
    )  # fmt: skip
    options.add_prompts(parser, PROMPTS)
    parser.set_defaults(max_new_tokens=TOKENS)
    options.flag(parser, "--raw", "do not send the prompts through the model's chat template")
    options.count(parser, "--places", "draft at so many places of all answers together", 240, high=100_000)
    parser.add_argument(
        "--temperature", type=options.positive, default=1.0, metavar="X",
        help="of the target, for greedy against drawn drafts (default: 1)",
    )  # fmt: skip
    options.file(parser, "--server", "a log or answer of a server that drafts with this part, to compare with", "LOG")
    options.file(parser, "--html", "write the report as a page")
    options.file(parser, "--out", "write the report as JSON")
    options.flag(parser, "--json", "print the report as JSON")
    options.add_model(parser, plugins=False, weights=True)


def run(args: argparse.Namespace) -> int:
    common.check_writable(args.html, args.out)
    server = None
    if args.server is not None:
        from .doctor.server import ServerNumbers

        server = ServerNumbers.read(common.read_log(args.server), args.server.name)
    records = common.prompt_records(args)
    target = common.open_target(args)
    report, note = _examine(args, target, records, server)
    data = report.to_json()
    if args.out:
        write_json(args.out, data)
    if args.html:
        from .doctor.report_page import doctor_page

        write_text(args.html, doctor_page(data))
    if args.json:
        common.print_json(data)
    else:
        _show(report)
        common.say(note)
    return 1 if report.faults else 0


def _examine(args: argparse.Namespace, target: Target, records: Any, server: Any) -> tuple[Report, str]:
    from .doctor.doctor import examine
    from .doctor.setup import drafting_of, forms_of, is_rounded, prompts_of, skip_reasons

    drafting = drafting_of(target, args.part)
    prompts, kept_records, note = common.fitting(target, records, args.max_new_tokens + 64)
    if args.raw:
        prompts = prompts_of(target.tokenizer, kept_records, True)
    forms = forms_of(target.tokenizer, kept_records, prompts, args.raw)
    skips = skip_reasons(target, forms, server is not None)

    def whole() -> Any:
        """The same drafter beside the target in float32."""
        arguments = argparse.Namespace(**{**vars(args), "dtype": "float32", "weights": None})
        return drafting_of(common.open_target(arguments), args.part)

    exact = whole if is_rounded(target) else None
    with common.progress_bar("examining") as progress:
        report = examine(
            drafting, prompts, part=args.part, max_new_tokens=args.max_new_tokens, places=args.places,
            temperature=args.temperature, forms=forms, exact=exact, server=server, skipped_causes=skips,
            progress=progress,
        )  # fmt: skip
    return report, note


def _show(report: Report) -> None:
    rates = ", ".join(f"{rate:.2f}" for rate in report.base.conditional)
    common.say(
        f"{report.part} beside {report.model}: acceptance length {report.base.length:.2f}, by position {rates} behind "
        f"the text's own tokens, β {report.beta:.3f} ({plural(report.places, 'place')} of "
        f"{plural(report.texts, 'answer')})"
    )
    rows = [
        (
            control.cause,
            control.words,
            f"{control.length:.2f}",
            f"{control.gain:+.2f} {control.unit}",
            f"{control.z:+.1f}",
        )
        for control in report.controls
    ]
    heads = ("cause", "with this changed", "acceptance length", "gain", "z")
    common.show_table(heads, rows, "controls: a gain is a fault", right=2)
    for place, finding in enumerate(report.findings, 1):
        common.say(
            f"{place}. {finding.level}: {finding.cause}: {finding.number}",
            f"   control: {finding.control}",
            f"   {finding.advice}",
        )
    common.say(*(f"not examined: {reason}" for reason in report.skipped))
    common.say(f"ok: {report.verdict}" if report.state == "ok" else report.verdict)
