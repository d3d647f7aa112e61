"""Servers' logs and answers as traces: one source, one file, with an ``IMPORTER`` that ``extra.py`` names.

>>> from decoders.importers import open_log
>>> opened = open_log(b'{"choices": [{"text": "Hi"}]}', "answer.json")
>>> opened.importer, len(opened.traces)
('openai', 1)
"""
