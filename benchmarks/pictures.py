"""The pictures of the README and docs/pages.md, from the gallery: ``python -m benchmarks.pictures``.

It needs Chromium. They show the default model as loaded, or no model at all with ``--no-model``.
"""

from __future__ import annotations

from io import BytesIO
from pathlib import Path
from typing import Any

from benchmarks import parser_of
from decoders.folders import ASSETS
from specviz.app import open_desk
from specviz.places import GALLERY
from tests.browser.conftest import FLAGS, found_chromium
from tests.stubs import serving

FOLDER = ASSETS / "screenshots"
LANES = ("plain", "pld", "pld-h", "adapld", "glide-cape")
READY_S = 300.0


def inspect(page: Any, address: str) -> None:
    """The run that the app opens on."""
    page.set_viewport_size({"width": 1280, "height": 800})
    page.goto(address)
    page.wait_for_selector("#sv-run:not([disabled]), .svp-pill[data-state='none']", state="attached")
    page.wait_for_timeout(1500)


def compare(page: Any, address: str) -> None:
    """Five methods on one prompt, at the end of the race."""
    page.set_viewport_size({"width": 1280, "height": 800})
    runs = {path.stem.split("-", 3)[-1]: path.stem for path in GALLERY.glob("*-class-docstring-*")}
    page.goto(f"{address}?tab=compare&lanes={','.join(runs[name] for name in LANES)}")
    page.wait_for_selector(".svc-results canvas, .svc-results svg", state="attached")
    page.wait_for_timeout(6000)


def main() -> None:
    parser = parser_of("pictures", __doc__)
    parser.add_argument("--no-model", action="store_true", help="do not load a model")
    parser.add_argument("--out", type=Path, default=FOLDER, metavar="FOLDER", help="where they go")
    options = parser.parse_args()
    from PIL import Image
    from playwright.sync_api import sync_playwright

    with sync_playwright() as playwright:
        desk = open_desk(trace=next(GALLERY.glob("1-*"))) if options.no_model else open_desk()
        browser = playwright.chromium.launch(executable_path=found_chromium(), args=FLAGS)
        with serving(desk) as port:
            desk.loader.wait(READY_S)
            page = browser.new_page()
            page.set_default_timeout(1000 * READY_S)
            page.add_init_script("localStorage.setItem('specviz-opening', '1')")  # not the race of a first visit
            for picture in (inspect, compare):
                picture(page, f"http://127.0.0.1:{port}/")
                path = options.out / f"{picture.__name__}.webp"
                image = Image.open(BytesIO(page.screenshot())).convert("RGB").quantize(128).convert("RGB")
                image.save(path, lossless=True, quality=100, method=6)
                print(f"{path}: {path.stat().st_size // 1000} kB")
            page.close()
        browser.close()


if __name__ == "__main__":
    main()
