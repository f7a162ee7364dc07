"""Open MPI of this machine as the repository @local_mpi.

    load("@local_mpi//:defs.bzl", "MPI_ENABLED")

Without Open MPI, or with --config=nompi (MESHIFT_MPI=0), the repository is empty, MPI_ENABLED is
False and a line in the build's output says why. comm/mpi then has the same interface, whose calls say so too.
"""

def _showme(ctx, mpicc, what):
    result = ctx.execute([mpicc, "--showme:" + what])
    return result.stdout.strip() if result.return_code == 0 else None

def _find(ctx):
    """Returns (None, why) or (a struct, None)."""
    if ctx.os.environ.get("MESHIFT_MPI", "") == "0":
        return None, "it was left out by --config=nompi (MESHIFT_MPI=0)"
    mpicc = ctx.which("mpicc.openmpi") or ctx.which("mpicc")
    mpirun = ctx.which("mpirun.openmpi") or ctx.which("mpirun")
    if mpicc == None or mpirun == None:
        return None, "Open MPI is not installed (Debian: libopenmpi-dev openmpi-bin)"
    include = _showme(ctx, mpicc, "incdirs")
    libdirs = _showme(ctx, mpicc, "libdirs")
    if not include:
        return None, "%s is not Open MPI's" % mpicc
    header = ctx.path(include.split(" ")[0] + "/mpi.h")
    if not header.exists:
        return None, "Open MPI's %s is missing" % header
    return struct(
        include = header.dirname,
        libdirs = [d for d in (libdirs or "").split(" ") if d],
        mpirun = str(mpirun),
    ), None

def _local_mpi_impl(ctx):
    found, why = _find(ctx)
    build = 'package(default_visibility = ["//visibility:public"])\n\n'
    if found:
        ctx.symlink(found.include, "include")
        build += """cc_library(
    name = "mpi",
    hdrs = glob(["include/**/*.h"]),
    defines = ["OMPI_SKIP_MPICXX"],
    includes = ["include"],
    linkopts = %s,
)
""" % (["-L" + d for d in found.libdirs] + ["-lmpi"])
    else:
        # buildifier: disable=print
        print("comm/mpi is left out: " + why)
        build += 'cc_library(name = "mpi")\n'
    build += '\ncc_library(name = "absence", hdrs = ["absence/mpi_absence.h"], includes = ["absence"])\n'
    ctx.file("BUILD", build)
    ctx.file("absence/mpi_absence.h", '#pragma once\nnamespace meshift {\n// Why there is no MPI.\ninline constexpr char kMpiAbsence[] = "%s";\n}\n' % (why or ""))
    ctx.file("defs.bzl", "MPI_ENABLED = %s\nMPIRUN = %s\n" % (
        bool(found),
        repr(found.mpirun if found else ""),
    ))

local_mpi = repository_rule(
    implementation = _local_mpi_impl,
    configure = True,
    environ = ["MESHIFT_MPI", "PATH"],
    local = True,
)

