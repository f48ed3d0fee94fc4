"""Limits, and what to do with a result: a limit is no exception, and more of it lets the goal go on."""

import asyncio
import tempfile

import endstop
from endstop.testing import ScriptedModel, call, claims, says

STEPS = [says(f"Part {n}.", call("write_file", path=f"part{n}.txt", content=f"{n}\n")) for n in (1, 2, 3)]
MODEL = ScriptedModel([*STEPS, claims("All three parts are written.")])


async def main(workspace: str) -> list[endstop.Result]:
    parts = [f"part{n}.txt" for n in (1, 2, 3)]
    few = endstop.Limits(turns=2, cost="50usd", wall="1h", tokens=endstop.NONE)
    first = await endstop.run("Write three parts", workspace=workspace, model=MODEL, deliverables=parts, judge="none", limits=few)
    match first.phase:
        case "capped":
            print(f"{first.reason}; {first.missing}")
            return [first, await endstop.resume(first.session_id, model=MODEL, limits={"turns": 20})]
        case "stuck" | "blocked":
            print(f"a person should look: {first.handoff['next']}")
        case "failed":
            print(f"broken: {first.reason}")
    return [first]


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as folder:
        results = asyncio.run(main(folder))
    for result in results:
        print(result, "turns:", result.spend["turns"])
