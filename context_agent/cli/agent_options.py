"""Options that choose an agent: its policy, its language model, its limits and its window."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from dataclasses import asdict, dataclass, fields
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal, get_args

from cyclopts import Parameter
from cyclopts.validators import Number

from context_agent.budget import WINDOW
from context_agent.cli.parameters import (
    COUNT,
    EXISTING_FILE,
    NOT_NEGATIVE,
    OUTPUT_FOLDER,
    OWN,
    POSITIVE_SHARE,
    ROLLOUTS,
    SECONDS,
    options_in,
    section,
)
from context_agent.errors import ConfigError
from context_agent.harness.profile import PROFILE_NAMES

if TYPE_CHECKING:
    from context_agent.agent import SearchAgent
    from context_agent.harness.episode import Limits, Observer
    from context_agent.harness.policy import Policy
    from context_agent.harness.profile import Profile
    from context_agent.retrieval.corpus import Corpus


DEFAULT_POLICY: Literal["bridge"] = "bridge"
EffortOption = Annotated[
    Literal["careful", "fast"] | None,
    Parameter(
        help="Work that the bridge policy does. fast takes less time, because it leaves the reader out.",
        show_default="careful",
    ),
]
ProfileOption = Annotated[
    str | None,
    Parameter(
        help="Tools, prompts and wire format of the episodes.",
        choices=PROFILE_NAMES,
        show_default="default, or lean for a packaged model",
    ),
]
WindowOption = Annotated[
    int | None,
    Parameter(
        help="Size of the context window in tokens.",
        metavar="N",
        show_default=f"{WINDOW}, 2048 in the profile lean, or as a model was trained",
        group=section("Limits"),
    ),
]
WeightsOption = Annotated[
    Path | None,
    EXISTING_FILE,
    Parameter(
        help="Weights of the bridge policy, as `ctx1 train bridge` writes them.",
        show_default="the weights in the package",
    ),
]
SaveOption = Annotated[
    Path | None, OUTPUT_FOLDER, Parameter(help="Write each trajectory to this folder, as JSONL.", group=OWN)
]


@options_in("Language model")
@dataclass(frozen=True, slots=True)
class ServerOptions:
    """A model on a server."""

    base_url: Annotated[
        str | None,
        Parameter(
            metavar="URL", show_default="$CTX1_BASE_URL, or http://localhost:8000/v1; api.anthropic.com for anthropic"
        ),
    ] = None
    """URL of the model's server."""
    model: Annotated[str | None, Parameter(metavar="NAME", show_default="$CTX1_MODEL")] = None
    """Name of the model, as the server lists it."""
    api_key_env: Annotated[
        str | None,
        Parameter(
            metavar="VARIABLE",
            show_default="$CTX1_API_KEY_ENV, or CTX1_API_KEY; ANTHROPIC_API_KEY for api.anthropic.com",
        ),
    ] = None
    """Environment variable that contains the API key."""


@options_in("Language model")
@dataclass(frozen=True, slots=True)
class ChatModelOptions(ServerOptions):
    """A chat model on a server, and how to sample from it. If a field is None, the policy's default applies."""

    tools: Annotated[Literal["native", "text"] | None, Parameter(show_default="native")] = None
    """How a chat model calls tools; text is for models without tool calls."""
    temperature: Annotated[float | None, NOT_NEGATIVE, Parameter(show_default="the model's")] = None
    """Sampling temperature."""
    top_p: Annotated[float | None, POSITIVE_SHARE, Parameter(show_default="the model's")] = None
    """Probability mass for nucleus sampling."""
    max_tokens: Annotated[int | None, COUNT] = None
    """Maximum number of tokens in one reply."""
    reasoning_effort: Annotated[str | None, Parameter(metavar="LEVEL")] = None
    """Reasoning effort: low, medium, high, or another level of the model."""
    timeout: Annotated[float | None, SECONDS] = None
    """Timeout for one reply."""


@options_in("Language model")
@dataclass(frozen=True, slots=True)
class ModelOptions(ChatModelOptions):
    """The language model of a policy, on a server or in this process."""

    model: Annotated[str | None, Parameter(metavar="NAME_OR_FOLDER", show_default="$CTX1_MODEL")] = None
    """Name of the model, as the server lists it. The policy tokens also runs the packaged model smollm2, or a
    folder such as that of a training run, in this process."""
    tokenizer: Annotated[str | None, Parameter(metavar="NAME_OR_FOLDER", show_default="gpt-oss's format")] = None
    """Tokenizer whose chat template the tokens policy uses."""


