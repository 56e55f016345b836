"""The token policy, which sends and receives token ids. Training therefore uses exactly the ids that were sampled.

The policy makes four promises:

1. Sampled ids stay the same in all later prompts. No text is decoded and encoded again.
2. The engine receives exactly the ids of the prompt. Without an edit, a prompt begins with the previous prompt and the
   reply to it.
3. Prompt and sampled ids together never exceed the window, because the prompt's exact length limits `max_tokens`.
4. Each action has its `TokenCall`, with the prompt, the output, the log-probabilities and the version of the weights.

The view counts the tokens of the prompt. `instructions` are the system and developer messages with the tools. They
count as all of the first prompt except the question. An action counts as the sampled ids and the framing of its
results' messages. The same vocabulary counts contents. The tokens of a view are therefore the length of the prompt,
except for chunks. A chunk counts as the sum of its parts, which may be a few tokens more than the whole.
"""

from __future__ import annotations

import math
from dataclasses import replace

from context_agent._support.arguments import whole_number
from context_agent.errors import ConfigError, PolicyError
from context_agent.harness.policy import Instructions
from context_agent.harness.profile import Profile
from context_agent.harness.tools import BATCH
from context_agent.policies.tokens.engines import Engine, Sample, SampleRequest
from context_agent.policies.tokens.harmony import HarmonyRenderer
from context_agent.policies.tokens.prompt import Opening, Prompt, TokenRenderer
from context_agent.policies.tokens.recorded_calls import SAMPLED_KEY, TokenCall, first_recorded
from context_agent.pruning.view import Role, Text, View
from context_agent.retrieval.corpus import Corpus
from context_agent.types import Action

MAX_TOKENS = 4_096
"""Maximum number of tokens sampled in one turn: the published baseline's value."""
SEEDS = 2**31


class VocabularyCounter:
    """A token counter that uses the renderer's vocabulary."""

    def __init__(self, renderer: TokenRenderer) -> None:
        self._renderer = renderer
        self.name = renderer.counter_name

    def count(self, text: str) -> int:
        """Return the number of tokens of the text as content."""
        return len(self._renderer.encode(text))


class TokenPolicy:
    """A language model that is driven by exact token ids.

    Args:
        engine: The engine that runs the model. The caller closes it.
        renderer: The renderer that writes prompts and reads replies. Defaults to harmony with gpt-oss's vocabulary.
        temperature: The sampling temperature. The defaults of this and of `top_p` are the settings that the published
            weights were trained with.
        top_p: The probability mass for nucleus sampling.
        max_tokens: Maximum number of tokens of one reply.
        record_experts: If true, record the experts that a mixture of experts chooses.

    Raises:
        ConfigError: If the sampling settings are not valid.

    Example:
        >>> from context_agent import Action, Document, MemoryCorpus, RankedId, SearchAgent, ToolCall
        >>> from context_agent.policies.tokens.engines import FakeEngine
        >>> from context_agent.policies.tokens.harmony import HarmonyRenderer
        >>> renderer = HarmonyRenderer()
        >>> search = Action(calls=(ToolCall("search_corpus", {"query": "light"}),))
        >>> replies = [renderer.reply(search), renderer.reply(Action(ranking=(RankedId("light"),)))]
        >>> corpus = MemoryCorpus([Document("light", "Orm Skerry Light was lit in 1868.")])
        >>> agent = SearchAgent(corpus, TokenPolicy(FakeEngine(replies), renderer))
        >>> [document.id for document in agent.search("When was it lit?").documents]
        ['light']
    """

    def __init__(
        self,
        engine: Engine,
        renderer: TokenRenderer | None = None,
        *,
        temperature: float = 1.0,
        top_p: float = 0.9,
        max_tokens: int = MAX_TOKENS,
        record_experts: bool = False,
    ) -> None:
        max_tokens = whole_number(max_tokens, "max_tokens")
        if not 0 <= temperature < math.inf or not 0 < top_p <= 1 or max_tokens < 1:
            raise ConfigError(
                "temperature must be finite and at least 0, top_p must be in (0, 1], and max_tokens must be positive; "
                f"got temperature = {temperature}, top_p = {top_p}, max_tokens = {max_tokens}"
            )
        self.engine = engine
        self.renderer = renderer or HarmonyRenderer()
        self.temperature = temperature
        self.top_p = top_p
        self.max_tokens = max_tokens
        self.record_experts = record_experts
        self.counter = VocabularyCounter(self.renderer)
        """Counts by the model's vocabulary."""
        self._openings: dict[Profile, Opening] = {}

    @property
    def name(self) -> str:
        """The names of the engine and the renderer."""
        return f"tokens:{self.engine.name}:{self.renderer.name}"

    def instructions(self, profile: Profile) -> Instructions:
        """Return the system and developer messages as the prompt has them, tools included."""
        opening = self.opening(profile)
        return Instructions(opening.text, opening.tokens)

    def opening(self, profile: Profile) -> Opening:
        """Return the profile's opening in the renderer's tokens. Each profile is rendered only once."""
        if profile not in self._openings:
            self._openings[profile] = self.renderer.opening(profile)
        return self._openings[profile]

    def open(self, question: str, corpus: Corpus, *, profile: Profile, seed: int = 0) -> TokenActor:
        """Return an actor. The seeds of its turns are derived from `seed`."""
        return TokenActor(self, profile, seed)


