"""``specviz run``: decode one prompt once."""

from __future__ import annotations

import argparse
from collections.abc import Iterator, Sequence
from dataclasses import replace
from difflib import SequenceMatcher
from pathlib import Path
from typing import Any

from decoders.draft.settings import Lengths, Sampling
from decoders.errors import UserError
from decoders.names import USUAL
from specviz.words import decimals, plural, visible

from . import common, options

METHOD = USUAL
# options that a recorded run has settled
OF_THE_RUN = ("methods", "set", "pool", "reference", "compare", "forced", "json_schema", "regex")
QUALITY = {"quality_f1": "F1", "quality_rouge_l": "ROUGE-L", "quality_edit": "edit similarity"}


DESCRIPTION = "Decode one prompt with one method; further user turns follow the method's own answer to the one before."


def add(parser: argparse.ArgumentParser) -> None:
    options.add_methods(parser, f"see specviz methods (default: {METHOD})", is_single=True)
    options.add_verifier(parser, is_single=True)
    prompt = options.add_prompt(parser)
    options.file(
        prompt, "--again", "a recorded run: decode it anew and compare; exit 1 where it differs. With --verifier under "
        "that rule, from its first token on: what specviz judge only expects", "TRACE",
    )  # fmt: skip
    options.add_reading(parser)
    options.count(parser, "--max-new-tokens", "tokens of the answer", 256)
    options.add_settings(parser, Sampling)
    options.add_settings(parser, Lengths)
    options.add_processors(parser)
    options.add_grammar(parser)
    options.file(parser, "--pool", "a text to draft from, for methods that take one", "FILE")
    parser.add_argument(
        "--reference", metavar="TEXT", help="the reference answer, to measure quality by (default: the record's own)"
    )
    options.flag(
        parser,
        "--forced",
        "write this answer, not the model's own: drafted tokens are accepted while they are its next ones (LLMA's "
        "forced decoding)",
    )
    options.flag(
        parser,
        "--compare",
        "also run plain decoding by the same sampling, and say how many tokens differ and the speedup",
    )
    options.count(
        parser, "--first-choices", "record so many first choices of target and drafter at every position, for specviz "
        "judge (default: 5 and 8)", low=8,
    )  # fmt: skip
    options.file(parser, "--out", "write the run as a trace file (.spectrace); turn 2 as TRACE-turn2, …", "TRACE")
    options.flag(parser, "--json", "print the result as one JSON object")
    options.add_model(parser, weights=True)


def run(args: argparse.Namespace) -> int:
    common.check_writable(args.out)
    if args.again:
        return _run_again(args)
    turns = []
    for result in _decode(args, common.prompt_record(args)):
        turns.append(result)
        if not args.json:
            if result["turn"] > 1:
                common.say(f"\nturn {result['turn']}", error=True)
            print(visible(result["text"]))
            _summarise(args, result)
    if args.json:
        common.print_json(_pool(turns))
    elif len(turns) > 1:
        whole = {**_pool(turns), "method": f"{plural(len(turns), 'turn')}, {turns[0]['method']}"}
        common.say("\n" + _numbers(whole), error=True)
    return 0


def _pool(turns: Sequence[dict[str, Any]]) -> dict[str, Any]:
    """The result of one turn, or of several with each of them under ``turns``: counts are added up, times too, quality
    is the mean; ``output_ids`` and ``text`` stand one after another.
    """
    if len(turns) == 1:
        return {name: value for name, value in turns[0].items() if name != "turn"}

    def run_each(name: str) -> list[Any]:
        return [turn[name] for turn in turns if turn.get(name) is not None]

    def seconds(speeds: Sequence[float | None]) -> float | None:
        """Of as many tokens at these speeds."""
        durations = [turn["tokens"] / speed for turn, speed in zip(turns, speeds, strict=True) if speed]
        return sum(durations) if len(durations) == len(turns) else None

    steps, accepted, tokens = (sum(run_each(name)) for name in ("steps", "accepted", "tokens"))
    pool_seconds = seconds([turn["tokens_per_s"] for turn in turns])
    plain = seconds([t["speedup"] and t["tokens_per_s"] and t["tokens_per_s"] / t["speedup"] for t in turns])
    differing = {name: sum(run_each(name)) if run_each(name) else None for name in ("differs", "differs_from_plain")}
    return {
        **{name: turns[0][name] for name in ("method", "lossless")}, "tokens": tokens, "steps": steps,
        "accepted": accepted, "tokens_per_step": accepted / steps + 1 if steps else None,
        "tokens_per_s": tokens / pool_seconds if pool_seconds else None, **differing,
        "speedup": plain / pool_seconds if plain and pool_seconds else None,
        **{key: sum(run_each(key)) / len(run_each(key)) if run_each(key) else None for key in QUALITY},
        "output_ids": [token for turn in turns for token in turn["output_ids"]],
        "text": "\n\n".join(turn["text"] for turn in turns), "turns": list(turns),
    }  # fmt: skip


