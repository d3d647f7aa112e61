"""An imported run beside a model of one's own: what the server did not say, computed here and marked as such.

``read_again`` has the model read the text once, teacher-forced: probabilities, ranks and first choices are then its
own.
``redraft`` has a method draft every step anew: where as many of its tokens stand as the server accepted, the rejected
ones are filled in; where not, the step is flagged (engine against head). Nothing here is the server's: the run's record
names what was recomputed, and by which model.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch

from decoders.draft.draft import Draft
from decoders.draft.needs import Needs
from decoders.draft.params import make_params
from decoders.draft.tree import DraftTree
from decoders.drafters import find_method
from decoders.engine.numbers import TARGET_CHOICES
from decoders.engine.recording import recorded_params
from decoders.errors import UserError
from decoders.importers.request import Request, Token
from decoders.importers.request_trace import LOCAL, NOT_RECORDED, trace_of
from decoders.model.target_model.target import Target
from decoders.prompt.prompt import Prompt
from decoders.trace import metrics
from decoders.trace.check import check
from decoders.trace.run import RunImported, RunModel, RunRecord
from decoders.trace.trace import Trace
from decoders.verifiers.match import judged

from .run_settings import check_ids
from .teacher_forcing import end_ids
from .whatif import ReadRun, bounded_needs

ROWS = 64  # tokens read at a time: their logits are there together
RECOMPUTED_COLUMNS = ("tokens.prob", "tokens.rank", "nodes.prob", "nodes.rank", "steps.entropy", "targets")
FAR, SHARE = 0.1, 0.1  # the server's probabilities are another model's if so many of them are so far off
OTHER_MODEL = (
    "the server's probabilities are far from this model's: another model, another prompt, or sampling settings"
)


def read_again(target: Target, trace: Trace) -> Trace:
    """The run with this model's numbers; the server's own probabilities stay, as the column ``server_prob``.

    A run without token ids is tokenised anew, and its steps are kept where the boundaries of both agree. Raises
    UserError for a run without its text, with ids beyond the vocabulary, or too long for the model.
    """
    trace = copy.deepcopy(trace)
    _source(trace)
    if "tokens.id" in trace.run.get("unknown", ()):
        _tokenise(target, trace)
    ids, start = trace.tables["tokens"]["id"], trace.run["prompt_length"]
    check_ids(target, ids)
    server_probs = list(trace.tables["tokens"]["prob"])
    _fill(target, trace, ids, start)
    run, source_record = trace.run, _source(trace)
    source_record["served"] = str(run["model"].get("name", ""))
    run["model"], run["forced"] = RunModel(**target.info, key=target.key), True
    run["recomputed"] = list(RECOMPUTED_COLUMNS)
    now_known = ("tokens.rank", "tokens.id", "tokens", "text")
    run["unknown"] = [name for name in run.get("unknown", []) if name not in now_known]
    if any(p is not None for p in server_probs):
        trace.tables["tokens"]["server_prob"] = server_probs
        prob_pairs = zip(server_probs, trace.tables["tokens"]["prob"], strict=True)
        off = [abs(p - q) > FAR for p, q in prob_pairs if p is not None and q is not None]
        if sum(off) > SHARE * len(off):
            source_record["notes"].append(OTHER_MODEL)
    run["metrics"] = metrics.compute(trace)
    check(trace)
    return trace


def redraft(
    target: Target, trace: Trace, method: str, params: Mapping[str, Any] | None = None,
    progress: Callable[[int, int], None] = lambda number, of: None,
) -> Trace:  # fmt: skip
    """A run that was read again, with every step drafted by ``method``: the steps' columns ``local_accepted`` and
    ``differs`` say what came of it, and ``run["redrafted"]`` counts. Where the server's drafted tokens are known, they
    have to be a path of the draft; where not, as many have to stand as the server accepted. A draft that is longer than
    the server's (``local_drafted``: its depth) is compared as far as that went, and counted. Raises UserError as
    ``ReadRun.redraft``, and where the steps are not known.
    """
    unknown = trace.run.get("unknown", [])
    if {"steps", "steps.accepted"}.intersection(unknown):
        raise UserError(
            "what each step accepted is not known (the source does not say it, or its tokens are not this model's), so "
            "there is nothing to compare drafts with"
        )
    trace = copy.deepcopy(trace)
    entry = find_method(method)
    values = make_params(entry.params, params or {})
    steps = trace.tables["steps"]
    room = trace.run["max_new_tokens"] + 1 + max(steps["drafted"], default=0)  # servers draft beyond an answer's end
    roomy = Trace(RunRecord(**{**trace.run, "max_new_tokens": room}), trace.tables)
    read = ReadRun(target, roomy, bounded_needs(entry.needs(target, values)))
    drafts_told = "steps.drafted" not in unknown
    count, local, drafted, differs = trace.rows("steps"), list[int](), list[int](), list[bool]()
    for step in range(count):
        new_step = read.redraft(step, entry, values)
        limit = steps["drafted"][step]  # where drafts are not told: the accepted tokens
        stands = min(new_step.accepted, limit, steps["emitted"][step])
        local.append(stands if limit else new_step.accepted)
        drafted.append(max(new_step.trace.tables["nodes"]["depth"], default=0))
        server = [trace.tables["nodes"]["token"][row] for row in read.rows("nodes", step)][1:]
        is_other_path = NOT_RECORDED not in server and not _has_path(new_step.trace.tables["nodes"], server)
        differs.append(limit > 0 and (stands != steps["accepted"][step] or is_other_path))
        if limit and drafts_told and not differs[-1]:
            _fill_draft(trace, read.rows("nodes", step), new_step.trace)
        progress(step + 1, count)
    steps["local_accepted"], steps["local_drafted"], steps["differs"] = local, drafted, differs
    longer = (
        sum(new_count > old_count for new_count, old_count in zip(drafted, steps["drafted"], strict=True))
        if drafts_told
        else 0
    )
    trace.run["redrafted"] = {
        "method": method, "params": recorded_params(values), "compared": sum(d > 0 for d in steps["drafted"]),
        "differing": sum(differs), "longer": longer,
    }  # fmt: skip
    _describe(target, trace)
    if all(token < NOT_RECORDED for token in trace.tables["nodes"]["token"]):
        trace.run["unknown"] = [name for name in unknown if name != "nodes.token"]
    trace.run["metrics"] = metrics.compute(trace)
    check(trace)
    return trace


def _source(trace: Trace) -> RunImported:
    """The record of an imported run's source. Raises UserError for a run that was decoded here."""
    if (source_record := trace.run.get("imported")) is None:
        raise UserError("this run was decoded here: only a run that was imported from a server is read again")
    return source_record


