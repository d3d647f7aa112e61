"""Methods × prompts: planned (``plan``), run in turns (``plan.alternate``, ``plan.in_order``), kept as rows and
samples (``ledger``) and judged against plain decoding. ``bench`` and ``lossless`` are two such sweeps.
"""
