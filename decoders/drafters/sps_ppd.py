"""SpS whose draft model writes by PPD (PPD §5: "PPD + speculative decoding").

Prompt tokens trained for the draft model make it guess its own next tokens, so that it writes the chain of plain SpS,
token for token, in fewer forwards.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import torch
from jaxtyping import Float
from torch import Tensor

from decoders.draft.draft import Draft, Verdict
from decoders.draft.needs import Needs
from decoders.draft.params import param
from decoders.draft.terms import Term
from decoders.draft.tree import DraftTree
from decoders.draft_models.draft_run import common_prefix
from decoders.draft_models.drafter import NODE_TERMS, STEP_TERMS, Chain, Choose, ModelDrafter
from decoders.draft_models.expansion import EXPANSIONS
from decoders.errors import UserError
from decoders.folders import typed_path
from decoders.method.part import COMPANION, how_to_get, train_command
from decoders.model.state.memory import Context, ReadingStopped
from decoders.model.target_model.target import SPARE_ROWS, Session, Target
from decoders.parts import TrainedPart, find_part, is_part
from decoders.prompt_tokens.tokens import PromptTokens
from decoders.prompt_tokens.trees import PromptTrees
from decoders.verifiers.block import RULE

from .ppd import BIBTEX, PAPER, PpdDrafter, PpdParams, StatePlan, trees_of
from .ppd import PART as PROMPT_TOKENS
from .sps import GAMMA, SCHEDULE, SIZE, LanguageModelRun, open_drafter
from .sps import METHOD as SPS

MOST_PENDING = 32  # tokens not yet read that one forward takes before its tree; more are read in a forward of their own


@dataclass(frozen=True)
class SpsPpdParams:
    drafter: str | None = param(
        None,
        "Drafter",
        "Model folder or hub id with the target's tokenizer, for which prompt tokens were trained. Off: the one that "
        "was offered for all runs.",
    )
    part: str | None = param(
        None, "Prompt tokens", "Folder of the drafter's trained prompt tokens. Off: those trained for it."
    )
    tree_size: int | None = param(
        None, "Tree size",
        "Rows of a draft forward at most: root, guesses and prompt tokens. Off: the best for this machine where the "
        "drafter's latency was measured (`specviz tree latency --model DRAFTER`), else that of its designed trees.",
        low=3, high=SPARE_ROWS // 2,
    )  # fmt: skip
    gamma: int = GAMMA
    schedule: str = SCHEDULE
    expansion: str = param(
        "none", "Expansion", "Further candidates beside the chain: CAPE's by confidence, or a fixed number.",
        choices=tuple(kind for kind in EXPANSIONS if not kind.startswith("beam")),
    )  # fmt: skip
    size: int = SIZE
    rule: str = RULE


@dataclass(frozen=True, slots=True)
class PromptRead:
    """The result of a draft forward at a token: the logits after it, and those of the prompt tokens that hung on it."""

    logits: Float[Tensor, " vocab"]
    probes: Float[Tensor, "rows vocab"] | None


class PromptedRun(LanguageModelRun):
    """A causal LM that writes chains by PPD, with a session of its own that follows the text.

    A token is taken as the caller chooses it from the drafter's logits, whether it was guessed or not: guesses only
    save forwards. What was read stays for the next step as far as the text goes on that way, and so do the guesses of
    the last token read: prompt tokens guess past the next token, whoever writes that one.
    """

    def __init__(self, drafter: Target, prompts: PromptTokens, trees: PromptTrees, vocab: int) -> None:
        super().__init__(drafter, vocab)
        self.ppd = PpdDrafter(prompts, trees, self.limit)
        self.session: Session | None = None
        self.reads: dict[int, PromptRead] = {}  # by position, of what was read for the last chain
        self._plans: dict[tuple[int, int, int, int], StatePlan] = {}

    @torch.inference_mode()
    def begin(self, context: Context) -> None:
        """Read the prompt, into the session that chains are written in."""
        session = self._follow(context, 0)
        if context.length - session.cache.length > MOST_PENDING:
            self._forget(0)
            if not session.prefill(context.tokens.tolist(), stops=lambda *_: context.is_cancelled):
                raise ReadingStopped

    @torch.inference_mode()
    def chain(self, context: Context, depth: int, choose: Choose) -> Chain:
        """The next ``depth`` tokens, and how they came about."""
        session, text = self._follow(context, depth), context.tokens.tolist()
        chain = Chain()
        while len(chain.drafted) < depth:
            at = len(text) - 1
            if at >= session.cache.length:
                self._write(session, text, chain, depth, choose)
                continue
            choice, distribution = choose(self.fit_logits(self.reads[at].logits))  # read in an earlier step
            chain.add(choice, distribution, 0)
            token = int(choice)
            text.append(token)
            if at + 1 < session.cache.length and session.buffer[at + 1] != token:
                self._forget(at + 1)
        self.reads = {at: read for at, read in self.reads.items() if at >= context.length - 1}
        return chain

    def _write(self, session: Session, text: list[int], chain: Chain, depth: int, choose: Choose) -> None:
        """One draft forward over what was not read yet and the tree behind it; the chosen path stays, and is added to
        ``text`` and to the chain.
        """
        chain.forwards += 1
        if len(text) - session.cache.length > MOST_PENDING:
            self._forget(0)
            session.prefill(text)
            chain.forwards += 1
        start = session.cache.length
        pending = text[start:]
        lead = len(pending) - 1
        guesses = self._guesses(start - 1, lead)
        plan = self._plan(len(guesses), depth - len(chain.drafted), self.limit - len(text), lead)
        tokens = pending + [
            guesses[distance - 1][rank]
            for distance, rank in zip(plan.distances[lead + 1 :], plan.ranks[lead + 1 :], strict=True)
        ]
        draft = Draft(DraftTree(tuple(tokens), plan.parents), probes=plan.probes, layout=plan.layout)
        session.buffer[start], session.length = pending[0], start + 1
        scored = session.score(draft)
        children, path = draft.tree.children(), list(range(lead + 1))
        while len(chain.drafted) < depth:
            choice, distribution = choose(self.fit_logits(scored.logits[path[-1]]))
            token = int(choice)
            child = children[path[-1]].get(token)
            chain.add(choice, distribution, chain.forwards, plan.distances[child] + lead if child else 0)
            text.append(token)
            if child is None:
                break
            path.append(child)
        rows = self.ppd.prompts.config.vectors
        for at, node in enumerate(path, start):
            first, count = plan.first[node], plan.prompts[node] * rows
            probes = None if scored.probe_logits is None else scored.probe_logits[first : first + count]
            self.reads[at] = PromptRead(scored.logits[node], probes if count else None)
        session.commit(Verdict(tuple(path), text[-1], (), ()))

    def _guesses(self, at: int, distance: int) -> list[list[int]]:
        """Guesses of the prompt tokens at a position for the text from its ``distance`` + 2nd token on: by distance,
        then rank.
        """
        read = self.reads.get(at)
        if read is None or read.probes is None:
            return []
        logits = self.ppd.prompts.guesses(read.probes)
        return logits[distance:].topk(min(self.ppd.top_k, logits.shape[-1])).indices.tolist()

    def _plan(self, state: int, depth: int, room: int, lead: int) -> StatePlan:
        """PPD's plan behind ``lead`` tokens that are not in question."""
        cut = state, min(depth, state), min(room, 2 * self.ppd.trees.m), lead
        if cut not in self._plans:
            plan = self.ppd.plan(state, depth, room)
            self._plans[cut] = plan if not lead else replace(
                plan,
                parents=(*range(-1, lead), *(parent + lead for parent in plan.parents[1:])),
                distances=(0,) * lead + plan.distances,
                ranks=(-1,) * lead + plan.ranks,
                prompts=(0,) * lead + plan.prompts,
                first=(0,) * lead + plan.first,
                probes=tuple(replace(probe, parent=probe.parent + lead) for probe in plan.probes),
            )  # fmt: skip
        return self._plans[cut]

    def _follow(self, context: Context, depth: int) -> Session:
        """The session, cut back to what it read of this text, with room for ``depth`` more tokens."""
        capacity = min(max(len(context.buffer), context.length + depth), self.limit)
        if self.session is None or self.session.capacity < capacity:
            self.session, self.reads = self.drafter.session(Needs(), capacity), {}
        length = self.session.cache.length
        shared_length = common_prefix(self.session.buffer[:length], context.tokens)
        if shared_length < context.length:
            self._forget(shared_length)
        elif shared_length - 1 not in self.reads:
            self._forget(shared_length - 1)
        return self.session

    def _forget(self, length: int) -> None:
        """Cut what was read to its first ``length`` tokens."""
        assert self.session is not None
        length = self.session.cache.cut(length)
        self.reads = {at: read for at, read in self.reads.items() if at < length}


