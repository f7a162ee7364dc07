"""Every measured transition through Meshift: right values, and each sum computed by one group."""

import functools
import hashlib
import random

import pytest

import oracle
from harness import (
    array,
    dtensor,
    gpu_processes,
    marked_sums,
    mesh_of,
    processes,
    run_as,
    threads,
)

PROMISES = ["replicas", "ordered"]


@functools.lru_cache(8)
def data(mesh, shape, before, seed, floats):
    """The source and the whole result of a case, made once for all threads."""
    if floats:
        source = oracle.random_source(shape, mesh, before, seed)
        return source, oracle.ordered_sum(source.parts)
    whole = oracle.full_tensor(shape, seed=seed)
    return oracle.Source(whole, mesh, before, seed), whole


def run_cases(rank, redistribute, cases, mesh, floats):
    """For each case whether this rank's tensor is as the definition says, and its bits."""
    device_mesh = mesh_of(mesh)
    at = oracle.coordinates(mesh)[rank]
    found = []
    for seed, (shape, before, after) in cases:
        source, whole = data(mesh, shape, before, seed, floats)
        tensor = dtensor(source.local(at), device_mesh, before, shape)
        held = array(redistribute(tensor, after))
        want = oracle.local(whole, mesh, after, at)
        found.append((oracle.same_bits(held, want), hashlib.sha1(held.tobytes()).digest()))
    return found


def tally(cases, subject, run=threads, floats=False, promise="replicas"):
    """The cases that are wrong on some rank, and those whose replicas differ."""
    wrong, divergent = [], []
    for mesh in sorted({case[0] for case in cases}):
        group = [(seed, case[1:]) for seed, case in enumerate(cases) if case[0] == mesh]
        ranks = len(oracle.coordinates(mesh))
        results = run_as(subject, run, ranks, run_cases, group, mesh, floats, promise=promise)
        for (_, case), at_ranks in zip(group, zip(*results)):
            if not all(right for right, _ in at_ranks):
                wrong.append((mesh, *case))
            if oracle.replicas_differ(mesh, case[2], [bits for _, bits in at_ranks]):
                divergent.append((mesh, *case))
    return wrong, divergent


def check(cases, subject, promise, run=threads):
    """Values are exact for integers; random floats show sums that several groups computed.

    Without sums the promises are one.
    """
    cases = [case for case in cases if promise == "replicas" or "P" in case[2]]
    wrong, _ = tally(cases, subject, run, promise=promise)
    sums = [case for case in cases if "P" in case[2]]
    with marked_sums():
        disordered, divergent = tally(sums, subject, run, floats=True, promise=promise)
    disordered = disordered if promise == "ordered" else []
    print(
        f"\n{subject}, {promise}: {len(cases)} transitions, {len(wrong)} wrong; of {len(sums)} "
        f"with sums {len(divergent)} computed by several groups, {len(disordered)} not in order"
    )
    assert not wrong, wrong[:5]
    assert not divergent, divergent[:5]
    assert not disordered, disordered[:5]


@pytest.mark.parametrize("promise", PROMISES)
@pytest.mark.parametrize("subject", ["function", "use"])
def test_some(subject, promise):
    check(random.Random(7).sample(oracle.transitions(), 60), subject, promise)


@pytest.mark.slow
@pytest.mark.parametrize("promise", PROMISES)
@pytest.mark.parametrize("subject", ["function", "use"])
def test_all_in_threads(subject, promise):
    check(oracle.transitions(), subject, promise)


@pytest.mark.slow
@pytest.mark.parametrize("promise", PROMISES)
def test_300_on_gloo(promise):
    cases = [case for case in oracle.transitions() if len(oracle.coordinates(case[0])) in (4, 8)]
    check(random.Random(3).sample(cases, 300), "function", promise, processes)


@pytest.mark.parametrize("promise", PROMISES)
def test_60_on_a_gpu(promise):
    torch = pytest.importorskip("torch")
    if not torch.cuda.is_available():
        pytest.skip("there is no GPU")
    cases = [case for case in oracle.transitions() if len(oracle.coordinates(case[0])) == 4]
    check(random.Random(5).sample(cases, 60), "function", promise, gpu_processes)
