"""Drafted tokens by their place in the tree: acceptance by depth and rank, by who proposed them, and second branches.

All of it is counted at the places that a run visited. What another length, rank or drafter would have brought in a run
of its own is another number: the places would be others (``BIAS``).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from .trace import Trace

BIAS = "counted at the places that these runs visited; a run that drafted otherwise would visit others"


@dataclass(slots=True)
class Share:
    """Tokens that were ``judged`` (their parent stood), and those of them that stood."""

    judged: int = 0
    accepted: int = 0

    def add(self, is_accepted: bool) -> None:
        self.judged += 1
        self.accepted += is_accepted

    @property
    def share(self) -> float | None:
        return self.accepted / self.judged if self.judged else None


@dataclass(slots=True)
class SecondBranch:
    """First misses of the first-ranked chain: how often a sibling stood there, and a child of that one."""

    misses: int = 0
    with_sibling: int = 0
    sibling: int = 0
    with_child: int = 0
    child: int = 0


def trees(trace: Trace) -> Iterator[list[dict[str, Any]]]:
    """The nodes of each step with a draft: parent, depth, rank among the siblings as listed, status, and who proposed
    it (a mask; 0: not recorded).
    """
    nodes = trace.tables["nodes"]
    masks = nodes.get("term:who") or [None] * len(nodes["parent"])
    tree, ranks = list[dict[str, Any]](), dict[int, int]()
    for row, parent in enumerate(nodes["parent"]):
        if parent < 0:
            if len(tree) > 1:
                yield tree
            tree, ranks = [], {}
        ranks[parent] = ranks.get(parent, -1) + 1
        tree.append({
            "parent": parent, "depth": nodes["depth"][row], "rank": ranks[parent], "status": nodes["status"][row],
            "mask": int(masks[row] or 0),
        })  # fmt: skip
    if len(tree) > 1:
        yield tree


def depth_rank_map(trace: Trace) -> dict[tuple[int, int], Share]:
    """Acceptance of judged tokens by depth (from 1) and rank among their siblings (from 0)."""
    cells: dict[tuple[int, int], Share] = {}
    for tree in trees(trace):
        for node in tree[1:]:
            if node["status"] in ("accepted", "rejected"):
                cells.setdefault((node["depth"], node["rank"]), Share()).add(node["status"] == "accepted")
    return cells


def second_branches(trace: Trace) -> SecondBranch:
    """Count what siblings were worth where the first-ranked chain was rejected first."""
    counts = SecondBranch()
    for tree in trees(trace):
        children: dict[int, list[int]] = {}
        for number, node in enumerate(tree[1:], start=1):
            children.setdefault(node["parent"], []).append(number)
        place = 0
        while children.get(place) and tree[children[place][0]]["status"] == "accepted":
            place = children[place][0]
        if not children.get(place) or tree[children[place][0]]["status"] != "rejected":
            continue  # all of the chain stood, or the text ended
        siblings = children[place][1:]
        counts.misses += 1
        counts.with_sibling += bool(siblings)
        for sibling in siblings:
            if tree[sibling]["status"] == "accepted":
                counts.sibling += 1
                counts.with_child += bool(children.get(sibling))
                counts.child += any(tree[child]["status"] == "accepted" for child in children.get(sibling, ()))
    return counts


def drafters_of(run: Mapping[str, Any]) -> list[str]:
    """The names of the drafters that a run's drafts are merged of (keys, where it has no titles); else none."""
    method = run.get("method", {})
    if titles := method.get("drafters"):
        return [title.split(":")[0] for title in titles]
    names = str(method.get("params", {}).get("drafters", "")).replace(" ", "").split(",")
    return names if len(names) > 1 else []


def proposer_label(names: Sequence[str], mask: int, rivals: int) -> str:
    """The proposers of a token, and those of other tokens at its place: "eagle3 beside pld+h".

    >>> [proposer_label(["pld+h", "eagle3"], *masks) for masks in ((1, 0), (2, 1), (3, 0))]
    ['pld+h alone', 'eagle3 beside pld+h', 'pld+h and eagle3']
    """
    words, rival_words = (
        " and ".join(name for place, name in enumerate(names) if bits >> place & 1) for bits in (mask, rivals)
    )
    return f"{words} beside {rival_words}" if rivals else words + " alone" * (mask.bit_count() == 1)


def shares_by_drafter(trace: Trace) -> dict[tuple[int, int], Share]:
    """Acceptance of judged tokens by who proposed them, and who others at that place: masks of the run's drafters.
    Empty for a run whose drafts are not merged.
    """
    shares: dict[tuple[int, int], Share] = {}
    for tree in trees(trace) if drafters_of(trace.run) else ():
        proposers: dict[int, int] = {}
        for node in tree[1:]:
            proposers[node["parent"]] = proposers.get(node["parent"], 0) | node["mask"]
        for node in tree[1:]:
            if node["mask"] and node["status"] in ("accepted", "rejected"):
                key = node["mask"], proposers[node["parent"]] & ~node["mask"]
                shares.setdefault(key, Share()).add(node["status"] == "accepted")
    return shares


def branch_counts(traces: Sequence[Trace]) -> dict[str, Any]:
    """All of it over runs of one method, pooled, as JSON has it."""

    def pool(parts: Iterable[Mapping[Any, Share]]) -> list[tuple[Any, Share]]:
        total: dict[Any, Share] = {}
        for part in parts:
            for key, share in part.items():
                cell = total.setdefault(key, Share())
                cell.judged, cell.accepted = cell.judged + share.judged, cell.accepted + share.accepted
        return sorted(total.items())

    def numbers(share: Share) -> dict[str, Any]:
        return {"judged": share.judged, "accepted": share.accepted, "share": share.share}

    names = drafters_of(traces[0].run)
    branches = [asdict(second_branches(trace)) for trace in traces]
    shares = sorted(
        pool(map(shares_by_drafter, traces)), key=lambda pair: (-pair[0][0].bit_count(), pair[0][0], pair[0][1])
    )
    return {
        "depth_rank": [
            {"depth": depth, "rank": rank, **numbers(share)}
            for (depth, rank), share in pool(map(depth_rank_map, traces))
        ],
        "second_branch": {key: sum(counts[key] for counts in branches) for key in asdict(SecondBranch())},
        "proposed_by": [
            {"who": proposer_label(names, mask, rivals), "mask": mask, **numbers(share)}
            for (mask, rivals), share in shares
        ],
        "note": BIAS,
    }
