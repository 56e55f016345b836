"""How the context of an episode fills and empties, turn by turn, from its recorded trajectory.

Run: python examples/watch_the_context.py TRAJECTORY.jsonl (one that `ctx1 search --save FOLDER` wrote)
"""

from __future__ import annotations

import sys

from context_agent.harness.trajectory_file import read


def main(path: str) -> None:
    """Replays the views and prints what each turn added and took away."""
    trajectory = read(path)
    trajectory.verify()
    before: set[str] = set()
    for turn, view in enumerate(trajectory.views()):
        now = {block.id for block in view.blocks}
        print(f"turn {turn}: {view.tokens:,} tokens, +{len(now - before)} -{len(before - now)} passages")
        before = now
    print("ranked:", ", ".join(document.title or document.id for document in trajectory.end.documents))


if __name__ == "__main__":
    main(sys.argv[1])
