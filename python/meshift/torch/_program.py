"""Programs as lists of calls of torch and torch.distributed.

    run = Executable(program, groups, torch.float32, (8, 6))
    target = run(source)

A collective is one call of the backend where that can do it. Where the backend cannot reduce a
dtype, contributions are exchanged and reduced here, in the order of ranks. On gloo all is done that
way, by messages, which are quicker than gloo's own collectives.
"""

from __future__ import annotations

from typing import Any, Callable, Optional, Sequence

import torch
import torch.distributed as dist

from meshift.program import SPACE_SOURCE, Copy, Group, Instruction, Location, Message, Program
from meshift.torch._arithmetic import combine, fill_identity, reduce
from meshift.torch._messages import Exchange, GlooExchange
from meshift.torch._specs import NATIVE_DTYPES, TORCH_DTYPES

# Source, target, workspace and scratch, flat and of one dtype; in the places 1 to 4.
Pieces = Sequence[Optional[torch.Tensor]]
# Returns the work that is left to be waited for, if it was asked to leave it.
Call = Callable[[Pieces, bool], Optional[dist.Work]]
View = Callable[[Pieces], torch.Tensor]

_SCRATCH = 4
_NATIVE_OPS = {
    "sum": dist.ReduceOp.SUM,
    "min": dist.ReduceOp.MIN,
    "max": dist.ReduceOp.MAX,
    "product": dist.ReduceOp.PRODUCT,
}
# Up to so many bytes, an all-reduce in order is one exchange instead of two: latency counts. Between
# two members both move the same bytes.
_ONE_EXCHANGE_BYTES = 1 << 18
_ONE_EXCHANGE_BYTES_OF_TWO = 1 << 22


