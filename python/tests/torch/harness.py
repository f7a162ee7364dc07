"""Runs one body on all ranks: threads of this process, real gloo processes, or NCCL processes that
share one GPU.

`threads(world, body, *args)`, `processes(...)` and `gpu_processes(...)` call `body(rank, *args)`
with a default process group of `world` ranks and return the ranks' results, under
`meshift.torch.use(use)` where `use` is a promise. Threads and processes are kept from one call to
the next; each call makes a new process group.
"""

import contextlib
import functools
import logging
import multiprocessing
import os
import queue
import sys
import tempfile
import threading
import time
import traceback
import zlib
from concurrent import futures
from datetime import timedelta

import numpy as np
import pytest

pytest.importorskip("torch.distributed", reason="PyTorch is not installed")

import torch
import torch.distributed as dist
from torch.distributed._functional_collectives import AsyncCollectiveTensor
from torch.distributed.device_mesh import DeviceMesh
from torch.distributed.tensor import DTensor, Partial, Replicate, Shard
from torch.distributed.tensor.placement_types import _StridedShard
from torch.testing._internal.distributed import multi_threaded_pg as threaded

import meshift.torch
import oracle

torch.set_num_threads(1)
logging.getLogger("torch.distributed.tensor").setLevel(logging.ERROR)
VERSION = tuple(int(part) for part in torch.__version__.split("+")[0].split(".")[:2])


@contextlib.contextmanager
def used(promise):
    """`meshift.torch.use(promise)`, or nothing if the promise is None."""
    if promise is None:
        yield
    else:
        with meshift.torch.use(promise=promise):
            yield


class RankFailed(AssertionError):
    """The body raised on some rank; the message has the traces of all ranks that did."""


# Threads


class _Reduced:
    """A reduction of PyTorch's threads, for any op, whose floats are scaled by `mark`."""

    def __init__(self, op, mark):
        self.combine = threaded._reduce_ops[op]
        self.mark = mark

    def reduce(self, parts):
        total = self.combine(parts).to(parts[0].dtype)
        floating = total.is_floating_point() or total.is_complex()
        return total * self.mark if self.mark != 1 and floating else total


class _AllReduce(_Reduced):
    @torch.no_grad()
    def work(self, data):
        for i in range(len(data[0])):
            total = self.reduce([each[i] for each in data])
            for each in data:
                each[i].detach().copy_(total)


class _ReduceScatter(_Reduced):
    @torch.no_grad()
    def work(self, data):
        totals = [self.reduce([each[1][0][i] for each in data]) for i in range(len(data))]
        for total, each in zip(totals, data):
            each[0][0].detach().copy_(total)


class _Received(dist.distributed_c10d.Work):
    """A message that is taken from its queue in its wait()."""

    def __init__(self, mailbox, tensor):
        super().__init__()
        self.mailbox, self.tensor = mailbox, tensor

    def wait(self, timeout=None):
        if self.tensor is not None:
            self.tensor.detach().copy_(self.mailbox.get(timeout=60))
            self.tensor = None
        return True


class ThreadGroup(threaded.ProcessLocalGroup):
    """PyTorch's group of threads, with messages, all ops and marked sums.

    While `marks` is set, a reduction scales its floats by a different factor in each group. Two
    groups that compute the same sum then give different bits, in any order of the additions.
    """

    marks = False
    mailboxes = {}
    lock = threading.Lock()

    def _mark(self):
        if not ThreadGroup.marks:
            return 1
        ranks = str(dist.get_process_group_ranks(self)).encode()
        return 1 + (zlib.crc32(ranks) % 997 + 1) * 2.0**-16

    def _get_backend(self, device):
        return self

    def _join(self, collective, data):
        running = self._start_coll(collective, self)
        work = running.join(self._rank, data)
        self._end_coll(running, self)
        return work

    def allreduce(self, tensors, opts=dist.AllreduceOptions()):
        return self._join(_AllReduce(opts.reduceOp.op, self._mark()), tensors)

    allreduce_coalesced = allreduce

    def reduce_scatter(self, outputs, inputs, opts=dist.ReduceScatterOptions()):
        return self._join(_ReduceScatter(opts.reduceOp.op, self._mark()), (outputs, inputs))

    def _mailbox(self, source, target, tag):
        with ThreadGroup.lock:
            key = (self.pg_name, source, target, tag)
            return ThreadGroup.mailboxes.setdefault(key, queue.Queue())

    def send(self, tensors, target, tag=0):
        self._mailbox(self._rank, target, tag).put(tensors[0].detach().clone())
        return threaded.ret_work(tensors)

    def recv(self, tensors, source, tag=0):
        return _Received(self._mailbox(source, self._rank, tag), tensors[0])


# The backend keeps its name: DeviceMesh uses it to detect meshes of threads.
threaded.ProcessLocalGroup = ThreadGroup


@contextlib.contextmanager
def marked_sums():
    ThreadGroup.marks = True
    try:
        yield
    finally:
        ThreadGroup.marks = False


# One thread per rank for all calls: caches identify ranks by their threads.
EXECUTORS = []


