"""``specviz run``: decode one prompt once."""

from __future__ import annotations

import argparse
import json
import time
from collections.abc import Sequence
from dataclasses import replace
from difflib import SequenceMatcher
from pathlib import Path
from typing import Any

from decoders.errors import UserError

from . import common

QUALITY = {"quality_f1": "F1", "quality_rouge_l": "ROUGE-L", "quality_edit": "edit similarity"}


def add(commands: Any) -> None:
    parser = commands.add_parser("run", help="decode one prompt", description="Decode one prompt with one method.")
    parser.add_argument("--method", default="pld+h", metavar="NAME", help="see specviz methods (default: pld+h)")
    parser.add_argument(
        "--set", action="append", default=[], metavar="K=V", help="a parameter of the method; may be repeated"
    )
    prompt = parser.add_mutually_exclusive_group(required=True)
    prompt.add_argument(
        "--prompt-file", type=Path, metavar="F", help="plain text, or JSONL (its first prompt, see --index)"
    )
    prompt.add_argument("--prompt", metavar="TEXT", help="the prompt itself")
    parser.add_argument(
        "--index", type=common.whole(0), default=0, metavar="N", help="which prompt of a JSONL file (from 0)"
    )
    parser.add_argument("--chat", action="store_true", help="send plain text through the model's chat template")
    parser.add_argument("--max-new-tokens", type=common.whole(1), default=256, metavar="N", help="default: 256")
    parser.add_argument("--temperature", type=float, default=0.0, metavar="T", help="0 is greedy (default)")
    parser.add_argument("--top-k", type=common.whole(0), default=0, metavar="N", help="0 is off (default)")
    parser.add_argument("--top-p", type=float, default=1.0, metavar="P", help="1 is off (default)")
    parser.add_argument("--seed", type=common.whole(0), default=0, metavar="N", help="of a sampled run (default: 0)")
    parser.add_argument("--pool", type=Path, metavar="FILE", help="a text to draft from, for methods that take one")
    parser.add_argument(
        "--reference", metavar="TEXT", help="the answer hoped for, to measure quality by (default: the record's own)"
    )
    parser.add_argument(
        "--compare", action="store_true", help="also run plain decoding, and say how many tokens differ and the speedup"
    )
    parser.add_argument("--out", type=Path, metavar="TRACE", help="write the whole run as a trace file (.spectrace)")
    parser.add_argument("--json", action="store_true", help="print the result as one JSON object")
    common.add_model(parser)
    parser.set_defaults(run=run)


def run(args: argparse.Namespace) -> int:
    from decoders.prompt.files import PromptRecord, read_prompts

    common.check_writable(args.out)
    if args.prompt is not None:
        record = PromptRecord(id="prompt", text=args.prompt)
        if not args.prompt.strip():
            raise UserError("the prompt is empty: type at least one character")
    else:
        records = read_prompts(args.prompt_file)
        if args.index >= len(records):
            raise UserError(
                f"--index {args.index} is out of range: {args.prompt_file} holds {len(records)} prompts (from 0)"
            )
        record = records[args.index]
    result, text = _decoded(args, record)
    if args.json:
        print(json.dumps({**result, "text": text}, ensure_ascii=False))
        return 0
    print(common.shown(text))
    parts = [
        f"{result['method']}: {result['tokens']} tokens in {result['steps']} steps",
        f"{common.number(result['tokens_per_step'])} tokens per step",
        f"{result['accepted']} drafted tokens accepted",
        f"{common.number(result['tokens_per_s'], 1)} tokens/s",
    ]
    if result["speedup"] is not None:
        parts.append(f"{common.number(result['speedup'])}× plain decoding")
    parts += [f"{label} {100 * result[key]:.1f} %" for key, label in QUALITY.items() if result[key] is not None]
    common.console(error=True).print("\n" + " · ".join(parts), markup=False, soft_wrap=True)
    if not result["lossless"]:
        common.console(error=True).print(f"lossy: {_how_lossy(result)}", markup=False, soft_wrap=True)
    elif result["differs_from_plain"] is not None:
        same = "identical to" if not result["differs_from_plain"] else "not identical to"
        common.console(error=True).print(f"{same} plain decoding", markup=False)
    if args.out:
        common.console(error=True).print(
            f"trace: {args.out} (open it with specviz view {args.out})", markup=False, soft_wrap=True
        )
    return 0


