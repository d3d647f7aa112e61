"""Figures for papers: a step or a comparison as vectors, one column wide, with all that is needed to cite it.

``sheet`` is the drawing, in points; ``svg`` and ``pdf`` write one and the same sheet. ``step`` and ``comparison`` draw
on it, ``citing`` makes the caption, the command and the BibTeX, ``bundle`` puts everything into one archive.
"""
