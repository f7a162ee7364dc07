"""Why do my replicas differ? A partial sum on a mesh of two dims, added in two ways.

    python python/examples/why_replicas_differ.py

Every rank of a mesh a=2,b=4 holds a contribution to a sum. All need the sum: P,P -> R,R.

One all-reduce for each mesh dim is the usual way (PyTorch issue 171916). The second one computes
the same sum in two groups, ranks 0-3 and ranks 4-7. Each group adds in an order that depends on the
location of its ranks, and floats added in another order have other bits: replicas differ.

Meshift plans one all-reduce over both dims. One group computes each element, and all ranks get
copies, so replicas have equal bits in any order.
"""

from __future__ import annotations

import importlib.util
import logging
import tempfile
from typing import Any

import meshift
import numpy as np
from meshift import local

SIZE = 4096


def show(name: str, plan: meshift.Plan, parts: list[Any]) -> None:
    """Runs a plan on a topology with the domains 0-2, 3-5, and 6-7, which are added first."""
    results = local.run(plan, parts, reduction_order="topology", domain_size=3)
    bits = [result.view(np.uint32) for result in results]
    differs = [ours != bits[0] for ours in bits]
    element = int(np.argmax(differs[4]))  # the first different one, or 0
    print(f"{name}: {'; '.join(step.text for step in plan.steps)}")
    for rank in (0, 4):
        value = results[rank][element]
        print(f"  element {element} of rank {rank}: {value:.8f}, bits {bits[rank][element]:#010x}")
    print(f"  elements that differ from rank 0's: {[int(which.sum()) for which in differs]}")
    print(f"  promise: {plan.promise[0]}, since {plan.promise[1]}\n")


def on_the_local_engine() -> None:
    """The ranks are simulated in this process."""
    source = meshift.Sharding.parse(f"f32[{SIZE}] on a=2,b=4 as P,P")
    target = source.with_placements("R,R")
    generator = np.random.default_rng(171916)
    parts = [generator.standard_normal(SIZE).astype(np.float32) for _ in source.mesh.ranks]

    chained = meshift.plan(source, target, planner="per-dim", reproducibility="none")
    show("one all-reduce for each mesh dim", chained, parts)
    show("Meshift's plan", meshift.plan(source, target), parts)

    # The strongest promise: the bits of adding in rank order, on every engine.
    ordered = meshift.plan(source, target, reproducibility="ordered")
    expected = parts[0]
    for part in parts[1:]:
        expected = expected + part
    results = local.run(ordered, parts, reduction_order="adversarial")
    equal = all(result.tobytes() == expected.tobytes() for result in results)
    print(f"with the promise 'ordered', the bits are those of adding in order: {equal}")


def on_processes() -> None:
    """The same on 4 processes over gloo, with PyTorch's DTensor beside Meshift."""
    from torch.multiprocessing.spawn import spawn

    with tempfile.NamedTemporaryFile() as file:
        spawn(on_one_process, (file.name,), nprocs=4)  # type: ignore[no-untyped-call, unused-ignore]


def on_one_process(rank: int, file: str) -> None:
    """Redistributes P,P to R,R on a mesh a=2,b=2, as PyTorch does and as Meshift does."""
    import torch
    import torch.distributed as dist
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.tensor import DTensor, Partial, Replicate

    import meshift.torch

    logging.getLogger("torch.distributed").setLevel(logging.ERROR)
    dist.init_process_group("gloo", init_method=f"file://{file}", rank=rank, world_size=4)
    mesh = init_device_mesh("cpu", (2, 2), mesh_dim_names=("a", "b"))
    generator = torch.Generator().manual_seed(171916)
    parts = torch.randn(4, SIZE, generator=generator)
    before = DTensor.from_local(parts[rank], mesh, [Partial(), Partial()])
    replicas = [Replicate(), Replicate()]
    in_order = parts[0] + parts[1] + parts[2] + parts[3]
    for name, after in (
        ("PyTorch", before.redistribute(mesh, replicas)),
        ("Meshift", meshift.torch.redistribute(before, replicas, promise="ordered")),
    ):
        mine = after.to_local()
        everyone = [torch.empty_like(mine) for _ in range(4)]
        dist.all_gather(everyone, mine)
        if rank == 0:
            differ = [int((other != everyone[0]).sum()) for other in everyone]
            print(f"{name} on 4 processes: elements that differ from rank 0's: {differ}")
            print(f"  the bits of adding in order: {torch.equal(mine, in_order)}")
    if rank == 0:
        # Sums of two numbers have one order, so the groups of this small mesh agree by luck.
        print(f"  Meshift's plan: {meshift.torch.plan_of(before, replicas).steps[0].text}")
    dist.destroy_process_group()


def main() -> None:
    on_the_local_engine()
    if importlib.util.find_spec("torch") is not None:
        on_processes()
    else:
        print("PyTorch is not there: the part on 4 processes is left out")


if __name__ == "__main__":
    main()