def _how_lossy(result: dict[str, Any]) -> str:
    """What a lossy run changed, in one line."""
    words = f"{result['differs']} of {result['tokens']} tokens are not the target's own first choice"
    if result["differs_from_plain"] is None:
        return words + "; --compare shows plain decoding's too"
    return words + f"; {result['differs_from_plain']} differ from plain decoding's text"


def _differing(output: Sequence[int], plain: Sequence[int]) -> int:
    """Tokens by which two texts differ: the longer side of what an alignment leaves over."""
    blocks = SequenceMatcher(None, output, plain, autojunk=False).get_matching_blocks()
    return max(len(output), len(plain)) - sum(block.size for block in blocks)


def _prompt(args: argparse.Namespace, record: Any, target: Any, method: Any, params: Any) -> Any:
    """The record's prompt with its pool and its reference."""
    from decoders.prompt.prompt import Pool

    reference = record.reference if args.reference is None else args.reference
    prompt = replace(record.prompt(target.tokenizer, chat=args.chat), reference=reference.strip())
    if args.pool is None:
        return prompt
    if not method.needs(target, params).pool:
        raise UserError(f"--pool is of no use to {method.name}: it takes its drafts from elsewhere")
    try:
        text = args.pool.read_bytes().decode("utf-8-sig")
    except UnicodeDecodeError:
        raise UserError(f"the pool file {args.pool} is not text in UTF-8: save it as such and try again") from None
    except OSError as error:
        raise UserError(f"cannot read the pool file {args.pool}: {(error.strerror or str(error)).lower()}") from None
    return replace(prompt, pool=Pool.from_text(target.tokenizer, text, args.pool.name))


def _decoded(args: argparse.Namespace, record: Any) -> tuple[dict[str, Any], str]:
    """What ``--json`` prints, and the text."""
    from decoders import Sampling, find_method
    from decoders.draft.params import make_params

    method = find_method(args.method)
    params = make_params(method.params, common.parse_sets(args.set))
    sampling = Sampling(args.temperature, args.top_k, args.top_p, args.seed)
    target = common.open_target(args)
    prompt = _prompt(args, record, target, method, params)
    options: dict[str, Any] = {"sampling": sampling, "max_new_tokens": args.max_new_tokens}
    if args.out or args.compare or prompt.reference or not method.lossless:
        from decoders import record as traced
        from decoders import save

        trace = traced(target, prompt, method.name, params, title=record.id, compare=args.compare, **options)
        if args.out:
            save(trace, args.out)
        output, steps = trace.output_ids, trace.tables["steps"]["accepted"]
        metrics = trace.run["metrics"]
        plain = trace.tables["plain"]["id"] or None
        more = {
            "lossless": trace.run["method"]["lossless"],
            "differs": metrics["differs"],
            "differs_from_plain": None if plain is None else _differing(output, plain),
            "speedup": metrics["speedup"],
            **{key: metrics[key] for key in QUALITY},
        }
        per_s = metrics["tokens_per_s"]
    else:
        from decoders import Decoding

        decoding = Decoding.of(target, prompt, method, params, **options)
        decoding.prefill()
        started = time.perf_counter()
        output, steps = [], []
        for step in decoding:
            output += step.emitted
            steps.append(step.accepted)
        per_s = len(output) / (time.perf_counter() - started)
        more = {
            "lossless": True,
            "differs": 0 if args.temperature == 0 else None,
            "differs_from_plain": None,
            "speedup": None,
            **dict.fromkeys(QUALITY),
        }
    result = {
        "method": method.name,
        "tokens": len(output),
        "steps": len(steps),
        "accepted": sum(steps),
        "tokens_per_step": sum(a + 1 for a in steps) / len(steps) if steps else None,
        "tokens_per_s": per_s,
        **more,
        "output_ids": list(output),
    }
    return result, target.tokenizer.decode(output, skip_special_tokens=True)
