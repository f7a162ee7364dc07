"""Finds the CUDA toolkit and makes it the repository @local_cuda.

    cuda_configure(name = "local_cuda")

Searches $CUDA_HOME, then the usual places. Without a toolkit, and with --repo_env=MESHIFT_CUDA=0
(--config=nocuda), the repository is empty, CUDA_ENABLED in @local_cuda//:defs.bzl is False, and a
line in the build's output lists the omitted parts.
"""

_PLACES = ["/usr/local/cuda", "/usr/lib/cuda", "/opt/cuda"]

# The files that a toolkit must have. nccl.h may also be in /usr/include (Debian's libnccl-dev).
_NEEDED = ["bin/nvcc", "include/cuda.h", "nvvm/bin/cicc"]

_BUILD = """package(default_visibility = ["//visibility:public"])

# cuda.h alone: a single file that suffices for the driver API.
cc_library(
    name = "cuda_header",
    hdrs = ["include/cuda.h"],
    includes = ["include"],
)

# cuda.h, nccl.h and what they include.
cc_library(
    name = "headers",
    hdrs = glob([
        "include/*.h",
        "include/*.hpp",
        "include/crt/*",
        "include/nv/**",
        "include/nvtx3/**",
        "nccl/*.h",
    ]),
    includes = ["include"{nccl_include}],
)

exports_files(["bin/nvcc"])

# The programs and files that nvcc uses.
filegroup(
    name = "nvcc_files",
    srcs = glob([
        "bin/**",
        "nvvm/bin/*",
        "nvvm/libdevice/*",
        "include/*.h",
        "include/*.hpp",
        "include/crt/*",
    ]),
)
"""

# The reason why the toolkit is missing, for error messages; empty if it is not missing.
_ABSENCE_BUILD = """
cc_library(
    name = "absence",
    hdrs = ["absence/cuda_absence.h"],
    includes = ["absence"],
)
"""

def _absence(ctx, reason):
    ctx.file("absence/cuda_absence.h", """#pragma once
namespace meshift {
// Why there is no CUDA.
inline constexpr char kCudaAbsence[] = "%s";
}
""" % reason)

_ABSENT_BUILD = """package(default_visibility = ["//visibility:public"])

cc_library(name = "cuda_header")

cc_library(name = "headers")

filegroup(name = "nvcc_files")
"""

def _absent(ctx, reason):
    # buildifier: disable=print
    print(("//comm/cuda, //comm/nccl and what tests them are left out: %s. The local and MPI engines " +
           "are built.") % reason)
    ctx.file("BUILD", _ABSENT_BUILD + _ABSENCE_BUILD)
    _absence(ctx, reason)
    ctx.file("defs.bzl", "CUDA_ENABLED = False\n")

def _find(ctx):
    home = ctx.os.environ.get("CUDA_HOME", "")
    places = [home] if home else _PLACES
    for place in places:
        if all([ctx.path(place + "/" + needed).exists for needed in _NEEDED]):
            return ctx.path(place), places
    return None, places

def _cuda_configure(ctx):
    if ctx.os.environ.get("MESHIFT_CUDA", "1") == "0":
        _absent(ctx, "it was left out by --config=nocuda (MESHIFT_CUDA=0)")
        return
    toolkit, places = _find(ctx)
    if toolkit == None:
        _absent(ctx, "there is no CUDA toolkit (%s) in %s; CUDA_HOME may name one" % (", ".join(_NEEDED), ", ".join(places)))
        return
    nccl_include = ""
    if not ctx.path(str(toolkit) + "/include/nccl.h").exists:
        if not ctx.path("/usr/include/nccl.h").exists:
            _absent(ctx, "there is no nccl.h in %s/include or /usr/include" % toolkit)
            return
        ctx.symlink("/usr/include/nccl.h", "nccl/nccl.h")
        nccl_include = ', "nccl"'
    for folder in ["bin", "include", "nvvm"]:
        ctx.symlink(str(toolkit) + "/" + folder, folder)
    ctx.file("BUILD", _BUILD.replace("{nccl_include}", nccl_include) + _ABSENCE_BUILD)
    _absence(ctx, "")
    ctx.file("defs.bzl", "CUDA_ENABLED = True\n")

cuda_configure = repository_rule(
    implementation = _cuda_configure,
    environ = ["CUDA_HOME", "MESHIFT_CUDA"],
    local = True,
)