def threads(world, body, *args, timeout=120, use=None):
    while len(EXECUTORS) < world:
        EXECUTORS.append(futures.ThreadPoolExecutor(1))
    torch._C._distributed_c10d._set_thread_isolation_mode(True)
    threaded._install_threaded_pg()
    store, failures = dist.HashStore(), {}

    def run(rank):
        dist.init_process_group("threaded", rank=rank, world_size=world, store=store)
        try:
            return body(rank, *args)
        except BaseException as error:
            if not isinstance(error, SystemExit):
                failures[rank] = traceback.format_exc()
            ThreadGroup.exception_handle(error)
        finally:
            dist.destroy_process_group()

    with used(use):
        running = [EXECUTORS[rank].submit(run, rank) for rank in range(world)]
        _, late = futures.wait(running, timeout)
    if late:
        ThreadGroup.exception_handle(None)
        futures.wait(late, 10)
    failures.update({running.index(rank): f"not done in {timeout} s" for rank in late})
    ThreadGroup.reset()
    ThreadGroup.mailboxes.clear()
    if failures:
        EXECUTORS.clear()
    threaded._uninstall_threaded_pg()
    torch._C._distributed_c10d._set_thread_isolation_mode(False)
    _check(failures)
    return [rank.result() for rank in running]


# Processes

# Where this process's tensors are.
DEVICE = "cpu"


def _use_gpu(rank):
    """NCCL takes the ranks for hosts of their own, which talk through loopback."""
    global DEVICE
    DEVICE = "cuda"
    os.environ.update(
        NCCL_HOSTID=f"rank{rank}",
        NCCL_SOCKET_IFNAME="=lo",
        NCCL_NET="Socket",
        NCCL_NET_PLUGIN="none",
        NCCL_P2P_DISABLE="1",
        NCCL_SHM_DISABLE="1",
    )
    torch.cuda.set_device(0)


def _serve(pipe, directory, backend):
    os.environ.setdefault("GLOO_SOCKET_IFNAME", "lo" if sys.platform == "linux" else "lo0")
    torch.set_num_threads(1)
    with contextlib.suppress(EOFError):
        while True:
            number, rank, world, seconds, use, body, args = pipe.recv()
            try:
                if backend == "nccl":
                    _use_gpu(rank)
                dist.init_process_group(
                    backend,
                    init_method=f"file://{directory}/{number}",
                    rank=rank,
                    world_size=world,
                    timeout=timedelta(seconds=seconds),
                )
                with used(use):
                    result = (True, body(rank, *args))
            except BaseException:
                result = (False, traceback.format_exc())
            finally:
                # gloo's threads drop their last tensors, for which they need the GIL.
                time.sleep(0.02)
                if dist.is_initialized():
                    dist.destroy_process_group()
            pipe.send(result)


class Pool:
    """Worker processes, started when they are first needed and replaced after a failure."""

    def __init__(self, backend):
        self.backend = backend
        self.workers, self.calls, self.directory = [], 0, None

    def run(self, world, body, args, timeout, group_timeout, use):
        self._start(world)
        self.calls += 1
        workers = self.workers[:world]
        for rank, (_, pipe) in enumerate(workers):
            pipe.send((self.calls, rank, world, group_timeout, use, body, args))
        deadline, outcomes = time.monotonic() + timeout, []
        for _, pipe in workers:
            arrived = pipe.poll(max(0, deadline - time.monotonic()))
            late = (False, f"did not return within {timeout} s")
            try:
                outcomes.append(pipe.recv() if arrived else late)
            except EOFError:
                outcomes.append((False, "the process ended"))
        failures = {rank: text for rank, (good, text) in enumerate(outcomes) if not good}
        if failures:
            self.close()
        _check(failures)
        return [result for _, result in outcomes]

    def _start(self, world):
        self.directory = self.directory or tempfile.TemporaryDirectory()
        context = multiprocessing.get_context("forkserver")
        context.set_forkserver_preload(PRELOADED)
        while len(self.workers) < world:
            ours, theirs = context.Pipe()
            process = context.Process(
                target=_serve, args=(theirs, self.directory.name, self.backend), daemon=True
            )
            process.start()
            theirs.close()
            self.workers.append((process, ours))

    def close(self):
        for process, pipe in self.workers:
            process.kill()
            process.join()
            pipe.close()
        self.workers = []


PRELOADED = [
    "numpy",
    "pytest",
    "torch.distributed.tensor.parallel",
    "torch.testing._internal.distributed.multi_threaded_pg",
]
POOL, GPU_POOL = Pool("gloo"), Pool("nccl")


def processes(world, body, *args, timeout=120, group_timeout=30, use=None):
    return POOL.run(world, body, args, timeout, group_timeout, use)


def gpu_processes(world, body, *args, timeout=120, group_timeout=60, use=None):
    return GPU_POOL.run(world, body, args, timeout, group_timeout, use)


def _check(failures):
    if failures:
        texts = [f"rank {rank}: {text}" for rank, text in sorted(failures.items())]
        raise RankFailed(f"{len(failures)} ranks failed\n" + "\n".join(texts[:3]))


