"""specviz: see how speculative decoding drafts, accepts and rejects, step by step.

Importing it is cheap: neither torch nor the web framework is loaded until something needs them.
"""

from __future__ import annotations

__version__ = "0.1.0"
