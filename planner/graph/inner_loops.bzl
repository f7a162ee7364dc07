"""Options for what a search goes through again and again, which nothing from outside comes near."""

# The toolchain's flags keep a frame pointer and guard stacks. Sanitizer and debug builds leave it at
# that.
INNER_LOOPS = select({
    "//planner/graph:opt": [
        "-fomit-frame-pointer",
        "-fno-stack-protector",
    ],
    "//conditions:default": [],
})
