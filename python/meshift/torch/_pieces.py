"""The memory of a program, and the order of its calls.

    memory = Memory([0, 48, 24, 16], width=4)  # bytes: the call's state has none; then source, ...
    part = memory.part(Location(SPACE_SOURCE, 8), 6)
    part.view(pieces)                          # a flat tensor of 6 elements

Nothing is checked: sizes and offsets must be multiples of `width`.
"""

from __future__ import annotations

from typing import Any, Callable, NamedTuple, Optional, Sequence

import torch
import torch.distributed as dist

from meshift.program import SPACE_SOURCE, Location

# The call's state; then source, target, workspace and scratch: flat tensors of one dtype.
Pieces = Sequence[Any]
# Returns the unfinished work, if the second argument allows the call to leave any.
Call = Callable[[Pieces, bool], Optional[dist.Work]]
View = Callable[[Pieces], torch.Tensor]
# The number of a piece, its first element, and the end (exclusive).
Place = tuple[int, int, int]

CALL, SCRATCH = 0, 4


class CallState:
    """The state of one run of a program on gloo. `tag`: the tag of its messages; `receives`: posted
    receives by step number."""

    __slots__ = ("receives", "tag")

    def __init__(self, tag: int) -> None:
        self.tag = tag
        self.receives: dict[int, list[dist.Work]] = {}


class Part(NamedTuple):
    """Contiguous elements, and the function that gives their flat tensor."""

    view: View
    place: Place

    @property
    def size(self) -> int:
        return self.place[2] - self.place[1]


class Memory:
    """Makes parts of the pieces. `scratch`: the number of scratch elements needed so far."""

    def __init__(self, sizes: Sequence[int], width: int) -> None:
        """`sizes`: bytes of the pieces, without scratch. `width`: bytes of an element."""
        self._sizes = [size // width for size in sizes]
        self._width = width
        self.scratch = 0

    def part(self, at: Location | None, count: int) -> Part:
        assert at is not None
        space, offset = at.space, at.offset // self._width
        place = (space, offset, offset + count)
        if offset == 0 and count == self._sizes[space]:
            return Part(lambda pieces: pieces[space], place)
        return Part(lambda pieces: pieces[space].narrow(0, offset, count), place)

    def view(self, at: Location | None, count: int) -> View:
        return self.part(at, count).view

    def blocks(self, at: Location | None, counts: Sequence[int]) -> list[Part]:
        """Contiguous parts of these sizes."""
        assert at is not None
        parts, offset = [], at.offset
        for count in counts:
            parts.append(self.part(Location(at.space, offset), count))
            offset += count * self._width
        return parts

    def take_scratch(self, count: int) -> Part:
        """The first `count` elements of scratch. All callers share them."""
        return self.scratch_blocks([count])[0]

    def scratch_blocks(self, counts: Sequence[int]) -> list[Part]:
        self.scratch = max(self.scratch, sum(counts))
        if not self.scratch:  # scratch may be empty
            return [self.part(Location(SPACE_SOURCE, 0), 0) for _ in counts]
        parts, offset = [], 0
        for count in counts:
            parts.append(_of_scratch(offset, count))
            offset += count
        return parts


def _of_scratch(offset: int, count: int) -> Part:
    return Part(
        lambda pieces: pieces[SCRATCH].narrow(0, offset, count),
        (SCRATCH, offset, offset + count),
    )


class Step(NamedTuple):
    """A call, and the places that it reads or writes; None: all places.

    If it receives messages, `post` posts the receives. It may run at any earlier time after which
    no other call touches `fills`.
    """

    call: Call
    touches: Sequence[Place] | None = None
    post: Call | None = None
    fills: Sequence[Place] = ()


def in_order(steps: Sequence[Step]) -> list[Call]:
    """The calls of the steps, with receives posted as early as possible, because a message to a
    waiting receiver is sent at once. Receives keep their order, by which messages are matched."""
    calls: list[Call] = []
    touched: list[Sequence[Place] | None] = []
    earliest = 0
    for step in steps:
        if step.post is not None:
            at = len(calls)
            while at > earliest and not _meet(touched[at - 1], step.fills):
                at -= 1
            calls.insert(at, step.post)
            touched.insert(at, step.fills)
            earliest = at + 1
        calls.append(step.call)
        touched.append(step.touches)
    return calls


def _meet(places: Sequence[Place] | None, others: Sequence[Place]) -> bool:
    if places is None:
        return True
    return any(
        space == other and begin < other_end and other_begin < end
        for space, begin, end in places
        for other, other_begin, other_end in others
    )


def one_exchange_bytes(size: int) -> int:
    """The largest total size in bytes at which an all-reduce in order is one exchange instead of
    two, because latency dominates. With two members both ways send the same bytes."""
    return 1 << 22 if size == 2 else 1 << 18