def _has_path(nodes: Mapping[str, Sequence[int]], tokens: Sequence[int]) -> bool:
    """True where a drafted tree has these tokens one below the other, from its root on."""
    at = 0
    for token in tokens:
        matches = (i for i, parent in enumerate(nodes["parent"]) if parent == at and nodes["token"][i] == token)
        if (at := next(matches, -1)) < 0:
            return False
    return True


def _fill_draft(trace: Trace, rows: range, new_trace: Trace) -> None:
    """Fill in the rejected tokens of a step from a local draft of the same acceptance, where that is a chain."""
    nodes, new_nodes = trace.tables["nodes"], new_trace.tables["nodes"]
    chain = new_nodes["parent"] == list(range(-1, len(new_nodes["parent"]) - 1))
    redraft_flags = nodes.setdefault("redrafted", [False] * len(nodes["token"]))
    for place, row in enumerate(rows):
        if chain and place < len(new_nodes["token"]) and nodes["token"][row] == NOT_RECORDED:
            for name in ("token", "prob", "rank", "draft_prob"):
                nodes[name][row] = new_nodes[name][place]
            redraft_flags[row] = True


def _fill(target: Target, trace: Trace, ids: Sequence[int], start: int) -> None:
    """The target's numbers at every output token, in one reading of the text."""
    tokens, nodes, steps, targets = (trace.tables[name] for name in ("tokens", "nodes", "steps", "targets"))
    session = target.session(Needs(), len(ids))
    session.prefill(Prompt.from_ids(ids[:start]))
    first = [row for row, parent in enumerate(nodes["parent"]) if parent < 0]
    step, node = 0, 0  # whose logits come next
    for name in targets:
        targets[name].clear()
    for at in range(start, len(ids), ROWS):
        part = list(ids[at : at + ROWS])
        draft = Draft(DraftTree.chain(ids[at - 1], part[:-1]))
        logits = session.score(draft).logits
        logs = logits.float().log_softmax(-1)
        places = torch.as_tensor(part, device=logs.device)[:, None]
        token_logs = logs.gather(1, places)
        ranks = (logs > token_logs).sum(-1).tolist()
        top, choices = logs.topk(min(TARGET_CHOICES, logs.shape[-1]), dim=-1)
        entropies = (-(logs.exp() * logs.clamp_min(-1e30)).sum(-1)).tolist()
        probs, tops, choices = token_logs[:, 0].exp().tolist(), top.exp().tolist(), choices.tolist()
        for row in range(len(part)):
            place = at + row
            tokens["prob"][place], tokens["rank"][place] = round(probs[row], 6), ranks[row]
            if node == 0:
                steps["entropy"][step] = round(entropies[row], 6)
            for token, p in zip(choices[row], tops[row], strict=True):
                for name, value in {"step": step, "node": node, "token": token, "prob": round(p, 6)}.items():
                    targets[name].append(value)
            child = first[step] + node + 1
            if node < steps["drafted"][step] and (drafted := nodes["token"][child]) < logs.shape[-1]:
                p = logs[row, drafted]
                nodes["prob"][child] = round(float(p.exp()), 6)
                nodes["rank"][child] = int((logs[row] > p).sum())
            node += 1
            if node >= steps["emitted"][step]:
                step, node = step + 1, 0
        session.commit(judged(draft, [*range(len(part))], part[-1]))
    _describe(target, trace)


