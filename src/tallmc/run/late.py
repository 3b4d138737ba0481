"""Fields of a frozen dataclass whose value may be made when it is first asked for."""

from collections.abc import Callable
from typing import Any


class Later:
    """Stands for a value.

    Args:
        make: Gives it.
    """

    def __init__(self, make: Callable[[], Any]):
        self.make = make


class Late:
    """A field that may be given a `Later`; whoever reads it finds the value.

    Args:
        default: If the field is left out; one without must be given.

    Example:
        >>> import dataclasses
        >>> @dataclasses.dataclass(frozen=True)
        ... class Book:
        ...     text: str = Late()
        >>> Book(Later(lambda: "once upon a time")).text
        'once upon a time'
    """

    def __init__(self, *default: Any):
        self._default = default

    def __set_name__(self, owner: type, name: str) -> None:
        self._name = name

    def __get__(self, instance: Any, owner: type | None = None) -> Any:
        if instance is None:  # a dataclass asks for the default
            if not self._default:
                raise AttributeError(self._name)
            return self._default[0]
        value = instance.__dict__[self._name]
        if isinstance(value, Later):
            value = instance.__dict__[self._name] = value.make()
        return value

    def __set__(self, instance: Any, value: Any) -> None:
        instance.__dict__[self._name] = value
