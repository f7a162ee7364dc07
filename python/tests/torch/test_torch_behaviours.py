"""Behaviours of PyTorch's redistribution that must hold under `use()` too, except for the
collectives."""

import functools
import itertools
import random
import threading

import numpy as np
import pytest

import oracle
from harness import (
    meshift,
    POOL,
    VERSION,
    Partial,
    Replicate,
    Shard,
    array,
    dtensor,
    function,
    make,
    mesh_of,
    placements,
    processes,
    run_as,
    threads,
    torch,
    want,
)

from meshift.torch import _groups
from torch.distributed.tensor import _redistribute
from torch.distributed.tensor._dtensor_spec import DTensorSpec, TensorMeta
from torch.distributed.tensor.debug import CommDebugMode

NEW = VERSION >= (2, 15)
WITH_AND_WITHOUT = pytest.mark.parametrize("use", [None, "replicas"])


def counts(call):
    with CommDebugMode() as seen:
        result = call()
    return result, seen.get_total_counts()


# Forward and backward on one mesh dim: which of the two send something.
SENT = [("S", "R", True, False), ("R", "S", False, True), ("R", "R", False, False)]
SENT += [("P", "R", True, False), ("P", "S", True, True), ("P", "P", False, False)]


def one_dim(rank, before, after, forward, backward, dtype):
    mesh = mesh_of((4,))
    for shape, dim in itertools.product([(12, 13), (13, 14), (14, 12)], [0, 1]):
        text = [kind if kind != "S" else f"S({dim})" for kind in (before, after)]
        x = make(mesh, text[0], shape, dtype).requires_grad_()
        y, sent = counts(lambda: x.redistribute(placements=placements(text[1])))
        assert (sent > 0) == forward, (shape, dim, sent)
        if after != "P":
            assert np.array_equal(array(y), want(mesh, text[1], shape, dtype))
        _, sent = counts(lambda: y.backward(make(mesh, text[1], shape, dtype, seed=1)))
        assert (sent > 0) == backward, (shape, dim, sent)
        assert x.grad.placements == placements("P" if after == "P" else text[0].replace("P", "R"))


@WITH_AND_WITHOUT
@pytest.mark.parametrize("dtype", ["float32", "complex64"])
@pytest.mark.parametrize("before,after,forward,backward", SENT)
def test_one_mesh_dim(before, after, forward, backward, dtype, use):
    if not NEW and (before == after or dtype == "complex64"):
        pytest.skip("this PyTorch fails here")
    processes(4, one_dim, before, after, forward, backward, dtype, use=use)


def grad_placements(rank):
    x = make(mesh_of((4,)), "R", (12, 3)).requires_grad_()
    out = x.redistribute(placements=[Replicate()]).to_local(grad_placements=[Partial()])
    _, sent = counts(lambda: out.backward(torch.ones_like(out)))
    assert sent >= 1 and np.array_equal(array(x.grad), np.full((12, 3), 4, "float32"))


@WITH_AND_WITHOUT
@pytest.mark.skipif(not NEW, reason="this PyTorch has no gradient of such a redistribution")
def test_contributions_as_gradients_are_summed(use):
    processes(4, grad_placements, use=use)


def spec(mesh, where, tensor, order=None):
    meta = TensorMeta(tensor.shape, tensor.stride(), tensor.dtype)
    more = {} if order is None else {"shard_order": order}
    return DTensorSpec(mesh, where, tensor_meta=meta, **more)


def local_of(tensor, mesh, before, after):
    """PyTorch's inner function, as its dispatcher calls it."""
    call = _redistribute.redistribute_local_tensor
    return call(
        tensor, spec(mesh, placements(before), tensor), spec(mesh, placements(after), tensor)
    )


TO_PARTIAL = ["sum", "avg", "min", "max"] if NEW else ["sum"]


def to_contributions(rank):
    found, full = [], torch.from_numpy(oracle.full_tensor((12, 3)))
    for mesh, op in itertools.product([mesh_of((4,)), mesh_of((2, 2))], TO_PARTIAL):
        after = ",".join([f"P({op})"] * mesh.ndim)
        found.append(local_of(full, mesh, after.replace(f"P({op})", "R"), after).numpy())
    with pytest.raises(RuntimeError, match="Can not redistribute"):
        make(mesh_of((4,)), "R", (12, 3)).redistribute(placements=[Partial()])
    return found


def test_replicas_become_the_contributions_of_pytorch():
    for ours, theirs in zip(
        threads(4, to_contributions, use="replicas"), threads(4, to_contributions)
    ):
        assert all(oracle.same_bits(a, b) for a, b in zip(ours, theirs))


