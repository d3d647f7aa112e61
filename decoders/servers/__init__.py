"""Recorders that run inside other servers: every draft and verdict of a request, as a trace file.

They are loaded by the server and import nothing of ``specviz``, nor a library that the server has not.
"""
