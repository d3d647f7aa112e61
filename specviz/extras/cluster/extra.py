"""Clusters: workers of sweeps and of the app that are Ray's actors."""

from decoders.extra import Extra

EXTRA = Extra(
    name="cluster",
    about="Clusters: workers of sweeps, and backends of the app, that are Ray's actors",
    workers=(".ray_actors",),
    settings={"RAY_ADDRESS": "the Ray cluster that is joined where no address is given"},
)