def _numbers(result: dict[str, Any]) -> str:
    """The numbers of a result, in one line."""
    parts = [
        f"{result['method']}: {plural(result['tokens'], 'token')} in {plural(result['steps'], 'step')}",
        f"{decimals(result['tokens_per_step'], 2)} tokens per step",
        f"{plural(result['accepted'], 'drafted token')} accepted",
        f"{decimals(result['tokens_per_s'], 1)} tokens/s",
    ]
    if result["speedup"] is not None:
        mark = " ‡" if _doubt(result) else ""
        parts.append(f"{decimals(result['speedup'], 2)}× plain decoding{mark}")
    parts += [f"{label} {100 * result[key]:.1f} %" for key, label in QUALITY.items() if result[key] is not None]
    return " · ".join(parts)


def _doubt(result: dict[str, Any]) -> str | None:
    from decoders.trace.metrics import doubts

    return doubts(result).get("speedup")


def _summarise(args: argparse.Namespace, result: dict[str, Any]) -> None:
    """A turn's line on stderr: its numbers, and whether plain decoding writes the same."""
    common.say("\n" + _numbers(result), error=True)
    if doubt := _doubt(result):
        common.say(f"‡ {doubt}", error=True)
    if args.forced:
        common.say("forced: the answer was given, and the model only timed", error=True)
    elif not result["lossless"]:
        common.say(f"lossy: {_how_lossy(result)}", error=True)
    elif result["differs_from_plain"] is not None:
        verdict = "identical to" if not result["differs_from_plain"] else "not identical to"
        draw_note = ": other draws, which is no fault" if args.temperature and result["differs_from_plain"] else ""
        common.say(f"{verdict} plain decoding{draw_note}", error=True)
    if args.out:
        out = _turn_file(args.out, result["turn"])
        common.say(f"trace: {out} (open it with specviz view {out})", error=True)


def _turn_file(out: Path, turn: int) -> Path:
    """The file of a turn's trace."""
    return out if turn == 1 else out.with_name(f"{out.stem}-turn{turn}{out.suffix}")


def _run_again(args: argparse.Namespace) -> int:
    """A recorded run decoded anew; its prompt, method, parameters and seed are the recorded ones. With ``--verifier``
    its drafts are judged by that rule, over the whole run.
    """
    from decoders import find_method, load, record, save
    from decoders.draft.params import controls
    from decoders.names import UNDER
    from decoders.prompt.codec import of_trace, pool_is_partial
    from decoders.study.look.run_settings import check_model, extra_processors, generation_of, own_params, sampling_of
    from decoders.trace.metrics import first_difference

    if option := common.first_set(args, *OF_THE_RUN):
        raise UserError(f"--{option} is settled by the recorded run: leave it out")
    old_trace = load(args.again)
    if pool_is_partial(old_trace):
        raise UserError(f"{args.again} holds parts only of the text it drafted from: run it with --pool instead")
    name = str(old_trace.run["method"]["name"])
    old_method = find_method(name)
    method = find_method(str(options.one_method(args, name.partition(UNDER)[0]))) if args.verifier else old_method
    param_names = {control.name for control in controls(method.params)}
    params = {key: value for key, value in own_params(old_trace, old_method).items() if key in param_names}
    extra_options = common.processing_options(args.processor)
    if (names := extra_processors(old_trace.run)) and not args.processor:
        raise UserError(f"this run's logits went through {names}, which no trace holds: give it with --processor")
    target = common.open_target(args)
    check_model(target, old_trace.run, exact=True)
    trace = record(
        target, of_trace(old_trace), method.name, params, title=old_trace.run.get("title") or "",
        sampling=sampling_of(old_trace.run), max_new_tokens=old_trace.run["max_new_tokens"],
        stop_ids=old_trace.run.get("stop_ids"), keep_prompt=True, processors=extra_options["processors"],
        generation={**generation_of(old_trace.run), **extra_options["generation"]},
    )  # fmt: skip
    if args.out:
        save(trace, args.out)
    old, new = old_trace.output_ids, trace.output_ids
    is_same = old == new
    steps = [run_trace.rows("steps") for run_trace in (old_trace, trace)]
    other_rule = method.name != old_method.name
    if args.json:
        numbers = {"method": method.name, "tokens": [len(old), len(new)], "steps": steps}
        common.print_json({"same": is_same, **numbers, "output_ids": list(new)})
        return 0 if is_same or other_rule else 1
    print(visible(trace.text(new)))
    position = first_difference(old, new) + 1
    verdict = f"the same {plural(len(new), 'token')}" if is_same else f"different from output token {position} on"
    rule = f"{method.name}: " if other_rule else ""
    common.say(f"\n{rule}{verdict}, in {plural(steps[1], 'step')} (recorded: {steps[0]})", error=True)
    return 0 if is_same or other_rule else 1


def _how_lossy(result: dict[str, Any]) -> str:
    """A line on the changes of a lossy run."""
    words = f"{result['differs']} of {result['tokens']} tokens are not the target's own first choice"
    if result["differs_from_plain"] is None:
        return words + "; --compare shows plain decoding's too"
    return words + f"; from plain decoding's text it differs by {plural(result['differs_from_plain'], 'token')}"


