"""The shapes that models grow to."""

from __future__ import annotations

from dataclasses import dataclass

from decoders.errors import UserError


@dataclass(frozen=True, slots=True)
class Shape:
    """Where a model grows to; the vocabulary stays. ``dtype`` is what its weights are stored in by default."""

    name: str
    hidden: int
    layers: int
    heads: int
    kv_heads: int
    head_dim: int
    mlp: int
    dtype: str = "float32"

    def parameters(self, vocab: int, tied: bool) -> int:
        """Parameters of a Llama of this shape, biases apart."""
        attention = self.hidden * self.head_dim * 2 * (self.heads + self.kv_heads)
        layer = attention + 3 * self.hidden * self.mlp + 2 * self.hidden
        return self.layers * layer + self.hidden + vocab * self.hidden * (1 if tied else 2)


SHAPES = {
    shape.name: shape
    for shape in (
        Shape("103m", hidden=1024, layers=8, heads=8, kv_heads=8, head_dim=128, mlp=2752),
        # those of Llama 3.2 1B and Llama 2 7B
        Shape("1b", hidden=2048, layers=16, heads=32, kv_heads=8, head_dim=64, mlp=8192, dtype="float16"),
        Shape("7b", hidden=4096, layers=32, heads=32, kv_heads=32, head_dim=128, mlp=11008, dtype="float16"),
    )
}


def shape_of(shape: str | Shape) -> Shape:
    """A shape by name; UserError lists the names."""
    if isinstance(shape, Shape):
        return shape
    if shape not in SHAPES:
        raise UserError(f"unknown size {shape!r}: models grow to {', '.join(SHAPES)}")
    return SHAPES[shape]
