"""What the token path needs from a renderer. `HarmonyRenderer` and `TemplateRenderer` are the two that ship.

A renderer knows nothing of episodes. It spells the parts of a prompt; `policies.prompt.Prompt` puts them together.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

from context_agent.harness.profile import Profile
from context_agent.types import Action

Ids = tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Opening:
    """The prompt of a first turn around its question: `before`, the question's own ids, then `after`.

    `after` ends where the model's reply begins. `text` spells `before` for people and for the view.
    """

    before: Ids
    after: Ids
    text: str

    @property
    def tokens(self) -> int:
        """What stands in the prompt beside the question."""
        return len(self.before) + len(self.after)


class TokenRenderer(Protocol):
    """Spells prompts and reads replies for one kind of model. Shared by concurrent episodes."""

    @property
    def name(self) -> str:
        """Written into trajectories, e.g. `harmony`."""

    @property
    def counter_name(self) -> str:
        """The vocabulary's name, as a `TokenCounter` has it."""

    @property
    def stop(self) -> Ids:
        """The tokens that end a reply."""

    @property
    def parallel(self) -> bool:
        """Whether one reply may hold several calls; otherwise `multi_tool_use` wraps them."""

    def encode(self, text: str) -> Ids:
        """Content as token ids. No special token can come of it, whatever the text spells."""

    def decode(self, ids: Sequence[int]) -> str:
        """The ids as text for people, special tokens spelled out. Never raises."""

    def opening(self, profile: Profile) -> Opening:
        """System and developer messages with the profile's instructions and tools."""

    def frame(self, reply: Sequence[int], names: Sequence[str]) -> tuple[Ids, ...]:
        """What stands around the results of a reply's calls: one part more than there are calls.

        The first part closes the reply where sampling left it open; the last one begins the next reply.
        """

    def reply(self, action: Action) -> Ids:
        """An action as the model would have sampled it: what a teacher's action is trained as."""

    def parse(self, ids: Sequence[int]) -> Action:
        """The action of a sampled reply. Never raises: a mistake becomes a call that the episode answers."""
