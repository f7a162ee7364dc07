"""The linker inputs of a library, without its headers.

    linked(name = "linked", library = ":mpi")

A target that depends on it is not recompiled when MPI changes.
"""

def _linked_impl(ctx):
    return [CcInfo(linking_context = ctx.attr.library[CcInfo].linking_context)]

linked = rule(
    implementation = _linked_impl,
    attrs = {"library": attr.label(
        doc = "The library.",
        mandatory = True,
        providers = [CcInfo],
    )},
)
