"""Tests whose ranks are processes that mpirun starts.

    mpi_test(
        name = "conformance_test",
        binary = ":conformance",
        ranks = [2, 5],
    )

makes :conformance_test_2 and :conformance_test_5, which pass where all ranks do. Ranks may be more
than cores. Without MPI (@local_mpi) there are none.
"""

load("@local_mpi//:defs.bzl", "MPIRUN", "MPI_ENABLED")

def mpi_test(name, binary, ranks, args = [], data = [], mpirun_args = [], parts = 1, tags = [], **kwargs):
    """One sh_test per number of ranks.

    Args:
      name: of the tests, without the number of ranks.
      binary: what each rank runs.
      ranks: a list of numbers.
      args: of the binary.
      data: what the binary reads.
      mpirun_args: options of mpirun.
      parts: of a test that mostly waits: how many run side by side, each its part of the rounds.
      tags: as of any test.
      **kwargs: likewise.
    """
    if not MPI_ENABLED:
        return
    script = "//comm/mpi:mpi_test.sh"
    side_by_side = parts > 1
    for n in ranks:
        native.sh_test(
            name = "%s_%d" % (name, n),
            srcs = ["//testing:side_by_side.sh" if side_by_side else script],
            args = ([str(parts), "$(location %s)" % script] if side_by_side else []) +
                   [MPIRUN, "-n", str(n)] + mpirun_args + ["$(location %s)" % binary] + args,
            data = [binary] + data + ([script] if side_by_side else []),
            # Open MPI leaks by itself, as does on purpose what was left to it (ASAN_OPTIONS=detect_leaks=0
            # helps), and is not instrumented.
            tags = tags + ["noasan", "notsan"],
            **kwargs
        )
