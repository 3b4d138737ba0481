"""Fields of a frozen dataclass whose value may be made when it is first asked for."""

from collections.abc import Callable
from typing import Any, TypeVar

_Class = TypeVar("_Class", bound=type)


class Later:
    """Stands for a value.

    Args:
        make: Gives it.
    """

    def __init__(self, make: Callable[[], Any]):
        self.make = make


def read_late(*names: str) -> Callable[[_Class], _Class]:
    """For dataclasses: these fields may be given a `Later`; whoever reads them finds the value.

    Args:
        *names: Of the fields.

    Example:
        >>> import dataclasses
        >>> @read_late("text")
        ... @dataclasses.dataclass(frozen=True)
        ... class Book:
        ...     text: str
        >>> Book(Later(lambda: "once upon a time")).text
        'once upon a time'
    """

    def changed(kind: _Class) -> _Class:
        for name in names:
            setattr(kind, name, _Late(name))
        return kind

    return changed


class _Late:
    """Makes a value when it is read, once.

    Args:
        name: Of the field.
    """

    def __init__(self, name: str):
        self.name = name

    def __get__(self, instance: Any, owner: type | None = None) -> Any:
        if instance is None:
            return self
        value = instance.__dict__[self.name]
        if isinstance(value, Later):
            value = instance.__dict__[self.name] = value.make()
        return value

    def __set__(self, instance: Any, value: Any) -> None:
        instance.__dict__[self.name] = value