class Executable:
    """The program of this rank. Its collectives are called by all members of their groups."""

    def __init__(
        self,
        program: Program,
        groups: Sequence[dist.ProcessGroup | None],
        dtype: torch.dtype,
        target_shape: Sequence[int],
        exact: bool,
    ) -> None:
        """`groups`: those of program.groups, None where this rank is in none. `exact`: least and
        largest floats are those of docs/dtypes.md, also of zeros and NaNs."""
        self.dtype = dtype
        self.target_shape = tuple(target_shape)
        width = dtype.itemsize
        self._workspace = -(-program.workspace_bytes // width)
        sizes = (0, program.source_bytes, program.target_bytes, self._workspace * width)
        compiler = _Compiler(
            program.groups, groups, dtype, [size // width for size in sizes], exact
        )
        self._calls = [compiler.compile(at) for at in program.instructions]
        # In elements: the workspace and the scratch that a call needs; None for neither.
        self.room: tuple[int, int] | None = (self._workspace, compiler.scratch)
        if self.room == (0, 0):
            self.room = None

    def __call__(
        self, source: torch.Tensor, room: Sequence[torch.Tensor] | None
    ) -> torch.Tensor:
        """`source` is contiguous; `room` is of the sizes that self.room says. A new tensor."""
        target, pieces = self._pieces(source, room)
        for call in self._calls:
            call(pieces, False)
        return target

    def start(
        self, source: torch.Tensor, room: Sequence[torch.Tensor] | None
    ) -> tuple[torch.Tensor, dist.Work | None, Pieces]:
        """Leaves the last collective open, where it is the last call: the work, and what must
        stay until it is done."""
        target, pieces = self._pieces(source, room)
        work = None
        last = len(self._calls) - 1
        for i, call in enumerate(self._calls):
            work = call(pieces, i == last)
        return target, work, pieces

    def _pieces(
        self, source: torch.Tensor, room: Sequence[torch.Tensor] | None
    ) -> tuple[torch.Tensor, Pieces]:
        target = torch.empty(self.target_shape, dtype=self.dtype, device=source.device)
        workspace, scratch = (None, None) if room is None else room
        return target, (None, source.view(-1), target.view(-1), workspace, scratch)


class _Compiler:
    """Instructions as calls. Its `scratch`: the elements that the calls so far need beside the
    workspace."""

    def __init__(
        self,
        described: Sequence[Group],
        groups: Sequence[dist.ProcessGroup | None],
        dtype: torch.dtype,
        sizes: Sequence[int],
        exact: bool,
    ) -> None:
        self._exact = exact
        self._described = described
        self._groups = groups
        self._dtype = dtype
        self._width = dtype.itemsize
        self._sizes = sizes
        self.scratch = 0

    def compile(self, at: Instruction) -> Call:
        if at.dtype is not None and TORCH_DTYPES.get(at.dtype) != self._dtype:
            raise NotImplementedError(f"an instruction on {at.dtype} in a program of {self._dtype}")
        if at.kind == "copy":
            return _local(_copies(at.copies, self._width))
        if at.kind == "fill_zero":
            zeros = self._view(at.dst, at.count // self._width)
            return _local(lambda pieces: zeros(pieces).zero_())
        if at.kind == "fill_identity":
            filled = self._view(at.dst, at.count)
            return _local(lambda pieces: fill_identity(str(at.op), filled(pieces)))
        if at.kind == "reduce_in_order":
            return _local(self._reduce_in_order(at))
        group = self._groups[at.group]
        if group is None:
            raise ValueError(f"a {at.kind} of a group that this rank is not in")
        described = self._described[at.group]
        backend = dist.get_backend(group)
        kind = GlooExchange if backend == "gloo" else Exchange
        exchange = kind(group, described.member, len(described.ranks), self._dtype)
        if at.kind == "send_recv":
            return self._send_recv(at, exchange)
        blocks = list(at.counts) or [at.count] * exchange.size
        if at.kind == "all_gather":
            src = self._view(at.src, blocks[exchange.me])
            dst = self._view(at.dst, sum(blocks))
            return lambda pieces, leave: exchange.gather(dst(pieces), src(pieces), blocks, leave)
        native = _native_reduction(at, self._dtype, backend, exchange.size, self._exact)
        if at.kind == "all_reduce":
            return self._all_reduce(at, exchange, native)
        if at.kind == "reduce_scatter":
            return self._reduce_scatter(at, exchange, native, blocks)
        raise NotImplementedError(f"{at.kind} is no instruction that torch can run")

    def _view(self, at: Location | None, count: int) -> View:
        assert at is not None
        space, offset = at.space, at.offset // self._width
        if offset == 0 and count == self._sizes[space]:
            return lambda pieces: pieces[space]  # type: ignore[return-value]
        return lambda pieces: pieces[space].narrow(0, offset, count)  # type: ignore[union-attr]

    def _take_scratch(self, count: int) -> View:
        self.scratch = max(self.scratch, count)
        if count == 0:
            return lambda pieces: pieces[SPACE_SOURCE].narrow(0, 0, 0)  # type: ignore[union-attr]
        return lambda pieces: pieces[_SCRATCH].narrow(0, 0, count)  # type: ignore[union-attr]

    def _reduce_in_order(self, at: Instruction) -> Callable[[Pieces], None]:
        assert at.src is not None
        block = at.block_bytes
        views = [
            self._view(Location(at.src.space, at.src.offset + i * block), at.count)
            for i in range(at.blocks)
        ]
        dst = self._view(at.dst, at.count)
        op, divisor, op_block = str(at.op), at.divisor, at.op_block
        return lambda pieces: reduce(
            op, [view(pieces) for view in views], dst(pieces), divisor, op_block
        )

    def _send_recv(self, at: Instruction, exchange: Exchange) -> Call:
        sends, joined_sends, send_counts = self._messages(at.sends, exchange.size)
        recvs, joined_recvs, recv_counts = self._messages(at.recvs, exchange.size)
        if isinstance(exchange, GlooExchange):
            gloo = exchange
            return _local(
                lambda pieces: gloo.messages(
                    [(peer, view(pieces)) for peer, view in recvs],
                    [(peer, view(pieces)) for peer, view in sends],
                    gloo.swap_op,
                )
            )
        if joined_sends is not None and joined_recvs is not None:
            src, dst = joined_sends, joined_recvs
            return lambda pieces, leave: exchange.swap(
                dst(pieces), src(pieces), recv_counts, send_counts, leave
            )
        # What does not lie in one piece is copied to scratch, or from there.
        num_sent = sum(send_counts) if joined_sends is None else 0
        num_received = sum(recv_counts) if joined_recvs is None else 0
        packed = self._take_scratch(num_sent + num_received)

        def by_scratch(pieces: Pieces, leave: bool) -> None:
            src, dst = packed(pieces).split([num_sent, num_received])
            if joined_sends is not None:
                src = joined_sends(pieces)
            else:
                torch.cat([view(pieces) for _, view in sends], out=src)
            if joined_recvs is not None:
                exchange.swap(joined_recvs(pieces), src, recv_counts, send_counts)
                return
            exchange.swap(dst, src, recv_counts, send_counts)
            incoming = [view(pieces) for _, view in recvs]
            for out, part in zip(incoming, dst.split([out.numel() for out in incoming])):
                out.copy_(part)

        return by_scratch

    def _messages(
        self, messages: Sequence[Message], size: int
    ) -> tuple[list[tuple[int, View]], View | None, list[int]]:
        """The messages in ascending order of peers; one view of all, where they follow one
        another; and the counts by peer."""
        counts = [0] * size
        views = []
        ordered = sorted(messages, key=lambda message: message.peer)
        follows = True
        for i, message in enumerate(ordered):
            counts[message.peer] += message.count
            views.append((message.peer, self._view(message.at, message.count)))
            if i > 0:
                before = ordered[i - 1]
                follows &= message.at == Location(
                    before.at.space, before.at.offset + before.count * self._width
                )
        joined = None
        if not ordered:
            joined = self._view(Location(SPACE_SOURCE, 0), 0)
        elif follows:
            joined = self._view(ordered[0].at, sum(counts))
        return views, joined, counts

    def _all_reduce(self, at: Instruction, exchange: Exchange, native: Any) -> Call:
        op, divisor, count, size = str(at.op), at.divisor, at.count, exchange.size
        src, dst = self._view(at.src, count), self._view(at.dst, count)
        in_place = at.src == at.dst
        if native is not None:
            reduce_op, rest = native

            def by_backend(pieces: Pieces, leave: bool) -> dist.Work | None:
                out = dst(pieces)
                if not in_place:
                    out.copy_(src(pieces))
                leave = leave and rest == 1
                work = dist.all_reduce(out, reduce_op, group=exchange.group, async_op=leave)
                _divide(out, rest)
                return work  # type: ignore[no-any-return]

            return by_backend
        most = _ONE_EXCHANGE_BYTES_OF_TWO if size == 2 else _ONE_EXCHANGE_BYTES
        if count * size * self._width <= most:
            scratch = self._take_scratch(count * size)

            def by_one_exchange(pieces: Pieces, leave: bool) -> None:
                combine(op, exchange.collected(scratch(pieces), src(pieces)), dst(pieces), divisor)

            return by_one_exchange
        share = -(-count // size)
        blocks = [max(0, min(share, count - i * share)) for i in range(size)]
        mine = blocks[exchange.me]
        contributions = self._take_scratch(mine * size)

        def by_two_exchanges(pieces: Pieces, leave: bool) -> None:
            out = dst(pieces)
            parts = exchange.contributions(contributions(pieces), src(pieces), blocks)
            if mine > 0:
                combine(op, parts, out.narrow(0, exchange.me * share, mine), divisor)
            exchange.spread(out, blocks)

        return by_two_exchanges

    def _reduce_scatter(
        self, at: Instruction, exchange: Exchange, native: Any, blocks: list[int]
    ) -> Call:
        op, divisor = str(at.op), at.divisor
        mine = blocks[exchange.me]
        src, dst = self._view(at.src, sum(blocks)), self._view(at.dst, mine)
        if native is not None and len(set(blocks)) == 1:
            reduce_op, rest = native

            def by_backend(pieces: Pieces, leave: bool) -> dist.Work | None:
                out = dst(pieces)
                leave = leave and rest == 1
                work = dist.reduce_scatter_tensor(
                    out, src(pieces), reduce_op, group=exchange.group, async_op=leave
                )
                _divide(out, rest)
                return work  # type: ignore[no-any-return]

            return by_backend
        contributions = self._take_scratch(mine * exchange.size)

        def in_order(pieces: Pieces, leave: bool) -> None:
            parts = exchange.contributions(contributions(pieces), src(pieces), blocks)
            if mine > 0:
                combine(op, parts, dst(pieces), divisor)

        return in_order


def _native_reduction(
    at: Instruction, dtype: torch.dtype, backend: str, size: int, exact: bool
) -> Any:
    """The backend's op, and by what to divide afterwards; None where it has none."""
    if backend == "gloo" or dtype not in NATIVE_DTYPES:
        return None
    if exact and dtype.is_floating_point and at.op in ("min", "max"):
        return None
    if at.op != "avg":
        op = _NATIVE_OPS.get(str(at.op))
        return None if op is None else (op, 1)
    if backend == "nccl" and dtype.is_floating_point and at.divisor == size:
        return dist.ReduceOp.AVG, 1
    # Divided before it is rounded: so not where the sum has been rounded to few digits.
    return None if dtype in (torch.float16, torch.bfloat16) else (dist.ReduceOp.SUM, at.divisor)


def _divide(out: torch.Tensor, divisor: int) -> None:
    if divisor != 1:
        out.div_(divisor, rounding_mode=None if out.is_floating_point() else "trunc")


def _local(run: Callable[[Pieces], Any]) -> Call:
    def call(pieces: Pieces, leave: bool) -> None:
        run(pieces)

    return call


def _copies(copies: Sequence[Copy], width: int) -> Callable[[Pieces], None]:
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
    boxes = _merged(boxes)

    def run(pieces: Pieces) -> None:
        for src, src_offset, dst, dst_offset, shape, src_strides, dst_strides in boxes:
            source, target = pieces[src], pieces[dst]
            assert source is not None and target is not None
            # as_strided counts from the beginning of the storage.
            target.as_strided(shape, dst_strides, dst_offset + target.storage_offset()).copy_(
                source.as_strided(shape, src_strides, src_offset + source.storage_offset())
            )

    return run


def _merged(boxes: list[Any]) -> list[Any]:
    """Boxes that are alike, at equal distances, as one box of one more dim."""
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
