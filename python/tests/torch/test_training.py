"""Training under `use()`: equal bits if they are promised, otherwise PyTorch's losses."""

import hashlib

import pytest

from harness import (
    VERSION,
    DTensor,
    Partial,
    Replicate,
    array,
    mesh_of,
    processes,
    torch,
    used,
)


class TwoLayers(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.first = torch.nn.Linear(24, 48)
        self.second = torch.nn.Linear(48, 24)

    def forward(self, x):
        return 1.0 * self.second(torch.relu(self.first(x)))


def fully_sharded(rank, promise, steps):
    """The losses of FSDP2 and TP on 2x2 ranks, and a hash of each whole parameter."""
    from torch.distributed.fsdp import fully_shard
    from torch.distributed.tensor.parallel import (
        ColwiseParallel,
        RowwiseParallel,
        parallelize_module,
    )

    mesh = mesh_of((2, 2))
    torch.manual_seed(0)
    model = TwoLayers()
    with used(promise):
        layers = {"first": ColwiseParallel(), "second": RowwiseParallel()}
        parallelize_module(model, mesh["b"], layers)
        for layer in (model.first, model.second, model):
            fully_shard(layer, mesh=mesh["a"])
        optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
        losses = []
        for step in range(steps):
            generator = torch.Generator().manual_seed(1000 * step + mesh.get_local_rank("a"))
            x = torch.randn(16, 24, generator=generator)
            loss = (model(x) - x.roll(1, 1)).square().mean()
            loss.backward()
            torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            optimizer.step()
            optimizer.zero_grad()
            losses.append(loss.item())
        return losses, [_hash(p.full_tensor()) for p in model.parameters()]


def _hash(tensor):
    return hashlib.sha1(array(tensor).tobytes()).hexdigest()


needs_fsdp_on_cpus = pytest.mark.skipif(
    VERSION < (2, 7), reason="FSDP2 of this PyTorch does not run on CPUs"
)


@needs_fsdp_on_cpus
def test_fsdp_and_tp_twice_with_equal_bits():
    one, other = (processes(4, fully_sharded, "ordered", 20) for _ in range(2))
    assert one == other
    assert len({tuple(parameters) for _, parameters in one}) == 1
    # Ranks of one tensor-parallel group compute one loss.
    assert one[0][0] == one[1][0] and one[2][0] == one[3][0] and one[0][0] != one[2][0]


@needs_fsdp_on_cpus
@pytest.mark.parametrize("promise", ["replicas", "ordered"])
def test_losses_of_fsdp_and_tp_are_those_without(promise):
    ours, theirs = (processes(4, fully_sharded, name, 20) for name in (promise, None))
    furthest = max(abs(a - b) for mine, its in zip(ours, theirs) for a, b in zip(mine[0], its[0]))
    print(f"\n{promise}: losses differ by at most {furthest:.1e}")
    assert furthest < 1e-5 and theirs[0][0][-1] < theirs[0][0][0]


def data_parallel(rank, shape, promise, steps):
    """Each rank adds the gradients of its rows; redistribution of DTensors is all that is sent.

    The rows of a rank are those of its position, so that contributions do not depend on the mesh.
    """
    mesh = mesh_of(shape)
    parts, replicated = [Partial()] * len(shape), [Replicate()] * len(shape)
    torch.manual_seed(0)
    weights = [torch.randn(24, 48), torch.randn(48, 24)]
    losses = []
    with used(promise):
        for step in range(steps):
            generator = torch.Generator().manual_seed(1000 * step + rank)
            x = torch.randn(8, 24, generator=generator)
            local = [w.clone().requires_grad_() for w in weights]
            loss = (torch.relu(x @ local[0]) @ local[1] - x.roll(1, 1)).square().mean()
            loss.backward()
            for w, one in zip(weights, local):
                gradient = DTensor.from_local(one.grad, mesh, parts, run_check=False)
                w -= 0.02 * gradient.redistribute(placements=replicated).to_local()
            losses.append(loss.item())
    return losses, [_hash(w) for w in weights]


def test_data_parallel_has_equal_bits_on_every_factoring():
    found = [
        processes(4, data_parallel, mesh, "ordered", 8) for mesh in ((2, 2), (4, 1), (1, 4), (4,))
    ]
    assert all(run == found[0] for run in found)
    assert len({tuple(parameters) for _, parameters in found[0]}) == 1
