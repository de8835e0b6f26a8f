"""Fixed: an attribute that stays as the constructor has set it."""

from collections.abc import Mapping
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Generic, TypeVar

T = TypeVar("T")


class Fixed(Generic[T]):
    """An attribute that is assigned once. A later assignment raises ``AttributeError``, which says what to do.

    What is stored depends on it: the same ids are other tensors for another layout, and the same rows are other steps
    for another capacity. It has no ``__get__``, so that Python reads it as fast as any attribute.

    Args:
        remedy: what to do in place of an assignment.
    """

    def __init__(self, remedy: str) -> None:
        self._remedy = remedy

    def __set_name__(self, owner: type, name: str) -> None:
        self._name = name

    if TYPE_CHECKING:

        def __get__(self, owner: object, kind: type | None = None) -> T:
            """The value."""

    def __set__(self, owner: Any, value: T) -> None:
        values = vars(owner)
        if self._name in values:
            what = f"{self._name} of a {type(owner).__name__} can't be changed, it is {values[self._name]!r}"
            raise AttributeError(f"{what}: {self._remedy}", name=self._name, obj=owner)
        values[self._name] = value

    def __delete__(self, owner: Any) -> None:
        raise AttributeError(f"{self._name} of a {type(owner).__name__} can't be deleted", name=self._name, obj=owner)


class Option:
    """An option of a constructor that can be read, and stays as the dictionary ``_given`` of the object has it."""

    def __set_name__(self, owner: type, name: str) -> None:
        self._name = name

    def __get__(self, owner: Any, kind: type | None = None) -> Any:
        return self if owner is None else owner._given[self._name]

    def __set__(self, owner: Any, value: object) -> None:
        name = type(owner).__name__
        if "_given" not in vars(owner):
            raise AttributeError(f"{self._name} is an option of a {name}: give your own attribute another name")
        what = f"{self._name} of a {name} can't be changed, it is {self.__get__(owner)!r}"
        raise AttributeError(f"{what}: make another one")


class FixedMapping(Fixed[Mapping[str, T]]):
    """A :class:`Fixed` dictionary, of which readers get a view that can't be changed."""

    def __get__(self, owner: Any, kind: type | None = None) -> Mapping[str, T]:
        if owner is None:
            return self  # type: ignore[return-value]
        if self._name not in vars(owner):  # its constructor has not come so far
            raise AttributeError(f"a {type(owner).__name__} has no {self._name} yet", name=self._name, obj=owner)
        return MappingProxyType(vars(owner)[self._name])
