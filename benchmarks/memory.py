"""A run's peak memory ÷ the weights: ``python -m benchmarks.memory [--model smollm2] [--context 2000]``.

A process of its own opens the model, reads a prompt and decodes. Counted is its resident memory, mapped files included,
less what it was with the libraries imported. A GGUF file is converted before, by another process.
"""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from benchmarks import parser_of
from decoders.model.state.room import gigabytes

TEXT = "The old lamp in the hall of the old house was sold to the city museum, with the letters that lay in it. " * 400


def resident(name: str = "VmRSS") -> int:
    """Bytes of this process in memory, now or (VmHWM) at most."""
    lines = dict(line.split(":", 1) for line in Path("/proc/self/status").read_text("utf-8").splitlines())
    return int(lines[name].split()[0]) << 10


def main() -> int:
    """Print a line per stage, the peak last."""
    parser = parser_of("memory", __doc__)
    parser.add_argument("--model", default="smollm2")
    parser.add_argument("--weights", help="as of specviz")
    parser.add_argument("--method", default="pld")
    parser.add_argument("--context", type=int, default=2000, help="tokens of prompt and answer")
    parser.add_argument("--max-new-tokens", type=int, default=32)
    parser.add_argument("--here", action="store_true", help="in this process")
    args = parser.parse_args()
    if not args.here:
        opened = f"from decoders.model.target_model.load import load_network; load_network({args.model!r})"
        subprocess.run([sys.executable, "-c", opened], check=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        command = [sys.executable, "-m", "benchmarks.memory", *sys.argv[1:], "--here"]
        return subprocess.run(command, check=False).returncode

    import transformers.models.auto.modeling_auto
    import transformers.models.llama.modeling_llama  # noqa: F401

    from decoders import Prompt, load_target
    from decoders.drafters import find_method
    from decoders.engine.decoding import Decoding

    find_method(args.method)
    before = resident()
    target = load_target(args.model, **({"weights": args.weights} if args.weights else {}))
    weights = target.info["parameters"] * 4

    def tell(stage: str, name: str = "VmRSS") -> None:
        taken = resident(name) - before
        print(f"{stage}: {gigabytes(taken)}, {taken / weights:.2f} of the weights in fp32 ({gigabytes(weights)})")

    print(f"{target.name}, libraries: {gigabytes(before)}")
    tell("opened")
    ids = target.tokenizer(TEXT)["input_ids"][: args.context - args.max_new_tokens]
    run = Decoding.of(target, Prompt.from_ids(ids), args.method, max_new_tokens=args.max_new_tokens)
    run.prefill()
    tell(f"{len(ids)} tokens read")
    steps = sum(1 for _ in run)
    tell(f"{args.max_new_tokens} written in {steps} steps")
    tell("peak", "VmHWM")
    return 0


if __name__ == "__main__":
    sys.exit(main())
