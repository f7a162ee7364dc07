"""Base classes of immutable values."""

from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, Iterator, NoReturn, TypeVar

    Self = TypeVar("Self", bound="Immutable")


class Immutable:
    """An object whose attributes cannot be set; a copy is the object itself."""

    __slots__ = ()

    def __setattr__(self, name: str, value: object) -> NoReturn:
        raise AttributeError(f"a {type(self).__name__} cannot be changed")

    def __delattr__(self, name: str) -> NoReturn:
        raise AttributeError(f"a {type(self).__name__} cannot be changed")

    def __copy__(self: Self) -> Self:
        return self

    def __deepcopy__(self: Self, memo: object) -> Self:
        return self


def put(value: Immutable, **attributes: object) -> None:
    """Sets attributes of an Immutable; only for constructors."""
    for name, attribute in attributes.items():
        object.__setattr__(value, name, attribute)


class Record(Immutable):
    """An immutable value with the fields of its class's __slots__, in this order.

    It unpacks like a tuple. typing.NamedTuple would do the same, but takes 5 ms to import.
    """

    __slots__: tuple[str, ...] = ()

    def __init__(self, *fields: Any) -> None:
        names = type(self).__slots__
        if len(fields) != len(names):
            raise TypeError(f"{type(self).__name__} has {len(names)} fields, not {len(fields)}")
        for name, field in zip(names, fields):
            object.__setattr__(self, name, field)

    def __iter__(self) -> Iterator[Any]:
        return (getattr(self, name) for name in type(self).__slots__)

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Record) or type(other) is not type(self):
            return NotImplemented
        return tuple(self) == tuple(other)

    def __hash__(self) -> int:
        return hash(tuple(self))

    def __repr__(self) -> str:
        fields = ", ".join(f"{name}={getattr(self, name)!r}" for name in type(self).__slots__)
        return f"{type(self).__name__}({fields})"

    def __reduce__(self) -> tuple[object, ...]:
        return type(self), tuple(self)
