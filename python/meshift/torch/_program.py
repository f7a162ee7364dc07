"""Compiles programs to lists of calls of torch and torch.distributed.

    run = Executable(program, groups, torch.float32, (8, 6), exact=False)
    target = run(source, room, tag=7)

On gloo collectives are made of messages, which are faster than gloo's own collectives.

NotImplementedError: an instruction has another dtype than the program, or is not a copy, a fill, a
reduce_in_order, send_recv, all_gather, all_reduce or reduce_scatter.
"""

from __future__ import annotations

from typing import Any, Callable, NamedTuple, Sequence

import torch
import torch.distributed as dist

from meshift.program import Copy, Group, Instruction, Location, Program
from meshift.torch._arithmetic import fill_identity, reduce
from meshift.torch._collectives import Collectives
from meshift.torch._counts import counted
from meshift.torch._messages import Messages
from meshift.torch._moves import without_moves
from meshift.torch._pieces import (
    Call,
    CallState,
    Memory,
    Part,
    Pieces,
    Place,
    Step,
    View,
    in_order,
)
from meshift.torch._specs import TORCH_DTYPES


class Connections(NamedTuple):
    """The process group of a group of the program; on gloo also a second one of the same ranks."""

    group: dist.ProcessGroup
    twin: dist.ProcessGroup | None


