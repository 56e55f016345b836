"""Write docs/terminal.svg: the first and last lines of `ctx1 demo` on a terminal.

    python scripts/terminal_picture.py

The README shows the picture. A test compares its words with what `ctx1 demo` prints.
"""

from __future__ import annotations

import os
import pty
import re
import select
import subprocess
import sys
import tempfile
from io import StringIO
from pathlib import Path

from rich.console import Console
from rich.text import Text

PICTURE = Path(__file__).parents[1] / "docs" / "terminal.svg"
COLUMNS = 88
SVG_TEMPLATE = """<svg class="rich-terminal" viewBox="0 0 {width} {height}" xmlns="http://www.w3.org/2000/svg">
<title>The demo on a terminal</title>
<style>
.{unique_id}-matrix {{
    font-family: ui-monospace, SFMono-Regular, Menlo, Consolas, "DejaVu Sans Mono", monospace;
    font-size: {char_height}px; line-height: {line_height}px; font-variant-east-asian: full-width;
}}
{styles}
</style>
<defs>{lines}</defs>
{chrome}
<g transform="translate({terminal_x}, {terminal_y})">
{backgrounds}
<g class="{unique_id}-matrix">
{matrix}
</g>
</g>
</svg>
"""
"""The template of the picture. Rich's own template loads a font from another server."""


def demo_output() -> str:
    """Return the output of `ctx1 demo` on a terminal of `COLUMNS` columns, with its colors."""
    leader, follower = pty.openpty()
    environment = {**os.environ, "TERM": "xterm-256color", "COLUMNS": str(COLUMNS), "LINES": "60"}
    command = [str(Path(sys.executable).with_name("ctx1")), "demo"]
    with (
        tempfile.TemporaryDirectory() as folder,
        subprocess.Popen(command, cwd=folder, stdout=follower, stderr=follower, env=environment) as process,
    ):
        os.close(follower)
        parts = []
        while process.poll() is None or select.select([leader], [], [], 0)[0]:
            try:
                parts.append(os.read(leader, 65_536))
            except OSError:  # the process has closed the other end
                break
    os.close(leader)
    return "\n".join(screen_lines(b"".join(parts).decode()))


def screen_lines(output: str) -> list[str]:
    """Return the final lines on the screen. While the demo searches, it rewrites its progress."""
    lines, row = [""], 0
    for part in re.split(r"(\n|\r|\x1b\[\d*A|\x1b\[2K|\x1b\[\?25[lh])", output):
        if part == "\n":
            row += 1
            lines.extend([""] * (row + 1 - len(lines)))
        elif part == "\x1b[2K":
            lines[row] = ""
        elif part.startswith("\x1b[") and part.endswith("A"):
            row = max(0, row - int(part[2:-1] or 1))
        elif part and part != "\r" and not part.startswith("\x1b[?25"):
            lines[row] += part
    return lines


def shown_lines(output: str) -> list[str]:
    """Return the first question with its first two turns, and the table of the results."""
    lines = output.splitlines()
    plain = [Text.from_ansi(line).plain for line in lines]
    start = next(i for i, line in enumerate(plain) if line.startswith("Which river"))
    _, second_context, *_ = (i for i, line in enumerate(plain) if line.lstrip().startswith("context "))
    end = next(i for i, line in enumerate(plain) if line.startswith("end "))
    finished = next(i for i, line in enumerate(plain) if line.startswith("finished after"))
    table = next(i for i, line in enumerate(plain) if line.startswith("Needed passages"))
    return ["$ ctx1 demo", *lines[start : second_context + 1], "...", *lines[end : finished + 1], "", *lines[table:]]


def picture(lines: list[str]) -> str:
    """Return the lines as an SVG picture that loads nothing from elsewhere."""
    console = Console(record=True, width=COLUMNS, file=StringIO(), force_terminal=True, color_system="truecolor")
    console.print(Text.from_ansi("\n".join(lines)))
    svg = console.export_svg(title="ctx1 demo", code_format=SVG_TEMPLATE, unique_id="terminal")
    return re.sub(r"[ \t]+$", "", svg, flags=re.M)


if __name__ == "__main__":
    PICTURE.write_text(picture(shown_lines(demo_output())), encoding="utf-8")
    print(f"{PICTURE}: {PICTURE.stat().st_size:,} bytes")
