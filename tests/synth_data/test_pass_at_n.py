"""pass@N: attempts that really differ, counted by the gold they reach."""

import pytest

from context_agent import Action, BridgePolicy, MemoryCorpus, ScriptedPolicy
from context_agent.errors import ConfigError, PolicyError
from context_agent.synth_data.pass_at_n import AttemptResults, PassAtN, build_attempts, default_vary
from tests import actions
from tests.conftest import made_documents
from tests.synth_data.tasks import task


class Wavering:
    """A policy that finds the entry on even seeds only, as one that samples would now and then."""

    name, counter = "wavering", None

    def instructions(self, profile):
        return ""

    def open(self, question, corpus, *, profile, seed=0):
        found = actions.rank_all if seed % 2 == 0 else (lambda view: actions.rank())
        return ScriptedPolicy([actions.search(question), found]).open(question, corpus, profile=profile)


ENTRY = task("a", "d7", question="SENTINEL-0007 closes the entry")


@pytest.fixture(scope="module")
def corpus():
    return MemoryCorpus(made_documents())


async def test_seeds_make_a_sampling_policy_differ(corpus):
    trial = PassAtN(build_attempts(corpus, Wavering(), 4, "seed"), "seed")
    passes = await trial.run(ENTRY)
    assert [recall >= 1 for recall in passes.recalls] == [True, False, True, False]
    assert passes.solved(1.0) == 2
    assert trial.extreme(passes) is None
    label = trial.label(ENTRY, passes).labels["passes"]
    assert (label["solved"], label["of"], label["policy"]) == (2, 4, "wavering")
    assert label["attempts"] == ["seed 0", "seed 1", "seed 2", "seed 3"]


async def test_the_embedded_policy_differs_by_effort(corpus):
    attempts = build_attempts(corpus, BridgePolicy(), 3, "effort")
    assert [attempt.label for attempt in attempts] == ["searches 1", "searches 5", "searches 28"]
    hidden = task("b", "d3", "d21", question="What does the entry that Entry 3 cites tell of?", hops=2)
    passes = await PassAtN(attempts, "effort").run(hidden)
    calls = []
    for attempt in attempts:
        result = await attempt.agent.asearch(hidden.question)
        calls.append(
            sum(event.name == "search_corpus" for event in result.trajectories[0].events if hasattr(event, "name"))
        )
    assert calls == sorted(calls)
    assert calls[0] == 1 < calls[-1]
    assert passes.recalls[-1] >= passes.recalls[0]


async def test_windows_are_halved(corpus):
    attempts = build_attempts(corpus, BridgePolicy(), 3, "window", window=16_384)
    assert [attempt.agent.budget.window for attempt in attempts] == [16_384, 8_192, 4_096]
    assert len((await PassAtN(attempts, "window").run(ENTRY)).turns) == 3


def test_attempts_that_would_be_the_same_search_are_refused(corpus):
    with pytest.raises(ConfigError, match="deterministic and ignores the seed"):
        build_attempts(corpus, BridgePolicy(), 2, "seed")
    with pytest.raises(ConfigError, match="cannot differ within 28 searches"):
        build_attempts(corpus, BridgePolicy(), 30, "effort")
    with pytest.raises(ConfigError, match="no effort to vary"):
        build_attempts(corpus, Wavering(), 2, "effort")
    with pytest.raises(ConfigError, match="below 2,048"):
        build_attempts(corpus, BridgePolicy(), 6, "window")
    with pytest.raises(ConfigError, match="at least 1"):
        build_attempts(corpus, BridgePolicy(), 0, "effort")
    with pytest.raises(ConfigError, match="recall threshold"):
        PassAtN(build_attempts(corpus, BridgePolicy(), 1, "effort"), "effort", threshold=0)
    assert default_vary(BridgePolicy()) == "effort"
    assert default_vary(Wavering()) == "seed"


@pytest.mark.parametrize(
    ("recalls", "drop", "found"),
    [
        ((1.0, 1.0), {"always", "never"}, "always"),
        ((0.5, 0.0), {"always", "never"}, "never"),
        ((1.0, 0.5), {"always", "never"}, None),
        ((1.0, 1.0), {"never"}, None),
        ((0.0, 0.0), {"always"}, None),
    ],
)
def test_what_is_always_or_never_solved_goes_as_asked(corpus, recalls, drop, found):
    trial = PassAtN(build_attempts(corpus, BridgePolicy(), 2, "effort"), "effort", drop=frozenset(drop))
    assert trial.extreme(AttemptResults(recalls, (1, 2))) == found


async def test_half_the_gold_is_enough_where_that_is_the_threshold(corpus):
    result = task("c", "d7", "nowhere", question=ENTRY.question)
    trial = PassAtN(build_attempts(corpus, Wavering(), 1, "seed"), "seed", threshold=0.5)
    passes = await trial.run(result)
    assert passes.recalls == (0.5,)
    assert passes.solved(trial.threshold) == 1


async def test_facts_are_met_by_any_of_their_chunks(corpus):
    result = task("c", question=ENTRY.question, facts=(("nowhere_0", "d7_0"),))
    assert (await PassAtN(build_attempts(corpus, Wavering(), 1, "seed"), "seed").run(result)).recalls == (1.0,)


async def test_an_attempt_that_broke_off_is_no_miss(corpus):
    def broken(view) -> Action:
        raise PolicyError("the server is down")

    policy = ScriptedPolicy([actions.search(ENTRY.question), broken])
    with pytest.raises(PolicyError, match="seed 0: the server is down"):
        await PassAtN(build_attempts(corpus, policy, 1, "seed"), "seed").run(ENTRY)