class TokenActor:
    """The calls of one episode."""

    def __init__(self, policy: TokenPolicy, profile: Profile, seed: int) -> None:
        self._policy = policy
        self._profile = profile
        self._seed = seed
        self._prompt: Prompt | None = None
        self._reserve = 0

    async def act(self, view: View) -> Action:
        """Sample a reply on the view and read it.

        If the window has no room for a reply and the framing of its results, the size of the action reports that, and
        the episode ends. Raise `PolicyError` if the engine cannot continue.
        """
        policy = self._policy
        prompt = self._prompt or self._begin(view)
        ids = tuple(prompt.show(view))
        room = min(policy.max_tokens, view.max_output - self._reserve, view.budget.window - len(ids))
        if room < 1:
            return Action(tokens=view.budget.window, extra={SAMPLED_KEY: None})
        seed = (self._seed * 1_000_003 + view.turn) % SEEDS
        reused = prompt.reused
        experts_from = first_recorded(reused) if policy.record_experts else None
        request = SampleRequest(ids, room, policy.renderer.stop, policy.temperature, policy.top_p, seed, experts_from)
        sample = await policy.engine.generate(request)
        _check(sample, room)
        prompt.sampled(view, sample.ids)
        call = TokenCall(
            reused,
            ids[reused:],
            sample.ids,
            sample.logprobs,
            sample.version,
            sample.finish.value,
            sample.cached_tokens,
            sample.experts,
        )
        action = policy.renderer.parse(sample.ids)
        tokens = len(sample.ids) + prompt.framing(sample.ids, action)
        return replace(action, tokens=tokens, extra={**action.extra, **call.to_extra()})

    def _begin(self, view: View) -> Prompt:
        """Return the prompt of the episode. Raise `PolicyError` if the view begins with other instructions."""
        renderer, opening = self._policy.renderer, self._policy.opening(self._profile)
        if next((s.text for s in view.segments if isinstance(s, Text) and s.role is Role.PROMPT), "") != opening.text:
            raise PolicyError(
                "the view does not begin with this policy's instructions. Open the Episode with "
                "instructions=policy.instructions(profile), as SearchAgent does."
            )
        self._prompt = Prompt(renderer, self._profile, opening)
        self._reserve = max(sum(map(len, renderer.frame((), [name]))) for name in {*self._profile.tools, BATCH})
        return self._prompt


def _check(sample: Sample, room: int) -> None:
    """Raise `PolicyError` if an engine breaks its contract, because training on its samples would be meaningless."""
    if not 1 <= len(sample.ids) <= room or len(sample.ids) != len(sample.logprobs):
        raise PolicyError(
            f"the engine must return from 1 to {room} ids and as many log-probabilities; got {len(sample.ids)} ids "
            f"and {len(sample.logprobs)} log-probabilities"
        )
