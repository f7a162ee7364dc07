"""The oracle agrees with PyTorch's placements, and its checks find PyTorch's known defects."""

import numpy as np
import pytest

import oracle
from harness import (
    VERSION,
    array,
    dtensor,
    marked_sums,
    mesh_of,
    placements,
    processes,
    pytorch,
    threads,
    torch,
)
from test_transitions import tally

LAYOUTS = [
    ((2, 2), "S(0),S(0)"),
    ((2, 2), "S(1),S(0)"),
    ((2, 3), "S(0),S(0)"),
    ((2, 2, 2), "S(0),R,S(0)"),
    ((4, 1), "S(0),S(1)"),
]
# Strided shards of PyTorch are even. Each is the shard order beside it.
STRIDED = [
    ((2, 2), "SS(0,2),S(0)", (1, 0)),
    ((2, 3), "SS(0,3),S(0)", (1, 0)),
    ((2, 2, 2), "SS(0,2),R,S(0)", (2, 1, 0)),
    ((2, 3, 2), "SS(0,6),SS(0,2),S(0)", (2, 1, 0)),
]


def distribute(rank, mesh, text, shapes):
    from torch.distributed.tensor import distribute_tensor

    device_mesh, at = mesh_of(mesh), oracle.coordinates(mesh)[rank]
    for shape in shapes:
        full = oracle.full_tensor(shape)
        held = array(distribute_tensor(torch.from_numpy(full), device_mesh, placements(text)))
        want = oracle.local(full, mesh, text, at)
        assert oracle.same_bits(held, want), (shape, at, held.shape, want.shape)


@pytest.mark.parametrize("mesh,text", LAYOUTS)
def test_local_tensors_are_those_of_distribute_tensor(mesh, text):
    shapes = [(rows, 3) for rows in (1, 2, 3, 4, 5, 7, 8, 12, 13)]
    threads(int(np.prod(mesh)), distribute, mesh, text, shapes)


@pytest.mark.parametrize("mesh,text,order", STRIDED)
def test_strided_shards_are_shard_orders(mesh, text, order):
    shapes = [(rows, 3) for rows in (12, 24, 36)]
    threads(int(np.prod(mesh)), distribute, mesh, text, shapes)
    for shape in shapes:
        full = oracle.full_tensor(shape)
        for at in oracle.coordinates(mesh):
            strided = oracle.local(full, mesh, text, at)
            assert oracle.same_bits(strided, oracle.local(full, mesh, text, at, order))


@pytest.mark.parametrize("op", oracle.COMBINE)
@pytest.mark.parametrize("count", [1, 2, 5])
def test_contributions_combine_to_the_tensor(op, count):
    full = oracle.full_tensor((4, 3), "int64" if op[0] == "b" else "float32", seed=count)
    parts = oracle.contributions(full, op, count, seed=1)
    assert np.array_equal(oracle.COMBINE[op](parts), full)
    assert count == 1 or any(not np.array_equal(part, full) for part in parts)


def flattened(rank, mesh, shape, before, after):
    """PyTorch's redistribution with a flattened group, on random rows."""
    device_mesh, at = mesh_of(mesh), oracle.coordinates(mesh)[rank]
    device_mesh._flatten()
    source = oracle.Source(oracle.full_tensor(shape), mesh, before)
    return array(pytorch(dtensor(source.local(at), device_mesh, before, shape), after))


@pytest.mark.skipif(VERSION < (2, 12), reason="this PyTorch does not merge gathers")
def test_judge_finds_rows_that_a_merged_gather_loses():
    for rows, lost in ((5, True), (8, False)):
        case = (rows, 3), "S(0),S(0)", "R,R"
        held = threads(4, flattened, (2, 2), *case)
        problem = oracle.judge(oracle.full_tensor(case[0]), (2, 2), "R,R", held)
        assert bool(problem) == lost, problem


def test_marks_find_sums_of_several_groups():
    shape = (5, 3)
    once = [((2, 2), shape, "P,S(0)", "R,S(0)"), ((2, 3), shape, "P,S(0)", "S(1),S(0)")]
    twice = [((2, 2), shape, "P,P", "R,R"), ((2, 2), shape, "P,R", "R,R")]
    with marked_sums():
        _, divergent = tally(once + twice, "pytorch", floats=True)
    assert sorted(divergent) == sorted(twice)


@pytest.mark.slow
@pytest.mark.skipif(VERSION < (2, 15), reason="this PyTorch fails on uneven tensors")
def test_pytorch_is_right_and_divergent():
    """The harness reproduces the measurements: no wrong data, and sums by several groups."""
    cases = oracle.transitions()
    wrong, _ = tally(cases, "pytorch")
    with marked_sums():
        _, divergent = tally([case for case in cases if "P" in case[2]], "pytorch", floats=True)
    print(f"\nPyTorch: {len(cases)} transitions, {len(wrong)} wrong, {len(divergent)} divergent")
    assert not wrong and 100 < len(divergent) < 300


def sums(rank, seed):
    """gloo's own all_reduce of random floats, over all ranks and over pairs."""
    parts = [oracle.full_tensor((10_001,), seed=seed + i, integers=False) for i in range(4)]
    whole = torch.from_numpy(parts[rank].copy())
    torch.distributed.all_reduce(whole)
    return whole.numpy().tobytes()


def test_all_reduce_of_gloo_leaves_equal_bits_on_its_members():
    for seed in (0, 100, 200):
        assert len(set(processes(4, sums, seed))) == 1
