"""Kinds of ill histories whose cause the advice must name."""

from __future__ import annotations

from collections.abc import Callable

from tests.benchmarks._kinds import Draw, Kind, Made, by, to, towards

KINDS: dict[str, Kind] = {}


def ill(rules: str, cause: str) -> Callable[[Callable[[Draw], Made]], Callable[[Draw], Made]]:
    def keep(make: Callable[[Draw], Made]) -> Callable[[Draw], Made]:
        KINDS[make.__name__.replace("_", " ")] = Kind(make, frozenset(rules.split()), cause)
        return make

    return keep


# --- what is trained is not what is sampled ----------------------------------------------------------------------

WEIGHTS = r"(weights|adapter)[^.]*(reach|appl|receiv|vLLM)"
TOKENS = r"tokenizer|template|tokens"


@ill("weights_apart stale stale_mean kl masked", WEIGHTS)
def the_adapter_is_never_applied_in_vllm(draw: Draw) -> Made:
    gap, steps = draw.within(0.12, 0.5), draw.within(100, 250)
    flat = towards(draw.within(0.2, 0.9), steps)
    return Made(
        draw.setting(speed=0.0, beta=draw.choose((0.0, 0.04), (0.0, 0.01))),
        by(gap=towards(gap, steps), kl=flat, weight=towards(0.98 - gap, steps)),
        onset=0,
        generations=240,
    )


@ill("weights_apart kl reward_stuck", WEIGHTS)
def the_adapter_is_never_applied_and_the_gap_is_not_measured(draw: Draw) -> Made:
    kl = towards(draw.within(0.25, 1.2), draw.within(100, 200))
    return Made(draw.setting(speed=0.0, corrected=False), by(kl=kl), onset=0, generations=240)


@ill("weights_apart stale stale_mean", WEIGHTS)
def weights_are_no_longer_sent(draw: Draw) -> Made:
    gap, steps = draw.within(0.15, 0.6), draw.within(60, 140)
    return Made(draw.setting(), by(gap=towards(gap, steps), weight=towards(0.98 - gap, steps)))


@ill("weights_apart stale stale_mean masked", WEIGHTS)
def importance_ratios_decay(draw: Draw) -> Made:
    steps = draw.within(80, 150)
    return Made(draw.setting(), by(weight=towards(draw.within(0.3, 0.55), steps), gap=towards(0.09, steps)))


@ill("other_tokens ratio stale", TOKENS)
def other_tokens_with_several_updates(draw: Draw) -> Made:
    off = draw.choose((0.55, 0.7, 1.4), (0.6, 0.8, 1.3))
    return Made(draw.setting(updates=draw.choose((2, 4, 8), (3, 6, 12))), by(first_ratio=to(off)), onset=0)


@ill("other_tokens ratio stale", TOKENS)
def other_tokens_with_one_update(draw: Draw) -> Made:
    off = draw.choose((0.55, 0.75), (0.65, 0.8))
    return Made(draw.setting(updates=1), by(first_ratio=to(off), gap=to(draw.within(0.05, 0.4))), onset=0)


@ill("other_tokens stale", TOKENS)
def another_template_from_the_start(draw: Draw) -> Made:
    gap = draw.within(0.25, 0.8)
    return Made(draw.setting(), by(gap=to(gap), weight=to(0.98 - 0.5 * gap)), onset=0)


@ill("ratio clip", r"learning rate|fewer updates")
def later_updates_move_far(draw: Draw) -> Made:
    ratio = draw.choose((0.7, 1.3, 1.5), (0.72, 1.35))
    return Made(draw.setting(updates=draw.choose((2, 4, 8), (3, 6))), by(ratio=to(ratio)))


@ill("stale stale_mean", r"ahead|fewer updates|older|behind")
def batches_are_generated_far_ahead(draw: Draw) -> Made:
    gap = draw.within(0.14, 0.3)
    return Made(
        draw.setting(updates=4),
        by(gap=lambda since, was: gap if since > 8 else 0.015, staleness=lambda since, was: 4.0 if since > 8 else 0.0),
        onset=1,
    )


# --- rewards -----------------------------------------------------------------------------------------------------

SCORER = r"sign|scorer|reward function|scoring|outside"


@ill("scorer_changed reward_falling component_falling component_low", SCORER)
def the_sign_of_the_accuracy_flips(draw: Draw) -> Made:
    return Made(draw.setting(start=draw.within(-0.7, 0.3)), by(sign=to(-1.0)), onset=int(draw.within(60, 120)))


