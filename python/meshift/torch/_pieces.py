"""The memory of a program, and the order of its calls.

    memory = Memory([(), (4, 3), (2, 3), (4,)], width=4)  # the call's state has no shape
    part = memory.part(Location(SPACE_SOURCE, 8), 6)
    part.view(pieces)                          # a flat tensor of 6 elements

Nothing is checked: sizes and offsets must be multiples of `width`.
"""

from __future__ import annotations

import math
from typing import Any, Callable, NamedTuple, Optional, Sequence

import torch
import torch.distributed as dist

from meshift.program import SPACE_SOURCE, Copy, Location

# The call's state; then source, target, workspace and scratch: contiguous tensors of one dtype.
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
    """Makes views of the pieces. `scratch`: the number of scratch elements needed so far.

    On a CPU a view takes as long as a small copy, so none is made of a whole piece.
    """

    def __init__(self, shapes: Sequence[Sequence[int]], width: int) -> None:
        """`shapes`: of the pieces, without scratch. `width`: bytes of an element."""
        self._shapes = [tuple(shape) for shape in shapes]
        self._width = width
        self.scratch = 0

    def box(self, at: Location, shape: Sequence[int], strides: Sequence[int]) -> View:
        """The view of the box at this place; strides in elements."""
        space, offset = at.space, at.offset // self._width
        shape = tuple(shape)
        if self._is_piece(at, shape, strides) and shape == self._shapes[space]:
            return lambda pieces: pieces[space]
        return self._strided(space, offset, shape, strides)

    @staticmethod
    def _strided(space: int, offset: int, shape: Sequence[int], strides: Sequence[int]) -> View:
        if offset == 0:
            return lambda pieces: pieces[space].as_strided(shape, strides)
        # The offset of as_strided counts from the start of the storage.
        return lambda pieces: pieces[space].as_strided(
            shape, strides, offset + pieces[space].storage_offset()
        )

    def copy(self, copy: Copy) -> tuple[View, View]:
        """The views of the target and the source of a copy."""
        shape, strides = copy.shape, (copy.dst_strides, copy.src_strides)
        if all(is_contiguous(shape, one) for one in strides):
            for at in (copy.dst, copy.src):
                if self._is_piece(at, shape, strides[0]):
                    shape = self._shapes[at.space]
                    strides = (contiguous_strides(shape),) * 2
        return self.box(copy.dst, shape, strides[0]), self.box(copy.src, shape, strides[1])

    def _is_piece(self, at: Location, shape: Sequence[int], strides: Sequence[int]) -> bool:
        """Whether the box has all elements of a piece, in their order."""
        if at.space == SCRATCH or at.offset != 0 or not is_contiguous(shape, strides):
            return False
        return math.prod(shape) == math.prod(self._shapes[at.space])

    def part(self, at: Location | None, count: int) -> Part:
        assert at is not None
        offset = at.offset // self._width
        place = (at.space, offset, offset + count)
        if at.space == SPACE_SOURCE:
            # torch calls a tensor of at most one element contiguous whatever its strides are.
            return Part(self._strided(at.space, offset, (count,), (1,)), place)
        return Part(self.box(at, (count,), (1,)), place)

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
        # Scratch may be empty.
        return self.blocks(Location(SCRATCH if self.scratch else SPACE_SOURCE, 0), counts)


def is_contiguous(shape: Sequence[int], strides: Sequence[int]) -> bool:
    return all(
        n == 1 or stride == expected
        for n, stride, expected in zip(shape, strides, contiguous_strides(shape))
    )


def contiguous_strides(shape: Sequence[int]) -> tuple[int, ...]:
    return tuple(math.prod(shape[i + 1 :]) for i in range(len(shape)))


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
