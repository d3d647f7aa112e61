"""specviz in the browser: ``python app.py [--model PATH_OR_ID] [--port N]``."""

from __future__ import annotations

import argparse
import logging
import sys


def main() -> None:
    parser = argparse.ArgumentParser(description="See how speculative decoding drafts, accepts and rejects.")
    parser.add_argument("--model", help="a model folder or a Hub name; default: the bundled model")
    parser.add_argument("--device", help="cpu or cuda (default: cuda where there is one)")
    parser.add_argument("--dtype", help="float32, bfloat16, float16 or float64 (default: by device)")
    parser.add_argument("--drafter", help="a model with the same tokenizer, for SpS (default: the one trained for it)")
    parser.add_argument("--host", default="127.0.0.1", help="address to listen on (default: only this computer)")
    parser.add_argument("--port", type=int, default=7860, help="port to listen on (0: any free one)")
    parser.add_argument("--trace", help="open on this recorded run")
    parser.add_argument("--open", action="store_true", help="open the page in a browser")
    given = parser.parse_args()
    logging.basicConfig(level=logging.INFO, format="%(levelname)s %(name)s: %(message)s")
    from specviz.server import serve

    try:
        serve(
            given.model, given.host, given.port, given.trace, given.open,
            device=given.device, dtype=given.dtype, drafter=given.drafter,
        )  # fmt: skip
    except ValueError as problem:
        sys.exit(f"specviz: {problem}")


if __name__ == "__main__":
    main()
