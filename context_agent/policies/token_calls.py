"""What one call of a model sent and got, token by token, and how an action carries it into the trajectory.

A prompt mostly repeats the one before it and that one's reply. The record therefore holds how many ids were kept and
the ids that are new, so that an episode's record grows with what is new in it. `expand` gives the whole prompts back.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from context_agent.errors import TrajectoryError
from context_agent.harness.trajectory import ActionTaken, Trajectory

KEY = "sampled"
"""Where `Action.extra` holds the record; None where the window had no room and nothing was sampled."""


@dataclass(frozen=True, slots=True)
class TokenCall:
    """One call. The prompt is the first `kept` ids of the previous call's prompt and output, then `new`.

    `logprobs` has one natural logarithm for each id of `output`, of the model's own distribution before temperature
    and top-p. `version` names the weights; `finish` is `stop` or `length`; `cached` counts the prompt ids that the
    server had in its prefix cache, None where it does not say.
    """

    kept: int
    new: tuple[int, ...]
    output: tuple[int, ...]
    logprobs: tuple[float, ...]
    version: str = ""
    finish: str = "stop"
    cached: int | None = None

    def to_extra(self) -> dict[str, Any]:
        """As `Action.extra` holds it: plain data."""
        return {
            KEY: {
                "kept": self.kept,
                "new": list(self.new),
                "output": list(self.output),
                "logprobs": list(self.logprobs),
                "version": self.version,
                "finish": self.finish,
                "cached": self.cached,
            }
        }

    @staticmethod
    def from_extra(extra: Mapping[str, Any]) -> TokenCall | None:
        """The record of an action, None where no token policy made it. Raises `TrajectoryError` for a broken one."""
        data = extra.get(KEY)
        if data is None:
            return None
        try:
            made = TokenCall(
                **{
                    **data,
                    "new": tuple(data["new"]),
                    "output": tuple(data["output"]),
                    "logprobs": tuple(data["logprobs"]),
                }
            )
        except (KeyError, TypeError) as error:
            raise TrajectoryError(f"an action's record of sampled tokens cannot be read ({error!r})") from None
        if len(made.output) != len(made.logprobs):
            raise TrajectoryError(f"{len(made.output)} sampled tokens, but {len(made.logprobs)} log-probabilities")
        return made


@dataclass(frozen=True, slots=True)
class WholeCall:
    """A call with its whole prompt. `extends` says whether the prompt goes on from the previous call's output."""

    prompt: tuple[int, ...]
    call: TokenCall
    extends: bool


def calls(trajectory: Trajectory) -> Iterator[TokenCall]:
    """The calls of an episode in order. Raises `TrajectoryError` where an action is another policy's."""
    for event in trajectory.events:
        if not isinstance(event, ActionTaken):
            continue
        if (call := TokenCall.from_extra(event.action.extra)) is not None:
            yield call
        elif KEY not in event.action.extra:
            raise TrajectoryError(f"turn {event.turn} of {trajectory.header.id} was not made by a token policy")


def expand(made: Iterable[TokenCall]) -> Iterator[WholeCall]:
    """Whole prompts. Raises `TrajectoryError` for a record that keeps more than there was."""
    before: tuple[int, ...] = ()
    for call in made:
        if not 0 <= call.kept <= len(before):
            raise TrajectoryError(f"a prompt keeps {call.kept} ids of {len(before)}: the record is not whole")
        prompt = before[: call.kept] + call.new
        yield WholeCall(prompt, call, extends=bool(before) and call.kept == len(before))
        before = prompt + call.output
