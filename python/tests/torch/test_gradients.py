"""Gradients through Meshift's redistributions are those through PyTorch's."""

import random

import pytest

import oracle
from harness import (
    VERSION,
    array,
    make,
    mesh_of,
    placements,
    processes,
    run_as,
    threads,
    torch,
)

EVEN = {(24, 48, 16), (48, 24), (48,)}


def forty():
    """40 transitions of each rank count, even ones first: old PyTorch fails on uneven tensors."""
    cases = [case for case in oracle.transitions() if len(oracle.coordinates(case[0])) in (4, 8)]
    cases = [case for case in cases if VERSION >= (2, 15) or case[1] in EVEN]
    return random.Random(5).sample(cases, 40)


def gradients(rank, redistribute, mesh, shape, before, after):
    """The tensor and its gradient on this rank, with placements, and the whole second gradient.

    PyTorch leaves the second one in the placements of the first; old ones have none.
    """
    device_mesh = mesh_of(mesh)
    x = make(device_mesh, before, shape).requires_grad_()
    y = redistribute(x, after)
    v = make(device_mesh, after, shape, seed=1).requires_grad_()
    if VERSION < (2, 8):
        y.backward(v)
        return [(str(t.placements), tuple(t.shape), array(t)) for t in (y, x.grad)]
    (first,) = torch.autograd.grad(y, x, v, create_graph=True)
    u = torch.ones_like(first)
    (second,) = torch.autograd.grad(first, v, u)
    held = [(str(t.placements), tuple(t.shape), array(t)) for t in (y, first)]
    return held + [("", second.shape, array(second.full_tensor()))]


def equal(one, other):
    return all(
        a[:2] == b[:2] and oracle.same_bits(a[2], b[2])
        for rank, other_rank in zip(one, other)
        for a, b in zip(rank, other_rank)
    )


@pytest.mark.parametrize("subject", ["function", "use"])
def test_gradients_of_40_transitions_are_pytorchs(subject):
    cases = forty()
    different = [
        case
        for case in cases
        if not equal(
            *(
                run_as(name, threads, _ranks(case), gradients, *case)
                for name in (subject, "pytorch")
            )
        )
    ]
    print(f"\n{subject}: gradients of {len(cases)} transitions, {len(different)} different")
    assert not different, different[:3]


def _ranks(case):
    return len(oracle.coordinates(case[0]))


@pytest.mark.parametrize(
    "case", [((2, 2), (8, 6), "P,S(0)", "S(0),S(1)"), ((4,), (8, 6), "S(0)", "R")]
)
def test_gradients_on_gloo(case):
    held = [run_as(name, processes, 4, gradients, *case) for name in ("function", "pytorch")]
    assert equal(*held)


# A gradient is never turned back into contributions.
RULES = [
    ("P,P", "R,R", "R,R", "R,R"),
    ("P,R", "S(0),R", "S(0),R", "R,R"),
    ("P,S(0)", "R,S(0)", "R,S(0)", "R,S(0)"),
    ("S(0),R", "R,R", "P,R", "S(0),R"),
    ("R,R", "R,S(1)", "P,S(1)", "R,R"),
    ("P,S(0)", "P,S(1)", "P,S(1)", "P,S(0)"),
]


def backward(rank, redistribute, before, after, gradient):
    mesh, shape = mesh_of((2, 2)), (8, 6)
    x = make(mesh, before, shape).requires_grad_()
    redistribute(x, after).backward(make(mesh, gradient, shape, seed=1))
    return x.grad.placements, array(x.grad)


@pytest.mark.parametrize("subject", ["function", "use", "pytorch"])
@pytest.mark.parametrize("before,after,gradient,expected", RULES)
def test_placements_of_gradients(subject, before, after, gradient, expected):
    if VERSION < (2, 8) and "P" in after and subject != "function":
        pytest.skip("this PyTorch refuses contributions in a target, also where they stay")
    found = run_as(subject, threads, 4, backward, before, after, gradient)
    assert {where for where, _ in found} == {placements(expected)}
    problem = oracle.judge(
        oracle.full_tensor((8, 6), seed=1), (2, 2), expected, [held for _, held in found]
    )
    assert problem is None, problem


def without_gradient(rank, redistribute):
    mesh = mesh_of((2, 2))
    plain = redistribute(make(mesh, "S(0),S(0)", (8, 3)), "R,R")
    assert not plain.requires_grad and plain.grad_fn is None
    with torch.no_grad():
        quiet = redistribute(make(mesh, "S(0),S(0)", (8, 3)).requires_grad_(), "R,R")
    assert not quiet.requires_grad and quiet.grad_fn is None
    leaf = make(mesh, "S(0),S(0)", (8, 3)).requires_grad_()
    assert redistribute(leaf.detach(), "R,R").requires_grad is False
    assert redistribute(leaf, "R,R").requires_grad
    if VERSION < (2, 8):
        return
    same = redistribute(leaf, "S(0),S(0)")
    same.to_local().sum().backward()
    assert leaf.grad.placements == leaf.placements and bool((array(leaf.grad) == 1).all())


@pytest.mark.parametrize("subject", ["function", "use", "pytorch"])
def test_without_gradient(subject):
    run_as(subject, threads, 4, without_gradient)
