"""The repositories that Meshift needs in a WORKSPACE, its own or yours:

    local_repository(name = "meshift", path = "/path/to/meshift")

    load("@meshift//third_party:repositories.bzl", "meshift_repositories")

    meshift_repositories()

Debian's Bazel 4.2.3 would fetch six of these repositories from the network. Here they come from
stubs in this repository and from Debian packages, so that building and testing work offline.
./bazelw installs the packages. Repositories that the WORKSPACE has already defined are kept.
"""

load("//third_party/cuda:cuda_configure.bzl", "cuda_configure")
load("//third_party/mpi:mpi.bzl", "local_mpi")

def _stub_impl(ctx):
    for child in ctx.path(ctx.attr.workspace_file).dirname.readdir():
        ctx.symlink(child, child.basename)

# A folder of this repository with its own WORKSPACE file.
_stub = repository_rule(
    implementation = _stub_impl,
    attrs = {"workspace_file": attr.label(mandatory = True)},
)

_STUBS = ["rules_cc", "remote_coverage_tools"]

_DEBIAN = {
    "bazel_skylib": "/usr/share/bazel/tools/skylib",
    "platforms": "/usr/share/bazel/tools/platforms",
    "rules_java": "/usr/share/bazel/rules/java",
    "rules_proto": "/usr/share/bazel/rules/proto",
}

def meshift_repositories():
    for name in _STUBS:
        if not native.existing_rule(name):
            _stub(name = name, workspace_file = Label("//third_party/%s:WORKSPACE" % name))
    for name, path in _DEBIAN.items():
        if not native.existing_rule(name):
            native.local_repository(name = name, path = path)

    # The CUDA toolkit and MPI; empty repositories if they are missing.
    cuda_configure(name = "local_cuda")
    local_mpi(name = "local_mpi")
