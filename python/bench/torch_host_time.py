"""Measures the host time of a cached redistribution beyond the bare torch.distributed calls that it
makes.

    python python/bench/torch_host_time.py

The process group is PyTorch's fake one, which sends nothing. Each redistribution's calls are
recorded and then made alone on the same tensors. Prints microseconds, the median of batches, and
exits 1 if a target is missed.
"""

import functools
import statistics
import sys
import time

import torch
import torch.distributed as dist
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.tensor import DTensor, Partial, Replicate, Shard
from torch.testing._internal.distributed.fake_pg import FakeStore
from torch.utils._python_dispatch import TorchDispatchMode

import meshift.torch

OVER, SHARE = 25.0, 0.5
CASES = [
    ((4,), [Shard(0)], [Replicate()]),
    ((4,), [Shard(0)], [Shard(1)]),
    ((4,), [Partial()], [Replicate()]),
    ((4,), [Partial()], [Shard(0)]),
    ((2, 2), [Partial(), Partial()], [Replicate(), Replicate()]),
    ((2, 2), [Shard(0), Shard(0)], [Replicate(), Replicate()]),
    ((2, 2), [Shard(0), Shard(1)], [Shard(1), Shard(0)]),
    ((2, 2), [Partial(), Shard(0)], [Shard(1), Shard(0)]),
]


class Recorder(TorchDispatchMode):
    """Records the called operators of collectives, with their arguments."""

    def __init__(self):
        super().__init__()
        self.calls = []

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        if func.namespace in ("c10d", "_c10d_functional", "_dtensor"):
            self.calls.append((func, args, kwargs or {}))
        return func(*args, **(kwargs or {}))


def group_of(args):
    return dist.ProcessGroup.unbox(next(arg for arg in args if isinstance(arg, torch.ScriptObject)))


def bare(func, args, kwargs):
    """The torch.distributed call that makes a recorded operator, or the operator itself."""
    name = func.overloadpacket.__name__
    if func.namespace != "c10d":
        return functools.partial(func, *args, **kwargs)
    group = group_of(args)
    if name == "allreduce_":
        return functools.partial(dist.all_reduce, args[0][0], group=group)
    if name in ("_allgather_base_", "all_gather_single_"):
        return functools.partial(dist.all_gather_into_tensor, args[0], args[1], group=group)
    if name in ("_reduce_scatter_base_", "reduce_scatter_single_"):
        return functools.partial(dist.reduce_scatter_tensor, args[0], args[1], group=group)
    if name in ("alltoall_base_", "all_to_all_single_"):
        return functools.partial(
            dist.all_to_all_single, args[0], args[1], args[3], args[4], group=group
        )
    if name == "allgather_":
        return functools.partial(dist.all_gather, args[0][0], args[1][0], group=group)
    if name == "alltoall_":
        return functools.partial(dist.all_to_all, args[0], args[1], group=group)
    return functools.partial(func, *args, **kwargs)


def microseconds(calls, count=200, batches=25):
    """The median time of each callable; batches alternate."""
    times = [[] for _ in calls]
    for _ in range(batches):
        for call, own in zip(calls, times):
            begin = time.perf_counter()
            for _ in range(count):
                call()
            own.append((time.perf_counter() - begin) / count * 1e6)
    return [statistics.median(own) for own in times]


def main():
    torch.set_num_threads(1)
    dist.init_process_group("fake", store=FakeStore(), rank=0, world_size=4)
    missed = 0
    print(f"PyTorch {torch.__version__}, microseconds a call")
    print(
        f"{'mesh':>6} {'from':>30} {'to':>30} {'calls':>5} {'bare':>6} {'ours':>6} {'over':>6} {'theirs':>7}"
    )
    for shape, before, after in CASES:
        mesh = init_device_mesh("cpu", shape)
        local = [16, 16]
        for placement, ranks in zip(before, shape):
            if placement.is_shard():
                local[placement.dim] //= ranks
        x = DTensor.from_local(torch.rand(local), mesh, before, run_check=False)
        ours = functools.partial(meshift.torch.redistribute, x, after)
        theirs = functools.partial(x.redistribute, placements=after)
        for _ in range(20):
            ours(), theirs()
        with Recorder() as seen:
            ours()
        recorded = [bare(*call) for call in seen.calls]

        def alone():
            for call in recorded:
                call()

        assert recorded, f"no collective was seen: {before} to {after}"
        least, mine, its = microseconds([alone, ours, theirs])
        bad = mine - least > OVER or mine > SHARE * its
        missed += bad
        names = [",".join(map(str, placements)) for placements in (before, after)]
        print(
            f"{'x'.join(map(str, shape)):>6} {names[0]:>30} {names[1]:>30} {len(recorded):>5} {least:>6.1f} "
            f"{mine:>6.1f} {mine - least:>6.1f} {its:>7.1f}{' missed' if bad else ''}"
        )
    print(
        f"{missed} of {len(CASES)} miss a target: at most {OVER:.0f} over, under {SHARE} of PyTorch's"
    )
    dist.destroy_process_group()
    return 1 if missed else 0


if __name__ == "__main__":
    sys.exit(main())
