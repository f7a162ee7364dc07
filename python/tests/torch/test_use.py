"""`use()`: DTensor's own redistributions run Meshift's plans inside the context, and only there."""

import contextlib
import sys
import threading
from unittest import mock

import numpy as np
import pytest

import oracle
from harness import (
    meshift,
    VERSION,
    DTensor,
    array,
    dtensor,
    make,
    mesh_of,
    placements,
    processes,
    pytorch,
    threads,
    torch,
)

from torch.distributed.tensor import distribute_tensor
from torch.distributed.tensor.debug import CommDebugMode


def pictures(mesh):
    """Computations whose operands DTensor must redistribute, on small integers."""
    a, b = (make(mesh, "S(0),S(1)", (6, 8)), make(mesh, "S(1),S(0)", (8, 10), seed=1))
    c = make(mesh, "P,S(0)", (6, 10), seed=2)
    yield "matmul", lambda: a @ b
    if VERSION >= (2, 8):
        yield "add of contributions", lambda: (a @ b) + c
        yield "mean", lambda: a.mean(0)
    yield "sum over a sharded dim", lambda: a.sum(0).relu()
    yield "softmax over a sharded dim", lambda: torch.softmax(c, 1)
    yield "full tensor", lambda: c.full_tensor()
    yield "full tensor of a product", lambda: (a @ b).full_tensor()
    yield "to_local", lambda: pytorch(c, "R,R").to_local()
    yield "concatenation", lambda: torch.cat([a, make(mesh, "S(1),R", (6, 8), seed=3)])
    rows = torch.arange(12).reshape(3, 4) % 10
    weight = make(mesh, "S(0),R", (10, 8), seed=4)
    rows = distribute_tensor(rows, mesh, placements("R,R"))
    yield "embedding of sharded rows", lambda: torch.nn.functional.embedding(rows, weight)
    yield "norm", lambda: torch.linalg.vector_norm(a)
    yield "norm of contributions", lambda: torch.linalg.vector_norm(c, 1)
    yield "largest", lambda: a.max()
    yield "equal", lambda: torch.tensor(float(torch.equal(a, a)))
    yield "index", lambda: pytorch(c[1:4], "R,S(1)")
    yield "view", lambda: pytorch(a.reshape(48), "R,R")


def whole(result):
    return result.full_tensor() if isinstance(result, DTensor) else result


def compute(rank):
    """Each picture's whole result, and the whole gradients of a product."""
    mesh = mesh_of((2, 2))
    found = [(name, array(whole(compute()))) for name, compute in pictures(mesh)]
    a = make(mesh, "S(0),S(1)", (6, 8)).requires_grad_()
    b = make(mesh, "R,S(0)", (8, 10), seed=1).requires_grad_()
    (a @ b).relu().sum().backward()
    return found + [("gradient", array(whole(tensor.grad))) for tensor in (a, b)]


@pytest.mark.parametrize("promise", ["replicas", "ordered"])
@pytest.mark.parametrize("run", [threads, processes])
def test_results_are_those_without(run, promise):
    for with_use, without in zip(run(4, compute, use=promise), run(4, compute)):
        for (name, ours), (_, theirs) in zip(with_use, without):
            assert np.allclose(ours, theirs, rtol=1e-6, atol=0), name


# Source, target, and what PyTorch's own functional collectives would be called.
COUNTED = [
    ("S(0),S(0)", "R,R", {"all_gather_into_tensor": 1}),
    ("S(0),S(0)", "S(0),S(0)", {}),
    ("R,R", "S(1),R", {}),
    ("P,P", "R,R", {"all_reduce": 1}),
    ("P,S(0)", "S(1),S(0)", {"reduce_scatter_tensor": 1}),
    ("S(0),R", "S(1),R", {"all_to_all_single": 1}),
]


def counted(rank):
    mesh = mesh_of((2, 2))
    # Sums of many rows take two exchanges of messages.
    tensors = [make(mesh, source, (512, 512)) for source, _, _ in COUNTED]
    with CommDebugMode() as theirs:
        pytorch(tensors[0], "R,R")
    found = []
    for tensor, (_, target, _) in zip(tensors, COUNTED):
        with meshift.torch.use(), CommDebugMode() as seen:
            pytorch(tensor, target)
        found.append({str(op).split(".")[-1]: n for op, n in seen.get_comm_counts().items() if n})
        assert all(op in theirs.comm_registry or n == 0 for op, n in seen.comm_counts.items())
    return theirs.get_total_counts(), found


