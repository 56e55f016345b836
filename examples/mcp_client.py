"""MCP: the official client starts `ctx1 mcp` on a small index and calls its tools.

    python examples/mcp_client.py

This script needs `pip install "context-agent[mcp]"`.
"""

from __future__ import annotations

import asyncio
import subprocess
import sys
import tempfile
from pathlib import Path

from mcp import Client, StdioServerParameters
from mcp.types import TextContent

QUESTION = "Which award did the director of Rope receive?"
TEXTS = {
    "Rope": "Rope is a film of 1948 directed by Alfred Hitchcock.",
    "Alfred Hitchcock": "Alfred Hitchcock received the AFI Life Achievement Award.",
    "Bread": "Bread is made of flour, water and salt.",
}
CTX1 = [sys.executable, "-m", "context_agent.cli"]


def index(folder: Path) -> Path:
    """Index the texts with `ctx1 index`, and return the folder of the index."""
    notes = folder / "notes"
    notes.mkdir()
    for title, text in TEXTS.items():
        (notes / f"{title}.md").write_text(f"# {title}\n\n{text}\n", encoding="utf-8")
    made = folder / "index"
    subprocess.run([*CTX1, "index", str(notes), "--path", str(made)], check=True, capture_output=True)
    return made


async def progress(done: float, total: float | None, message: str | None) -> None:
    """Print what the server reports after each turn."""
    print(f"  {message}")


async def main() -> None:
    """Ask for documents, then for a pattern."""
    with tempfile.TemporaryDirectory() as folder:
        command, *arguments = [*CTX1, "mcp", "--path", str(index(Path(folder)))]
        async with Client(StdioServerParameters(command=command, args=arguments)) as client:
            print(", ".join(tool.name for tool in (await client.list_tools()).tools))
            answer = await client.call_tool("retrieve", {"question": QUESTION, "k": 2}, progress_callback=progress)
            print("\n".join(one.text for one in answer.content if isinstance(one, TextContent)))
            found = await client.call_tool("grep", {"pattern": "19[0-9]{2}", "detail": "full"})
            print([one["title"] for one in (found.structured_content or {})["passages"]])


if __name__ == "__main__":
    asyncio.run(main())
