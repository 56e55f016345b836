"""Read a recorded trajectory, check that it replays, and show how its context filled and emptied turn by turn.

    python examples/watch_the_context.py TRAJECTORY.jsonl

`ctx1 search "QUESTION" --save FOLDER` writes trajectories. `ctx1 view FOLDER` shows them as a page.
"""

from __future__ import annotations

import sys

from context_agent.harness.trajectory_file import read


def main(path: str) -> None:
    """Print the passages that each turn added and removed, and the ranking."""
    trajectory = read(path)
    trajectory.verify()
    before: set[str] = set()
    for turn, view in enumerate(trajectory.views()):
        now = {block.id for block in view.blocks}
        print(f"turn {turn}: {view.tokens:,} tokens, +{len(now - before)} -{len(before - now)} passages")
        before = now
    print("ranked:", ", ".join(document.title or document.id for document in trajectory.end.documents))


if __name__ == "__main__":
    if len(sys.argv) != 2:
        sys.exit(__doc__)
    main(sys.argv[1])
