"""The command scripts/mutate."""

from __future__ import annotations

import argparse
import random
import sys
import time
from collections import Counter
from pathlib import Path

from mutants import Mutant, mutants_of
from register import PATH, read_register
from trials import MISSED, Outcome, TestsFailError, try_mutants


def main() -> int:
    """Try the mutants of a module, and print those that no test notices."""
    options = _options()
    sys.path.insert(0, str(Path.cwd()))
    module = Path(options.module).resolve().relative_to(Path.cwd())
    register = read_register(str(module))
    mutants = mutants_of(module)
    stale = register.stale(mutants)
    chosen = [mutant for mutant in mutants if mutant.line in options.lines]
    if options.sample is not None and options.sample < len(chosen):
        drawn = random.Random(options.seed).sample(range(len(chosen)), options.sample)
        chosen = [chosen[position] for position in sorted(drawn)]
    tried = [mutant for mutant in chosen if not register.is_listed(mutant)]
    counts: Counter[Outcome] = Counter()

    def done(mutant: Mutant, outcome: Outcome) -> None:
        counts[outcome] += 1
        if outcome in MISSED:
            print(f"{module}:{mutant.line} {mutant.function}: {outcome.value}", flush=True)
            print(f"    - {mutant.before}\n    + {mutant.after}", flush=True)

    started = time.monotonic()
    try:
        try_mutants(module, tried, options.tests or register.tests, done)
    except TestsFailError as error:
        print(error, file=sys.stderr)
        return 2
    seconds = time.monotonic() - started
    for entry in stale:
        print(f"{PATH}: {module} no longer has this mutant: {entry.function}: {entry.before} -> {entry.after}")
    missed = sum(counts[outcome] for outcome in MISSED)
    print(
        f"{module}: {len(chosen)} of {len(mutants)} mutants, {counts[Outcome.KILLED]} killed, "
        f"{counts[Outcome.TIMED_OUT]} timed out, {len(chosen) - len(tried)} listed, {missed} survived"
        + (f", {waiting} not tried" if (waiting := len(tried) - counts.total()) else "")
        + f"; {seconds:.0f} s"
    )
    return 1 if missed else 0


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="scripts/mutate", description=main.__doc__)
    parser.add_argument("module", help="a file of the package, such as context_agent/pruning/view.py")
    parser.add_argument("--sample", type=int, metavar="N", help="try only N mutants, drawn at random")
    parser.add_argument("--seed", type=int, default=0, metavar="S", help="the seed of the draw (default: 0)")
    parser.add_argument(
        "--lines", type=_lines, default=range(1, sys.maxsize), metavar="A-B", help="try only mutants of these lines"
    )
    parser.add_argument("--tests", nargs="+", metavar="PATH", help=f"the tests to run, instead of those in {PATH}")
    return parser.parse_args()


def _lines(text: str) -> range:
    first, _, last = text.partition("-")
    return range(int(first), int(last or first) + 1)


if __name__ == "__main__":
    sys.exit(main())