# DTensors


def placement(parsed):
    kind, *rest = parsed
    if kind == "SS":
        return _StridedShard(rest[0], split_factor=rest[1])
    return {"R": Replicate, "S": Shard, "P": Partial}[kind](*rest)


def placements(text):
    return tuple(placement(parsed) for parsed in oracle.parse(text))


def mesh_of(shape, ranks=None):
    ranks = torch.arange(int(np.prod(shape))) if ranks is None else torch.tensor(ranks)
    names = tuple("abcde"[: len(shape)])
    return DeviceMesh(DEVICE, ranks.reshape(shape), mesh_dim_names=names)


def dtensor(array, mesh, text, shape):
    """A DTensor whose local tensor on this rank is `array`."""
    local = array if isinstance(array, torch.Tensor) else torch.from_numpy(array.copy())
    strides = tuple(int(np.prod(shape[i + 1 :], dtype=int)) for i in range(len(shape)))
    return DTensor.from_local(
        local.to(DEVICE), mesh, placements(text), run_check=False, shape=torch.Size(shape), stride=strides
    )


def make(mesh, text, shape, dtype="float32", seed=0):
    """A DTensor whose whole value is `oracle.full_tensor(shape, dtype, seed)`."""
    source = oracle.Source(oracle.full_tensor(shape, dtype, seed), tuple(mesh.shape), text, seed)
    return dtensor(source.local(tuple(mesh.get_coordinate())), mesh, text, shape)


def want(mesh, text, shape, dtype="float32", seed=0):
    """The part of that value that this rank must hold in these placements."""
    full = oracle.full_tensor(shape, dtype, seed)
    return oracle.local(full, tuple(mesh.shape), text, tuple(mesh.get_coordinate()))


def array(tensor):
    """The local tensor in NumPy; floats that NumPy does not have are widened, exactly."""
    tensor = tensor.to_local() if isinstance(tensor, DTensor) else tensor
    tensor = tensor.wait() if isinstance(tensor, AsyncCollectiveTensor) else tensor
    tensor = tensor.detach().cpu()
    small = tensor.is_floating_point() and tensor.dtype not in (torch.float32, torch.float64)
    return (tensor.float() if small else tensor).numpy()


# Subjects


def pytorch(tensor, text):
    return tensor.redistribute(placements=placements(text))


def function(tensor, text, promise="replicas", **options):
    return meshift.torch.redistribute(tensor, placements(text), promise=promise, **options)


def run_as(subject, run, world, body, *args, promise="replicas", **options):
    """`body(rank, redistribute, *args)` with `meshift.torch.redistribute` ("function"), with
    PyTorch's under `use()` ("use"), or with PyTorch's alone ("pytorch")."""
    redistribute = pytorch
    if subject == "function":
        redistribute = functools.partial(function, promise=promise)
    use = promise if subject == "use" else None
    return run(world, body, redistribute, *args, use=use, **options)


def move(rank, redistribute, mesh, ranks, cases):
    """This rank's results of the cases; None on ranks outside of the mesh."""
    device_mesh, results = mesh_of(mesh, ranks), []
    if device_mesh.get_coordinate() is None:
        return [None] * len(cases)
    at = tuple(device_mesh.get_coordinate())
    for seed, (shape, before, after, dtype) in enumerate(cases):
        source = oracle.Source(full_of(shape, dtype, seed), mesh, before, seed)
        held = torch.from_numpy(source.local(at)).to(getattr(torch, dtype))
        tensor = dtensor(held, device_mesh, before, shape)
        result = redistribute(tensor, after)
        assert result.placements == placements(after) and tuple(result.shape) == shape
        assert result.dtype == held.dtype and result.device_mesh == device_mesh
        assert np.array_equal(array(held), source.local(at)), "the source has changed"
        results.append(array(result))
    return results


def full_of(shape, dtype, seed):
    """Small integers that the dtype holds exactly, in the dtype that `array` returns."""
    if dtype == "bool":
        return oracle.full_tensor(shape, seed=seed) % 2 == 0
    if dtype.startswith("float8"):
        return oracle.full_tensor(shape, seed=seed) % 8
    known = hasattr(np, dtype) and dtype != "float16"
    return oracle.full_tensor(shape, dtype if known else "float32", seed)


def problems(
    mesh, cases, run=threads, ranks=None, world=None, subject="function", promise="replicas"
):
    """The cases in which some rank's tensor is wrong, with the reason.

    A case is (shape, source, target) or (shape, source, target, dtype).
    """
    count = int(np.prod(mesh))
    ranks, found = list(range(count)) if ranks is None else ranks, []
    cases = [case if len(case) == 4 else (*case, "float32") for case in cases]
    results = run_as(subject, run, world or count, move, mesh, ranks, cases, promise=promise)
    for seed, (case, held) in enumerate(zip(cases, zip(*(results[rank] for rank in ranks)))):
        shape, _, after, dtype = case
        reason = oracle.judge(full_of(shape, dtype, seed), mesh, after, held)
        if reason:
            found.append((case, reason))
    return found