@ill("scorer_changed reward_falling", SCORER)
def the_sign_of_the_total_flips(draw: Draw) -> Made:
    return Made(draw.setting(), by(total_sign=to(-1.0)), onset=int(draw.within(50, 120)))


@ill("scorer_changed component_falling component_low reward_falling components", SCORER)
def a_component_leaves_its_range(draw: Draw) -> Made:
    return Made(draw.setting(), by(form_shift=to(-draw.within(1.1, 2.0))), onset=int(draw.within(50, 120)))


@ill("scorer_changed component_falling component_low reward_falling", SCORER)
def a_component_breaks_at_once(draw: Draw) -> Made:
    return Made(draw.setting(), by(form=to(0.0)), onset=int(draw.within(60, 120)))


@ill("length_rewarded length_cap component_stuck", r"length|longer")
def length_is_rewarded(draw: Draw) -> Made:
    tokens, steps, level = draw.within(500, 900), draw.within(120, 260), draw.within(-2.3, -1.6)
    change = by(tokens=towards(tokens, steps), skill=to(level), worth_of_length=to(draw.within(0.7, 1.0)))
    return Made(draw.setting(updates=draw.choose((1, 2), (1, 3)), speed=0.03), change, onset=0, generations=300)


@ill("components component_falling", r"gaming|falling|lost|down from|rising|without it")
def one_component_is_gamed_for_long(draw: Draw) -> Made:
    steps, loss = draw.within(50, 90), draw.within(1.8, 2.8)
    change = by(
        form=towards(1.0, steps), style=towards(0.95, steps), skill=lambda s, was: was - loss * min(1, s / steps)
    )
    return Made(draw.setting(prompts=8, group=8), change, generations=380)


@ill("source_falling", r"“geometry”|one source|source")
def one_family_of_prompts_collapses(draw: Draw) -> Made:
    names = draw.choose(
        (("geometry", "algebra", "logic"), ("geometry", "algebra", "logic", "code")),
        (("geometry", "counting", "logic"), ("geometry", "a", "b", "c", "d")),
    )
    steps, fall = draw.within(30, 80), draw.within(2.5, 4.0)
    change = by(family=lambda since, was: -fall * min(1, since / steps))
    return Made(draw.setting(families=names, prompts=draw.choose((16, 32), (24, 40)), speed=0.025), change)


@ill("reward_falling component_falling", r"down from|forget|lost")
def a_fall_with_many_updates_a_batch(draw: Draw) -> Made:
    fall = draw.within(2.5, 3.5)
    updates = draw.choose((24, 32), (25, 40))
    change = by(skill=lambda since, was: was - fall * min(1, since / (30 * updates)))
    return Made(draw.setting(updates=updates, step_s=4.0, save_every=0), change, onset=50, generations=70)


