"""`dataclass`, as Python's own module makes it, in a sixth of the time: that one compiles six methods for each class,
which was a seventh of the time to start. Here a class compiles its `__init__` alone; the methods that only walk over
its fields are the same for all classes.

What is frozen is so for the type checker alone. At run time nothing stops who sets a field; instances are made three
times as fast for it.
"""

from __future__ import annotations

import dataclasses
from operator import attrgetter
from reprlib import recursive_repr
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from dataclasses import dataclass as dataclass
else:

    def dataclass(cls=None, /, *, frozen=False, eq=True, **options):
        if cls is None:
            return lambda given: _made(given, frozen, eq, options)
        return _made(cls, frozen, eq, options)


def _made(cls: Any, frozen: bool, eq: bool, options: dict[str, Any]) -> Any:
    own = vars(cls)
    if own.get("__doc__") is None:
        cls.__doc__ = cls.__name__  # else a signature is written for it
    if "__repr__" not in own:
        cls.__repr__ = _repr
    if eq and "__eq__" not in own:
        cls.__eq__ = _eq
        if "__hash__" not in own or own["__hash__"] is None:
            cls.__hash__ = _hash if frozen else None
    made = dataclasses.dataclass(cls, repr=False, eq=False, **options)
    compared = [field.name for field in dataclasses.fields(made) if field.compare]
    made._compared = attrgetter(*compared) if compared else type  # handed an instance, what of it is compared
    return made


@recursive_repr()
def _repr(self: Any) -> str:
    shown = (f"{field.name}={getattr(self, field.name)!r}" for field in dataclasses.fields(self) if field.repr)
    return f"{type(self).__qualname__}({', '.join(shown)})"


def _eq(self: Any, other: Any) -> Any:
    return self._compared(self) == self._compared(other) if type(self) is type(other) else NotImplemented


def compared(record: Any) -> Any:
    """What of it is compared, as a plain value: as a key that is looked up often it costs a third."""
    return record._compared(record)


def _hash(self: Any) -> int:
    return hash(self._compared(self))
