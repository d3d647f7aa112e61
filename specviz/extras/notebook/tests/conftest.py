"""The browser's fixtures, for this folder's tests."""

from tests.browser.conftest import chromium, context, page, stranger, user  # noqa: F401