def build(target: Target, params: SpsPpdParams) -> ModelDrafter:
    drafter, prompts = owner(target, params), PART.load(target, params)
    trees = trees_of(drafter, prompts, PpdParams(part=params.part, size=params.tree_size))
    run = PromptedRun(drafter, prompts, trees, target.info["vocab"])
    return ModelDrafter(
        run, params.gamma, params.expansion, params.size, heuristic=params.schedule == "heuristic", chain=run.chain
    )


def drafter_of(target: Target, source: str | None, part: str | None = None) -> tuple[Target | None, str | None]:
    """The drafter named, else the one that was offered, and what is missing, with the command that makes it.

    Raises UserError for a trained drafter (prompt tokens are trained for causal LMs) and for one that does not fit.
    """
    source = source or target.companions.get(COMPANION)
    if source is None:
        return None, _drafter_request()
    if is_part(typed_path(source)):
        raise UserError(
            f"{source} is a trained drafter, and prompt tokens can be trained for causal LMs alone: write it as one "
            f"with `specviz parts export {source} FOLDER --format transformers`, name another model folder or hub id "
            "as the drafter, or use the method sps"
        )
    drafter = open_drafter(target, source)
    if part is not None or find_part(drafter.key, PART.kind.name) is not None:
        return drafter, None
    return drafter, (
        f"there is no set of prompt tokens for the drafter {drafter.name}: {how_to_get(PART.kind.name, source)}"
    )


