"""``specviz methods new`` and ``specviz methods check``: a method of one's own, begun and checked."""

from __future__ import annotations

import argparse
import re
import string
import traceback
from pathlib import Path
from typing import TYPE_CHECKING

from decoders.errors import UserError
from decoders.folders import write_text
from specviz.words import plural

from . import common

if TYPE_CHECKING:
    from decoders import Method, Prompt, Target

TEMPLATE = Path(__file__).parent / "method_template.txt"


def new(name: str) -> int:
    """Write a method to begin with into this folder."""
    from decoders import methods
    from decoders.method.plugins import NAME

    if not NAME.fullmatch(name) or name == "all":
        raise UserError(f"{name!r} is no name for a method: a letter or digit, then letters, digits, _ + . or -")
    if name in methods():
        raise UserError(f"there is a method {name!r} already: choose another name")
    module = re.sub(r"\W", "_", name)
    module = module if module.isidentifier() else f"method_{module}"
    file = Path(f"{module}.py")
    title = name.replace("_", " ").replace("-", " ").strip().capitalize()
    text = string.Template(TEMPLATE.read_text("utf-8")).substitute(name=name, title=title, file=file, module=module)
    if file.exists():
        raise UserError(f"there is a file {file} already: choose another name, or move it away")
    write_text(file, text)
    common.say(f"{file}: a method that drafts and passes the check; make it yours", f"specviz methods check {file}")
    return 0


def check(args: argparse.Namespace) -> int:
    """0 where every method of the file keeps the contract, 1 where one does not."""
    from decoders import find_method
    from decoders.drafters import add_plugin
    from decoders.method.plugins import Unusable
    from specviz.views.examples import check_prompts

    file = Path(args.what)
    if not file.is_file():
        raise UserError(f"there is no file {file}")
    try:
        plugin = add_plugin(file)
    except Unusable as problem:
        common.say(str(problem))
        cause = problem.__cause__
        if cause is not None and not isinstance(cause, UserError):
            common.say("", "".join(traceback.format_exception(cause)).rstrip())
        return 1
    args.model = args.model or "bundled"  # fast, and trained: drafts are accepted and rejected
    target = common.open_target(args)
    prompts = check_prompts(target.tokenizer)
    methods = [find_method(method.name) for method in plugin.methods]  # as they are registered: guarded
    return 0 if all([_check(method, target, prompts) for method in methods]) else 1


def _check(method: Method, target: Target, prompts: list[Prompt]) -> bool:
    """Check a method against the contract; say rule by rule what it breaks."""
    from decoders.study.judge.contract import MEANINGS, drafted_tokens, rules_of
    from decoders.study.judge.contract import check as broken

    findings = broken(method, target, prompts)
    failed_rules = {finding.rule for finding in findings}
    common.say(f"{method.name}: {method.title}, on {target.name} and {plural(len(prompts), 'prompt')}")
    for rule in rules_of(findings):
        common.say(f"  {'✗' if rule in failed_rules else '✓'} {MEANINGS[rule]}")
        for finding in (entry for entry in findings if entry.rule == rule):
            place = "" if finding.prompt is None else f" (prompt {finding.prompt + 1})"
            common.say(f"      {finding.words}{place}")
    for error in dict.fromkeys(finding.error for finding in findings if finding.error):
        common.say("", error.rstrip())
    if findings:
        common.say(f"{method.name}: {plural(len(findings), 'fault')}")
    elif not any(drafted_tokens(target, prompt, method) for prompt in prompts):
        common.say(f"{method.name}: ok, but it drafted nothing on these prompts")
    else:
        common.say(f"{method.name}: ok")
    return not findings
