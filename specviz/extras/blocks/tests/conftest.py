"""Tests of trainings are collected where something trains."""

from importlib.util import find_spec

collect_ignore = [] if find_spec("specviz.extras.training") else ["test_train_blocks.py"]
