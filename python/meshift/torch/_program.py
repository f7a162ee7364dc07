"""Compiles programs to lists of calls of torch and torch.distributed.

    run = Executable(program, groups, torch.float32, ((8, 6), (16, 3)), exact=False)
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
    contiguous_strides,
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
        shapes: tuple[tuple[int, ...], tuple[int, ...]],
        exact: bool,
    ) -> None:
        """`groups`: for program.groups, None where this rank is not a member. `shapes`: of this
        rank's source and target. `exact`: min and max of floats follow docs/dtypes.md, also for
        zeros and NaNs."""
        self.dtype = dtype
        self._target = shapes[1], contiguous_strides(shapes[1])
        width = dtype.itemsize
        self._workspace = -(-program.workspace_bytes // width)
        memory = Memory([(), *shapes, (self._workspace,)], width)
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
        target = source.new_empty_strided(*self._target)
        state = CallState(tag) if self._by_messages else None
        workspace, scratch = (None, None) if room is None else room
        return target, (state, source, target, workspace, scratch)


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
            return [self._copies(at.copies)]
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

    def _copies(self, copies: Sequence[Copy]) -> Step:
        places = [
            self._reach(at, copy.shape, strides)
            for copy in copies
            for at, strides in ((copy.src, copy.src_strides), (copy.dst, copy.dst_strides))
        ]
        pairs = [self._memory.copy(copy) for copy in _merged(copies, self._width)]

        def call(pieces: Pieces, leave: bool) -> None:
            for target, source in pairs:
                target(pieces).copy_(source(pieces))

        return Step(call, places)

    def _reach(self, at: Location, shape: Sequence[int], strides: Sequence[int]) -> Place:
        offset = at.offset // self._width
        if 0 in shape:
            return at.space, offset, offset
        last = sum((n - 1) * stride for n, stride in zip(shape, strides))
        return at.space, offset, offset + 1 + last

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


def _merged(copies: Sequence[Copy], width: int) -> list[Copy]:
    """Merges equal boxes at equal distances into one box with one more dim."""
    merged: list[Copy] = []
    i = 0
    while i < len(copies):
        one, run, steps = copies[i], 1, (0, 0)
        for before, after in zip(copies[i:], copies[i + 1 :]):
            distances = _distances(before, after, width)
            if distances is None or (run > 1 and distances != steps):
                break
            steps = distances
            run += 1
        if run > 1:
            one = Copy(
                one.src,
                one.dst,
                (run, *one.shape),
                (steps[0], *one.src_strides),
                (steps[1], *one.dst_strides),
            )
        merged.append(one)
        i += run
    return merged


def _distances(one: Copy, other: Copy, width: int) -> tuple[int, int] | None:
    """The distances in elements between their sources and targets; None if their boxes differ or a
    distance is negative."""
    boxes = [
        (copy.src.space, copy.dst.space, copy.shape, copy.src_strides, copy.dst_strides)
        for copy in (one, other)
    ]
    src, dst = other.src.offset - one.src.offset, other.dst.offset - one.dst.offset
    if boxes[0] != boxes[1] or min(src, dst) < 0:
        return None
    return src // width, dst // width
