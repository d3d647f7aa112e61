"""llama.cpp's HTTP server as a process: prints its address, and ends when its standard input does.

Run as a file (``python -I llama_child.py SETTINGS``), so that nothing but xllamacpp is imported. SETTINGS is JSON:
``model`` (a GGUF file), ``threads``, ``context`` (tokens), ``verbosity`` (1 to 5, as ``-lv``), ``drafter`` (a name of
common_speculative_type without its prefix, or "") and ``options`` of it (``size_n``, ``size_m``, ``n_max``, …).
"""

from __future__ import annotations

import importlib
import json
import sys
from typing import Any

PREFIX = "COMMON_SPECULATIVE_TYPE_"


def main() -> None:
    """Serve until the standard input is closed."""
    xllamacpp: Any = importlib.import_module("xllamacpp")
    settings = json.loads(sys.argv[1])
    params = xllamacpp.CommonParams()
    params.model.path = settings["model"]
    params.n_ctx, params.n_parallel, params.port = settings["context"], 1, 0
    params.verbosity, params.endpoint_metrics = settings["verbosity"], True
    params.n_gpu_layers, params.cache_ram_mib = 0, 0
    speculative, drafter = params.speculative, settings["drafter"]
    for threads in (params.cpuparams, params.cpuparams_batch, speculative.draft.cpuparams):
        threads.n_threads = settings["threads"]
    if drafter:
        kinds = xllamacpp.common_speculative_type
        speculative.types = [getattr(kinds, PREFIX + drafter)]
        if drafter.startswith("DRAFT_"):
            speculative.draft.mparams.path = settings["options"].pop("model", settings["model"])
        options = speculative.draft if drafter.startswith("DRAFT_") else getattr(speculative, drafter.lower())
        for name, value in settings["options"].items():
            setattr(options, name, value)
    server = xllamacpp.Server(params)
    print(server.listening_address, flush=True)
    sys.stdin.read()
    del server


if __name__ == "__main__":
    main()
