"""The token path: a policy that sends token ids and gets token ids back, so that what is trained is what was sampled.

Four promises:

1. What was sampled stays verbatim in all later prompts; nothing is decoded and encoded again.
2. A prompt's ids are what the engine is sent. Where nothing was edited, a prompt begins with the one before it and
   the reply to that.
3. Prompt and sampled ids together never exceed the window: `max_tokens` is capped by the prompt's exact length.
4. Each action carries its call (`TokenCall`): prompt, output, log-probabilities, version.

The view counts what the prompt holds. `instructions` stands for system and developer message with the tools, and
counts as all of the first prompt beside the question. An action counts as the sampled ids and the framing of the
messages that its results come in. Contents are counted by the same vocabulary. So a view's tokens are the prompt's
length, except that a chunk counts as the sum of its parts, which may be some tokens more than the whole.
"""

from __future__ import annotations

from dataclasses import replace

from context_agent._support.http import API_KEY_ENV, BASE_URL
from context_agent.errors import ConfigError, MissingExtraError, PolicyError
from context_agent.harness.policy import Instructions
from context_agent.harness.profile import Profile
from context_agent.harness.tools import BATCH
from context_agent.policies.tokens.engines import Engine, Sample
from context_agent.policies.tokens.harmony import HarmonyRenderer
from context_agent.policies.tokens.prompt import KEY, Opening, Prompt, TokenCall, TokenRenderer
from context_agent.pruning.view import Role, Text, View
from context_agent.retrieval.corpus import Corpus
from context_agent.types import Action

MAX_TOKENS = 4_096
"""Tokens sampled in one turn at most (the published baseline's value)."""
SEEDS = 2**31


class VocabularyCounter:
    """Counts by the renderer's vocabulary."""

    def __init__(self, renderer: TokenRenderer) -> None:
        self._renderer = renderer

    @property
    def name(self) -> str:
        """The vocabulary's name."""
        return self._renderer.counter_name

    def count(self, text: str) -> int:
        """Tokens of the text as content."""
        return len(self._renderer.encode(text))


class TokenPolicy:
    """A language model driven by exact token ids.

    The renderer defaults to harmony with gpt-oss's vocabulary, at the sampling settings that the published weights
    were trained with. `engine` runs the model; `close` is its owner's business.
    """

    def __init__(
        self,
        engine: Engine,
        renderer: TokenRenderer | None = None,
        *,
        temperature: float = 1.0,
        top_p: float = 0.9,
        max_tokens: int = MAX_TOKENS,
    ) -> None:
        """`max_tokens` bounds one reply. Raises `ConfigError` for settings that no sampler takes."""
        if temperature < 0 or not 0 < top_p <= 1 or max_tokens < 1:
            raise ConfigError(
                f"temperature must be at least 0, top_p in (0, 1], max_tokens positive; got {temperature}, {top_p}, "
                f"{max_tokens}"
            )
        self.engine = engine
        self.renderer = renderer or HarmonyRenderer()
        self.temperature = temperature
        self.top_p = top_p
        self.max_tokens = max_tokens
        self.counter = VocabularyCounter(self.renderer)
        """Counts by the model's vocabulary."""
        self._openings: dict[Profile, Opening] = {}

    @property
    def name(self) -> str:
        """Engine and renderer."""
        return f"tokens:{self.engine.name}:{self.renderer.name}"

    def instructions(self, profile: Profile) -> Instructions:
        """System and developer message as they stand in the prompt, tools included."""
        opening = self.opening(profile)
        return Instructions(opening.text, opening.tokens)

    def opening(self, profile: Profile) -> Opening:
        """The profile's opening in the renderer's tokens, rendered once."""
        if profile not in self._openings:
            self._openings[profile] = self.renderer.opening(profile)
        return self._openings[profile]

    def open(self, question: str, corpus: Corpus, *, profile: Profile, seed: int = 0) -> TokenActor:
        """An actor whose turns are sampled with seeds drawn from `seed`."""
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
        """Samples a reply on the view and reads it.

        Where the window has no room for a reply and its results' framing, the action says so by its size, and the
        episode ends. Raises `PolicyError` when the engine cannot go on.
        """
        policy = self._policy
        prompt = self._prompt or self._begin(view)
        ids = prompt.show(view)
        room = min(policy.max_tokens, view.max_output - self._reserve, view.budget.window - len(ids))
        if room < 1:
            return Action(tokens=view.budget.window, extra={KEY: None})
        kept, new = prompt.kept, tuple(ids[prompt.kept :])
        sample = await policy.engine.generate(
            ids,
            max_tokens=room,
            stop=policy.renderer.stop,
            temperature=policy.temperature,
            top_p=policy.top_p,
            seed=(self._seed * 1_000_003 + view.turn) % SEEDS,
        )
        _check(sample, room)
        prompt.sampled(view, sample.ids)
        return self._action(prompt, sample, kept, new)

    def _begin(self, view: View) -> Prompt:
        """The prompt of the episode. Raises `PolicyError` where the view begins with other instructions."""
        opening = self._policy.opening(self._profile)
        if next((s.text for s in view.segments if isinstance(s, Text) and s.role is Role.PROMPT), "") != opening.text:
            raise PolicyError(
                "the view does not begin with this policy's instructions: "
                "open the Episode with instructions=policy.instructions(profile), as SearchAgent does"
            )
        self._prompt = Prompt(self._policy.renderer, self._profile, opening)
        names = {*self._profile.tools, BATCH}
        self._reserve = max(sum(map(len, self._policy.renderer.frame((), [name]))) for name in names)
        return self._prompt

    def _action(self, prompt: Prompt, sample: Sample, kept: int, new: tuple[int, ...]) -> Action:
        action = self._policy.renderer.parse(sample.ids)
        call = TokenCall(
            kept, new, sample.ids, sample.logprobs, sample.version, sample.finish.value, sample.cached_tokens
        )
        tokens = len(sample.ids) + prompt.framing(sample.ids, action)
        return replace(action, tokens=tokens, extra={**action.extra, **call.to_extra()})


