"""Our `dataclass` does what Python's own does, except that it refuses no assignment."""

import copy
import dataclasses
import pickle
from dataclasses import field
from typing import Any

import pytest

from providers.records import dataclass


@dataclass(frozen=True, slots=True)
class Place:
    name: str
    floor: int = 0
    notes: list[str] = field(default_factory=list, compare=False)
    secret: str = field(default="", repr=False)


@dataclasses.dataclass(frozen=True, slots=True)
class PlainPlace:
    name: str
    floor: int = 0
    notes: list[str] = field(default_factory=list, compare=False)
    secret: str = field(default="", repr=False)


@dataclass(frozen=True, slots=True)
class Room(Place):
    door: str = "left"


@dataclass(slots=True)
class Box:
    """A box."""

    holds: Any = None


@dataclass(slots=True, eq=False)
class Thing:
    name: str = ""


@dataclass
class Empty:
    pass


@dataclass(frozen=True, slots=True)
class Spoken:
    name: str

    def __repr__(self) -> str:
        return "its own words"

    def __eq__(self, other: object) -> bool:
        return True

    def __hash__(self) -> int:
        return 7


def test_it_is_a_dataclass() -> None:
    place = Place("hall", 2)
    assert dataclasses.is_dataclass(place)
    assert [f.name for f in dataclasses.fields(place)] == ["name", "floor", "notes", "secret"]
    assert dataclasses.asdict(place) == {"name": "hall", "floor": 2, "notes": [], "secret": ""}
    assert dataclasses.replace(place, floor=3) == Place("hall", 3)
    match place:
        case Place(name, floor):
            assert (name, floor) == ("hall", 2)
    assert not hasattr(place, "__dict__")
    with pytest.raises(TypeError):
        Place()  # type: ignore[call-arg]


def test_it_is_written_as_pythons_own() -> None:
    assert repr(Place("hall", 2, ["x"], "s")) == repr(PlainPlace("hall", 2, ["x"], "s")).replace("PlainPlace", "Place")
    box = Box()
    box.holds = box
    assert repr(box) == "Box(holds=...)"


def test_what_is_compared() -> None:
    assert Place("hall") == Place("hall", notes=["other"])
    assert Place("hall") != Place("hall", 1)
    assert Place("hall") != Room("hall")
    assert Place("hall") != PlainPlace("hall")
    assert Room("hall", door="right") != Room("hall")
    assert len({Place("hall"), Place("hall"), Place("attic")}) == 2
    assert Box(1) == Box(1) != Box(2)
    assert Thing("a") != Thing("a")
    assert Empty() == Empty()


def test_what_changes_has_no_hash() -> None:
    with pytest.raises(TypeError, match="unhashable"):
        hash(Box(1))
    assert hash(Thing()) is not None


def test_a_classs_own_methods_stay() -> None:
    assert (repr(Spoken("a")), hash(Spoken("a")), Spoken("a") == 3) == ("its own words", 7, True)


def test_copies() -> None:
    place = Place("hall", 2, ["x"])
    for other in (copy.copy(place), copy.deepcopy(place), pickle.loads(pickle.dumps(place))):
        assert (other, other.notes) == (place, ["x"])
