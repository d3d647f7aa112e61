"""A CUDA graph that is none: a function's operations are recorded with their very tensors, and replayed on the same
memory.

What Python computed meanwhile is baked in, as in a graph, and a value that is read from a tensor is refused. So a
number that should have been data is seen, which a graph that calls the function again would hide.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

from decoders.model.engines.graphs import GraphForward

READS = {
    "_local_scalar_dense", "item", "is_nonzero", "equal", "nonzero", "masked_select", "_unique2", "unique_dim",
}  # fmt: skip


class Tape(TorchDispatchMode):
    """Stands for ``decoders.model.engines.graphs.Graph``. Graphs share their memory: where ``spoils`` is set, a replay
    leaves no number of the tape that was replayed before it.
    """

    spoils = False
    last: Tape | None = None

    def __init__(self, function: Callable[[], Any], pool: Any = None) -> None:
        super().__init__()
        self.operations = list[tuple[Any, Any, Any, list[Tensor] | None]]()
        function()  # what is prepared in a first call is not captured
        with self:
            self.result = function()

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        name = func._schema.name.split("::")[1]
        if name in READS:
            raise RuntimeError(f"{name} cannot be captured")
        out = func(*args, **kwargs)
        results = [tensor for tensor in tree_leaves(out) if isinstance(tensor, Tensor)]
        known = {storage(tensor) for tensor in tree_leaves((args, kwargs)) if isinstance(tensor, Tensor)}
        is_new = any(storage(tensor) not in known for tensor in results)
        writes = any(argument.alias_info is not None and argument.alias_info.is_write for argument in arguments(func))
        if is_new or writes:  # a view is the same memory
            self.operations.append((func, args, kwargs, results if is_new else None))
        return out

    def replay(self) -> Any:
        if Tape.spoils and Tape.last is not None and Tape.last is not self:
            for tensor in Tape.last.memory():
                tensor.fill_(float("nan") if tensor.is_floating_point() else 1)
        Tape.last = self
        for func, args, kwargs, results in self.operations:
            new = func(*args, **kwargs)
            if results is not None:
                tensors = [tensor for tensor in tree_leaves(new) if isinstance(tensor, Tensor)]
                for old, tensor in zip(results, tensors, strict=True):
                    old.copy_(tensor)
        return self.result

    def memory(self) -> Iterator[Tensor]:
        """All that a replay computes anew."""
        for _, _, _, results in self.operations:
            yield from (tensor for tensor in results or () if not tensor.is_mkldnn)


def arguments(func: Any) -> Any:
    return func._schema.arguments


def storage(tensor: Tensor) -> int:
    """The address of a tensor's memory: of its numbers on the host, where the device is simulated."""
    host = getattr(tensor, "host", tensor)
    return id(host) if host.is_mkldnn else host.untyped_storage().data_ptr()


class TapeForward(GraphForward):
    """Captured forwards of a target on a CPU; what would be compiled is traced, its values baked in."""

    graph = Tape
    compile = staticmethod(lambda traced: traced)