@pytest.mark.parametrize("run", [processes, threads])
def test_comm_debug_mode_sees_the_collectives(run):
    for theirs, found in run(4, counted):
        assert theirs == 2
        assert found == [names for _, _, names in COUNTED]


def attributes():
    """The identity of every function in every module and class of PyTorch's distributed parts."""
    found = {}
    for name, module in list(sys.modules.items()):
        if name.startswith(("torch.distributed", "torch.testing._internal.distributed")) and module:
            for key, value in list(vars(module).items()):
                found[name, key] = id(value)
                if type(value) is type and value.__module__.startswith("torch.distributed"):
                    found.update({(name, key, k): id(v) for k, v in list(vars(value).items())})
    return found


def patched():
    return {key for key, value in attributes().items() if BEFORE.get(key, value) != value}


BEFORE = attributes()


def test_nothing_is_patched_outside():
    with contextlib.suppress(ImportError):
        import torch.testing._internal.distributed._tensor.common_dtensor  # noqa: F401
    import torch.distributed.tensor.experimental._tp_transform  # noqa: F401

    global BEFORE
    BEFORE = attributes()
    with meshift.torch.use():
        inside = patched()
        holders = {key[0] for key in BEFORE if key[1:] == ("redistribute_local_tensor",)}
        changed = {key[0] for key in inside if key[1:] == ("redistribute_local_tensor",)}
        assert changed in (holders, set()), holders - changed
        assert inside
    assert not patched()


def test_nesting():
    global BEFORE
    BEFORE = attributes()
    with meshift.torch.use():
        outer = patched()
        with meshift.torch.use(promise="ordered"):
            assert patched() >= outer
        assert patched() == outer
    assert not patched()


def test_an_exception_inside_restores():
    global BEFORE
    BEFORE = attributes()
    with pytest.raises(KeyError), meshift.torch.use(), meshift.torch.use(promise="ordered"):
        raise KeyError
    assert not patched()


def inner_promise(rank):
    """The innermost promise holds, and the outer one again after it."""
    mesh = mesh_of((2, 2))
    source = oracle.random_source((40, 40), (2, 2), "P,P", 0)
    x = dtensor(source.local(oracle.coordinates((2, 2))[rank]), mesh, "P,P", (40, 40))
    call = lambda: array(pytorch(x, "R,R")).tobytes()
    with meshift.torch.use():
        first = call()
        with meshift.torch.use(promise="ordered"):
            with meshift.torch.use():
                pass
            ordered = call()
        again = call()
    return first, ordered, again, oracle.ordered_sum(source.parts).tobytes()


def test_the_innermost_promise_holds():
    for first, ordered, again, want in processes(4, inner_promise):
        assert ordered == want and first == again


def test_two_threads_enter_and_leave_in_any_order():
    global BEFORE
    BEFORE = attributes()
    entered, may_leave, failures = threading.Barrier(3), [threading.Event(), threading.Event()], []

    def hold(i):
        try:
            with meshift.torch.use(promise=("replicas", "ordered")[i]):
                entered.wait(30)
                may_leave[i].wait(30)
        except BaseException as error:
            failures.append(error)

    both = [threading.Thread(target=hold, args=(i,)) for i in range(2)]
    for thread in both:
        thread.start()
    entered.wait(30)
    for thread, event in zip(both, may_leave):
        event.set()
        thread.join(30)
    assert not failures and not patched()


@pytest.mark.parametrize("version", ["2.5.1", "9.9.0", "3.0.0a0+git1234567"])
def test_an_unknown_version_is_refused_by_name(version):
    global BEFORE
    BEFORE = attributes()
    with mock.patch.object(torch, "__version__", version):
        with pytest.raises(Exception, match=version.replace(".", r"\.").replace("+", r"\+")):
            with meshift.torch.use():
                pass
    assert not patched()


@pytest.mark.parametrize("promise", ["ordred", "", None, 3])
def test_an_unknown_promise_is_refused_at_once(promise):
    with pytest.raises((ValueError, TypeError), match="promise|reproducibility"):
        with meshift.torch.use(promise=promise):
            pass
    assert not patched()
