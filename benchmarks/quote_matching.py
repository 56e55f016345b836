"""Measure the precision and recall of the matching of quotes.

    python benchmarks/quote_matching.py [--seeds N]

The bound for both is .99. If one is missed, the program exits with 1. Each seed gives 500 planted quotes: exact ones,
ones with other case, punctuation or links, and paraphrases, which must not be found.
`context_agent.testing.planted_quotes` makes them.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections import Counter
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent.parent))

from context_agent.synth_data.quotes import find_quote
from context_agent.testing.planted_quotes import COUNTS, planted

BOUND = 0.99


def main() -> int:
    """Print which step found the quotes of each kind, and the two figures."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seeds", type=int, default=1, help="sets of 500 cases")
    seeds = parser.parse_args().seeds
    cases = [case for seed in range(seeds) for case in planted(seed)]
    started = time.perf_counter()
    matches = [find_quote(case.quote, case.text) for case in cases]
    seconds = time.perf_counter() - started
    steps = Counter(
        (case.kind, str(match.step) if match else "none") for case, match in zip(cases, matches, strict=True)
    )
    for kind in COUNTS:
        counted = ", ".join(f"{step} {count}" for (of, step), count in sorted(steps.items()) if of == kind)
        print(f"{kind:12} {counted}")
    matched = [case for case, match in zip(cases, matches, strict=True) if match]
    right = sum(case.stands for case in matched)
    precision, recall = right / len(matched), right / sum(case.stands for case in cases)
    print(f"precision {precision:.4f}  recall {recall:.4f}  (each at least {BOUND}; {len(cases)} cases)")
    print(f"{len(cases) / seconds:,.0f} quotes a second")
    return 0 if min(precision, recall) >= BOUND else 1


if __name__ == "__main__":
    sys.exit(main())
