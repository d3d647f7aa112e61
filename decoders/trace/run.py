"""Types of the run record, made by ``python -m decoders.trace.schema`` from ``run.txt``."""

from __future__ import annotations

from typing import Any, Required, TypedDict

Value = int | float | str | bool | None  # of a parameter


class RunRecord(TypedDict, total=False):
    """The run as a whole."""

    id: Required[str]
    title: str
    created: Required[str]
    complete: Required[bool]
    stop: Required[str]
    error: str
    model: Required[RunModel]
    method: Required[RunMethod]
    terms: Required[list[RunTerm]]
    node_terms: list[RunTerm]
    step_terms: list[RunTerm]
    origins: list[RunOrigin]
    sampling: Required[RunSampling]
    max_new_tokens: Required[int]
    length: dict[str, Any]
    prompt_length: Required[int]
    stop_ids: list[int]
    versions: dict[str, Any]
    machine: RunMachine
    timings: Required[RunTimings]
    metrics: dict[str, float | None]
    metric_help: list[RunMetric]
    reference: str
    reference_of: str
    turn: int
    given_prompt: str
    compression: RunCompression
    unplaced: list[str]
    pool: RunPool
    reads: RunReads
    attention: RunAttention
    memory: RunMemory
    kept: RunState
    part: RunPart
    one_row: RunOneRow
    plain_sampling: RunSampling
    forced: bool
    first_choices: int
    opens: int
    plain_run: str
    category: str
    passed_over: list[str]
    grammar: RunGrammar
    processing: RunProcessing
    left_out: list[str]
    unknown: list[str]
    imported: RunImported
    recorded_from: RunSource
    recomputed: list[str]
    redrafted: RunRedrafted
    backend: str


class RunModel(TypedDict, total=False):
    """The target."""

    name: str
    key: str
    family: str
    layers: int
    heads: int
    kv_heads: int
    hidden: int
    vocab: int
    parameters: int
    context_length: int
    dtype: str
    device: str
    weights: str
    activations: str
    packed: bool
    fused_norms: int
    dequantised: RunGguf


class RunGguf(TypedDict, total=False):
    """A GGUF file that a model was read from."""

    file: str
    sha256: str
    bytes: int
    types: dict[str, float | None]


class RunMethod(TypedDict, total=False):
    """The drafting method."""

    name: Required[str]
    title: str
    paper: str
    summary: str
    lossless: bool
    params: dict[str, Value]
    resolved: dict[str, Value]
    drafters: list[str]
    controls: list[RunControl]
    code: RunCode


class RunControl(TypedDict, total=False):
    """A parameter of the method, in words."""

    name: Required[str]
    label: str
    help: str


class RunCode(TypedDict, total=False):
    """The code that decided: file and function."""

    drafts: str
    verifies: str


class RunTerm(TypedDict, total=False):
    """A number that the method records beside the columns; a bar is drawn where low < high."""

    key: Required[str]
    label: str
    help: str
    low: float | None
    high: float | None


class RunOrigin(TypedDict, total=False):
    """A place where drafted tokens come from."""

    name: Required[str]
    letter: str
    label: str
    sentence: str
    outline: str
    hue: int
    beside: bool


class RunMetric(TypedDict, total=False):
    """A metric, in words."""

    key: Required[str]
    label: str
    formula: str
    unit: str
    help: str


class RunSampling(TypedDict, total=False):
    """The settings by which tokens were drawn."""

    temperature: float
    top_k: int
    top_p: float
    seed: int


class RunMachine(TypedDict, total=False):
    """The machine that ran it."""

    processor: str
    engine: str
    threads: int


class RunTimings(TypedDict, total=False):
    """Times of the run; null: not measured."""

    prefill_ms: float | None
    prepare_ms: float | None
    decode_ms: float | None
    one_row_ms: float | None
    plain_tokens_per_s: float | None
    untimed_tokens: float | None
    repeats_ms: list[float]


class RunMemory(TypedDict, total=False):
    """Bytes that the run took."""

    kv_bytes: int
    kv_bytes_per_token: int
    draft_bytes: int


class RunOneRow(TypedDict, total=False):
    """The time of a forward of one row."""

    ms: float | None
    run: str
    measured: str
    engine: str
    context: list[int]


class RunPool(TypedDict, total=False):
    """The text that the method drafts from, where it does not (as it stands) lie in the prompt."""

    label: str
    tokens: int
    passages: int
    in_prompt: bool


class RunCompression(TypedDict, total=False):
    """The prompt's compression, in numbers."""

    compressor: str
    ratio_asked: float
    context_tokens: int
    kept_tokens: int
    prompt_tokens_full: int
    compress_ms: float | None


class RunReads(TypedDict, total=False):
    """Layers and heads of the target that the drafter reads."""

    hidden_layer: int | None
    heads: list[list[Any]]


class RunAttention(TypedDict, total=False):
    """The layers and heads of the table attention."""

    label: str
    layers: list[int]
    heads: int
    probes: bool


class RunState(TypedDict, total=False):
    """The method's state that outlasts the run."""

    warm: bool
    unit: str
    count: int
    before: int


RunPart = TypedDict(  # The trained part that drafted.
    "RunPart",
    {
        "kind": "str",
        "from": "str",
        "format": "str",
        "title": "str",
        "fingerprint": "str",
        "features": "list[int]",
        "offset": "int",
        "draft_vocab": "int",
        "acceptance": "float",
        "verifier": "str",
        "warnings": "list[str]",
        "training": "RunTraining",
    },
    total=False,
)


class RunTraining(TypedDict, total=False):
    """The training of a part."""

    tokens: float
    seconds: float
    acceptance: float
    top1: float


class RunImported(TypedDict, total=False):
    """The source that the run was read from."""

    source: Required[str]
    title: Required[str]
    said: Required[dict[str, Any]]
    notes: Required[list[str]]
    warnings: list[str]
    text: str
    served: str
    totals: dict[str, Any]


class RunSource(TypedDict, total=False):
    """The foreign decoding that was recorded."""

    what: Required[str]
    notes: Required[list[str]]


class RunRedrafted(TypedDict, total=False):
    """The drafts that were made again, beside the server's."""

    method: str
    params: dict[str, Value]
    compared: int
    differing: int
    longer: int


class RunProcessing(TypedDict, total=False):
    """The logits processors of a run."""

    settings: Required[dict[str, Any]]
    extra: Required[list[str]]
    names: Required[list[str]]


class RunGrammar(TypedDict, total=False):
    """The form that an answer had to have."""

    kind: Required[str]
    text: Required[str]
    drafts: Required[str]
    prefix: Required[int]
