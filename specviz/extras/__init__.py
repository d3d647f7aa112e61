"""Annexes, one folder each: what it brings stands in its ``extra.py``, its code, browser modules, tests and docs beside
it. The core imports none of them: a folder that is deleted is missed by nobody (``.ci/run`` proves it).
"""
