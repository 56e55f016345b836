"""The records of an episode's calls.

A prompt mostly repeats the previous prompt and reply. The record of a call therefore has the number of ids that were
kept, and the new ids. `expand` restores the whole prompts.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from context_agent.errors import TrajectoryError
from context_agent.harness.trajectory import Trajectory
from context_agent.policies.tokens.routed_experts import Experts, unpack, unrecorded
from context_agent.pruning.view import ActionTaken

SAMPLED_KEY = "sampled"
"""The key of the record in `Action.extra`. The value is None if the window had no room and nothing was sampled."""
SAMPLE_AGAIN = "Sample the episode again."
"""The remedy for a damaged record."""


@dataclass(frozen=True, slots=True)
class TokenCall:
    """The record of a call.

    The prompt has the first `reused` ids of the previous call's prompt and output, and then the ids in `new`.

    Attributes:
        reused: The number of ids that the prompt repeats.
        new: The further ids of the prompt.
        output: The sampled ids.
        logprobs: A natural logarithm of a probability for each sampled id, by the model's own distribution before
            temperature and top-p.
        version: The version of the weights.
        finish: `stop` or `length`.
        cached: The number of prompt ids from the server's prefix cache. None if the server does not report it.
        experts: The packed experts, if the routing of a mixture of experts is recorded. They begin at the last reused
            id, which the previous call may not have read. They end before the last sampled id.
    """

    reused: int
    new: tuple[int, ...]
    output: tuple[int, ...]
    logprobs: tuple[float, ...]
    version: str = ""
    finish: str = "stop"
    cached: int | None = None
    experts: str = ""

    @property
    def experts_from(self) -> int:
        """The position at which `experts` begin."""
        return first_recorded(self.reused)

    def to_extra(self) -> dict[str, Any]:
        """Return the record as plain data for `Action.extra`."""
        data = {
            "kept": self.reused,
            "new": list(self.new),
            "output": list(self.output),
            "logprobs": list(self.logprobs),
            "version": self.version,
            "finish": self.finish,
            "cached": self.cached,
        }
        return {SAMPLED_KEY: {**data, "experts": self.experts} if self.experts else data}

    @staticmethod
    def from_extra(extra: Mapping[str, Any]) -> TokenCall | None:
        """Return the record of an action. If another policy took the action, return None.

        Raise `TrajectoryError` if the record is not valid.
        """
        data = extra.get(SAMPLED_KEY)
        if data is None:
            return None
        try:
            numbers = {name: tuple(data[name]) for name in ("new", "output", "logprobs")}
            fields = {name: value for name, value in data.items() if name != "kept"}
            call = TokenCall(**{**fields, **numbers, "reused": data["kept"]})
        except (KeyError, TypeError) as error:
            raise TrajectoryError(
                f"cannot read an action's record of sampled tokens ({error!r}). {SAMPLE_AGAIN}"
            ) from None
        if len(call.output) != len(call.logprobs):
            raise TrajectoryError(
                f"an action's record has {len(call.output)} sampled tokens and {len(call.logprobs)} "
                f"log-probabilities, which differ. {SAMPLE_AGAIN}"
            )
        return call


def first_recorded(reused: int) -> int:
    """Return the position at which the experts of a call begin if the call reuses `reused` ids."""
    return max(0, reused - 1)


@dataclass(frozen=True, slots=True)
class WholeCall:
    """A call with its whole prompt.

    Attributes:
        prompt: The ids of the whole prompt.
        call: The record of the call.
        extends: True if the prompt continues the previous call's output.
        experts: The experts of the prompt and of the output except its last id. An id keeps the experts that it was
            first read with. None if no experts were recorded.
    """

    prompt: tuple[int, ...]
    call: TokenCall
    extends: bool
    experts: Experts | None = field(default=None, compare=False)


def calls(trajectory: Trajectory) -> Iterator[TokenCall]:
    """Yield the calls of an episode in order. Raise `TrajectoryError` if an action is from another policy."""
    for event in trajectory.events:
        if not isinstance(event, ActionTaken):
            continue
        if (call := TokenCall.from_extra(event.action.extra)) is not None:
            yield call
        elif SAMPLED_KEY not in event.action.extra:
            raise TrajectoryError(
                f"turn {event.turn} of {trajectory.header.id} was not played by a token policy. Use episodes of "
                "TokenPolicy."
            )


def expand(token_calls: Iterable[TokenCall]) -> Iterator[WholeCall]:
    """Yield the calls with their whole prompts.

    Raise `TrajectoryError` for a record that reuses more ids than there were.
    """
    before: tuple[int, ...] = ()
    experts: Experts | None = None
    for call in token_calls:
        if not 0 <= call.reused <= len(before):
            raise TrajectoryError(
                f"the record is incomplete, because a prompt reuses {call.reused} of only {len(before)} ids. "
                f"{SAMPLE_AGAIN}"
            )
        prompt = before[: call.reused] + call.new
        experts = _continued(experts, call, len(prompt) + len(call.output) - 1)
        yield WholeCall(prompt, call, bool(before) and call.reused == len(before), experts)
        before = prompt + call.output


def _continued(before: Experts | None, call: TokenCall, positions: int) -> Experts | None:
    """Return the experts up to a call's last position but one.

    `before` has the experts up to the same position of the previous call.
    """
    if not call.experts:
        return None if before is None else _resized(before[: call.reused], positions)
    fresh = unpack(call.experts)
    if len(fresh) != positions - call.experts_from or (before is not None and before.shape[1:] != fresh.shape[1:]):
        raise TrajectoryError(
            f"the record is damaged, because the recorded experts of a call of {positions - call.experts_from} "
            f"positions have the shape {fresh.shape}. {SAMPLE_AGAIN}"
        )
    earlier = unrecorded(0, like=fresh) if before is None else before[: call.reused]
    known = _resized(earlier, max(len(earlier), call.experts_from))
    return np.concatenate([known, fresh[len(known) - call.experts_from :]])


def _resized(experts: Experts, positions: int) -> Experts:
    """Return the experts, with unrecorded positions added at the end."""
    return np.concatenate([experts, unrecorded(positions - len(experts), like=experts)])
