"""Verify forwards of hybrid models against attention alone: ``python -m tests.families.rows``.

Two random models of a family, eight layers of width 512: one with attention in every fourth layer, as published, the
other with attention in all of them. They take turns at scoring a draft tree of 16 rows behind the same text, by one
thread; processor time is compared, which other programs do not change much. Exit code 1 where the median forward of a
hybrid takes more than 1.5 times as long (``--most``).
"""

from __future__ import annotations

import argparse
import statistics
import sys
import time
from dataclasses import replace
from typing import Any

import torch

from decoders.draft.draft import Draft
from decoders.draft.needs import Needs
from decoders.draft.tree import DraftTree
from decoders.model.target_model.target import Session, Target

from ..models import prompt_ids
from .cases import FULL, RECURRENT, Case, cases
from .compare import network, quiet

LAYERS, EVERY = 8, 4  # attention in every fourth layer
TREE = DraftTree(tuple(range(3, 19)), (-1, 0, 0, 1, 1, 2, 3, 3, 4, 5, 6, 6, 8, 9, 10, 12))  # 16 rows
SIZES: dict[str, Any] = {
    "hidden_size": 512, "intermediate_size": 1536, "num_hidden_layers": LAYERS, "num_attention_heads": 8,
    "num_key_value_heads": 2, "head_dim": 64, "max_position_embeddings": 4096,
}  # fmt: skip
OWN: dict[str, dict[str, Any]] = {  # of the recurrent layers, as wide for their model as in the published ones
    "qwen3_5_text": {
        "linear_num_key_heads": 4, "linear_num_value_heads": 8, "linear_key_head_dim": 64, "linear_value_head_dim": 64,
    },
    "kimi_linear": {
        "linear_head_dim": 64, "linear_num_heads": 8, "first_k_dense_replace": LAYERS, "kv_lora_rank": 128,
        "q_lora_rank": 128, "qk_rope_head_dim": 32, "qk_nope_head_dim": 64, "v_head_dim": 64,
        "num_key_value_heads": 8,
    },
    "bamba": {"mamba_n_heads": 16, "mamba_d_head": 64, "mamba_d_state": 64, "mamba_n_groups": 1},
    "lfm2": {},
}  # fmt: skip


def pair(case: Case) -> tuple[Target, Target]:
    """A family's model with recurrent layers, and one with attention in their place."""
    attends = [(layer + 1) % EVERY == 0 for layer in range(LAYERS)]
    state = "conv" if case.family == "lfm2" else RECURRENT
    known = {*dict(case.settings), *OWN[case.family]}
    own = {name: value for name, value in {**SIZES, **OWN[case.family]}.items() if name in known}

    def build(mixed: bool) -> Target:
        layers = [here or not mixed for here in attends]
        if case.family == "bamba":
            which = {"attn_layer_indices": [layer for layer, here in enumerate(layers) if here]}
        else:
            which = {"layer_types": [FULL if here else state for here in layers]}
        settings = (*case.settings, *own.items(), *which.items())
        return Target(network(replace(case, settings=settings)), None, case.family)

    return build(True), build(False)


@torch.inference_mode()
def forward_ms(session: Session) -> float:
    """Processor milliseconds of one verify forward; nothing of it is committed."""
    started = time.process_time()
    session.score(Draft(TREE))
    return (time.process_time() - started) * 1e3


def compare_forwards(case: Case, behind: int, turns: int) -> tuple[float, float, float, float]:
    """Median milliseconds of the hybrid and of attention alone, and millions of parameters of both."""
    models = pair(case)
    sessions = [model.session(Needs(), behind + 1) for model in models]
    for session in sessions:
        session.prefill(prompt_ids(3, behind))
    taken: tuple[list[float], list[float]] = [], []
    for _ in range(turns + 2):
        for session, ms in zip(sessions, taken, strict=True):
            ms.append(forward_ms(session))
    medians = [statistics.median(ms[2:]) for ms in taken]  # the first ones warm up
    return *medians, *(model.info["parameters"] / 1e6 for model in models)


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.families.rows", description=__doc__)
    parser.add_argument("--only", default="", metavar="TEXT", help=f"families of {', '.join(OWN)} that contain this")
    parser.add_argument("--behind", type=int, nargs="+", default=[256, 2000], metavar="N", help="tokens of the text")
    parser.add_argument("--turns", type=int, default=15, metavar="N", help="forwards of each (default 15)")
    parser.add_argument("--most", type=float, default=1.5, metavar="X", help="allowed ratio (default 1.5)")
    args = parser.parse_args()
    quiet()
    slow = 0
    print(f"{'family':14}{'tokens':>7}{'hybrid ms':>11}{'attention ms':>14}{'ratio':>8}   parameters, millions")
    for case in cases():
        if case.window != "hybrid" or case.family not in OWN or args.only not in case.family:
            continue
        for behind in args.behind:
            hybrid, alone, size, other = compare_forwards(case, behind, args.turns)
            slow += hybrid / alone > args.most
            line = f"{case.family:14}{behind:7}{hybrid:11.2f}{alone:14.2f}{hybrid / alone:8.2f}"
            print(f"{line}   {size:.1f}, {other:.1f}", flush=True)
    return 1 if slow else 0


if __name__ == "__main__":
    sys.exit(main())
