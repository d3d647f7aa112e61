"""SAM decoding that may fall back on EAGLE-2, as Spec-Bench runs it: stands in the place of the core's card."""

from __future__ import annotations

from decoders.drafters.sam import with_fallbacks

from .eagle import EAGLE2

METHOD = with_fallbacks({EAGLE2.name: EAGLE2}, "; eagle2: needs an EAGLE head")
