"""Programs as lists of calls of torch and torch.distributed.

    run = Executable(program, groups, torch.float32, (8, 6))
    target = run(source)

Every collective is one of four calls: all_reduce, reduce_scatter_tensor, all_gather_into_tensor
and all_to_all_single. Where a backend cannot reduce a dtype, or where its quickest call is
all_to_all_single (gloo), contributions are exchanged and reduced here, in the order of ranks.
"""

from __future__ import annotations

from typing import Any, Callable, Optional, Sequence

import torch
import torch.distributed as dist

from meshift.program import Copy, Group, Instruction, Location, Message, Program
from meshift.torch._arithmetic import fill_identity, reduce
from meshift.torch._specs import TORCH_DTYPES

# Source, target and workspace, flat and of one dtype; in the places 1, 2 and 3.
Pieces = Sequence[Optional[torch.Tensor]]
# Returns the work that is left to be waited for, if it was asked to leave it.
Call = Callable[[Pieces, bool], Optional[dist.Work]]
View = Callable[[Pieces], torch.Tensor]

_NATIVE_DTYPES = {
    torch.float16,
    torch.bfloat16,
    torch.float32,
    torch.float64,
    torch.int8,
    torch.uint8,
    torch.int32,
    torch.int64,
}
_NATIVE_OPS = {
    "sum": dist.ReduceOp.SUM,
    "min": dist.ReduceOp.MIN,
    "max": dist.ReduceOp.MAX,
    "product": dist.ReduceOp.PRODUCT,
}
# Up to so many bytes, an all-reduce in order is one exchange instead of two: latency counts.
_ONE_EXCHANGE_BYTES = 1 << 18


