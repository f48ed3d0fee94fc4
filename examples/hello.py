"""The smallest goal: a file that must be there in the end. The model is scripted, so it runs without a key or a network."""

import asyncio
import tempfile

import endstop
from endstop.testing import ScriptedModel, call, claims, says


async def main(workspace: str) -> endstop.Result:
    model = ScriptedModel([says("I write it.", call("write_file", path="hello.txt", content="Hello!\n")), claims("It is there.")])
    return await endstop.run("Say hello in hello.txt", workspace=workspace, model=model, deliverables="hello.txt", judge="none")


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as folder:
        result = asyncio.run(main(folder))
    print(result)
    print(result.answer)
