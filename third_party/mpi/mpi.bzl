"""The MPI of this machine as the repository @local_mpi.

    load("@local_mpi//:defs.bzl", "MPIRUN", "MPIRUN_GOES_ON", "MPI_ENABLED")

It is Open MPI if installed, else the MPI with mpicc and mpirun on PATH. --config=mpich
(MESHIFT_MPI=mpich) selects MPICH, by mpicc.mpich and mpirun.mpich. MESHIFT_MPI may be any such
suffix, or a folder whose bin/ has mpicc and mpirun.

Without MPI, or with --config=nompi (MESHIFT_MPI=0), the repository is empty, MPI_ENABLED is
False, and a line in the build's output says why. comm/mpi then has the same interface, whose calls
return UNIMPLEMENTED.
"""

def _tools(ctx, asked):
    """(mpicc, mpirun), or None."""
    if "/" in asked:
        pairs = [(asked + "/bin/mpicc", asked + "/bin/mpirun")]
        pairs = [(a, b) for a, b in pairs if ctx.path(a).exists and ctx.path(b).exists]
    else:
        endings = ["." + asked] if asked else [".openmpi", "", ".mpich"]
        pairs = [(ctx.which("mpicc" + ending), ctx.which("mpirun" + ending)) for ending in endings]
    found = [(str(a), str(b)) for a, b in pairs if a and b]
    return found[0] if found else None

def _find(ctx):
    """Returns (None, why) or (a struct, None)."""
    asked = ctx.os.environ.get("MESHIFT_MPI", "")
    if asked == "0":
        return None, "it was left out by --config=nompi (MESHIFT_MPI=0)"
    tools = _tools(ctx, asked)
    if tools == None:
        return None, ("there is no mpicc and mpirun of MESHIFT_MPI=%s" % asked if asked else "no MPI is installed (Debian: libopenmpi-dev openmpi-bin)")
    mpicc, mpirun = tools
    shown = ctx.execute([mpicc, "-show"])
    if shown.return_code != 0:
        return None, "%s -show fails" % mpicc
    words = shown.stdout.strip().split(" ")
    headers = [ctx.path(word[2:] + "/mpi.h") for word in words if word.startswith("-I")]
    headers = [header for header in headers if header.exists]
    if not headers:
        return None, "%s -show names no folder with mpi.h" % mpicc
    libraries = [word for word in words if word[:2] in ["-L", "-l"] or word.startswith("-Wl,-rpath")]
    return struct(
        include = headers[0].dirname,
        libraries = libraries,
        mpirun = mpirun,
        is_open_mpi = "OMPI_MAJOR_VERSION" in ctx.read(headers[0]),
    ), None

def _local_mpi_impl(ctx):
    found, why = _find(ctx)
    build = 'package(default_visibility = ["//visibility:public"])\n\n'
    if found:
        ctx.symlink(found.include, "include")

        # Without the C++ interface, which MPI has removed.
        build += """cc_library(
    name = "mpi",
    hdrs = glob(["include/**/*.h"]),
    defines = ["%s"],
    includes = ["include"],
    linkopts = %s,
)
""" % ("OMPI_SKIP_MPICXX" if found.is_open_mpi else "MPICH_SKIP_MPICXX", found.libraries)
    else:
        # buildifier: disable=print
        print("comm/mpi is left out: " + why)
        build += 'cc_library(name = "mpi")\n'
    build += '\ncc_library(name = "absence", hdrs = ["absence/mpi_absence.h"], includes = ["absence"])\n'
    ctx.file("BUILD", build)
    ctx.file("absence/mpi_absence.h", '#pragma once\nnamespace meshift {\n// Why there is no MPI.\ninline constexpr char kMpiAbsence[] = "%s";\n}\n' % (why or ""))
    is_open_mpi = bool(found) and found.is_open_mpi
    ctx.file("defs.bzl", """MPI_ENABLED = %s
IS_OPEN_MPI = %s
MPIRUN = %s
# With it mpirun keeps the other ranks running if a rank fails.
MPIRUN_GOES_ON = %s
""" % (
        bool(found),
        is_open_mpi,
        repr(found.mpirun if found else ""),
        repr("--enable-recovery" if is_open_mpi else "-disable-auto-cleanup"),
    ))

local_mpi = repository_rule(
    implementation = _local_mpi_impl,
    configure = True,
    environ = ["MESHIFT_MPI", "PATH"],
    local = True,
)
