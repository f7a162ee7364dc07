"""Every shape, mesh, dtype and reduce op, with empty, odd and strided tensors."""

import random

import numpy as np
import pytest

import oracle
from harness import (
    meshift,
    VERSION,
    array,
    dtensor,
    function,
    make,
    mesh_of,
    placements,
    problems,
    processes,
    run_as,
    threads,
    torch,
    want,
)
from test_oracle import STRIDED

SHAPES = [(0, 3), (1, 3), (2, 5), (3, 1), (5, 3), (7, 5), (1, 1), (3, 4, 5), (9,), (0,)]
MESHES = [(2, 2), (4, 1), (1, 4), (4,), (3,), (1,), (2, 2, 2), (2, 1, 3), (1, 2, 1, 2)]
DTYPES = (
    "float32 float64 bfloat16 float16 int8 uint8 int16 int32 int64 bool complex64 complex128 "
    "float8_e4m3fn float8_e5m2"
).split()
SUMS = "float32 float64 bfloat16 float16 int8 uint8 int32 int64 complex64 complex128".split()


def cases_of(mesh, count, seed=0, kept=True):
    """Seeded cases on this mesh; a target keeps contributions now and then."""
    rng = random.Random(f"{mesh}{seed}")
    for _ in range(count):
        shape = rng.choice(SHAPES)
        whole = ["R"] + [f"S({dim})" for dim in range(len(shape))]
        before = [rng.choice(whole + ["P"]) for _ in mesh]
        after = [
            "P" if p == "P" and kept and rng.random() < 0.2 else rng.choice(whole) for p in before
        ]
        yield shape, ",".join(before), ",".join(after)


@pytest.mark.parametrize("mesh", MESHES)
def test_any_shape_on_any_mesh(mesh):
    assert not problems(mesh, list(cases_of(mesh, 60)))


@pytest.mark.parametrize("promise", ["replicas", "ordered"])
@pytest.mark.parametrize("mesh", [(2, 2), (2, 1, 2)])
def test_any_shape_on_gloo(mesh, promise):
    cases = list(cases_of(mesh, 60, seed=promise))
    assert not problems(mesh, cases, processes, promise=promise)


@pytest.mark.parametrize("subject", ["function", "use"])
@pytest.mark.parametrize("run", [threads, processes])
def test_rows_of_5_by_3_are_kept(run, subject):
    cases = [((rows, 3), "S(0),S(0)", "R,R") for rows in (5, 2, 6, 9, 10)]
    assert not problems((2, 2), cases, run, subject=subject)


@pytest.mark.parametrize("run", [threads, processes])
@pytest.mark.parametrize("ranks", [[0, 1, 2, 3], [2, 5, 1, 7], [7, 6, 5, 4]])
def test_meshes_of_some_ranks(ranks, run):
    assert not problems((2, 2), list(cases_of((2, 2), 12, 1)), run, ranks=ranks, world=8)


@pytest.mark.parametrize("run", [threads, processes])
def test_every_order_of_ranks_is_its_own_mesh(run):
    for ranks in ([0, 1, 2, 3], [3, 1, 2, 0], [1, 0, 3, 2]):
        assert not problems((2, 2), list(cases_of((2, 2), 6, 2)), run, ranks=ranks)