class Executable:
    """The compiled program of this rank. All members of a group call its collectives."""

    def __init__(
        self,
        program: Program,
        groups: Sequence[Connections | None],
        dtype: torch.dtype,
        target_shape: Sequence[int],
        exact: bool,
    ) -> None:
        """`groups`: for program.groups, None where this rank is not a member. `exact`: min and max
        of floats follow docs/dtypes.md, also for zeros and NaNs."""
        self.dtype = dtype
        self.target_shape = tuple(target_shape)
        width = dtype.itemsize
        self._workspace = -(-program.workspace_bytes // width)
        sizes = (0, program.source_bytes, program.target_bytes, self._workspace * width)
        memory = Memory(sizes, width)
        compiler = _Compiler(program.groups, groups, dtype, memory, exact)
        instructions = without_moves(program.instructions, program.groups, width)
        steps = [step for at in instructions for step in compiler.compile(at)]
        self._calls = in_order(steps)
        # The sizes, in elements, of the workspace and scratch of a call; None: not needed.
        self.room: tuple[int, int] | None = (self._workspace, memory.scratch)
        if self.room == (0, 0):
            self.room = None
        self._by_messages = any(each is not None and each.twin is not None for each in groups)

    def __call__(
        self, source: torch.Tensor, room: Sequence[torch.Tensor] | None, tag: int
    ) -> torch.Tensor:
        """Runs the program; returns a new tensor. `source` is contiguous; `room` has the sizes in
        self.room. `tag`, 0 to 2^31 - 1, distinguishes the messages of this call on gloo."""
        target, pieces = self._pieces(source, room, tag)
        for call in self._calls:
            call(pieces, False)
        return target

    def start(
        self, source: torch.Tensor, room: Sequence[torch.Tensor] | None, tag: int
    ) -> tuple[torch.Tensor, dist.Work | None, Pieces]:
        """Runs the program without waiting for the last call if it is a collective. Returns the
        target, the work, and the tensors that must live until it is done."""
        target, pieces = self._pieces(source, room, tag)
        work = None
        last = len(self._calls) - 1
        for i, call in enumerate(self._calls):
            work = call(pieces, i == last)
        return target, work, pieces

    def _pieces(
        self, source: torch.Tensor, room: Sequence[torch.Tensor] | None, tag: int
    ) -> tuple[torch.Tensor, Pieces]:
        target = source.new_empty(self.target_shape)
        state = CallState(tag) if self._by_messages else None
        workspace, scratch = (None, None) if room is None else room
        return target, (state, source.view(-1), target.view(-1), workspace, scratch)


class _Compiler:
    """Compiles instructions to steps."""

    def __init__(
        self,
        described: Sequence[Group],
        groups: Sequence[Connections | None],
        dtype: torch.dtype,
        memory: Memory,
        exact: bool,
    ) -> None:
        self._exact = exact
        self._described = described
        self._groups = groups
        self._dtype = dtype
        self._width = dtype.itemsize
        self._memory = memory

    def compile(self, at: Instruction) -> list[Step]:
        if at.dtype is not None and TORCH_DTYPES.get(at.dtype) != self._dtype:
            raise NotImplementedError(f"an instruction on {at.dtype} in a program of {self._dtype}")
        if at.kind == "copy":
            return [_copies(at.copies, self._width)]
        if at.kind == "fill_zero":
            zeros = self._memory.part(at.dst, at.count // self._width)
            return [_local(lambda pieces: zeros.view(pieces).zero_(), zeros)]
        if at.kind == "fill_identity":
            filled = self._memory.part(at.dst, at.count)
            return [_local(lambda pieces: fill_identity(str(at.op), filled.view(pieces)), filled)]
        if at.kind == "reduce_in_order":
            return [self._reduce_in_order(at)]
        connections = self._groups[at.group]
        if connections is None:
            raise ValueError(f"a {at.kind} of a group that this rank is not in")
        described = self._described[at.group]
        group, twin = connections
        who = (group, described.member, len(described.ranks), self._dtype, self._memory)
        by: Any = Collectives(*who, self._exact) if twin is None else Messages(*who, twin)
        if at.kind not in ("send_recv", "all_gather", "all_reduce", "reduce_scatter"):
            raise NotImplementedError(f"torch cannot run the instruction {at.kind}")
        *steps, last = getattr(by, at.kind)(at)
        return [*steps, last._replace(call=counted(last.call, at.kind))]

    def _reduce_in_order(self, at: Instruction) -> Step:
        assert at.src is not None
        parts = [
            self._memory.part(Location(at.src.space, at.src.offset + i * at.block_bytes), at.count)
            for i in range(at.blocks)
        ]
        dst = self._memory.part(at.dst, at.count)
        op, divisor, op_block = str(at.op), at.divisor, at.op_block
        return _local(
            lambda pieces: reduce(
                op, [part.view(pieces) for part in parts], dst.view(pieces), divisor, op_block
            ),
            dst,
            *parts,
        )


def _local(run: Callable[[Pieces], Any], *touched: Part) -> Step:
    return Step(_call(run), [part.place for part in touched])


def _call(run: Callable[[Pieces], Any]) -> Call:
    def call(pieces: Pieces, leave: bool) -> None:
        run(pieces)

    return call


def _copies(copies: Sequence[Copy], width: int) -> Step:
    boxes = [
        (
            copy.src.space,
            copy.src.offset // width,
            copy.dst.space,
            copy.dst.offset // width,
            copy.shape,
            copy.src_strides,
            copy.dst_strides,
        )
        for copy in copies
    ]
    places = [
        place
        for src, src_offset, dst, dst_offset, shape, src_strides, dst_strides in boxes
        for place in (
            _reach(src, src_offset, shape, src_strides),
            _reach(dst, dst_offset, shape, dst_strides),
        )
    ]
    pairs = [
        (_box(dst, dst_offset, shape, dst_strides), _box(src, src_offset, shape, src_strides))
        for src, src_offset, dst, dst_offset, shape, src_strides, dst_strides in _merged(boxes)
    ]

    def call(pieces: Pieces, leave: bool) -> None:
        for target, source in pairs:
            target(pieces).copy_(source(pieces))

    return Step(call, places)


def _box(space: int, offset: int, shape: Sequence[int], strides: Sequence[int]) -> View:
    if offset == 0:
        return lambda pieces: pieces[space].as_strided(shape, strides)
    # The offset of as_strided counts from the start of the storage.
    return lambda pieces: pieces[space].as_strided(
        shape, strides, offset + pieces[space].storage_offset()
    )


def _reach(space: int, offset: int, shape: Sequence[int], strides: Sequence[int]) -> Place:
    if 0 in shape:
        return space, offset, offset
    return space, offset, offset + 1 + sum((n - 1) * stride for n, stride in zip(shape, strides))


def _merged(boxes: list[Any]) -> list[Any]:
    """Merges equal boxes at equal distances into one box with one more dim."""
    merged: list[Any] = []
    i = 0
    while i < len(boxes):
        src, src_offset, dst, dst_offset, *rest = boxes[i]
        run = 1
        steps = None
        while i + run < len(boxes):
            other = boxes[i + run]
            if [other[0], other[2], *other[4:]] != [src, dst, *rest]:
                break
            distance = (other[1] - boxes[i + run - 1][1], other[3] - boxes[i + run - 1][3])
            if min(distance) < 0 or (steps is not None and distance != steps):
                break
            steps = distance
            run += 1
        if run > 1 and steps is not None:
            shape, src_strides, dst_strides = rest
            rest = [
                (run, *shape),
                (steps[0], *src_strides),
                (steps[1], *dst_strides),
            ]
        merged.append((src, src_offset, dst, dst_offset, *rest))
        i += run
    return merged