def _describe(target: Target, trace: Trace) -> None:
    """The bytes of all tokens, as this model's tokenizer has them."""
    columns, pieces = trace.tables["pieces"], target.pieces
    entries = dict(zip(columns["id"], zip(columns["hex"], columns["special"], strict=True), strict=True))
    wherever = [trace.tables[table]["token"] for table in ("nodes", "targets", "guesses")]
    new = dict.fromkeys([*trace.tables["tokens"]["id"], *(token for column in wherever for token in column)])
    for token in new:
        if token < NOT_RECORDED and pieces is not None:
            raw, special = pieces.of(token)
            entries[token] = raw.hex(), special
        elif token not in entries:
            entries[token] = f"<{token}>".encode().hex(), True
    columns["id"] = list(entries)
    columns["hex"], columns["special"] = map(list, zip(*entries.values(), strict=True))


def _tokenise(target: Target, trace: Trace) -> None:
    """Give the text of a run this model's ids. The steps stay where their ends are ends of tokens, too."""
    run, source_record = trace.run, _source(trace)
    if "prompt" in run.get("unknown", ()):
        raise UserError("this source does not tell the prompt, and without it nothing can be computed again")
    if target.tokenizer is None:
        raise UserError(f"{target.name} came without a tokenizer, and this run has no token ids")
    texts = [trace.text(trace.prompt_ids), source_record.get("text") or trace.text(trace.output_ids)]
    encoded = [list(target.tokenizer(text, add_special_tokens=False)["input_ids"]) for text in texts]
    end = end_ids(target) if run.get("stop") == "eos" and trace.output_ids[-1:] == [NOT_RECORDED] else []
    server_ids = trace.output_ids[: -1 if end else None]  # the token that ended the answer has no text
    if all(token < LOCAL for token in server_ids):
        encoded[1] = server_ids  # the server's own ids; the prompt alone is text
    if not all(encoded):
        raise UserError("this source tells no text, so nothing can be computed again")
    is_same_text = len(encoded[1]) == len(server_ids) and _same_ends(target, trace, server_ids, encoded[1])
    encoded[1] = [*encoded[1], *end]
    if is_same_text:
        for table in ("tokens", "nodes"):
            _exchange(trace, table, encoded)
        length = len(encoded[0]) - run["prompt_length"]
        run["prompt_length"] += length
        steps = trace.tables["steps"]
        steps["context"] = [context + length for context in steps["context"]]
        source_record["notes"].append("token ids were made from the text: the server's may differ")
        return
    title = run.get("title", "")
    request = Request(title, str(run["model"].get("name", "")), prompt_ids=encoded[0], text=texts[1])
    request.tokens = [Token(token) for token in encoded[1]]
    request.notes = [*source_record["notes"], "token ids were made from the text, so its steps are not known"]
    request.server_fields = source_record["said"]
    new_trace = trace_of(request, source_record["source"], source_record["title"])
    trace.tables, trace.run = new_trace.tables, RunRecord(**{**new_trace.run, "title": title})


def _same_ends(target: Target, trace: Trace, server_ids: Sequence[int], ids: Sequence[int]) -> bool:
    """True where a text's new tokens are those that the server told, one by one."""
    pieces = dict(zip(trace.tables["pieces"]["id"], trace.tables["pieces"]["hex"], strict=True))
    assert target.pieces is not None
    pairs = zip(server_ids, ids, strict=True)
    return all(old == new or pieces[old] == target.pieces.of(new)[0].hex() for old, new in pairs)


def _exchange(trace: Trace, table: str, encoded: Sequence[Sequence[int]]) -> None:
    """New ids in the place of those that stood for texts."""
    rows = trace.tables[table]
    if table == "nodes":
        ids, start = trace.tables["tokens"]["id"], len(encoded[0])
        steps = trace.tables["steps"]
        shift = start - trace.run["prompt_length"]
        for row, (step, depth, status) in enumerate(zip(rows["step"], rows["depth"], rows["status"], strict=True)):
            if status in ("root", "accepted"):
                rows["token"][row] = ids[steps["context"][step] + shift - 1 + depth]
            elif rows["token"][row] >= LOCAL:
                rows["token"][row] = NOT_RECORDED
        steps["bonus"] = [
            -1 if bonus < 0 else ids[context + shift + accepted]
            for bonus, context, accepted in zip(steps["bonus"], steps["context"], steps["accepted"], strict=True)
        ]
        return
    old, new = trace.run["prompt_length"], encoded[0]
    for name, values in rows.items():
        first = values[0]
        rows[name] = [*([first] * len(new)), *values[old:]]
    rows["id"] = [*new, *encoded[1]]
