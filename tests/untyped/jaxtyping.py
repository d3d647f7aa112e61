"""Array annotations without jaxtyping: each is just ``object``. ``tests.gpu`` puts it before machines that lack it."""


class Float:
    """Stands for the annotation of an array of any kind."""

    def __class_getitem__(cls, shape: object) -> type[object]:
        return object


Bool = Int = Float
