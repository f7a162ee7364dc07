"""Plans from Python: the part that each rank holds, the best plan, its proof, and alternatives.

python python/examples/plan.py
"""

from __future__ import annotations

import meshift


def main() -> None:
    mesh = meshift.DeviceMesh("dp=2,tp=4")
    source = meshift.Sharding("bf16[4096,1024]", mesh, "P,S(1)")
    target = source.with_placements("S(0),R")

    for rank, box in zip(mesh.ranks, meshift.shards(target)):
        print(f"rank {rank} is to hold {box.shape} from {box.offset} on")

    plan = meshift.plan(source, target, topology="h100", reproducibility="ordered")
    meshift.verify(plan)
    print(plan.text)

    print("on rank 5:")
    for instruction in plan.program(5).instructions:
        print(f"  {instruction.kind} of step {instruction.step}")

    # A plan that was changed in transit is refused, with the broken rule.
    changed = meshift.Plan.read(plan.json().replace('"placements":"S(0),R"', '"placements":"R,R"'))
    try:
        meshift.verify(changed)
    except meshift.VerificationError as error:
        print(f"refused by the rule {error.rule}: {error}")

    for alternative in meshift.explain(source, target, topology="h100"):
        print(f"{alternative.verdict}: {'; '.join(step.text for step in alternative.plan.steps)}")


if __name__ == "__main__":
    main()