def _drafter_request() -> str:
    """Refusal of a run without a drafter, with the commands that bring one."""
    command = train_command(PART.kind.name, "DRAFTER")
    keep = "keep prompt tokens for it with `specviz parts add PLACE --model DRAFTER`"
    return (
        "SpS with PPD needs a causal LM as its drafter: name one with the same tokenizer (parameter drafter; `specviz "
        "parts export drafter FOLDER --format transformers` makes one of a trained drafter) and "
        + (f"train its prompt tokens with `{command}`" if command else keep)
    )


def available(target: Target) -> str | None:
    """The missing drafter in a sentence, where no drafter is named; None where one is there."""
    try:
        return drafter_of(target, None)[1]
    except UserError as error:
        return str(error)


def owner(target: Target, params: SpsPpdParams) -> Target:
    """The drafter, which the prompt tokens were trained for. Raises UserError where none is named or offered."""
    drafter, missing = drafter_of(target, params.drafter, params.part)
    if missing is not None or drafter is None:
        raise UserError(missing or _drafter_request())
    return drafter


PART = TrainedPart(PROMPT_TOKENS.kind, offered="drafter", owner=owner)
METHOD = replace(
    SPS,
    name="sps+ppd",
    title="SpS with PPD",
    paper=PAPER,
    bibtex=BIBTEX,
    summary="SpS's draft model, with trained prompt tokens of its own: the same tokens ahead in fewer draft forwards.",
    params=SpsPpdParams,
    build=build,
    node_terms=(
        *NODE_TERMS,
        Term("draft_forward", "draft forward", "The draft forward that gave this token (0: an earlier step's).", 0, 0),
        Term("distance", "guessed by", "The drafter's prompt token that had guessed it (none: its forward gave it).",
             0, 3),
    ),
    step_terms=(
        *STEP_TERMS,
        Term("draft_forwards", "forwards made", "Forwards of the draft model in this step; plain SpS makes γ.", 0, 0),
        Term("hits", "guessed right", "Drafted tokens that the drafter's prompt tokens had guessed.", 0, 0),
    ),
    part=PART,
    available=available,
    brings=lambda params: params.drafter is not None,
    order=32,
)  # fmt: skip