@ill("reward_stuck", r"chance|playground|rate|easier")
def a_standstill_with_many_updates_a_batch(draw: Draw) -> Made:
    updates = draw.choose((25, 32), (24, 48))
    setting = draw.setting(updates=updates, speed=0.0, step_s=4.0, save_every=0)
    return Made(setting, None, onset=0, generations=1700 // updates)


@ill("component_low component_stuck", r"broken|playground|partial|without it")
def the_answer_checker_accepts_nothing(draw: Draw) -> Made:
    return Made(draw.setting(), by(sign=to(0.0)), onset=0, generations=250)


@ill("eval_falling eval_gap", r"memoriz|overfit|held-out|validation")
def a_small_validation_set_that_falls_far(draw: Draw) -> Made:
    every = draw.choose((20, 25), (15, 30))
    change = by(held_out=lambda since, was: -min(3.0, 0.4 * since / every))
    setting = draw.setting(updates=1, eval_every=every, eval_prompts=draw.choose((16, 24), (12, 20)))
    return Made(setting, change, onset=5 * every, generations=14 * every)


@ill("source_falling", r"source")
def one_of_many_sources_collapses(draw: Draw) -> Made:
    names = draw.choose((("geometry", *"abcdef"),), (("geometry", *"abcde"), ("geometry", *"abcdefg")))
    steps, fall = draw.within(30, 80), draw.within(2.5, 4.0)
    setting = draw.setting(families=names, prompts=draw.choose((24, 32), (20, 40)), speed=0.025, updates=1)
    return Made(setting, by(family=lambda since, was: -fall * min(1, since / steps)), onset=100, generations=250)


@ill("reward_falling component_falling", r"down from|forget|lost")
def a_policy_forgets_in_a_curriculum(draw: Draw) -> Made:
    """Prompts come in order, but all is lost, also on held-out ones."""
    steps, fall = draw.within(40, 80), draw.within(2.8, 3.8)
    setting = draw.setting(updates=1, in_order=True, eval_every=25, start=draw.within(-0.4, 0.2))
    return Made(setting, by(skill=lambda since, was: was - fall * min(1, since / steps)), onset=120, generations=200)


@ill("zero_spread component_low", r"hard|easier|solved")
def prompts_are_too_hard(draw: Draw) -> Made:
    return Made(draw.setting(start=draw.within(-9.0, -7.5), speed=0.002, has_components=False), None, onset=0)


# --- completions -------------------------------------------------------------------------------------------------

ALIKE = r"greedy|temperature 0|fixed seed|seed"


@ill("identical zero_spread", ALIKE)
def completions_are_identical_from_the_start(draw: Draw) -> Made:
    same = draw.within(0.93, 1.0)
    change = by(alike=to(True), texts=lambda since, was: {"identical": same})
    return Made(draw.setting(speed=0.003), change, onset=0)


@ill("identical zero_spread", ALIKE)
def short_answers_are_identical_from_the_start(draw: Draw) -> Made:
    setting = draw.setting(speed=0.003, has_components=draw.choose((True, False), (True, False)))
    return Made(setting, by(alike=to(True)), onset=0)


@ill("entropy entropy_fall", r"entropy")
def the_entropy_falls_to_a_tenth(draw: Draw) -> Made:
    start, share, steps = draw.within(0.5, 1.3), draw.within(0.08, 0.12), draw.within(80, 160)
    change = by(entropy=lambda since, was: start * share ** min(1.0, since / steps))
    return Made(draw.setting(start=-1.8, speed=0.01), change, onset=0, generations=220)


@ill("tools_failing", r"fails in|arguments|tool")
def a_tool_fails_often(draw: Draw) -> Made:
    share = draw.within(0.38, 0.48)
    onset = draw.choose((0, 60), (0, 80))
    return Made(draw.setting(tools=True), by(tool_fails=to(share)), onset=onset)


# --- validation --------------------------------------------------------------------------------------------------

GAP = r"memoriz|overfit|held-out|validation"


@ill("eval_falling eval_gap", GAP)
def the_validation_falls_over_eight_evaluations(draw: Draw) -> Made:
    every = draw.choose((20, 25), (15, 30))
    loss = draw.within(0.25, 0.4)
    change = by(held_out=lambda since, was: -loss * since / every)
    return Made(draw.setting(updates=1, eval_every=every), change, onset=4 * every, generations=8 * every + 5)


@ill("eval_gap eval_falling", GAP)
def the_gap_to_the_validation_widens(draw: Draw) -> Made:
    every, speed = draw.choose((20, 30), (25, 40)), draw.within(0.012, 0.02)
    setting = draw.setting(updates=1, eval_every=every, start=-1.2, speed=speed)
    # What is learned after the onset helps in training alone.
    return Made(setting, by(held_out=lambda since, was: -min(2.3, speed * since * 0.85)), onset=50, generations=250)


# --- the machine -------------------------------------------------------------------------------------------------


@ill("host_memory", r"memory")
def host_memory_leaks_from_the_middle_on(draw: Draw) -> Made:
    peak, steps = draw.within(350_000, 480_000), draw.within(120, 200)
    change = by(host_mib=lambda since, was: 20_000 + (peak - 20_000) * min(1.0, since / steps))
    setting = draw.setting(step_s=draw.choose((15.0, 40.0), (20.0, 60.0)), updates=1)
    return Made(setting, change, onset=int(draw.within(120, 260)), generations=210)


@ill("gpu_memory", r"memory|GiB")
def gpu_memory_leaks_from_the_middle_on(draw: Draw) -> Made:
    peak, steps = draw.within(125_000, 142_000), draw.within(120, 200)
    change = by(gpu_mib=lambda since, was: 60_000 + (peak - 60_000) * min(1.0, since / steps))
    setting = draw.setting(step_s=draw.choose((15.0, 40.0), (20.0, 60.0)), updates=1)
    return Made(setting, change, onset=int(draw.within(120, 260)), generations=210)


def _slower(part: str) -> Callable[[Draw], Made]:
    def make(draw: Draw) -> Made:
        change = by(slower=to(draw.within(1.8, 2.6)), slow_part=to(part))
        return Made(draw.setting(updates=1), change, onset=int(draw.within(60, 100)))

    return make


for _part, _words in (
    ("generation", r"generation"),
    ("rewards", r"rewards"),
    ("weight_sync", r"weight"),
    ("update", r"update"),
):
    KINDS[f"{_part} becomes slow"] = Kind(_slower(_part), frozenset({"throughput", "slow_rewards"}), _words)
