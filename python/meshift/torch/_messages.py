"""Compiles collectives for gloo into sends and receives between pairs of members.

The messages of a step are in flight at the same time. A rank that sends one tensor to several
members does not copy it for each. The methods send nothing: they return steps, which send when they
are called. _collectives.py is for the other backends.

    messages = Messages(group, 0, 4, torch.float32, memory, twin)
    steps = messages.all_gather(instruction)
"""

from __future__ import annotations

import itertools
import os
import weakref
from typing import Any, Callable, Sequence

import torch
import torch.distributed as dist

from meshift.program import Instruction
from meshift.torch._arithmetic import combine
from meshift.torch._member import Member, alive
from meshift.torch._pieces import CALL, Memory, Part, Pieces, Step, one_exchange_bytes

_numbers = itertools.count()

Work = Callable[[Pieces], Any]


class Messages(Member):
    """Steps of the member `me` of a group of `size`. gloo reduces nothing: the steps do, in the
    order of members."""

    def __init__(
        self,
        group: dist.ProcessGroup,
        me: int,
        size: int,
        dtype: torch.dtype,
        memory: Memory,
        twin: dist.ProcessGroup,
    ) -> None:
        """`twin`: another group of the same members, for messages from higher to lower members.
        gloo's thread spins if a message arrives over a connection that is being written to."""
        super().__init__(group, me, size, dtype, memory)
        self._twin = weakref.ref(twin)
        self._others = [i for i in range(size) if i != me]

    def send_recv(self, at: Instruction) -> list[Step]:
        recvs = [(m.peer, self._memory.part(m.at, m.count)) for m in at.recvs]
        sends = [(m.peer, self._memory.part(m.at, m.count)) for m in at.sends]
        return [self._exchange(recvs, sends)]

    def all_gather(self, at: Instruction) -> list[Step]:
        counts = list(at.counts) or [at.count] * self._size
        src, dst = self._memory.part(at.src, counts[self._me]), self._memory.blocks(at.dst, counts)
        own = dst[self._me]

        def copy(pieces: Pieces) -> None:
            own.view(pieces).copy_(src.view(pieces))

        return [self._spread(src, dst, (own,), meanwhile=None if own.place == src.place else copy)]

    def all_reduce(self, at: Instruction) -> list[Step]:
        size, me = self._size, self._me
        src, dst = self._memory.part(at.src, at.count), self._memory.part(at.dst, at.count)
        if at.count * size * self._width <= one_exchange_bytes(size):
            parts = self._memory.scratch_blocks([at.count] * size)
            parts[me] = src
            return [self._spread(src, parts, (dst,), afterwards=_combined(at, parts, dst))]
        share = -(-at.count // size)
        blocks = [max(0, min(share, at.count - i * share)) for i in range(size)]
        outs = self._memory.blocks(at.dst, blocks)
        return [
            self._reduced(at, self._memory.blocks(at.src, blocks), outs[me]),
            self._spread(outs[me], outs),
        ]

    def reduce_scatter(self, at: Instruction) -> list[Step]:
        blocks = list(at.counts) or [at.count] * self._size
        dst = self._memory.part(at.dst, blocks[self._me])
        return [self._reduced(at, self._memory.blocks(at.src, blocks), dst)]

    def _reduced(self, at: Instruction, inputs: Sequence[Part], dst: Part) -> Step:
        """Reduces each member's block of the inputs at that member."""
        own = inputs[self._me]
        parts = self._memory.scratch_blocks([own.size] * self._size)
        parts[self._me] = own
        return self._exchange(
            [(i, parts[i]) for i in self._others],
            [(i, inputs[i]) for i in self._others],
            (own, dst),
            afterwards=_combined(at, parts, dst),
        )

    def _spread(
        self,
        src: Part,
        dst: Sequence[Part],
        touched: Sequence[Part] = (),
        meanwhile: Work | None = None,
        afterwards: Work | None = None,
    ) -> Step:
        """Sends each member's src to its part of dst on all others."""
        return self._exchange(
            [(i, dst[i]) for i in self._others],
            [(i, src) for i in self._others],
            touched,
            meanwhile,
            afterwards,
        )

    def _exchange(
        self,
        recvs: Sequence[tuple[int, Part]],
        sends: Sequence[tuple[int, Part]],
        touched: Sequence[Part] = (),
        meanwhile: Work | None = None,
        afterwards: Work | None = None,
    ) -> Step:
        """Messages from and to members; empty ones are skipped on both sides.

        `meanwhile` runs while messages are in flight, `afterwards` when all have arrived;
        `touched`: the places that both use besides the messages.
        """
        recvs = [(peer, part) for peer, part in recvs if part.size > 0]
        sends = [(peer, part) for peer, part in sends if part.size > 0]
        number = next(_numbers)

        def post(pieces: Pieces, leave: bool) -> None:
            up, down = self._both()
            state = pieces[CALL]
            state.receives[number] = [
                (up if peer < self._me else down).recv([self._raw(part, pieces)], peer, state.tag)
                for peer, part in recvs
            ]

        def call(pieces: Pieces, leave: bool) -> None:
            up, down = self._both()
            state = pieces[CALL]
            # Let gloo's thread read arrived messages: it spins if it must read from a connection
            # that this thread is writing to.
            os.sched_yield()
            works = [
                (down if peer < self._me else up).send([self._raw(part, pieces)], peer, state.tag)
                for peer, part in sends
            ]
            if meanwhile is not None:
                meanwhile(pieces)
            # Sending to a rank that gave up fails at once.
            for work in works:
                work.wait()
            for work in state.receives.pop(number, ()):
                work.wait()
            if afterwards is not None:
                afterwards(pieces)

        fills = [part.place for _, part in recvs]
        touches = [*fills, *(part.place for _, part in sends), *(part.place for part in touched)]
        return Step(call, touches, post if recvs else None, fills)

    def _both(self) -> tuple[dist.ProcessGroup, dist.ProcessGroup]:
        """Splits messages: from lower to higher members, and the others."""
        return self._alive(), alive(self._twin)

    def _raw(self, part: Part, pieces: Pieces) -> torch.Tensor:
        """As bytes if gloo may not support the dtype."""
        tensor = part.view(pieces)
        return tensor.view(torch.uint8) if self._as_bytes else tensor


def _combined(at: Instruction, parts: Sequence[Part], dst: Part) -> Work | None:
    """Reduces the parts in order."""
    if dst.size == 0:
        return None
    op, divisor = str(at.op), at.divisor
    return lambda pieces: combine(
        op, [part.view(pieces) for part in parts], dst.view(pieces), divisor
    )
