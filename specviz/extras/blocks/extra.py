"""The annex's object."""

from decoders.extra import Extra

EXTRA = Extra(
    name="blocks",
    about="Drafters of whole blocks (DFlash, DSpark, DFlash2, P-EAGLE) and layers for multi-token prediction (MTP)",
    uses=("heads",),
    methods=(".dflash", ".dspark", ".dflash2", ".peagle", ".mtp"),
)