class Executable:
    """The program of this rank. Its collectives are called by all members of their groups."""

    def __init__(
        self,
        program: Program,
        groups: Sequence[dist.ProcessGroup | None],
        dtype: torch.dtype,
        target_shape: Sequence[int],
    ) -> None:
        """`groups`: those of program.groups, None where this rank is in none."""
        self.dtype = dtype
        self.target_shape = tuple(target_shape)
        width = dtype.itemsize
        self._workspace = -(-program.workspace_bytes // width)
        sizes = (0, program.source_bytes, program.target_bytes, self._workspace * width)
        compiler = _Compiler(program.groups, groups, dtype, [size // width for size in sizes])
        self._calls = [compiler.compile(at) for at in program.instructions]

    def __call__(self, source: torch.Tensor) -> torch.Tensor:
        """`source` is contiguous; returns a new tensor."""
        target, pieces = self._pieces(source)
        for call in self._calls:
            call(pieces, False)
        return target

    def start(self, source: torch.Tensor) -> tuple[torch.Tensor, dist.Work | None, Pieces]:
        """Leaves the last collective open, where it is the last call: the work, and what must
        stay until it is done."""
        target, pieces = self._pieces(source)
        work = None
        last = len(self._calls) - 1
        for i, call in enumerate(self._calls):
            work = call(pieces, i == last)
        return target, work, pieces

    def _pieces(self, source: torch.Tensor) -> tuple[torch.Tensor, Pieces]:
        target = torch.empty(self.target_shape, dtype=self.dtype, device=source.device)
        workspace = None
        if self._workspace:
            workspace = torch.empty(self._workspace, dtype=self.dtype, device=source.device)
        return target, (None, source.view(-1), target.view(-1), workspace)


class _Compiler:
    def __init__(
        self,
        described: Sequence[Group],
        groups: Sequence[dist.ProcessGroup | None],
        dtype: torch.dtype,
        sizes: Sequence[int],
    ) -> None:
        self._described = described
        self._groups = groups
        self._dtype = dtype
        self._width = dtype.itemsize
        self._sizes = sizes

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
        me = self._described[at.group].member
        backend = dist.get_backend(group)
        exchange = _Exchange(group, me, len(self._described[at.group].ranks), self._dtype, backend)
        if at.kind == "send_recv":
            return self._send_recv(at, exchange)
        blocks = list(at.counts) or [at.count] * exchange.size
        if at.kind == "all_gather":
            src = self._view(at.src, blocks[me])
            dst = self._view(at.dst, sum(blocks))
            return lambda pieces, leave: exchange.gather(dst(pieces), src(pieces), blocks, leave)
        native = _native_reduction(at, self._dtype, backend, exchange.size)
        if at.kind == "all_reduce":
            src = self._view(at.src, at.count)
            dst = self._view(at.dst, at.count)
            return _all_reduce(at, src, dst, exchange, native, at.src == at.dst)
        if at.kind == "reduce_scatter":
            src = self._view(at.src, sum(blocks))
            dst = self._view(at.dst, blocks[me])
            return _reduce_scatter(at, src, dst, exchange, native, blocks)
        raise NotImplementedError(f"{at.kind} is no instruction that torch can run")

    def _view(self, at: Location | None, count: int) -> View:
        assert at is not None
        space, offset = at.space, at.offset // self._width
        if offset == 0 and count == self._sizes[space]:
            return lambda pieces: pieces[space]  # type: ignore[return-value]
        return lambda pieces: pieces[space].narrow(0, offset, count)  # type: ignore[union-attr]

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

    def _send_recv(self, at: Instruction, exchange: _Exchange) -> Call:
        sent, send_counts = self._messages(at.sends, exchange.size)
        received, recv_counts = self._messages(at.recvs, exchange.size)

        def call(pieces: Pieces, leave: bool) -> dist.Work | None:
            outs = [view(pieces) for view in received]
            ins = [view(pieces) for view in sent]
            src = ins[0] if len(ins) == 1 else exchange.joined(ins, pieces)
            if len(outs) == 1:
                return exchange.swap(outs[0], src, recv_counts, send_counts, leave)
            dst = exchange.empty(sum(recv_counts), src)
            exchange.swap(dst, src, recv_counts, send_counts, False)
            for out, part in zip(outs, dst.split([out.numel() for out in outs])):
                out.copy_(part)
            return None

        return call

    def _messages(self, messages: Sequence[Message], size: int) -> tuple[list[View], list[int]]:
        """Views of the messages in ascending order of peers, neighbours as one; counts by peer."""
        counts = [0] * size
        runs: list[list[int]] = []  # space, offset in bytes, count
        for message in sorted(messages, key=lambda message: message.peer):
            counts[message.peer] += message.count
            space, offset = message.at.space, message.at.offset
            if runs and runs[-1][0] == space and runs[-1][1] + runs[-1][2] * self._width == offset:
                runs[-1][2] += message.count
            else:
                runs.append([space, offset, message.count])
        return [self._view(Location(space, at), count) for space, at, count in runs], counts


class _Exchange:
    """Calls of one group. Where the backend does not know the dtype, bytes are moved."""

    def __init__(
        self, group: dist.ProcessGroup, me: int, size: int, dtype: torch.dtype, backend: str
    ) -> None:
        self.group = group
        self.me = me
        self.size = size
        self._is_gloo = backend == "gloo"
        self._width = 1 if dtype in _NATIVE_DTYPES else dtype.itemsize
        self._as_bytes = dtype not in _NATIVE_DTYPES
        self.in_order = self._is_gloo

    def empty(self, count: int, like: torch.Tensor) -> torch.Tensor:
        return torch.empty(count, dtype=like.dtype, device=like.device)

    def joined(self, parts: list[torch.Tensor], pieces: Pieces) -> torch.Tensor:
        if parts:
            return torch.cat(parts)
        like = next(piece for piece in pieces if piece is not None)
        return self.empty(0, like)

    def swap(
        self,
        dst: torch.Tensor,
        src: torch.Tensor,
        recv_counts: Sequence[int],
        send_counts: Sequence[int],
        leave: bool = False,
    ) -> dist.Work | None:
        """Sends send_counts[i] elements to member i, and receives recv_counts[i] of it."""
        if self._as_bytes:
            dst, src = dst.view(torch.uint8), src.view(torch.uint8)
            recv_counts = [count * self._width for count in recv_counts]
            send_counts = [count * self._width for count in send_counts]
        work: dist.Work | None = dist.all_to_all_single(
            dst, src, list(recv_counts), list(send_counts), group=self.group, async_op=leave
        )
        return work

    def gather(
        self, dst: torch.Tensor, src: torch.Tensor, blocks: Sequence[int], leave: bool = False
    ) -> dist.Work | None:
        """dst becomes the blocks of all members, one after another."""
        if self._is_gloo or len(set(blocks)) > 1:
            own = src.numel()
            return self.swap(dst, src.repeat(self.size), blocks, [own] * self.size, leave)
        if self._as_bytes:
            dst, src = dst.view(torch.uint8), src.view(torch.uint8)
        work: dist.Work | None = dist.all_gather_into_tensor(
            dst, src, group=self.group, async_op=leave
        )
        return work

    def spread(self, dst: torch.Tensor, blocks: Sequence[int]) -> None:
        """Each member's block of dst goes to all others. Blocks follow one another."""
        parts = dst.split(list(blocks))
        if not self._is_gloo:
            self.gather(dst, parts[self.me].clone(), blocks)
            return
        if self._as_bytes:
            parts = tuple(part.view(torch.uint8) for part in parts)
        # Quicker than all_to_all_single, which takes a copy for each member.
        works = []
        for i, part in enumerate(parts):
            if i != self.me and part.numel() > 0:
                works.append(self.group.recv([part], i, 0))
        for i in range(self.size):
            if i != self.me and parts[self.me].numel() > 0:
                works.append(self.group.send([parts[self.me]], i, 0))
        for work in works:
            work.wait()


def _all_reduce(
    at: Instruction, src: View, dst: View, exchange: _Exchange, native: Any, in_place: bool
) -> Call:
    op, divisor, count, size = str(at.op), at.divisor, at.count, exchange.size

    def by_backend(pieces: Pieces, leave: bool) -> dist.Work | None:
        out = dst(pieces)
        if not in_place:
            out.copy_(src(pieces))
        reduce_op, rest = native
        work = dist.all_reduce(out, reduce_op, group=exchange.group, async_op=leave and rest == 1)
        _divide(out, rest)
        return work  # type: ignore[no-any-return]

    def by_one_exchange(pieces: Pieces, leave: bool) -> None:
        own = src(pieces)
        all_of_them = exchange.empty(size * count, own)
        exchange.swap(all_of_them, own.repeat(size), [count] * size, [count] * size)
        reduce(op, list(all_of_them.view(size, count)), dst(pieces), divisor)

    share = -(-count // size)
    blocks = [max(0, min(share, count - i * share)) for i in range(size)]

    def by_two_exchanges(pieces: Pieces, leave: bool) -> None:
        own, out = src(pieces), dst(pieces)
        mine = blocks[exchange.me]
        contributions = exchange.empty(size * mine, own)
        exchange.swap(contributions, own, [mine] * size, blocks)
        if mine > 0:
            part = out.narrow(0, exchange.me * share, mine)
            reduce(op, list(contributions.view(size, mine)), part, divisor)
        exchange.spread(out, blocks)

    if native is not None:
        return by_backend
    if count * size * _itemsize(exchange, at) <= _ONE_EXCHANGE_BYTES:
        return by_one_exchange
    return by_two_exchanges


def _reduce_scatter(
    at: Instruction, src: View, dst: View, exchange: _Exchange, native: Any, blocks: list[int]
) -> Call:
    op, divisor, size = str(at.op), at.divisor, exchange.size
    mine = blocks[exchange.me]

    def by_backend(pieces: Pieces, leave: bool) -> dist.Work | None:
        out = dst(pieces)
        reduce_op, rest = native
        work = dist.reduce_scatter_tensor(
            out, src(pieces), reduce_op, group=exchange.group, async_op=leave and rest == 1
        )
        _divide(out, rest)
        return work  # type: ignore[no-any-return]

    def in_order(pieces: Pieces, leave: bool) -> None:
        whole = src(pieces)
        contributions = exchange.empty(size * mine, whole)
        exchange.swap(contributions, whole, [mine] * size, blocks)
        if mine > 0:
            reduce(op, list(contributions.view(size, mine)), dst(pieces), divisor)

    return by_backend if native is not None and len(set(blocks)) == 1 else in_order


def _native_reduction(at: Instruction, dtype: torch.dtype, backend: str, size: int) -> Any:
    """The backend's op, and by what to divide afterwards; None where it has none."""
    if backend == "gloo" or dtype not in _NATIVE_DTYPES:
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


def _itemsize(exchange: _Exchange, at: Instruction) -> int:
    return TORCH_DTYPES[str(at.dtype)].itemsize


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
            target.as_strided(shape, dst_strides, dst_offset).copy_(
                source.as_strided(shape, src_strides, src_offset)
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
