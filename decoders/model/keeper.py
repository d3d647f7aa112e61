"""Runs a command that whoever started this can have stand still: ``python keeper.py COMMAND …``.

The lines "stop" and "go" on stdin stop the command, with all that it started, and let it go on (not on Windows, where
it just goes on). At stdin's end, so also when whoever started this is killed, all of them are killed: a process that
stands still cannot see to that itself.
"""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import threading

POSIX = os.name == "posix"


def main() -> None:
    worker = subprocess.Popen(sys.argv[1:], stdin=subprocess.DEVNULL, process_group=0 if POSIX else None)

    def tell(name: str) -> None:
        """Send a signal to the command and to all that it started."""
        with contextlib.suppress(OSError):
            if POSIX:
                os.killpg(worker.pid, getattr(signal, name))
            elif name == "SIGKILL":
                worker.kill()

    def obey() -> None:
        for line in sys.stdin:
            tell({"stop": "SIGSTOP", "go": "SIGCONT"}[line.strip()])
        tell("SIGKILL")

    threading.Thread(target=obey, daemon=True).start()
    worker.wait()
    tell("SIGKILL")  # what it left behind
    os._exit(0)  # past the thread that reads


if __name__ == "__main__":
    main()
