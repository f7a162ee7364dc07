"""Ranks compare the plans that they are about to run; all fail if two plans differ.

The comparison uses the store of the default process group. It takes place before the first calls of
a mesh, before each call with a new plan, and after a failed call. In a comparison before a call,
ranks that agree make five calls of the store each. The last rank to arrive also deletes the keys of
the comparison before. After a failed call each rank makes two calls, and up to two more for each
rank of the mesh.
"""

from __future__ import annotations

from datetime import timedelta

import torch.distributed as dist
from torch.distributed import distributed_c10d

from meshift.errors import DeadlineExceededError, OtherError

# The number of first calls of a mesh that always compare, even if the plan is cached.
FIRST_CALLS = 4
# After a failed call: the time to wait for the failed plans of the other ranks.
_AFTER_A_FAILURE = timedelta(seconds=5)


class Disagreement(OtherError):
    """Ranks asked for different plans, or a rank refused its arguments."""

    def __init__(self, message: str) -> None:
        super().__init__(message, "FAILED_PRECONDITION")

    def __reduce__(self) -> tuple[object, ...]:
        return type(self), (self.args[0],)


class Agreement:
    """The calls of one mesh, in order. `ranks`: all ranks of the mesh."""

    def __init__(self, name: str, ranks: tuple[int, ...], timeout: timedelta | None) -> None:
        self._prefix = f"meshift/{name}"
        self._ranks = ranks
        self._timeout = timeout
        self._calls = 0
        self._store = distributed_c10d._get_default_store()
        # A fake backend has no other ranks.
        self._is_on = dist.get_backend() != "fake" and len(ranks) > 1

    @property
    def wants(self) -> bool:
        """Whether the next call compares in any case."""
        return self._is_on and self._calls < FIRST_CALLS

    def meet(self, plan: str, complaint: str = "") -> None:
        """Returns when all ranks have announced this plan without a complaint.

        Otherwise raises Disagreement on all ranks, and ValueError on the rank with the complaint;
        DeadlineExceededError if ranks are missing.
        """
        if not self._is_on:
            if complaint:
                raise ValueError(complaint)
            return
        prefix = f"{self._prefix}/{self._calls}"
        self._calls += 1
        store, rank = self._store, dist.get_rank()
        mine = f"rank {rank}: {plan}"
        first = store.compare_set(f"{prefix}/plan", "", mine).decode()
        if complaint:
            self._object(prefix, f"rank {rank} cannot take part: {complaint}")
        elif first.partition(": ")[2] != plan:
            self._object(prefix, f"ranks have different plans: {first}; {mine}")
        store.set(f"{prefix}/rank/{rank}", "")
        if store.add(f"{prefix}/count", 1) == len(self._ranks):
            self._forget(self._calls - 2)  # a rank in this call has finished the one before
            store.set(f"{prefix}/all", "")
        self._wait(prefix, mine)
        if store.check([f"{prefix}/objection"]):
            objection = store.get(f"{prefix}/objection").decode()
            if complaint and objection.startswith(f"rank {rank} "):
                raise ValueError(complaint)
            raise Disagreement(objection)

    def after_failure(self, plan: str) -> Disagreement | None:
        """Publishes the plan in which this rank failed. Returns the error to raise if another rank
        failed in a different plan."""
        if not self._is_on:
            return None
        store, mine = self._store, dist.get_rank()
        # The key has the number of comparisons, so failures before the last new plan do not count.
        keys = {rank: f"{self._prefix}/{self._calls}/failed/{rank}" for rank in self._ranks}
        store.set(keys[mine], plan)
        wait = _AFTER_A_FAILURE if self._timeout is None else min(_AFTER_A_FAILURE, self._timeout)
        try:
            store.wait(list(keys.values()), wait)
        except (RuntimeError, dist.DistStoreError):
            pass  # compare with the ranks that have answered
        for rank, key in keys.items():
            if store.check([key]):
                other = store.get(key).decode()
                if other != plan:
                    return Disagreement(
                        f"ranks have different plans: rank {rank}: {other}; rank {mine}: {plan}"
                    )
        return None

    def _forget(self, call: int) -> None:
        """Deletes the store's keys of a call."""
        if call < 0:
            return
        ranks = [f"{kind}/{rank}" for kind in ("rank", "failed") for rank in self._ranks]
        for key in ["plan", "count", "all", "objection", *ranks]:
            try:
                self._store.delete_key(f"{self._prefix}/{call}/{key}")
            except (RuntimeError, NotImplementedError):  # not all stores can delete
                return

    def _object(self, prefix: str, message: str) -> None:
        self._store.compare_set(f"{prefix}/objection", "", message)

    def _wait(self, prefix: str, mine: str) -> None:
        try:
            if self._timeout is None:
                self._store.wait([f"{prefix}/all"])
            else:
                self._store.wait([f"{prefix}/all"], self._timeout)
        except (RuntimeError, dist.DistStoreError) as error:
            missing = [
                str(rank)
                for rank in self._ranks
                if not self._store.check([f"{prefix}/rank/{rank}"])
            ]
            raise DeadlineExceededError(
                f"{mine}; within the time-out these ranks announced no plan: "
                f"{', '.join(missing) or 'none'}",
                "DEADLINE_EXCEEDED",
            ) from error
