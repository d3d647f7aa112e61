"""Tries an installed wheel, outside of the checkout: ``cd ELSEWHERE && PYTHON .ci/installed.py``."""

from __future__ import annotations

import base64
import gzip
import json
import os
import re
import socket
import subprocess
import sys
import tempfile
import time
import urllib.error
import urllib.request
from pathlib import Path
from urllib.parse import urljoin

PROMPT = "Say it twice: the old lamp. the old"
WAIT_S = 120.0


def specviz(*words: str) -> str:
    done = subprocess.run([sys.executable, "-m", "specviz.cli", *words], capture_output=True, text=True)
    assert done.returncode == 0, f"specviz {' '.join(words)}: {done.stdout}{done.stderr}"
    return done.stdout


def fetched(address: str, app: subprocess.Popen[bytes]) -> str:
    """What stands at an address, once the app answers."""
    end = time.monotonic() + WAIT_S
    while True:
        try:
            with urllib.request.urlopen(address) as answer:
                return answer.read().decode()
        except urllib.error.HTTPError:
            raise
        except urllib.error.URLError:
            assert app.poll() is None and time.monotonic() < end, f"{address} was not answered"
            time.sleep(0.1)


def the_app_answers() -> None:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    command = [sys.executable, "-m", "specviz.cli", "app", "--model", "bundled", "--port", str(port)]
    app = subprocess.Popen(command)
    try:
        address = f"http://127.0.0.1:{port}/"
        page = fetched(address, app)
        script = re.search(r'<script src="(\S*web/specviz\.\w+\.js)"', page)
        assert script, "the page names the script that brings its modules"
        assert "specviz/inspect/inspector.js" in fetched(urljoin(address, script[1]), app)
        assert "steps" in fetched(f"{address}api/first", app), "a recorded run of the gallery"
    finally:
        app.terminate()
        app.wait(WAIT_S)


def main() -> None:
    import decoders
    import specviz as package
    from decoders.folders import ASSETS
    from decoders.model.files.catalog import SMOLLM2, shipped_key
    from decoders.parts import find_part, left_out

    here = Path(__file__).resolve().parent.parent
    for file in (decoders.__file__, package.__file__, ASSETS / "terms.txt"):
        assert file and here not in Path(file).resolve().parents and Path(file).is_file(), f"{file} is not the wheel's"
    key = shipped_key(SMOLLM2)
    for kind in (folder.name for folder in (here / "assets" / "smollm2" / "parts").iterdir()):
        assert (find_part(key, kind) is None) == ("specviz parts add" in left_out(key, kind)), kind
    Path("prompt.txt").write_text(PROMPT, "utf-8")
    options = ["--model", "bundled", "--max-new-tokens", "16"]
    files = ["--prompt-file", "prompt.txt", "--out", "a.spectrace"]
    ran = json.loads(specviz("run", "--methods", "glide", *options, *files, "--json"))
    assert ran["method"] == "glide" and ran["tokens"] == 16
    specviz("export", "a.spectrace", "--html", "a.html")
    packed = max(re.findall(r"[A-Za-z0-9+/=]{2000,}", Path("a.html").read_text("utf-8")), key=len)
    assert b"specviz/inspect/inspector.js" in gzip.decompress(base64.b64decode(packed)), "the page brings its modules"
    specviz("figure", "a.spectrace", "-o", "a.pdf")
    assert Path("a.pdf").read_bytes().startswith(b"%PDF")
    assert "every output is identical" in specviz("verify", "--methods", "pld", "medusa", "--limit", "2", *options)
    assert "What drafting is" in specviz("lessons")
    the_app_answers()
    print(f"the wheel works on Python {sys.version.split()[0]}: {ASSETS}")


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as elsewhere:
        os.chdir(elsewhere)
        os.environ |= {"SPECVIZ_HOME": f"{elsewhere}/home", "SPECVIZ_ENGINE": "eager", "HF_HUB_OFFLINE": "1"}
        main()
