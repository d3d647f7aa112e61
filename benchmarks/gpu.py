"""The checks on a GPU, in about ten minutes: ``python -m benchmarks.gpu``.

Each part is a process of its own, as a fault of the device ends all that a process does there. Those that time nothing
run first, side by side: attention alone, every method, CUDA graphs, trainings; then times and sizes, one by one. A
table is printed; the exit code is 1 where a line says FAIL. It needs torch, transformers, numpy, safetensors and
tokenizers, no more. ``--part NAME`` asks one part, ``--out FOLDER`` keeps what each says, its errors whole, and
``--rehearse`` asks all of them on the CPU with toy sizes, so that the script itself is tried.
"""

from __future__ import annotations

import argparse
import importlib.util
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
import traceback
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from typing import Any

from benchmarks import parser_of

ROOT = Path(__file__).resolve().parent.parent
HOME = Path(tempfile.gettempdir()) / "specviz-gpu"
UNTYPED = Path(__file__).with_name("untyped")
MARK = "row: "  # what a part says of itself, among what else is printed
TEXT = "Copy this: the old lamp stood on the old table near the old window. Repeat it: the old lamp stood on the old"
ENGINES = ("eager", "graph", "compiled")  # of Machine.by
Row = tuple[str, str, str]  # what, how much, and ok, FAIL or nothing


class Machine:
    """The device, and how large things are on it."""

    def __init__(self, rehearse: bool) -> None:
        import torch

        self.rehearse = rehearse
        self.device = torch.device("cpu" if rehearse else "cuda")
        self.tokens = 12 if rehearse else 64
        self.contexts = (64, 96) if rehearse else (8_000, 32_000)
        self.longest = 160 if rehearse else 128_000
        self.rows = (1, 4) if rehearse else (1, 2, 4, 8, 16, 32, 64)

    def load_bundled(self, dtype: str, engine: str = "eager") -> Any:
        from decoders import load_target

        return self.by(engine, load_target("bundled", dtype=dtype, device=str(self.device), engine="eager"))

    def by(self, engine: str, target: Any) -> Any:
        """The target with another engine; in a rehearsal graphs are emulated. "compiled": graphs of its layers as they
        are compiled, where that is possible and they give the same.
        """
        from decoders.model.engines.engines import Engines

        engines = target.engines = Engines(target, "eager" if self.rehearse else engine.replace("compiled", "graph"))
        if engine != "eager" and self.rehearse:
            from tests.tape import TapeForward

            engines.engine, engines.static = "graph", TapeForward(target)
        if engine == "compiled" and engines.graphs is not None:
            engines.graphs.keeps_slower = True
            engines.prepare()
        return target

    def large(self) -> Any:
        """Llama-3.1-8B's shape with random weights, made where it runs: the model."""
        import torch
        from transformers import AutoModelForCausalLM, LlamaConfig

        sizes = (64, 128, 2, 4, 2, 320) if self.rehearse else (4096, 14336, 32, 32, 8, 128_256)
        hidden, mlp, layers, heads, kv_heads, vocab = sizes
        config = LlamaConfig(
            hidden_size=hidden, intermediate_size=mlp, num_hidden_layers=layers, num_attention_heads=heads,
            num_key_value_heads=kv_heads, vocab_size=vocab, max_position_embeddings=131_072, eos_token_id=None,
            pad_token_id=None,
        )  # fmt: skip
        with self.device:
            return AutoModelForCausalLM.from_config(config, dtype=torch.bfloat16)

    def peak(self) -> float:
        """Most GB taken since it was last asked."""
        import torch

        if self.device.type != "cuda":
            return 0.0
        taken = torch.cuda.max_memory_allocated(self.device) / 1e9
        torch.cuda.reset_peak_memory_stats(self.device)
        return taken

    def milliseconds(self, call: Callable[[], Any], times: int = 21, warm: int = 2) -> float:
        """Of one call: the median, each waited for, behind ``warm`` others."""
        from decoders.model.state.transfer import wait

        taken = list[float]()
        for _ in range(warm + (1 if self.rehearse else times)):
            wait(self.device)
            started = time.perf_counter()
            call()
            wait(self.device)
            taken.append((time.perf_counter() - started) * 1e3)
        return statistics.median(taken[warm:])


