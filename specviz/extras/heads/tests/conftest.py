"""The browser's fixtures, for this folder's tests; tests that need an annex are collected where it is there."""

from decoders.extra import extras
from tests.browser.conftest import chromium, context, page, port, stranger, user  # noqa: F401

NEEDED = {
    "cpu": ["test_eagle_engines.py"],
    "training": ["test_train_heads.py", "test_train_eagle.py", "test_own_heads.py"],
}
collect_ignore = [file for annex, files in NEEDED.items() if annex not in extras() for file in files]
