"""Servers: what they say of their drafts as traces, a recorder inside vLLM, prompts sent to them."""

from decoders.extra import Command, Extra

FORMATS = (
    "benchmarks", "counts", "llama_dump", "llama_log", "llama_server", "lmstudio", "mlc", "openai", "prometheus",
    "rounds", "sglang", "sglang_log", "spec_bench", "tensorrt", "tgi", "vllm", "vllm_log",
)  # fmt: skip

EXTRA = Extra(
    name="servers",
    about="Servers: their logs and answers as traces, a recorder inside vLLM, their acceptance while they answer",
    importers=tuple(f".importers.{name}" for name in FORMATS),
    commands={
        "watch": Command(".watch", "measure", "a server's acceptance while it answers"),
        "import": Command(".import_command", "share", "open a server's record of its drafts: answers, streams, logs"),
    },
    pages=(".page",),
    web="web",
    settings={
        "SPECVIZ_RECORD": "the folder in which the recorder in a vLLM server writes a trace per request",
        "SPECVIZ_RECORD_ALL": "1: every request is recorded, not only those that ask",
        "SPECVIZ_RECORD_TOP": "how many first choices of the target are recorded per node",
    },
)
