"""What a library is linked with, without its headers.

    linked(name = "linked", library = ":mpi")

What depends on it is not compiled anew for another MPI.
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
