"""Compares the times of `meshift.torch.redistribute` and PyTorch's own, alternating, on 4 gloo
processes.

    python python/bench/torch_live.py [--repeats 30]

Prints a table of medians, in milliseconds of the slowest rank, and exits 1 if a target is missed.
"""

import argparse
import os
import statistics
import sys
import tempfile
import time

import torch
import torch.distributed as dist
import torch.multiprocessing as mp
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.tensor import DTensor, Partial, Replicate, Shard

import meshift.torch

RANKS = 4
KIB, MIB = 1 << 10, 1 << 20
# Mesh, source and target of 20 transitions.
TRANSITIONS = [
    (mesh, *pair.split(" "))
    for mesh, pairs in {
        (4,): ["0 1", "1 0", "0 R", "1 R", "R 0", "P R", "P 0", "P 1"],
        (2, 2): [
            "PP RR",
            "PP 00",
            "PP 01",
            "PR RR",
            "P0 R0",
            "P0 00",
            "00 RR",
            "01 RR",
            "01 10",
            "00 11",
            "0R R0",
            "RR 01",
        ],
    }.items()
    for pair in pairs
]
# The smallest accepted ratio of PyTorch's time to ours.
SPECIAL = {((4,), "0", "1"): 5.0, ((2, 2), "PP", "RR"): 1.5}
LEAST = {KIB: 1 / 1.25, MIB: 1 / 1.25, 64 * MIB: 1 / 1.10}
PLACEMENTS = {"P": Partial(), "R": Replicate(), "0": Shard(0), "1": Shard(1)}


def measure(rank, directory, repeats, results):
    torch.set_num_threads(1)
    os.environ.setdefault("GLOO_SOCKET_IFNAME", "lo" if sys.platform == "linux" else "lo0")
    dist.init_process_group(
        "gloo", init_method=f"file://{directory}/store", rank=rank, world_size=RANKS
    )
    meshes = {mesh: init_device_mesh("cpu", mesh) for mesh in ((4,), (2, 2))}
    for size in LEAST:
        for case in TRANSITIONS:
            results.put((rank, size, case, compare(meshes[case[0]], case, size, repeats)))
    dist.barrier()
    dist.destroy_process_group()


def compare(mesh, case, size, repeats):
    """The slowest rank's times of both ways, alternating."""
    rows = 1 << (size.bit_length() - 1) // 2 - 1
    shape = (rows, size // 4 // rows)
    before, after = ([PLACEMENTS[p] for p in text] for text in case[1:])
    local = list(shape)
    for placement, ranks in zip(before, mesh.shape):
        if placement.is_shard():
            local[placement.dim] //= ranks
    x = DTensor.from_local(torch.rand(local), mesh, before, run_check=False)
    ways = [lambda: meshift.torch.redistribute(x, after), lambda: x.redistribute(placements=after)]
    times = torch.zeros(repeats + 2, 2, dtype=torch.float64)
    for i in range(repeats + 2):
        for way in (0, 1) if i % 2 else (1, 0):
            dist.barrier()
            begin = time.perf_counter()
            ways[way]()
            times[i, way] = time.perf_counter() - begin
    dist.all_reduce(times, dist.ReduceOp.MAX)
    return [statistics.median(times[2:, way].tolist()) for way in (0, 1)]


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--repeats", type=int, default=30)
    repeats = parser.parse_args().repeats
    results = mp.get_context("spawn").SimpleQueue()
    with tempfile.TemporaryDirectory() as directory:
        mp.spawn(measure, (directory, repeats, results), RANKS)
    missed = 0
    print(f"PyTorch {torch.__version__}, {RANKS} gloo processes, {os.cpu_count()} cores")
    print(
        f"{'bytes':>10} {'mesh':>8} {'from':>5} {'to':>5} {'ours ms':>9} {'theirs ms':>9} {'ratio':>6} {'least':>6}"
    )
    for _ in range(RANKS * len(LEAST) * len(TRANSITIONS)):
        rank, size, case, (ours, theirs) = results.get()
        if rank:
            continue
        least = SPECIAL.get(case, LEAST[size]) if size == 64 * MIB else LEAST[size]
        missed += theirs / ours < least
        mesh = "x".join(map(str, case[0]))
        print(
            f"{size:>10} {mesh:>8} {case[1]:>5} {case[2]:>5} {ours * 1e3:>9.3f} {theirs * 1e3:>9.3f} "
            f"{theirs / ours:>6.2f} {least:>6.2f}{' missed' if theirs / ours < least else ''}"
        )
    print(f"{missed} targets missed")
    return 1 if missed else 0


if __name__ == "__main__":
    sys.exit(main())
