"""A drafting method at work on one run."""

from __future__ import annotations

from collections.abc import Generator, Iterable, Sequence
from typing import Any

from decoders.draft.draft import Draft, Learned, Past, Scored, Verdict
from decoders.draft.survival import Estimate, Survival
from decoders.model.state.memory import Context
from decoders.verifiers.sampling import Chooser


class Drafter:
    """A drafting method at work on one run. Deterministic, given the context and the seed.

    Only ``propose`` has to be written. ``looks_at`` says what the looks of its drafts are, where they have any:
    {"label", "layers", "heads"}. ``keeps`` and ``warm`` go into the run's record: see ``kept``.
    """

    looks_at: dict[str, Any] | None = None
    keeps: Any = None  # what outlasts the run (``decoders.method.kept``), where the method has anything of the kind
    warm = False  # whether the run began with what earlier ones left there
    learns_from_any_draft = False  # True: ``observe`` learns from a scored draft or text, whoever drafted it
    learns = True  # from ``observe``, where it is overridden; False where that takes notes for the record alone

    def propose(self, context: Context, budget: int) -> Draft:
        """A draft after the context's last token, at most ``budget`` tokens deep."""
        raise NotImplementedError

    @property
    def kept(self) -> dict[str, Any] | None:
        """Amount of the drafter's state that outlasts a run, and whether earlier runs left it; None: nothing does."""
        return None if self.keeps is None else {"warm": self.warm, "unit": self.keeps.unit, "count": len(self.keeps)}

    def sample_with(self, chooser: Chooser) -> None:
        """Called when the drafter was built. One that draws takes the warpers and the seed from here, and leaves the
        chooser's draws to the verifier.
        """

    def prepare(self, context: Context) -> None:
        """Build what is built once per prompt, an index for example; called after the prompt was read."""

    def observe(self, draft: Draft, scored: Scored, verdict: Verdict) -> Learned | None:
        """Learn the draft's verdict; called once per step, after the accepted path was committed. What the drafter
        learned may be returned for the record.
        """
        return None

    def resume(self, context: Context, past: Sequence[Past]) -> None:
        """Take up the state that the drafter would have in ``context`` after the steps ``past``.

        A drafter that learns in ``observe`` learns again from every step, which the target scores once more. One whose
        drafts follow from the context alone has nothing to take up.
        """
        if self.learns and type(self).observe is not Drafter.observe:
            for step in past:
                self.observe(step.draft, step.scored(), step.verdict)


class StagedDrafter(Drafter):
    """A drafter whose draft is made in stages, of which the engine may leave out later ones.

    Its nodes are estimated by ``survival``, which it fits by itself; ``estimate`` is that of the last draft's nodes,
    ``staged_survival`` their survival in the order of the stages.
    """

    survival: Survival
    estimate: Estimate
    staged_survival: Sequence[float]

    def draft_stages(self, context: Context, budget: int) -> Generator[Sequence[float], int, Draft]:
        """Yield, before each stage, the survival of the nodes of those before it, the root's first; sent is the depth
        to which it drafts (0: it is left out). The draft is returned, with all nodes.
        """
        raise NotImplementedError

    def later_stages(self) -> Iterable[tuple[int, int, Sequence[float]]]:
        """Of each later stage of the last draft that was made: its number (from 1), its depth, and by depth the best
        survival of what no earlier one proposed. The draft's notes have the time of stage n as ``ms{n + 1}``.
        """
        raise NotImplementedError
