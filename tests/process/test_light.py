"""What is not needed is not loaded: an import or a help text costs about what the interpreter costs."""

from __future__ import annotations

import subprocess
import sys

HEAVY = {"sqlalchemy", "alembic", "aiohttp", "genai_prices", "pydantic", "jsonschema_rs", "asyncio", "rich", "httpx2", "mcp"}


def loaded(code: str) -> set[str]:
    """Top-level modules that a fresh interpreter holds after some code."""
    script = f"import sys\n{code}\nsys.stderr.write(' '.join(sys.modules))"
    ended = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    return {name.partition(".")[0] for name in ended.stderr.split()}


def test_importing_the_package_loads_nothing_heavy() -> None:
    """Names are loaded when they are used."""
    assert loaded("import endstop") & (HEAVY | {"msgspec", "typer"}) == set()


def test_the_help_text_loads_only_the_parser() -> None:
    """Commands load what they need when they run."""
    code = "from endstop.cli.main import main\ntry:\n    main(['--help'])\nexcept SystemExit:\n    pass"
    assert loaded(code) & HEAVY == set()


def test_the_kernel_loads_nothing_but_its_structs() -> None:
    """The core alone: no event loop, no database, no network."""
    assert loaded("import endstop.core.decide") & (HEAVY - {"asyncio"} | {"typer", "sqlite3", "socket", "subprocess"}) == set()