ALLOWED = [
    ("P,S(0)", "P,S(0)", True),
    ("P,S(0)", "P,S(1)", True),
    ("S(0),P", "R,P", True),
    ("S(0),P(product)", "R,P(product)", True),
    ("S(0),R", "S(0),P", False),
    ("S(0),R", "R,P", False),
    ("S(0),P(product)", "R,P", False),
    ("P,R", "P(avg),R", False),
    ("R,SS(0,2)", "R,P", False),
]


def allowed(rank, redistribute, before, after, good):
    x = dtensor(torch.ones(12, 8), mesh_of((2, 2)), before, (24, 8) if "S" in before else (12, 8))
    if good:
        assert redistribute(x, after).placements == placements(after)
    else:
        with pytest.raises(Exception, match="(?i)redistribut|partial|placement|contribution"):
            redistribute(x, after)


@pytest.mark.parametrize("subject", ["pytorch", "use"])
@pytest.mark.parametrize("before,after,good", ALLOWED)
def test_targets_with_contributions(before, after, good, subject):
    if not NEW and good:
        pytest.skip("this PyTorch refuses contributions in a target, also where they stay")
    run_as(subject, threads, 4, allowed, before, after, good)


def dtypes(rank):
    mesh, found = mesh_of((2, 2)), []
    kinds = [None, torch.bfloat16, torch.float32, torch.float64]
    for (before, after), forward, backward in itertools.product(
        [("S(0),S(1)", "R,R"), ("P,S(0)", "S(1),R"), ("R,R", "R,R")], kinds, kinds
    ):
        x = make(mesh, before, (7, 6)).requires_grad_()
        y = x.redistribute(
            placements=placements(after), forward_dtype=forward, backward_dtype=backward
        )
        y.backward(torch.ones_like(y))
        assert y.dtype == y.to_local().dtype == (forward or torch.float32)
        assert x.grad.dtype == torch.float32
        found += [array(y), array(x.grad)]
    return found


@pytest.mark.skipif(not NEW, reason="this PyTorch has no dtypes of redistributions")
def test_dtypes_of_forward_and_backward():
    for ours, theirs in zip(threads(4, dtypes, use="replicas"), threads(4, dtypes)):
        assert all(oracle.same_bits(a, b) for a, b in zip(ours, theirs))


def small(rank, redistribute):
    mesh = mesh_of((2, 2))
    x = make(mesh, "S(1),R", (12, 3))
    assert x.redistribute(placements=[Shard(-1), Replicate()]).placements == placements("S(1),R")
    assert x.redistribute(placements=[Shard(-2), Shard(-1)]).placements == placements("S(0),S(1)")
    for shape, text in itertools.product(
        [(10, 5), (9, 5), (3, 5), (1, 3)], ["S(0),S(0)", "S(0),S(1)"]
    ):
        assert np.array_equal(
            make(mesh, text, shape).full_tensor().numpy(), oracle.full_tensor(shape)
        )
    flat = mesh_of((4, 1))
    for before, after in itertools.product(["S(1)", "R", "P"], ["S(0)", "S(1)", "R"]):
        x = make(flat, f"S(0),{before}", (16, 8))
        y, sent = counts(lambda: x.redistribute(placements=placements(f"S(0),{after}")))
        assert sent == 0 and np.array_equal(array(y), want(flat, f"S(0),{after}", (16, 8)))
    with pytest.raises(Exception):
        x.redistribute(mesh, placements("R,R"))


@pytest.mark.parametrize("subject", ["pytorch", "use"])
def test_small_things(subject):
    if not NEW and subject == "pytorch":
        pytest.skip("this PyTorch fails on uneven tensors")
    run_as(subject, threads, 4, small)


def exhaustive(rank, redistribute):
    mesh, shape = mesh_of((4, 2)), (16, 24)
    for before in itertools.product(["R", "S(0)", "S(1)", "P"], repeat=2):
        x = make(mesh, ",".join(before), shape)
        for after in itertools.product(["R", "S(0)", "S(1)"], repeat=2):
            result = array(redistribute(x, ",".join(after)))
            assert np.array_equal(result, want(mesh, ",".join(after), shape)), (before, after)


@pytest.mark.parametrize("subject", ["function", "use"])
def test_all_placements_of_4x2(subject):
    run_as(subject, threads, 8, exhaustive)


