"""Exchanges among the members of one group, of flat tensors of one dtype.

    exchange.gather(dst, src, [4, 4, 3])      # dst: the blocks of three members
"""

from __future__ import annotations

import weakref
from typing import Any, Sequence

import torch
import torch.distributed as dist

from meshift.torch._specs import NATIVE_DTYPES


class Exchange:
    """By all_gather_into_tensor and all_to_all_single, which all backends have.

    Where the backend may not know the dtype, bytes are moved.
    """

    def __init__(self, group: dist.ProcessGroup, me: int, size: int, dtype: torch.dtype) -> None:
        # Not kept: destroying a group ends it.
        self._group = weakref.ref(group)
        self.me = me
        self.size = size
        self._as_bytes = dtype not in NATIVE_DTYPES
        self._width = dtype.itemsize

    @property
    def group(self) -> dist.ProcessGroup:
        group = self._group()
        if group is None:
            raise ValueError("the process group is destroyed")
        return group

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
        return dist.all_to_all_single(  # type: ignore[no-any-return]
            dst, src, list(recv_counts), list(send_counts), group=self.group, async_op=leave
        )

    def gather(
        self, dst: torch.Tensor, src: torch.Tensor, blocks: Sequence[int], leave: bool = False
    ) -> dist.Work | None:
        """dst becomes the blocks of all members, one after another."""
        if len(set(blocks)) > 1:
            return self.swap(dst, src.repeat(self.size), blocks, [src.numel()] * self.size, leave)
        if self._as_bytes:
            dst, src = dst.view(torch.uint8), src.view(torch.uint8)
        return dist.all_gather_into_tensor(  # type: ignore[no-any-return]
            dst, src, group=self.group, async_op=leave
        )

    def spread(self, dst: torch.Tensor, blocks: Sequence[int]) -> None:
        """Each member's block of dst goes to all others. Blocks follow one another."""
        self.gather(dst, dst.split(list(blocks))[self.me].clone(), blocks)

    def collected(self, scratch: torch.Tensor, src: torch.Tensor) -> list[torch.Tensor]:
        """All members' src, in their order. Scratch has as many elements as all of them."""
        self.gather(scratch, src, [src.numel()] * self.size)
        return list(scratch.view(self.size, src.numel()))

    def contributions(
        self, scratch: torch.Tensor, src: torch.Tensor, blocks: Sequence[int]
    ) -> list[torch.Tensor]:
        """What all members have for this one's block, in their order. Scratch as above.

        src has a block for each member.
        """
        mine = blocks[self.me]
        self.swap(scratch, src, [mine] * self.size, blocks)
        return list(scratch.view(self.size, mine))


class GlooExchange(Exchange):
    """By messages between pairs: all at once, and without a copy for each receiver."""

    swap_op = torch.ops.c10d.alltoall_base_

    def gather(
        self, dst: torch.Tensor, src: torch.Tensor, blocks: Sequence[int], leave: bool = False
    ) -> dist.Work | None:
        parts = dst.split(list(blocks))
        parts[self.me].copy_(src)
        self._spread(parts)
        return None

    def spread(self, dst: torch.Tensor, blocks: Sequence[int]) -> None:
        self._spread(dst.split(list(blocks)))

    def _spread(self, parts: Sequence[torch.Tensor]) -> None:
        own = parts[self.me]
        others = [(i, part) for i, part in enumerate(parts) if i != self.me]
        self.messages(others, [(i, own) for i, _ in others], torch.ops.c10d._allgather_base_)

    def collected(self, scratch: torch.Tensor, src: torch.Tensor) -> list[torch.Tensor]:
        parts = list(scratch.view(self.size, src.numel()))
        parts[self.me] = src
        self._spread(parts)
        return parts

    def contributions(
        self, scratch: torch.Tensor, src: torch.Tensor, blocks: Sequence[int]
    ) -> list[torch.Tensor]:
        inputs = list(src.split(list(blocks)))
        own = inputs[self.me]
        parts = list(scratch.view(self.size, own.numel()))
        others = [i for i in range(self.size) if i != self.me]
        self.messages(
            [(i, parts[i]) for i in others],
            [(i, inputs[i]) for i in others],
            torch.ops.c10d._reduce_scatter_base_,
        )
        parts[self.me] = own
        return parts

    def messages(
        self,
        recvs: Sequence[tuple[int, torch.Tensor]],
        sends: Sequence[tuple[int, torch.Tensor]],
        stands_for: Any,
    ) -> None:
        """Receives from, and sends to, members; empty ones are left out on both sides.

        `stands_for`: the collective that this is, for those who count collectives.
        """
        _tell(stands_for)
        group = self.group
        works = []
        for peer, tensor in recvs:
            if tensor.numel() > 0:
                works.append(group.recv([self._bytes(tensor)], peer, 0))
        for peer, tensor in sends:
            if tensor.numel() > 0:
                works.append(group.send([self._bytes(tensor)], peer, 0))
        for work in works:
            work.wait()

    def _bytes(self, tensor: torch.Tensor) -> torch.Tensor:
        return tensor.view(torch.uint8) if self._as_bytes else tensor


def _tell(collective: Any) -> None:
    """Messages are no collectives to CommDebugMode: it hears of the collective that they are."""
    if torch._C._len_torch_dispatch_stack() == 0:
        return
    from torch.distributed.tensor.debug import CommDebugMode
    from torch.utils._python_dispatch import _get_current_dispatch_mode_stack

    for mode in _get_current_dispatch_mode_stack():
        if isinstance(mode, CommDebugMode):
            mode.comm_counts[collective] += 1
