"""Compiles collectives to calls of torch.distributed that all backends have.

_messages.py is for gloo.

    steps = Collectives(group, 0, 4, torch.float32, memory, exact=False).all_reduce(instruction)
"""

from __future__ import annotations

from typing import Any, Sequence

import torch
import torch.distributed as dist

from meshift.program import SPACE_SOURCE, Instruction, Location, Message
from meshift.torch import _calls
from meshift.torch._arithmetic import combine
from meshift.torch._member import Member
from meshift.torch._pieces import Call, Memory, Pieces, Step, View, one_exchange_bytes
from meshift.torch._specs import NATIVE_DTYPES

_NATIVE_OPS = {
    "sum": dist.ReduceOp.SUM,
    "min": dist.ReduceOp.MIN,
    "max": dist.ReduceOp.MAX,
    "product": dist.ReduceOp.PRODUCT,
}
# Indexed by whether the call leaves unfinished work.
_GATHERS = [_calls.all_gather(leave) for leave in (False, True)]
_SWAPS = [_calls.all_to_all(leave) for leave in (False, True)]


class Collectives(Member):
    """Steps of the member `me` of a group of `size`.

    If the backend may not support the dtype, bytes are sent in gathers and all-to-alls. Some
    reductions are computed here, in the order of members: those of dtypes outside NATIVE_DTYPES,
    those by and, or and xor, averages of 16-bit floats (unless NCCL can divide by the group's
    size), and reduce_scatters of unequal blocks. `exact`: so are min and max of floats.
    """

    def __init__(
        self,
        group: dist.ProcessGroup,
        me: int,
        size: int,
        dtype: torch.dtype,
        memory: Memory,
        exact: bool,
    ) -> None:
        super().__init__(group, me, size, dtype, memory)
        self._exact = exact

    def send_recv(self, at: Instruction) -> list[Step]:
        sends, joined_sends, send_counts = self._messages(at.sends)
        recvs, joined_recvs, recv_counts = self._messages(at.recvs)
        if joined_sends is not None and joined_recvs is not None:
            src, dst = joined_sends, joined_recvs
            return _call(
                lambda pieces, leave: self._swap(
                    dst(pieces), src(pieces), recv_counts, send_counts, leave
                )
            )
        # Messages that are not contiguous are copied to or from scratch.
        num_sent = sum(send_counts) if joined_sends is None else 0
        num_received = sum(recv_counts) if joined_recvs is None else 0
        packed = self._memory.take_scratch(num_sent + num_received)

        def by_scratch(pieces: Pieces, leave: bool) -> None:
            src, dst = packed.view(pieces).split([num_sent, num_received])
            if joined_sends is not None:
                src = joined_sends(pieces)
            else:
                torch.cat([view(pieces) for _, view in sends], out=src)
            if joined_recvs is not None:
                self._swap(joined_recvs(pieces), src, recv_counts, send_counts)
                return
            self._swap(dst, src, recv_counts, send_counts)
            incoming = [view(pieces) for _, view in recvs]
            for out, part in zip(incoming, dst.split([out.numel() for out in incoming])):
                out.copy_(part)

        return _call(by_scratch)

    def _messages(
        self, messages: Sequence[Message]
    ) -> tuple[list[tuple[int, View]], View | None, list[int]]:
        """The messages in ascending order of peers; one view of all if they are contiguous, else
        None; and the counts by peer."""
        counts = [0] * self._size
        views = []
        ordered = sorted(messages, key=lambda message: message.peer)
        follows = True
        for i, message in enumerate(ordered):
            counts[message.peer] += message.count
            views.append((message.peer, self._memory.view(message.at, message.count)))
            if i > 0:
                before = ordered[i - 1]
                follows &= message.at == Location(
                    before.at.space, before.at.offset + before.count * self._width
                )
        joined = None
        if not ordered:
            joined = self._memory.view(Location(SPACE_SOURCE, 0), 0)
        elif follows:
            joined = self._memory.view(ordered[0].at, sum(counts))
        return views, joined, counts

    def all_gather(self, at: Instruction) -> list[Step]:
        blocks = list(at.counts) or [at.count] * self._size
        src = self._memory.view(at.src, blocks[self._me])
        dst = self._memory.view(at.dst, sum(blocks))
        if self._as_bytes or len(set(blocks)) > 1:
            return _call(
                lambda pieces, leave: self._gather(dst(pieces), src(pieces), blocks, leave)
            )
        return _call(
            lambda pieces, leave: _GATHERS[leave](self._alive(), dst(pieces), src(pieces))
        )

    def all_reduce(self, at: Instruction) -> list[Step]:
        native = self._native_reduction(at)
        op, divisor, count, size = str(at.op), at.divisor, at.count, self._size
        src, dst = self._memory.view(at.src, count), self._memory.view(at.dst, count)
        in_place = at.src == at.dst
        if native is not None:
            reduce_op, rest = native
            reductions = [_calls.all_reduce(reduce_op, leave) for leave in (False, True)]

            def by_backend(pieces: Pieces, leave: bool) -> dist.Work | None:
                out = dst(pieces)
                if not in_place:
                    out.copy_(src(pieces))
                work = reductions[leave and rest == 1](self._alive(), [out])
                _divide(out, rest)
                return work

            return _call(by_backend)
        if count * size * self._width <= one_exchange_bytes(size):
            scratch = self._memory.take_scratch(count * size)

            def by_one_exchange(pieces: Pieces, leave: bool) -> None:
                combine(
                    op, self._collected(scratch.view(pieces), src(pieces)), dst(pieces), divisor
                )

            return _call(by_one_exchange)
        share = -(-count // size)
        blocks = [max(0, min(share, count - i * share)) for i in range(size)]
        mine = blocks[self._me]
        scratch = self._memory.take_scratch(mine * size)

        def by_two_exchanges(pieces: Pieces, leave: bool) -> None:
            out = dst(pieces)
            parts = self._contributions(scratch.view(pieces), src(pieces), blocks)
            if mine > 0:
                combine(op, parts, out.narrow(0, self._me * share, mine), divisor)
            self._spread(out, blocks)

        return _call(by_two_exchanges)

    def reduce_scatter(self, at: Instruction) -> list[Step]:
        native = self._native_reduction(at)
        op, divisor = str(at.op), at.divisor
        blocks = list(at.counts) or [at.count] * self._size
        mine = blocks[self._me]
        src, dst = self._memory.view(at.src, sum(blocks)), self._memory.view(at.dst, mine)
        if native is not None and len(set(blocks)) == 1:
            reduce_op, rest = native
            reductions = [_calls.reduce_scatter(reduce_op, leave) for leave in (False, True)]

            def by_backend(pieces: Pieces, leave: bool) -> dist.Work | None:
                out = dst(pieces)
                work = reductions[leave and rest == 1](self._alive(), out, src(pieces))
                _divide(out, rest)
                return work

            return _call(by_backend)
        scratch = self._memory.take_scratch(mine * self._size)

        def in_order(pieces: Pieces, leave: bool) -> None:
            parts = self._contributions(scratch.view(pieces), src(pieces), blocks)
            if mine > 0:
                combine(op, parts, dst(pieces), divisor)

        return _call(in_order)

    def _native_reduction(self, at: Instruction) -> Any:
        """The backend's op and the divisor to apply afterwards; None if the backend cannot reduce
        this."""
        dtype = self._dtype
        if dtype not in NATIVE_DTYPES:
            return None
        if self._exact and dtype.is_floating_point and at.op in ("min", "max"):
            return None
        if at.op != "avg":
            op = _NATIVE_OPS.get(str(at.op))
            return None if op is None else (op, 1)
        if (
            dist.get_backend(self._alive()) == "nccl"
            and dtype.is_floating_point
            and at.divisor == self._size
        ):
            return dist.ReduceOp.AVG, 1
        # The quotient must be rounded once, so 16-bit sums cannot be divided afterwards.
        return None if dtype in (torch.float16, torch.bfloat16) else (dist.ReduceOp.SUM, at.divisor)

    def _swap(
        self,
        dst: torch.Tensor,
        src: torch.Tensor,
        recv_counts: list[int],
        send_counts: list[int],
        leave: bool = False,
    ) -> dist.Work | None:
        """Sends send_counts[i] elements to member i, and receives recv_counts[i] from it."""
        if self._as_bytes:
            dst, src = dst.view(torch.uint8), src.view(torch.uint8)
            recv_counts = [count * self._width for count in recv_counts]
            send_counts = [count * self._width for count in send_counts]
        return _SWAPS[leave](self._alive(), dst, src, recv_counts, send_counts)

    def _gather(
        self, dst: torch.Tensor, src: torch.Tensor, blocks: list[int], leave: bool = False
    ) -> dist.Work | None:
        """Sets dst to the blocks of all members, contiguous."""
        if len(set(blocks)) > 1:
            return self._swap(
                dst, src.repeat(self._size), blocks, [src.numel()] * self._size, leave
            )
        if self._as_bytes:
            dst, src = dst.view(torch.uint8), src.view(torch.uint8)
        return _GATHERS[leave](self._alive(), dst, src)

    def _spread(self, dst: torch.Tensor, blocks: list[int]) -> None:
        """Sends each member's block of dst to all others. Blocks are contiguous."""
        self._gather(dst, dst.split(blocks)[self._me].clone(), blocks)

    def _collected(self, scratch: torch.Tensor, src: torch.Tensor) -> list[torch.Tensor]:
        """Gathers all members' src, in order, into scratch, which has their total size."""
        self._gather(scratch, src, [src.numel()] * self._size)
        return list(scratch.view(self._size, src.numel()))

    def _contributions(
        self, scratch: torch.Tensor, src: torch.Tensor, blocks: list[int]
    ) -> list[torch.Tensor]:
        """Collects all members' contributions to this member's block, in order, in scratch.

        src has one block per member.
        """
        mine = blocks[self._me]
        self._swap(scratch, src, [mine] * self._size, blocks)
        return list(scratch.view(self._size, mine))


def _call(call: Call) -> list[Step]:
    return [Step(call)]


def _divide(out: torch.Tensor, divisor: int) -> None:
    if divisor != 1:
        out.div_(divisor, rounding_mode=None if out.is_floating_point() else "trunc")