def shard_orders(rank, shape, count):
    """A chain of random shard orders, by PyTorch's inner function."""
    from torch.distributed.tensor._dtensor_spec import ShardOrderEntry

    mesh, sizes, at = mesh_of((2, 2, 2)), (2, 2, 2), oracle.coordinates((2, 2, 2))[rank]
    full, rng = oracle.full_tensor(shape), random.Random(str(shape))
    held, current = torch.from_numpy(full), spec(mesh, placements("R,R,R"), torch.from_numpy(full))
    for _ in range(count):
        dims = [rng.choice([None, 0, 1]) for _ in sizes]
        order = rng.sample(range(3), 3)
        entries = []
        for dim in (0, 1):
            cut = tuple(i for i in order if dims[i] == dim)
            entries += [ShardOrderEntry(tensor_dim=dim, mesh_dims=cut)] if cut else []
        text = ",".join("R" if dim is None else f"S({dim})" for dim in dims)
        target = spec(mesh, placements(text), torch.from_numpy(full), tuple(entries))
        held = _redistribute.redistribute_local_tensor(held, current, target)
        right = oracle.local(full, sizes, text, at, order)
        assert np.array_equal(held.numpy(), right), (text, order)
        current = target


@WITH_AND_WITHOUT
@pytest.mark.skipif(not NEW, reason="this PyTorch has no shard orders")
@pytest.mark.parametrize("shape", [(16, 8), (17, 5), (1, 3)])
def test_shard_orders(shape, use):
    threads(8, shard_orders, shape, 25, use=use)


def mixed(rank, redistribute):
    x = dtensor(torch.full((4, 6), 3.0), mesh_of((2, 2)), "P,P(avg)", (4, 6))
    for after in ("R,R", "S(0),S(0)", "R,S(1)"):
        assert bool((array(redistribute(x, after)) == 6).all())


@pytest.mark.skipif(not NEW, reason="this PyTorch does not mix reduce ops")
@pytest.mark.parametrize("subject", ["function", "use", "pytorch"])
@pytest.mark.parametrize("promise", ["replicas", "ordered"])
def test_sums_and_averages_mix(subject, promise):
    run_as(subject, threads, 4, mixed, promise=promise)


def asynchronous(rank):
    mesh = mesh_of((2, 2))
    x = make(mesh, "P,S(0)", (5, 7))
    for after in ("R,R", "S(1),S(0)", "P,R"):
        calls = [function(x, after, async_op=True)]
        if NEW or "P" not in after:
            with meshift.torch.use():
                calls.append(x.redistribute(placements=placements(after), async_op=True))
        for result in calls:
            doubled = array(result * 2) / 2
            assert "P" in after or np.array_equal(doubled, want(mesh, after, (5, 7)))
    pending = [function(make(mesh, "P,P", (9, 9), seed=i), "R,R", async_op=True) for i in range(8)]
    for i, result in enumerate(pending):
        assert np.array_equal(array(result), oracle.full_tensor((9, 9), seed=i))


@pytest.mark.parametrize("run", [threads, processes])
def test_asynchronous_results_are_waited_for(run):
    run(4, asynchronous)


def own_groups(rank):
    square, line = mesh_of((2, 2)), mesh_of((4,))
    if rank < 2:
        torch.distributed.new_group([0, 1], use_local_synchronization=True)
    for mesh, before, after in [(square, "S(0),R", "R,S(0)"), (line, "P", "R")]:
        result = function(make(mesh, before, (8, 4)), after)
        assert np.array_equal(array(result), want(mesh, after, (8, 4)))


# Ranks with different numbers of groups give common groups equal names.
def test_ranks_with_groups_of_their_own():
    processes(4, own_groups)


def shared_groups(rank):
    # Each rank has used other meshes before; all must use the same group for the same ranks.
    column, square, row = mesh_of((2,), [1, 3]), mesh_of((2, 2)), mesh_of((2,), [0, 1])
    for mesh, before in [(column, "S(0)"), (square, "S(0),R"), (row, "S(0)")]:
        if mesh.get_coordinate() is not None:
            after = before.replace("S(0)", "R")
            result = function(make(mesh, before, (8, 4)), after)
            assert np.array_equal(array(result), want(mesh, after, (8, 4)))


def test_all_members_take_the_same_group():
    processes(4, shared_groups, group_timeout=10)


def in_two_threads(rank):
    mesh = mesh_of((2, 2))
    failures = []

    def sum_over(name, shape):
        try:
            part = mesh[name]
            for seed in range(20):
                result = array(function(make(part, "P", shape, seed=seed), "R"))
                assert np.array_equal(result, want(part, "R", shape, seed=seed))
        except Exception as error:
            failures.append(f"{name}: {error!r}")

    each = [
        threading.Thread(target=sum_over, args=args)
        for args in [("a", (300, 64)), ("b", (64, 300))]
    ]
    for thread in each:
        thread.start()
    for thread in each:
        thread.join()
    assert not failures, failures


