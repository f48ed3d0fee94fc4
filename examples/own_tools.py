"""Tools of your own: any function. What it does to the world decides whether it may run twice."""

import tempfile

import endstop
from endstop.testing import ScriptedModel, call, claims, says

STOCK = {"A-1": 12}
ORDERS: list[tuple[str, int, str]] = []


@endstop.tool(effect="read")
def stock(article: str) -> int:
    """Pieces of an article in the warehouse.

    Args:
        article: Its number.
    """
    if article not in STOCK:
        raise endstop.ToolError("no_article", f"there is no article {article}", hint=f"there are {', '.join(STOCK)}")
    return STOCK[article]


@endstop.tool(effect="idempotent")
def order(article: str, pieces: int, this: endstop.Invocation) -> str:
    """Order pieces. The same order has the same key, also after a crash, so the shop sees that it is no second one."""
    ORDERS.append((article, pieces, this.key))
    return f"ordered {pieces} of {article}"


MODEL = ScriptedModel(
    [
        says("", call("stock", article="A-1"), call("stock", article="A-9")),
        says("", call("order", article="A-1", pieces=8)),
        says("", call("order", article="A-1", pieces=8)),  # answered from memory
        claims("20 pieces of A-1 are there or on their way."),
    ]
)


def main(workspace: str) -> endstop.Result:
    return endstop.run_sync(
        "Have 20 pieces of A-1", workspace=workspace, model=MODEL, tools=[stock, order], judge="none", limits={"tool:order": 3}
    )


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as folder:
        print(main(folder))
    print(f"{len(ORDERS)} order reached the shop")
