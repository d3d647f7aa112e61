"""The browser's fixtures, for this folder's tests; those of an annex that is not there are left out."""

from decoders.extra import extras
from tests.browser.conftest import chromium, context, page, port, stranger, user  # noqa: F401

collect_ignore = [] if "cpu" in extras() else ["test_eagle_engines.py"]
