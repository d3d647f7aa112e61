"""``python -m specviz``: the command line, where the scripts of an environment are not on the path."""

import sys

from .cli import main

sys.exit(main())
