"""Array annotations without jaxtyping, each ``object``; ``benchmarks.gpu`` uses it on machines that lack it."""


class Float:
    """Stands for the annotation of an array of any kind."""

    def __class_getitem__(cls, shape: object) -> type[object]:
        return object


Bool = Int = Float