def prompt_of(count: int, vocab: int) -> Any:
    """A text that repeats itself, of ids that any vocabulary has."""
    from decoders import Prompt

    once = [5 + (7 * i * i + i // 3) % min(200, vocab - 6) for i in range(97)]
    return Prompt.from_ids((once * (count // len(once) + 1))[:count])


def usable(target: Any) -> list[str]:
    """Methods that have all they need for a target, plain first."""
    from decoders import methods

    return [name for name, method in methods().items() if method.missing(target) is None]


def check(what: str, call: Callable[[], tuple[str, bool]]) -> Row:
    """The row of a check; one that fails says why, and the next ones run. A fault of the device ends the part."""
    try:
        said, good = call()
    except Exception as error:
        traceback.print_exc()
        if "CUDA" in str(error):
            raise
        return what, f"{type(error).__name__}: {error}".splitlines()[0][:120], verdict(False)
    return what, said, verdict(good)


# --- the parts


def versions(machine: Machine) -> Iterator[Row]:
    """Versions, the device, and flags of torch."""
    import torch
    import transformers

    yield "torch, transformers", f"{torch.__version__}, {transformers.__version__}", ""
    if machine.device.type == "cuda":
        free, whole = torch.cuda.mem_get_info()
        yield "device", f"{torch.cuda.get_device_name()}, {free / 1e9:.0f} of {whole / 1e9:.0f} GB free", ""
        yield "CUDA, cuDNN", f"{torch.version.cuda}, {torch.backends.cudnn.version()}", ""
    machine.load_bundled("float32")
    cudnn = torch.backends.cuda.cudnn_sdp_enabled()
    yield "cuDNN's attention is off once a target is open", str(not cudnn), verdict(machine.rehearse or not cudnn)


def attention(machine: Machine, cudnn: bool) -> Iterator[Row]:
    """Masks of every length against attention in fp64, grouped and not."""
    import torch
    import torch.nn.functional as F

    from decoders.model.state.attention import Masks, tree_attention

    torch.backends.cuda.enable_cudnn_sdp(cudnn)
    worst, tried = 0.0, 0
    for dtype in (torch.bfloat16, torch.float32):
        masks = Masks(dtype, machine.device)
        for kv_heads in (8, 2):
            for length in range(61, 65 if machine.rehearse else 95):
                for rows in (1, 2, 7, 8, 17):
                    shape = torch.randn(3, 1, 8, length + rows, 64, device=machine.device, dtype=dtype)
                    query, key, value = shape[0, :, :, -rows:], shape[1, :, :kv_heads], shape[2, :, :kv_heads]
                    out, _ = tree_attention(torch.nn.Module(), query, key, value, masks.chain(length, rows))
                    many = [x.repeat_interleave(8 // kv_heads, 1).double() for x in (key, value)]
                    mask = masks.chain(length, rows).double()
                    exact = F.scaled_dot_product_attention(query.double(), *many, attn_mask=mask).transpose(1, 2)
                    worst, tried = max(worst, float((out - exact).abs().max())), tried + 1
    yield f"attention of {tried} shapes, cuDNN {'on' if cudnn else 'off'}", f"off by {worst:.4f}", verdict(worst < 0.05)


def half(machine: Machine) -> Iterator[Row]:
    """Every method in half precision, behind prompts of lengths 0 and 1 modulo 8."""
    from decoders import generate

    target = machine.load_bundled("bfloat16")
    ids = target.tokenizer(TEXT)["input_ids"]
    lengths = [len(ids) - len(ids) % 8 - 8 + more for more in (0, 1)]

    def write(name: str) -> tuple[str, bool]:
        outputs = [generate(target, prompt_from(ids[:n]), name, max_new_tokens=machine.tokens) for n in lengths]
        return f"{[len(tokens) for tokens in outputs]} tokens", all(outputs)

    yield from (check(f"bf16 {name}", partial(write, name)) for name in usable(target))


def exact(machine: Machine) -> Iterator[Row]:
    """In fp32 every lossless method writes what plain decoding writes, and what the CPU writes; traced, too."""
    from decoders import generate, load_target, methods, record

    target, here = machine.load_bundled("float32"), load_target("bundled", device="cpu")
    prompt = prompt_from(target.tokenizer(TEXT)["input_ids"])
    plain, host = (generate(one, prompt, max_new_tokens=machine.tokens) for one in (target, here))
    alike = sum(a == b for a, b in zip(plain, host, strict=False))
    yield "fp32 plain = the CPU's", f"{alike} of {len(host)} tokens", verdict(plain == host)

    def write(name: str) -> tuple[str, bool]:
        tokens = generate(target, prompt, name, max_new_tokens=machine.tokens)
        trace = record(target, prompt, name, max_new_tokens=machine.tokens)
        same = trace.output_ids == tokens and (tokens == plain or not methods()[name].lossless)
        return f"{trace.run['metrics']['tokens_per_step']:.2f} tokens per step", same

    yield from (check(f"fp32 {name} = plain, traced", partial(write, name)) for name in usable(target))


def graphs(machine: Machine) -> Iterator[Row]:
    """Every lossless method through CUDA graphs, in fp32, writes and accepts what it does without them: twice in one
    process, and the second run captures nothing.
    """
    from decoders import generate, methods, record

    target, stock = machine.load_bundled("float32", "compiled"), machine.load_bundled("float32")
    prompt = prompt_from(target.tokenizer(TEXT)["input_ids"])
    plain = generate(stock, prompt, max_new_tokens=machine.tokens)

    def write(name: str) -> tuple[str, bool]:
        def steps(target: Any) -> tuple[list[int], list[int]]:
            trace = record(target, prompt, name, max_new_tokens=machine.tokens)
            return trace.output_ids, trace.tables["steps"]["accepted"]

        expected, static, captures = steps(stock), target.engines.graphs, list[int]()
        same = expected[0] == plain or not methods()[name].lossless
        for _ in range(2):
            before = static.captures
            same = steps(target) == expected and same
            captures.append(static.captures - before)
        said = f"{len(expected[0])} tokens in {len(expected[1])} steps, captured {captures[0]}, then {captures[1]}"
        return said, same and captures[1] == 0

    yield from (check(f"fp32 graphs, {name} = without", partial(write, name)) for name in usable(target))
    failed = target.engines.graphs.failed
    yield "captures that failed", f"{len(failed)}", verdict(not failed)


def two_parts(machine: Machine) -> Iterator[Row]:
    """Attention of 8 rows of 8B's shape behind a mask and in two parts, as each is captured, and where it splits."""
    from types import SimpleNamespace

    import torch

    from decoders.model.engines import split_from
    from decoders.model.engines.graphs import Graph
    from decoders.model.state.two_parts import can_split

    graph: Any = Graph
    if machine.rehearse:
        from tests.tape import Tape as graph
    shape = SimpleNamespace(heads=32, kv_heads=8, head_dim=128)
    target = SimpleNamespace(shape=shape, device=machine.device, dtype=torch.bfloat16)
    reason = can_split(machine.device, target.dtype, shape.head_dim)
    if reason is not None:
        yield "attention in two parts", reason, ""
        return
    for rows in split_from.SIZES[: 1 if machine.rehearse else None]:
        masked, parts = split_from.measure_both(target, rows, graph)
        yield f"attention of 8 rows in a store of {rows:,}", f"masked {masked:.3f} ms, in two parts {parts:.3f}", ""


def steps(machine: Machine) -> Iterator[Row]:
    """A plain step, and one of a chain of 8, by engine: of the first run, with what it captures, and of the fifth."""
    from decoders.engine.decoding import Decoding

    for engine in ENGINES:
        started = time.perf_counter()
        target = machine.load_bundled("bfloat16", engine)
        if engine == "compiled":
            taken, reason = target.engines.static.takes_compiled, target.engines.static.wait()
            yield "layers compiled", f"{time.perf_counter() - started:.0f} s, {reason or 'as without'}", verdict(taken)
        prompt = prompt_from(target.tokenizer(TEXT)["input_ids"])
        for name in ("plain", "pld", "eagle3", "glide"):
            if name not in usable(target):
                continue
            taken = []
            for _ in range(2 if machine.rehearse else 5):
                run = Decoding.of(target, prompt, name, max_new_tokens=machine.tokens, stop_ids=())
                run.prefill()
                started = time.perf_counter()
                count = sum(1 for _ in run)  # the tokens are read, so nothing is left to wait for
                taken.append((time.perf_counter() - started) * 1e3 / count)
                del run
            yield f"a step of {name}, {engine}", f"{taken[-1]:.2f} ms, of the first run {taken[0]:.2f}", ""


def clocks(machine: Machine) -> Iterator[Row]:
    """Times that steps tell, against the time that passed."""
    from decoders.engine.decoding import Decoding
    from decoders.model.state.transfer import wait

    target = machine.load_bundled("bfloat16")
    prompt = prompt_from(target.tokenizer(TEXT)["input_ids"])

    def share_told(name: str) -> tuple[str, bool]:
        run = Decoding.of(target, prompt, name, max_new_tokens=machine.tokens)
        list(Decoding.of(target, prompt, name, max_new_tokens=8))
        run.prefill()
        started = time.perf_counter()
        times = [(step.draft_ms, step.verify_ms, step.commit_ms) for step in run]
        wait(machine.device)
        passed = (time.perf_counter() - started) * 1e3
        share = sum(float(span) for step in times for span in step) / passed
        said = f"{share:.2f}, {passed / max(1, len(times)):.1f} ms a step"
        return said, machine.rehearse or 0.8 < share < 1.1

    yield from (check(f"told ÷ passed, {name}", partial(share_told, name)) for name in usable(target))


def sizes(machine: Machine) -> Iterator[Row]:
    """8B's shape: memory against its estimate, forwards of 1 to 64 rows and a tree behind two contexts, and how near
    plain decoding comes to what memory allows, by engine.
    """
    import torch

    from decoders.draft.draft import Draft
    from decoders.draft.needs import Needs
    from decoders.draft.tree import DraftTree
    from decoders.engine.decoding import Decoding
    from decoders.model.state.room import RunSize
    from decoders.model.target_model.target import READ_ROWS, SPARE_ROWS, Target

    model = machine.large()
    target = Target(model, None, "8B shape")
    weights = sum(parameter.nbytes for parameter in target.model.parameters())
    yield "weights", f"{weights / 1e9:.1f} GB, {machine.peak():.1f} at most while they were made", ""

    def read_bandwidth() -> float:
        block = torch.empty(1 << (20 if machine.rehearse else 32), dtype=torch.uint8, device=machine.device)
        other = torch.empty_like(block)
        return 2 * block.nbytes / machine.milliseconds(lambda: other.copy_(block), 6) * 1e3

    def forwards(context: int) -> Iterator[Row]:  # a function: its session's memory is free before the next one's
        machine.peak()
        session = target.session(Needs(), context + 80)
        prompt = prompt_of(context, target.info["vocab"])
        taken = machine.milliseconds(lambda: session.prefill(prompt), 2)
        rows = target.rows_at_once(max(0, context + 80 - READ_ROWS), context + 80)
        need = RunSize.of(target.shape, target.dtype, Needs(), context + 80, SPARE_ROWS, rows).bytes / 1e9
        used = machine.peak() - weights / 1e9
        fits = verdict(machine.rehearse or used < 1.15 * need)
        yield f"{context:,} tokens read", f"{taken / 1e3:.2f} s, {used:.2f} GB (estimate {need:.2f})", fits
        chains = [(str(n), DraftTree.chain(7, [8] * (n - 1))) for n in machine.rows]
        wide = DraftTree((7, *range(8, 39)), (-1, *((node - 1) // 2 for node in range(1, 32))))
        for label, tree in (*chains, ("a tree of 32", wide)):
            taken = machine.milliseconds(lambda: session.score(Draft(tree)))  # noqa: B023
            share = f", {weights / bandwidth * 1e3 / taken:.2f} of the memory limit" if label == "1" else ""
            yield f"forward of {label} rows behind {context:,}", f"{taken:.2f} ms{share}", ""

    def plain(engine: str) -> tuple[str, bool]:
        faster = machine.by(engine, target)
        run = Decoding.of(faster, prompt_of(machine.contexts[0], faster.info["vocab"]), max_new_tokens=machine.tokens)
        run.prefill()
        machine.peak()
        next(iter(run))
        started, count = time.perf_counter(), sum(1 for _ in run)
        each = (time.perf_counter() - started) * 1e3 / count
        limit = weights / bandwidth * 1e3
        return f"{each:.2f} ms, {limit / each:.2f} of the memory limit, {machine.peak():.2f} GB at most", True

    bandwidth = read_bandwidth()
    yield "memory bandwidth", f"{bandwidth / 1e12:.2f} TB/s", ""
    for engine in ENGINES:
        yield check(f"a plain step behind {machine.contexts[0]:,}, {engine}", partial(plain, engine))
        for context in machine.contexts:
            for what, value, good in forwards(context):
                yield f"{what}, {engine}", value, good


def long(machine: Machine) -> Iterator[Row]:
    """128,000 tokens: what they take, and that a method that reads too much is refused."""
    from decoders import UserError
    from decoders.engine.decoding import Decoding
    from decoders.model.target_model.target import Target

    target = Target(machine.large(), None, "8B shape")
    prompt = prompt_of(machine.longest - 40, target.info["vocab"])
    for name in ("plain", "adapld", "pld+a"):
        machine.peak()
        try:
            run = Decoding.of(target, prompt, name, max_new_tokens=16)
            run.prefill()
        except UserError as error:
            yield f"{machine.longest:,} tokens, {name}", f"refused: {error}"[:100], verdict(name == "pld+a")
            continue
        started, written = time.perf_counter(), sum(len(step.emitted) for step in run)
        each = (time.perf_counter() - started) * 1e3 / written
        said = f"{run.prefill_ms / 1e3:.1f} s to read, {each:.1f} ms per token, {machine.peak():.1f} GB at most"
        yield f"{machine.longest:,} tokens, {name}", said, ""


def speed(machine: Machine) -> Iterator[Row]:
    """Wall speedup against tokens per step, and what recording costs: plain, the method and its recording in turn. No
    method gains more than its tokens per step.
    """
    from decoders import record
    from decoders.sweep.contenders import timer

    target = machine.load_bundled("bfloat16", "graph")
    prompt, most = prompt_from(target.tokenizer(TEXT)["input_ids"]), 2 * machine.tokens

    plain = timer(target, "plain", {}, most)

    def speedup(name: str) -> tuple[str, bool]:
        run = timer(target, name, {}, most)
        sample, alone = run(prompt).sample, plain(prompt).sample
        recorded = partial(record, target, prompt, name, max_new_tokens=most)
        calls = partial(plain, prompt), partial(run, prompt), recorded
        count = 1 if machine.rehearse else 4
        rounds = [[machine.milliseconds(call, times=1, warm=0) for call in calls] for _ in range(count)]
        slow, taken, traced = (statistics.median(some) for some in zip(*rounds[-3:], strict=True))  # one warms
        per_step = sample.tokens / max(1, sample.steps or 1)
        gain = slow / alone.tokens / (taken / sample.tokens)
        said = f"{gain:.2f}× at {per_step:.2f} tokens per step ({gain / per_step:.2f})"
        return f"{said}, traced ÷ not {traced / taken:.2f}", machine.rehearse or gain < 1.05 * per_step

    yield from (check(f"wall speedup, {name}", partial(speedup, name)) for name in usable(target)[1:])


def training(machine: Machine) -> Iterator[Row]:
    """Steps of every training, all at once."""
    from decoders.method.part import kinds

    count, batch = (3, 1024) if machine.rehearse else (60, 8192)
    with tempfile.TemporaryDirectory() as folder:
        running = dict[str, tuple[Path, subprocess.Popen[bytes]]]()
        for kind in (name for name, kind in kinds().items() if kind.training is not None):
            out = Path(folder, kind)
            command = [sys.executable, "-m", "specviz.cli", "train", kind, "--model", "bundled", "--steps", str(count)]
            command += ["--batch-tokens", str(batch), "--device", str(machine.device), "--out", str(out), "--apart"]
            with out.with_suffix(".txt").open("wb") as said:
                running[kind] = out, subprocess.Popen(command, stdout=said, stderr=said, cwd=ROOT)
        for kind, (out, child) in running.items():
            code = child.wait()
            lines = out.with_suffix(".txt").read_text("utf-8", "replace").strip()
            if code:
                print(lines, file=sys.stderr)
            log = (out / "log.jsonl").read_text().splitlines() if not code else []
            last = json.loads(log[-1]) if log else {}
            rate = f"{last.get('tokens_per_second', 0):,} tokens/s, loss {last.get('loss')}"
            yield f"{count} steps of train {kind}", rate if log else lines[-120:].splitlines()[-1], verdict(not code)


PARTS: dict[str, Callable[[Machine], Iterator[Row]]] = {
    "versions": versions,
    "attention": lambda machine: attention(machine, False),
    "attention-cudnn": lambda machine: attention(machine, True),
    "half": half, "exact": exact, "graphs": graphs, "training": training,
    "two-parts": two_parts, "steps": steps, "clocks": clocks, "sizes": sizes, "speed": speed, "long": long,
}  # fmt: skip
UNTIMED = ("versions", "attention", "attention-cudnn", "half", "exact", "graphs", "training")  # these run side by side
BLOCKING = ("attention", "attention-cudnn", "half")  # an error is told where it happens


def verdict(good: bool) -> str:
    return "ok" if good else "FAIL"


def prompt_from(ids: list[int]) -> Any:
    from decoders.prompt.prompt import Prompt, Segment

    end = len(ids) - 6
    parts = Segment("instruction", 0, 4), Segment("context", 4, end, 0), Segment("question", end, len(ids))
    return Prompt(tuple(ids), parts)


def ask(part: str, rehearse: bool, out: Path | None = None) -> tuple[list[Row], float]:
    """Rows of one part, in a process of its own, and its seconds. It goes without jaxtyping, whose annotations are
    plain objects then, and without platformdirs, as what it keeps stays in a folder of its own.
    """
    more = {"SPECVIZ_HOME": os.environ.get("SPECVIZ_HOME") or str(HOME)}
    if part in BLOCKING:
        more["CUDA_LAUNCH_BLOCKING"] = "1"
    if importlib.util.find_spec("jaxtyping") is None:
        more["PYTHONPATH"] = os.pathsep.join(filter(None, [str(UNTYPED), os.environ.get("PYTHONPATH")]))
    command = [sys.executable, "-m", "benchmarks.gpu", "--part", part, "--inside", *["--rehearse"] * rehearse]
    started = time.perf_counter()
    done = subprocess.run(command, capture_output=True, text=True, cwd=ROOT, env={**os.environ, **more}, check=False)
    rows = [tuple(json.loads(line[len(MARK) :])) for line in done.stdout.splitlines() if line.startswith(MARK)]
    if done.returncode:
        rows.append((part, ((done.stderr.strip().splitlines() or ["?"])[-1])[:160], "FAIL"))
    if out is not None:
        out.mkdir(parents=True, exist_ok=True)
        (out / f"{part}.txt").write_text(f"{done.stdout}\n{done.stderr}", "utf-8")
    return rows, time.perf_counter() - started


def main() -> int:
    parser = parser_of("gpu", __doc__)
    parser.add_argument("--part", choices=PARTS, action="append", help="this part alone (again for more)")
    parser.add_argument("--rehearse", action="store_true", help="on the CPU, with toy sizes")
    parser.add_argument("--out", type=Path, metavar="FOLDER", help="where what each part says is kept")
    parser.add_argument("--inside", action="store_true", help=argparse.SUPPRESS)
    chosen = parser.parse_args()
    if chosen.inside:
        for row in PARTS[chosen.part[0]](Machine(chosen.rehearse)):
            print(MARK + json.dumps(row), flush=True)
        return 0
    import torch

    if not chosen.rehearse and not torch.cuda.is_available():
        print("torch sees no GPU here; --rehearse tries the script on the CPU", file=sys.stderr)
        return 2
    failed, parts = False, [part for part in PARTS if part in (chosen.part or PARTS)]
    with ThreadPoolExecutor(1 if chosen.rehearse else len(UNTIMED)) as pool:
        asked = {part: pool.submit(ask, part, chosen.rehearse, chosen.out) for part in parts if part in UNTIMED}
        for part in parts:
            rows, seconds = asked[part].result() if part in asked else ask(part, chosen.rehearse, chosen.out)
            print(f"{part} ({seconds:.0f} s)")
            for what, value, good in rows:
                print(f"  {what:<48} {value}{'  ' + good if good else ''}", flush=True)
                failed = failed or good == "FAIL"
    return int(failed)


if __name__ == "__main__":
    raise SystemExit(main())
