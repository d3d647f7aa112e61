"""Facts on this machine: its processor, and its C++ compiler."""

from __future__ import annotations

import os
import platform
import shutil
import subprocess
from pathlib import Path

import torch

NVIDIA_SMI_S = 10  # seconds that its answer is waited for


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


def gpu_facts(index: int = 0) -> str:
    """A GPU by its name, with its driver and its clocks now and at most, as far as ``nvidia-smi`` says them."""
    name = torch.cuda.get_device_name(index)
    asked = ("driver_version", "clocks.sm", "clocks.max.sm", "clocks.mem")
    command = ["nvidia-smi", f"--id={index}", f"--query-gpu={','.join(asked)}", "--format=csv,noheader,nounits"]
    try:
        answer = subprocess.run(command, capture_output=True, text=True, timeout=NVIDIA_SMI_S, check=True).stdout
        driver, clock, highest, memory = (part.strip() for part in answer.strip().split(","))
    except (OSError, ValueError, subprocess.SubprocessError):
        return name
    return f"{name}, driver {driver}, {clock} of {highest} MHz, memory {memory} MHz"


def compiler() -> str | None:
    """The C++ compiler, as torch's inductor looks for it; None where there is none."""
    cxx = os.environ.get("CXX")
    return next((path for name in ([cxx] if cxx else ["g++", "clang++"]) if (path := shutil.which(name))), None)
