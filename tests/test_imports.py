"""While large packages are imported no garbage is looked for; afterwards it is, whatever happened."""

from __future__ import annotations

import gc

import pytest

from decoders.imports import nothing_collected


def test_collecting_goes_on_behind_the_block():
    with pytest.raises(ImportError), nothing_collected():
        assert not gc.isenabled()
        with nothing_collected():
            pass
        assert not gc.isenabled()
        raise ImportError
    assert gc.isenabled()
