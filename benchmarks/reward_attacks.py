"""Measure what scripted attacks on the reward earn, as a share of what an honest, perfect episode earns, by preset.

    python benchmarks/reward_attacks.py [--every 8]

The attacks and their tasks are those of tests/train/test_reward_attacks.py. `--every 8` plays every eighth task.
`extras` is the default preset with weights for `prune_accuracy`, `diversity` and `parallel`. If `default` or `extras`
misses the target, the program exits with 1.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent.parent))

from context_agent.testing.reward_attacks import CASES, EXTRAS, LIMIT, honest, make_small_world
from context_agent.train.rewards import RewardConfig, RewardPreset

SETTINGS = {
    "default": RewardConfig(),
    "extras": EXTRAS,
    "context-1": RewardConfig(preset=RewardPreset.CONTEXT_1),
}


def main() -> int:
    """Play every attack and print its shares."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--every", type=int, default=8, help="plays each task of that many")
    game = make_small_world(parser.parse_args().every)
    most = game.earned(honest, settings=list(SETTINGS.values()))
    largest = dict.fromkeys(SETTINGS, 0.0)
    honestly = ", ".join(f"{item:.3f}" for item in most)
    print(f"{len(CASES)} attacks on {len(game.questions)} tasks; an honest, perfect episode earns {honestly}")
    print(f"{'':<64}" + "".join(f"{name:>12}" for name in SETTINGS))
    for case, (name, attack) in CASES.items():
        earned = game.earned(attack, name, list(SETTINGS.values()))
        shares = {key: value / best for key, value, best in zip(SETTINGS, earned, most, strict=True)}
        largest = {key: max(largest[key], share) for key, share in shares.items()}
        print(f"{case:<64}" + "".join(f"{share:>12.3f}" for share in shares.values()), flush=True)
    print(f"{'the most':<64}" + "".join(f"{share:>12.3f}" for share in largest.values()))
    return int(max(largest["default"], largest["extras"]) > LIMIT)


if __name__ == "__main__":
    sys.exit(main())
