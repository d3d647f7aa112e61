"""Prints the settings with which tsc checks the browser's modules, the core's and the annexes': ``tsc -p FILE``."""

import json
from pathlib import Path

from specviz.views import web

tops = [str(top) for top in web.tops()]
settings = {
    "extends": str(web.FOLDER / "tsconfig.json"),
    "compilerOptions": {"paths": {"specviz/*": [f"{top}/*" for top in tops]}},
    "include": [f"{top}/**/*{kind}" for top in tops for kind in (".js", ".d.ts")],
    "exclude": [str(Path(web.FOLDER) / "vendor" / "*.js")],
}
print(json.dumps(settings))