def _differing(output: Sequence[int], plain: Sequence[int]) -> int:
    """Tokens by which two texts differ: the longer side of what an alignment leaves over."""
    blocks = SequenceMatcher(None, output, plain, autojunk=False).get_matching_blocks()
    return max(len(output), len(plain)) - sum(block.size for block in blocks)


def _prompt(args: argparse.Namespace, record: Any, target: Any, method: Any, params: Any) -> Any:
    """The record's prompt with its pool and its reference."""
    reference = record.reference if args.reference is None else args.reference
    prompt = replace(
        record.prompt(target.tokenizer, chat=args.chat), reference=reference.strip(), grammar=common.grammar_of(args)
    )
    if args.pool is None:
        return prompt
    if not method.needs(target, params).pool:
        raise UserError(f"--pool is of no use to {method.name}: it takes its drafts from elsewhere")
    return replace(prompt, pool=common.pool_file(args.pool, target))


def _force(args: argparse.Namespace, target: Any, prompt: Any, method: Any, params: Any, title: str) -> Any:
    """The trace of a run that writes the reference answer. Raises UserError where there is none."""
    from decoders import save
    from decoders.study.look.teacher_forcing import answer_ids, forced_trace

    if option := common.first_set(args, "compare", "temperature", "processor", "json_schema", "regex"):
        raise UserError(f"--forced writes a given answer: leave --{option} out")
    if not prompt.reference:
        raise UserError("--forced needs the answer: give it with --reference, or take a prompt that has a reference")
    answer = answer_ids(target, prompt.reference)[: args.max_new_tokens]
    trace = forced_trace(target, prompt, answer, method, params, max_new_tokens=args.max_new_tokens, title=title)
    if args.out:
        save(trace, args.out)
    return trace


def _decode(args: argparse.Namespace, record: Any) -> Iterator[dict[str, Any]]:
    """The result of every user turn, each behind the method's own answer to the one before."""
    from decoders import find_method
    from decoders.draft.params import make_params

    method = find_method(str(options.one_method(args, METHOD)))
    params = make_params(method.params, options.sets_of(args.set, [method.name])[method.name])
    sampling = options.settings_of(args, Sampling)
    target = common.open_target(args)
    prompt = _prompt(args, record, target, method, params)
    if args.forced and prompt.dialogue is not None:
        prompt = replace(prompt, dialogue=None)  # the answer is to the first turn
    settings: dict[str, Any] = {
        "sampling": sampling, "max_new_tokens": args.max_new_tokens, "length": args.length,
        **common.processing_options(args.processor),
    }  # fmt: skip
    while True:
        result = _turn(args, record, target, method, params, prompt, settings)
        common.say(common.template_hint(args, record, target, result["output_ids"]), error=True)
        yield {**result, "turn": prompt.turn}
        if prompt.turns == 1:
            return
        prompt = replace(prompt.following(target.tokenizer, result["output_ids"]), pool=prompt.pool)


def _turn(
    args: argparse.Namespace, record: Any, target: Any, method: Any, params: Any, prompt: Any, settings: dict[str, Any]
) -> dict[str, Any]:
    """One turn as ``--json`` prints it, with its text."""
    if args.forced:
        trace = _force(args, target, prompt, method, params, record.id)
        blank = dict.fromkeys(("differs_from_plain", "differs", "speedup", *QUALITY))
        extra_fields: dict[str, Any] = {"lossless": False, "forced": True, **blank}
    elif args.out or args.compare or prompt.reference or not method.lossless:
        from decoders import record as traced
        from decoders import save

        title = record.id if prompt.turn == 1 else f"{record.id}, turn {prompt.turn}"
        settings = {**settings, "compare": args.compare, "first_choices": args.first_choices}
        trace = traced(target, prompt, method.name, params, title=title, **settings)
        if args.out:
            save(trace, _turn_file(args.out, prompt.turn))
        plain = trace.tables["plain"]["id"] or None
        extra_fields = {
            "lossless": trace.run["method"]["lossless"],
            "differs_from_plain": None if plain is None else _differing(trace.output_ids, plain),
            **{key: trace.run["metrics"][key] for key in ("differs", "speedup", *QUALITY)},
        }
    else:
        from decoders.sweep.contenders import timer

        trace, measurement = None, timer(target, method.name, params, **settings)(prompt)
        output, per_s = measurement.output, measurement.sample.tokens_per_s
        steps, accepted = measurement.sample.steps or 0, measurement.sample.accepted or 0
        extra_fields = {"lossless": True, "differs": 0 if args.temperature == 0 else None}
        extra_fields |= dict.fromkeys(("differs_from_plain", "speedup", *QUALITY))
    if trace is not None:
        output, steps, per_s = trace.output_ids, trace.rows("steps"), trace.run["metrics"]["tokens_per_s"]
        accepted = sum(trace.tables["steps"]["accepted"])
    result = {
        "method": method.name, "tokens": len(output), "steps": steps, "accepted": accepted,
        "tokens_per_step": accepted / steps + 1 if steps else None, "tokens_per_s": per_s, **extra_fields,
        "output_ids": list(output),
    }  # fmt: skip
    return {**result, "text": target.tokenizer.decode(output, skip_special_tokens=True)}
