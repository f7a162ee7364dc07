"""The memory of a program, and the order of its calls.

    memory = Memory([0, 48, 24, 16], width=4)
    part = memory.part(Location(SPACE_SOURCE, 8), 6)
    part.view(pieces)                         # a flat tensor of 6 elements
"""

from __future__ import annotations

from typing import Any, Callable, NamedTuple, Optional, Sequence

import torch
import torch.distributed as dist

from meshift.program import SPACE_SOURCE, Location

# The call's state; source, target, workspace and scratch, flat and of one dtype.
Pieces = Sequence[Any]
# Returns the work that is left to be waited for, if it was asked to leave it.
Call = Callable[[Pieces, bool], Optional[dist.Work]]
View = Callable[[Pieces], torch.Tensor]
# A piece's number, the first element and the one past the last.
Place = tuple[int, int, int]

CALL, SCRATCH = 0, 4


class CallState:
    """Of one run of a program on gloo. `tag`: of its messages; `receives`: those that are open, by
    number of the step."""

    __slots__ = ("receives", "tag")

    def __init__(self, tag: int) -> None:
        self.tag = tag
        self.receives: dict[int, list[dist.Work]] = {}


class Part(NamedTuple):
    """Elements that follow one another, and the flat tensor of them."""

    view: View
    place: Place

    @property
    def size(self) -> int:
        return self.place[2] - self.place[1]


class Memory:
    """Parts of the pieces. `scratch`: the elements that the parts so far need beside them."""

    def __init__(self, sizes: Sequence[int], width: int) -> None:
        """`sizes`: bytes of the pieces, but for scratch. `width`: bytes of an element."""
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
        """Parts of these sizes, one after another."""
        assert at is not None
        parts, offset = [], at.offset
        for count in counts:
            parts.append(self.part(Location(at.space, offset), count))
            offset += count * self._width
        return parts

    def take_scratch(self, count: int) -> Part:
        """The first elements of scratch: the same ones for all who take some."""
        return self.scratch_blocks([count])[0]

    def scratch_blocks(self, counts: Sequence[int]) -> list[Part]:
        self.scratch = max(self.scratch, sum(counts))
        if not self.scratch:  # there may be none
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
    """A call, and the places that it reads or writes; None for all.

    Where it receives messages, `post` begins to: any time before the call at which nobody touches
    what the messages fill.
    """

    call: Call
    touches: Sequence[Place] | None = None
    post: Call | None = None
    fills: Sequence[Place] = ()


def in_order(steps: Sequence[Step]) -> list[Call]:
    """The calls of the steps, receives posted as early as can be: a message is sent at once where
    its receiver waits for it. Receives keep their order, by which messages find them."""
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
    """Up to so many bytes of all members, an all-reduce in their order is one exchange instead of
    two: latency counts. Between two members both move the same bytes."""
    return 1 << 22 if size == 2 else 1 << 18
