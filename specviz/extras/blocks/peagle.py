"""P-EAGLE (Hui et al. 2026): an EAGLE-3 head drafts all its tokens in one forward, from masks behind the root.

Published heads alone are read; they are trained by speculators and by others. The drafts are a block's: a chain of
first choices, or a tree through the candidates of every position (DDTree).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import fields, replace
from functools import partial

from torch import Tensor

from decoders.draft_models.fit import Fit
from decoders.draft_models.forced_chain import Chain, ForcedChain, Option
from decoders.draft_models.published import CONFIG, Published
from decoders.errors import UserError
from decoders.method.part import Kind
from decoders.model.state.memory import Context
from decoders.model.target_model.target import Target
from specviz.extras.heads.eagle import heads_of
from specviz.extras.heads.eagle_head import EagleConfig
from specviz.extras.heads.eagle_published import fit_head
from specviz.extras.heads.head_chains import EagleChain

from .block_formats import MASK_TOKENS, PEAGLE_FORMATS
from .block_network import MOST_BLOCK
from .dflash import METHOD as DFLASH
from .dflash import build_block
from .peagle_head import PEagleConfig, PEagleHead, PEagleRun

USUAL_PLACES = 8  # num_depths of speculators' training


def fit(head: Published, target: Target) -> Fit:
    """A published P-EAGLE head for the target. Raises UserError in one sentence for what does not fit."""
    if head.kind != "peagle":
        raise UserError(f"{head.place} holds {head.title}, and the method peagle wants another: use {head.kind}")
    return fit_head(True, head, target, PEagleHead, partial(_with_masks, head, target))


def _with_masks(head: Published, target: Target, config: EagleConfig) -> PEagleConfig:
    """A head's configuration with its masks: whose embedding they have, and how many tokens a draft has."""
    settings = {name: value for name in MASK_TOKENS if (value := head.config.get(name)) is not None}
    tokens = {int(value) for value in settings.values() if str(value).isdecimal()}
    if len(tokens) != 1 or max(tokens) >= target.shape.vocab or not all(str(v).isdecimal() for v in settings.values()):
        raise UserError(
            f"{head.place} cannot be read: its {CONFIG} says {settings or 'nothing'} of the masks' token, and one of "
            f"{', '.join(MASK_TOKENS)} has to name one of {target.shape.vocab:,} tokens; bring the file that was "
            "published beside the weights"
        )
    values = {field.name: getattr(config, field.name) for field in fields(config)}
    return PEagleConfig(**values, mask_token=tokens.pop(), places=_places(head))


def _places(head: Published) -> int:
    """Tokens of a draft: those that speculators' proposal says, or the usual number."""
    inner = head.config.get("speculators_config")
    proposals = inner.get("proposal_methods") if isinstance(inner, Mapping) else None
    first = proposals[0] if isinstance(proposals, list) and proposals else None
    count = first.get("speculative_tokens") if isinstance(first, Mapping) else None
    if count is None:
        return USUAL_PLACES
    if type(count) is not int or not 1 <= count <= MOST_BLOCK:
        raise UserError(
            f"{head.place} cannot be read: its {CONFIG} says speculative_tokens = {count!r}, and 1 to {MOST_BLOCK} are "
            "possible"
        )
    return count


class PEagleChain(EagleChain):
    """P-EAGLE's heads along given texts: what a row guesses does not depend on the tokens before it."""

    parallel, feeds_back = True, False
    chains = ForcedChain.chains

    def depth(self, limit: int) -> int:
        return min(limit, self.config.places)

    def chain(self, depth: int) -> Chain:
        run = PEagleRun(self.network)

        def chain(context: Context, tokens: Sequence[int]) -> Tensor:
            return self.network.say(run.block(context)[:depth]).float()

        return chain

    def options(self, depth: int) -> Iterator[Option]:
        return (option for option in super().options(depth) if option.cause != "state fed back")


KIND = Kind("peagle", "P-EAGLE head", PEagleConfig, PEagleHead, fit, reads=PEAGLE_FORMATS, chain=PEagleChain)
METHOD = replace(
    DFLASH,
    name="peagle",
    title="P-EAGLE",
    paper="Hui et al. 2026, P-EAGLE: parallel-drafting EAGLE with scalable training",
    bibtex=r"""
@article{hui2026peagle,
  author = {Mude Hui and Xin Huang and Jaime Campos Salas and Yue Sun and Nathan Pemberton and Xiang Song and
    Ashish Khetan and George Karypis},
  title = {{P-EAGLE}: Parallel-Drafting {EAGLE} with Scalable Training},
  journal = {arXiv preprint arXiv:2602.01469},
  year = {2026},
}
""",
    summary="An EAGLE-3 head drafts all its tokens in one forward, from masks behind the root.",
    **heads_of(KIND, make=partial(build_block, run=PEagleRun)),
    order=49,
)
