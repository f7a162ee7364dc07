"""Tests whose ranks are processes that mpirun starts.

    mpi_test(
        name = "conformance_test",
        binary = ":conformance",
        ranks = [2, 5],
    )

makes :conformance_test_2 and :conformance_test_5, which pass where all ranks do. Ranks may be more
than cores. Without MPI (@local_mpi) there are none.
"""

load("@local_mpi//:defs.bzl", "MPIRUN", "MPIRUN_GOES_ON", "MPI_ENABLED")

def mpi_test(name, binary, ranks, args = [], data = [], goes_on = False, level = None, parts = 1, tags = [], **kwargs):
    """One sh_test per number of ranks.

    Args:
      name: of the tests, without the number of ranks.
      binary: what each rank runs.
      ranks: a list of numbers.
      args: of the binary.
      data: what the binary reads.
      goes_on: whether a rank that fails is not to end the others.
      level: "SERIALIZED", "FUNNELED" or "SINGLE": MPI gives no more, and its rule is watched (level.cc).
      parts: of a test that mostly waits: how many run side by side, each its part of the rounds.
      tags: as of any test.
      **kwargs: likewise.
    """
    if not MPI_ENABLED:
        return
    script = "//testing/internal/mpi:mpi_test.sh"
    side_by_side = parts > 1
    mpirun_args = [MPIRUN_GOES_ON] if goes_on else []
    lowered = ["env", "LD_PRELOAD=$(location //testing/internal/mpi:liblevel.so)", "MESHIFT_MPI_LEVEL=" + level] if level else []
    for n in ranks:
        native.sh_test(
            name = "%s_%d" % (name, n),
            srcs = ["//testing:side_by_side.sh" if side_by_side else script],
            args = ([str(parts), "$(location %s)" % script] if side_by_side else []) +
                   [MPIRUN, "-n", str(n)] + mpirun_args + lowered + ["$(location %s)" % binary] + args,
            data = [binary] + data + (["//testing/internal/mpi:liblevel.so"] if level else []) + ([script] if side_by_side else []),
            # Open MPI leaks, as do tests that leave work to it on purpose (ASAN_OPTIONS=detect_leaks=0
            # helps), and it is not instrumented.
            tags = tags + ["noasan", "notsan"],
            **kwargs
        )
