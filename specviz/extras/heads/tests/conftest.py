"""The browser's fixtures, for this folder's tests; tests of trainings are collected where something trains."""

from importlib.util import find_spec

from tests.browser.conftest import chromium, context, page, port, stranger, user  # noqa: F401

TRAINED = ["test_train_heads.py", "test_train_eagle.py", "test_own_heads.py"]
collect_ignore = [] if find_spec("specviz.extras.training") else TRAINED
