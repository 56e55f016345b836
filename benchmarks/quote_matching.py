"""Does the cascade find what stands in a text, and nothing else? Prints precision and recall beside their bound, .99.

    python benchmarks/quote_matching.py [--seeds N]

500 planted quotes a seed: exact, folded, punctuation, link, and paraphrases as negatives. They are the tests' own, so
run it from a checkout. Exits with 1 where a bound is missed.
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
    """Prints what each kind of case was found by, and the two figures."""
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
