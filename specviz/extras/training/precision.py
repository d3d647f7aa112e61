"""The precision of matrix products that a device learns fastest in."""

from __future__ import annotations

import torch

INSTRUCTIONS = ("avx512_bf16", "amx_bf16")  # of processors that multiply bf16 matrices themselves


def has_bf16_products(device: torch.device) -> bool:
    """True where a processor or GPU multiplies bf16 matrices by instructions of its own, so that a training in bf16 is
    much faster than in fp32; False of other devices, and of processors that would convert every number first.
    """
    if device.type == "cuda":
        return torch.cuda.is_bf16_supported()
    if device.type != "cpu" or not torch.backends.mkldnn.is_available():
        return False
    able = getattr(torch.cpu, "get_capabilities", dict)()  # older torch tells of none
    return any(able.get(name, False) for name in INSTRUCTIONS)
