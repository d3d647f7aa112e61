"""Facts on this machine: its processor, and its C++ compiler."""

from __future__ import annotations

import os
import platform
import shutil
from pathlib import Path

import torch


def cpu_fact(name: str) -> str:
    """A fact on the first processor, as Linux lists it; "" on another system."""
    try:
        cpu_lines = Path("/proc/cpuinfo").read_text(encoding="utf-8", errors="replace").splitlines()
    except OSError:
        return ""
    return next((line.partition(":")[2].strip() for line in cpu_lines if line.startswith(name)), "")


def processor_name() -> str:
    """The processor by its maker's name."""
    return cpu_fact("model name") or platform.processor() or platform.machine()


def machine() -> str:
    """Facts besides its shape that the speed of a linear layer depends on."""
    return f"{processor_name()}, {torch.backends.cpu.get_cpu_capability()}, torch {torch.__version__}"


def compiler() -> str | None:
    """The C++ compiler, as torch's inductor looks for it; None where there is none."""
    cxx = os.environ.get("CXX")
    return next((path for name in ([cxx] if cxx else ["g++", "clang++"]) if (path := shutil.which(name))), None)