def served(
    model: str,
    *,
    base_url: str = BASE_URL,
    api_key_env: str | None = API_KEY_ENV,
    tokenizer: str | None = None,
    reasoning_effort: str = "high",
    parallel: bool = False,
    temperature: float = 1.0,
    top_p: float = 0.9,
    max_tokens: int = MAX_TOKENS,
    seeded: bool = True,
    cache_salt: str | None = None,
    timeout: float = 600.0,
    retries: int = 6,
    concurrency: int = 128,
) -> TokenPolicy:
    """The policy for a model behind vLLM. Harmony by default; `tokenizer` names one whose chat template is used.

    `tokenizer` is a folder or a model's name, read by transformers. `reasoning_effort` and `parallel` are harmony's.
    Raises `ConfigError`, and `MissingExtraError` for a tokenizer without transformers.
    """
    from context_agent.policies.tokens.engines.vllm import VllmEngine

    engine = VllmEngine(
        base_url,
        model,
        api_key_env=api_key_env,
        seeded=seeded,
        cache_salt=cache_salt,
        timeout=timeout,
        retries=retries,
        concurrency=concurrency,
    )
    renderer = templated(tokenizer) if tokenizer else HarmonyRenderer(effort=reasoning_effort, parallel=parallel)
    return TokenPolicy(engine, renderer, temperature=temperature, top_p=top_p, max_tokens=max_tokens)


def templated(tokenizer: str) -> TokenRenderer:
    """The renderer that speaks a tokenizer's chat template; the tokenizer is a folder or a model's name.

    Raises `ConfigError` for one that cannot be loaded, and `MissingExtraError`.
    """
    from context_agent.policies.tokens.template import TemplateRenderer

    try:
        import transformers
    except ImportError:
        raise MissingExtraError("transformers", "train") from None
    try:
        loaded = transformers.AutoTokenizer.from_pretrained(tokenizer)
    except (OSError, ValueError) as error:
        raise ConfigError(f"the tokenizer {tokenizer!r} cannot be loaded: {error}") from error
    return TemplateRenderer(loaded, name=tokenizer)


def _check(sample: Sample, room: int) -> None:
    """An engine that breaks its contract would train nonsense, so it is stopped here."""
    if not 1 <= len(sample.ids) <= room or len(sample.ids) != len(sample.logprobs):
        raise PolicyError(
            f"the engine returned {len(sample.ids)} ids and {len(sample.logprobs)} log-probabilities "
            f"where 1 to {room} of each were asked for"
        )
