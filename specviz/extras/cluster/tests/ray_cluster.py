"""A Ray cluster of several nodes on this machine."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any


@contextmanager
def ray_cluster(*cores: int) -> Iterator[Any]:
    """A Ray cluster on this machine: a head and further nodes, each with so many cores."""
    import ray
    from ray.cluster_utils import Cluster

    nodes: list[dict[str, Any]] = [{"object_store_memory": 80 << 20, "num_cpus": count} for count in cores]
    cluster = Cluster(initialize_head=True, head_node_args={"include_dashboard": False, **nodes[0]})
    try:
        for node in nodes[1:]:
            cluster.add_node(**node)
        ray.init(address=cluster.address, log_to_driver=False)
        yield cluster
    finally:
        ray.shutdown()
        cluster.shutdown()