def test_threads_have_memory_of_their_own():
    processes(4, in_two_threads)


def in_a_mode(rank, mode):
    mesh = mesh_of((4,))
    for before, after in [("P", "R"), ("S(0)", "S(1)")]:
        x = make(mesh, before, (8, 12))
        with mode():
            function(x, after)
        assert np.array_equal(array(function(x, after)), want(mesh, after, (8, 12)))


@pytest.mark.parametrize("run", [threads, processes])
@pytest.mark.parametrize("mode", [torch.inference_mode, functools.partial(torch.device, "meta")])
def test_memory_outlives_the_mode_of_the_call_that_made_it(run, mode):
    run(4, in_a_mode, mode)


def with_odd_strides(rank, dtype, count):
    mesh = mesh_of((2,))
    long = torch.arange(1, 20).to(getattr(torch, dtype))
    local = long[rank::3][:count]
    assert local.stride() == (3,)
    spec = {"run_check": False, "shape": (2 * count,), "stride": (1,)}
    x = torch.distributed.tensor.DTensor.from_local(local, mesh, placements("S(0)"), **spec)
    result = function(x, "R").to_local()
    assert torch.equal(result, torch.cat([long[i::3][:count] for i in range(2)]))
    y = torch.distributed.tensor.DTensor.from_local(local, mesh, placements("P"), run_check=False)
    assert torch.equal(function(y, "R").to_local(), sum(long[i::3][:count] for i in range(2)))


@pytest.mark.parametrize("run", [threads, processes])
@pytest.mark.parametrize("dtype", ["int16", "complex64", "float32"])
@pytest.mark.parametrize("count", [0, 1])
def test_contiguous_tensors_with_odd_strides(run, dtype, count):
    run(2, with_odd_strides, dtype, count)


def conjugated(rank):
    mesh = mesh_of((2, 2))
    x = make(mesh, "S(0),R", (6, 4), dtype="complex64")
    result = array(function(x.conj(), "R,R"))
    assert np.array_equal(result, want(mesh, "R,R", (6, 4), dtype="complex64").conj())


def test_views_that_are_conjugate_or_negated():
    processes(4, conjugated)


def unnamed_backend(rank):
    torch.distributed.destroy_process_group()
    store = torch.distributed.HashStore()
    torch.distributed.init_process_group(store=store, rank=0, world_size=1)
    group = torch.distributed.group.WORLD
    assert _groups.is_gloo(group, "cpu") and not _groups.is_gloo(group, "cuda")


def test_gloo_is_known_where_nobody_named_it():
    processes(1, unnamed_backend)


def plans(rank):
    x = make(mesh_of((2, 2)), "P,S(0)", (8, 6))
    plan = meshift.torch.plan_of(x, placements("R,R"), promise="ordered")
    assert isinstance(plan, meshift.Plan) and plan.promise[0] == "ordered"
    assert plan.source.placements == "P,S(0)" and plan.target.placements == "R,R"
    return plan.fingerprint


def test_plans_are_those_of_all_ranks():
    assert len(set(threads(4, plans))) == 1


def compiled(rank, redistribute):
    mesh = mesh_of((2,))

    def compute(x):
        return (redistribute(x + 1, "S(1)") * 2).to_local()

    run = torch.compile(compute, backend="aot_eager")
    for _ in range(2):
        x = make(mesh, "S(0)", (6, 4)).requires_grad_()
        out = run(x)
        assert np.array_equal(array(out), 2 * (want(mesh, "S(1)", (6, 4)) + 1))
        out.sum().backward()
        assert bool((array(x.grad) == 2).all())


@pytest.mark.slow
@pytest.mark.skipif(not NEW, reason="this PyTorch does not compile redistributions of this kind")
@pytest.mark.parametrize("subject", ["function", "use", "pytorch"])
def test_torch_compile(subject):
    # PyTorch keeps what it traced with the groups of a process's earlier calls.
    POOL.close()
    run_as(subject, processes, 2, compiled)


def no_elements(rank):
    mesh = mesh_of((2, 2))
    for shape in [(0, 3), (3, 0)]:
        whole = ["R,R", "S(0),S(1)", "S(1),S(0)", "S(1),R"]
        for before, after in itertools.product([*whole, "P,P", "R,P"], whole):
            x = make(mesh, before, shape)
            y, sent = counts(lambda x=x, after=after: x.redistribute(placements=placements(after)))
            assert sent == 0
            assert y.placements == placements(after) and y.shape == shape
            assert y.to_local().shape == make(mesh, after, shape).to_local().shape


def test_tensors_without_elements_need_no_collective():
    processes(4, no_elements, use="replicas")