def unused_options(names: Collection[str], chosen: Callable[[str], Any]) -> set[str]:
    """Return options that the command's policy, its expert or its strategy for pruning does not take.

    The command may lack some of these options.

    Args:
        names: The options of the command.
        chosen: A function that returns the value of an option, or None if it has none.
    """
    unused = set[str]()
    if "strategy" in names and (chosen("strategy") not in (None, "reader") or chosen("effort") == "fast"):
        unused.add("adapted")
    kind = chosen("policy") or DEFAULT_POLICY if "policy" in names else chosen("expert")
    if kind is None and "expert" not in names:
        return unused
    from context_agent.policies import Kind, option_names

    # The expert `oracle`, the default, plays the bridge policy. It may have a tokenizer, which counts its tokens.
    oracle = kind not in get_args(Kind)
    taken = option_names("bridge" if oracle else kind, {"model": chosen("model"), "base_url": chosen("base-url")})
    of_some = {"weights", "effort", "adapter", *(option.name for option in fields(ModelOptions))}
    unused |= {name.replace("_", "-") for name in of_some - {*taken, *(("tokenizer",) if oracle else ())}}
    return unused | ({"swarm"} if kind == "hybrid" else set())


@options_in("Policy")
@dataclass(frozen=True, slots=True)
class PolicyOptions:
    """The options that choose the policy and its effort."""

    policy: Literal["bridge", "hybrid", "chat", "anthropic", "tokens"] = DEFAULT_POLICY
    """Policy that decides: the embedded one (bridge), one hybrid search for comparison (hybrid), or a language
    model by chat, by Anthropic's Messages API, or by token ids."""
    weights: WeightsOption = None
    effort: EffortOption = None
    adapter: Annotated[
        str | None, Parameter(metavar="FOLDER", show_default="the one in the package, if it has one")
    ] = None
    """Trained adapter for a packaged model, or for the model in a folder."""
    profile: ProfileOption = None
    language_model: ModelOptions = ModelOptions()

    @property
    def wire_format(self) -> Profile:
        """The profile that the episodes use."""
        from context_agent.harness.profile import named_profile
        from context_agent.policies import default_profile

        return named_profile(self.profile) if self.profile else default_profile(self.policy, self.language_model.model)

    @property
    def window(self) -> int | None:
        """The window that the policy was trained with. If it is None, the profile's own window is used."""
        from context_agent.policies import default_window

        return default_window(self.policy, self.language_model.model) if self.language_model.base_url is None else None

    def load(self) -> Policy:
        """Return the policy."""
        from context_agent.policies import load_policy

        model = asdict(self.language_model)
        return load_policy(self.policy, weights=self.weights, effort=self.effort, adapter=self.adapter, **model)


@options_in("Limits")
@dataclass(frozen=True, slots=True)
class LimitOptions:
    """The limits of an episode."""

    max_turns: Annotated[int | None, COUNT, Parameter(show_default="64; with the profile lean 12")] = None
    """Maximum number of turns of an episode."""
    time_limit: Annotated[float | None, SECONDS] = None
    """Time limit of an episode."""

    def load(self) -> Limits:
        """Return the limits in the form that an episode takes."""
        from context_agent.harness.episode import Limits

        return Limits(turns=self.max_turns, seconds=self.time_limit)


@options_in("Policy")
@dataclass(frozen=True, slots=True)
class AgentOptions:
    """An agent: its policy, its limits, and the number of episodes for each question."""

    policy: PolicyOptions = PolicyOptions()
    limits: LimitOptions = LimitOptions()
    window: WindowOption = None
    rollouts: Annotated[int, ROLLOUTS] = 1
    """Episodes per question; their rankings are fused."""
    swarm: Annotated[int | None, Parameter(validator=Number(gte=1, lte=64), metavar="N")] = None
    """Let the policy start up to N sub-agents at a time, each with a context of its own."""
    save: SaveOption = None

    def open(self, corpus: Corpus, observers: Sequence[Observer] = ()) -> SearchAgent:
        """Return an agent on the corpus. The caller closes it.

        Raises:
            ConfigError: If the policy cannot start sub-agents, or if an option is invalid.
        """
        if self.swarm is not None and self.policy.policy == "hybrid":
            raise ConfigError(
                "the hybrid policy searches once and starts no sub-agents. Remove --swarm, or choose another --policy."
            )
        from context_agent.agent import SearchAgent
        from context_agent.swarm import Swarm

        return SearchAgent(
            corpus,
            self.policy.load(),
            profile=self.policy.wire_format,
            budget=self.window or self.policy.window,
            limits=self.limits.load(),
            rollouts=self.rollouts,
            trajectories=self.save,
            observers=observers,
            swarm=None if self.swarm is None else Swarm(breadth=self.swarm),
        )