def two_meshes(rank):
    """Two halves of the world at once, and a slice of a mesh of all ranks."""
    halves = mesh_of((2, 4))
    mine = halves["b"]
    full = oracle.full_tensor((7, 3), seed=rank // 4)
    held = oracle.local(full, (4,), "S(0)", (rank % 4,))
    result = function(dtensor(held, mine, "S(0)", (7, 3)), "R")
    assert np.array_equal(array(result), full)
    result = function(dtensor(held, mine, "S(0)", (7, 3)), "S(1)")
    assert np.array_equal(array(result), oracle.local(full, (4,), "S(1)", (rank % 4,)))


@pytest.mark.parametrize("run", [threads, processes])
def test_slices_of_a_mesh(run):
    run(8, two_meshes)


def outside(rank):
    """PyTorch's ranks outside of a mesh keep their empty tensor; so do these."""
    mesh = mesh_of((2,), [1, 3])
    held = oracle.full_tensor((2, 3))
    if mesh.get_coordinate() is None:
        held = held[:0]
    result = function(dtensor(held, mesh, "S(0)", (4, 3)), "R")
    assert array(result).shape[0] == (4 if rank in (1, 3) else 0)


@pytest.mark.parametrize("run", [threads, processes])
def test_ranks_outside_of_the_mesh(run):
    run(4, outside)


@pytest.mark.parametrize("run", [threads, processes])
@pytest.mark.parametrize("dtype", DTYPES)
def test_moves_of_every_dtype(dtype, run):
    moves = [
        ("S(0),S(1)", "S(1),R"),
        ("S(0),S(0)", "R,R"),
        ("R,S(0)", "S(1),S(0)"),
        ("S(1),S(0)", "S(0),S(1)"),
    ]
    cases = [((7, 5), *pair, dtype) for pair in moves]
    assert not problems((2, 2), cases, run)


@pytest.mark.parametrize("promise", ["replicas", "ordered"])
@pytest.mark.parametrize("run", [threads, processes])
@pytest.mark.parametrize("dtype", SUMS)
def test_sums_of_every_dtype(dtype, run, promise):
    pairs = [("P,P", "R,R"), ("P,P", "S(1),S(0)"), ("P,S(0)", "S(0),R"), ("P,R", "R,R")]
    assert not problems((2, 2), [((7, 5), *pair, dtype) for pair in pairs], run, promise=promise)


@pytest.mark.parametrize("promise", ["replicas", "ordered"])
@pytest.mark.parametrize("run", [threads, processes])
@pytest.mark.parametrize("op", oracle.COMBINE)
def test_every_reduce_op(op, run, promise):
    dtype = "int32" if op in ("band", "bor", "bxor") else "float32"
    pairs = [("P,P", "R,R"), ("P,P", "S(0),S(0)"), ("P,R", "S(0),S(1)"), ("S(0),P", "S(1),S(0)")]
    pairs += [("P,S(0)", "P,R"), ("P,S(0)", "P,S(1)"), ("P,P", "R,P")]
    cases = [
        ((5, 4), before.replace("P", f"P({op})"), after.replace("P", f"P({op})"), dtype)
        for before, after in pairs
    ]
    assert not problems((2, 2), cases, run, promise=promise)


@pytest.mark.parametrize("run", [threads, processes])
def test_tensors_without_dims(run):
    cases = [((), "P,P", "R,R"), ((), "P,R", "R,R"), ((), "R,R", "R,R"), ((), "P,P", "P,R")]
    assert not problems((2, 2), cases, run)


def strided_views(rank, redistribute):
    """Local tensors that are transposed in memory, or a part of a larger one."""
    mesh, full = mesh_of((2, 2)), oracle.full_tensor((6, 8))
    at = oracle.coordinates((2, 2))[rank]
    pairs = [("S(0),S(1)", "S(1),S(0)"), ("S(0),R", "R,R"), ("R,R", "S(1),S(0)")]
    for before, after in [*pairs, ("P,S(0)", "R,S(1)")]:
        source = oracle.Source(full, (2, 2), before)
        held = torch.from_numpy(source.local(at))
        wide = torch.zeros(held.shape[0], 2 * held.shape[1])
        wide[:, ::2] = held
        for view in (
            held.t().contiguous().t(),
            wide[:, ::2],
            torch.cat([-held, held])[len(held) :],
        ):
            result = redistribute(dtensor(view, mesh, before, (6, 8)), after)
            assert np.array_equal(array(result), want(mesh, after, (6, 8))), (before, after)
    turned = redistribute(make(mesh, "S(0),S(1)", (6, 8)).t(), "S(0),R")
    assert np.array_equal(array(turned), want(mesh, "S(1),R", (6, 8)).T)


@pytest.mark.parametrize("subject", ["function", "use"])
@pytest.mark.parametrize("run", [threads, processes])
def test_local_tensors_that_are_not_contiguous(run, subject):
    run_as(subject, run, 4, strided_views)


def alias(rank):
    """Writing to a result leaves its source as it is, also where nothing is sent."""
    mesh = mesh_of((2, 2))
    for before, after in [
        ("R,R", "S(0),R"),
        ("R,R", "S(0),S(1)"),
        ("P,R", "P,S(0)"),
        ("P,P", "R,R"),
    ]:
        held = torch.ones(4, 4)
        array(function(dtensor(held, mesh, before, (4, 4)), after))[...] = 7
        assert bool((held == 1).all()), (before, after)


def test_results_do_not_share_memory_with_their_sources():
    threads(4, alias)


def read_in_order(rank, redistribute, mesh, text, order, shape, targets):
    device_mesh, at = mesh_of(mesh), oracle.coordinates(mesh)[rank]
    full = oracle.full_tensor(shape)
    held = oracle.local(full, mesh, text, at, order)
    for target in targets:
        result = redistribute(dtensor(held, device_mesh, text, shape), target)
        assert np.array_equal(array(result), want(device_mesh, target, shape)), target
        back = redistribute(make(device_mesh, target, shape), text)
        assert np.array_equal(array(back), held), target


@pytest.mark.parametrize("rows", [12, 36, 13, 5, 1])
@pytest.mark.parametrize("subject", ["function", "use"])
@pytest.mark.parametrize("mesh,text,order", STRIDED)
def test_strided_shards_are_read_as_shard_orders(mesh, text, order, subject, rows):
    if VERSION < (2, 15) and (rows % 12 or subject == "use"):
        pytest.skip("strided shards of this PyTorch are even and no target")
    targets = [",".join([p] * len(mesh)) for p in ("R", "S(0)", "S(1)")]
    run_as(
        subject, threads, int(np.prod(mesh)), read_in_order, mesh, text, order, (rows, 3), targets
    )


def undecodable(rank):
    mesh = mesh_of((2, 2))
    for text in ("SS(0,3),S(0)", "S(0),SS(0,2)", "SS(0,2),S(1)"):
        with pytest.raises((ValueError, NotImplementedError), match=r"_StridedShard|split.factor"):
            function(dtensor(oracle.full_tensor((3, 3)), mesh, text, (12, 3)), "R,R")


def test_strided_shards_that_are_no_shard_order_are_refused():
    threads(4, undecodable)


REFUSED = [
    ("R", ValueError, "number of placements is 1; expected 2"),
    ("S(2),R", ValueError, "dim 2|dim=2"),
    ("S(-3),R", ValueError, "-3"),
    ("P(max),R", Exception, r"P\(max\)|max"),
]


def refused(rank):
    x = dtensor(oracle.full_tensor((4, 6)), mesh_of((2, 2)), "P,S(0)", (8, 6))
    for text, error, match in REFUSED:
        with pytest.raises(error, match=match):
            function(x, text)
    wrongs = [(["R", "R"], "str"), ([None, None], "None"), ([[], []], "list, not a Placement")]
    for wrong, match in wrongs:
        with pytest.raises(TypeError, match=match):
            meshift.torch.redistribute(x, wrong)
    with pytest.raises(TypeError, match="DTensor"):
        meshift.torch.redistribute(torch.ones(3), [])
    once = (placement for placement in placements("R,R"))
    assert np.array_equal(array(meshift.torch.redistribute(x, once)), array(function(x, "R,R")))
    with pytest.raises(ValueError, match="ordred"):
        function(x, "R,R", promise="ordred")
    with pytest.raises(ValueError, match="h1000"):
        function(x, "R,R", topology="h1000")


def test_bad_targets_are_refused():
    threads(4, refused)
