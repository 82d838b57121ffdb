"""Kinds of healthy histories that look odd, and one too short to be judged."""

from __future__ import annotations

from collections.abc import Callable

from tests.benchmarks._kinds import Draw, Kind, Made, by, to, towards

HEALTHY: dict[str, Kind] = {}


def healthy(make: Callable[[Draw], Made]) -> Callable[[Draw], Made]:
    HEALTHY[make.__name__.replace("_", " ")] = Kind(make)
    return make


@healthy
def a_sparse_start(draw: Draw) -> Made:
    """Almost nothing is solved at first, now and then by luck; then it learns."""
    start, awakes = draw.within(-6.2, -5.2), draw.within(60, 110)
    change = by(skill=lambda since, was: start + 0.02 * max(0.0, since - awakes), form=to(0.9), style=to(0.7))
    setting = draw.setting(updates=1, speed=0.0, has_components=draw.choose((True, False), (True, False)), spread=1.0)
    return Made(setting, change, onset=0, generations=380)


@healthy
def a_noisy_validation(draw: Draw) -> Made:
    every = draw.choose((10, 20, 40), (15, 25, 30))
    return Made(draw.setting(eval_every=every, eval_prompts=draw.choose((6, 10), (5, 8, 12)), updates=1), None, 0, 400)


@healthy
def a_curriculum_that_switches(draw: Draw) -> Made:
    every, harder = int(draw.within(90, 140)), draw.within(0.7, 1.3)
    change = by(skill=lambda since, was: was - harder * min(2, since // every))
    return Made(draw.setting(updates=1, speed=draw.within(0.015, 0.025)), change, onset=0, generations=400)


@healthy
def a_kl_spike_after_a_resume(draw: Draw) -> Made:
    at, peak, tau = int(draw.within(120, 250)), draw.within(0.8, 3.0), draw.within(6, 14)
    change = by(kl=lambda since, was: was + (peak * 2 ** (-(since - at) / tau) if since >= at else 0.0))
    return Made(draw.setting(updates=1, resume_at=at, beta=0.04), change, onset=1, generations=400)


@healthy
def dynamic_sampling(draw: Draw) -> Made:
    setting = draw.setting(resamples=True, updates=1, start=draw.within(-1.2, 0.2), has_components=False, spread=2.0)
    return Made(setting, None, 0, 400)


@healthy
def a_slow_rise(draw: Draw) -> Made:
    return Made(draw.setting(speed=draw.within(0.0022, 0.0035), updates=1, prompts=16, group=8), None, 0, 600)


@healthy
def clipping_at_its_healthy_edge(draw: Draw) -> Made:
    setting = draw.setting(updates=draw.choose((2, 4, 8), (3, 6)))
    return Made(setting, by(clipped=to(draw.within(0.27, 0.34))), 0, 200)


@healthy
def a_gpu_for_generation_and_many_updates(draw: Draw) -> Made:
    setting = draw.setting(
        updates=draw.choose((8, 16), (12, 20)), takes_turns=True, step_s=draw.choose((8.0, 30.0), (12.0,))
    )
    return Made(setting, None, 0, 90)


@healthy
def answers_become_concise(draw: Draw) -> Made:
    return Made(draw.setting(), by(tokens=towards(200 * draw.within(0.3, 0.5), draw.within(60, 150))), 0, 300)


@healthy
def reasoning_grows_with_the_accuracy(draw: Draw) -> Made:
    steps = draw.within(120, 250)
    change = by(tokens=towards(draw.within(400, 700), steps))
    return Made(draw.setting(updates=1, speed=0.02), change, 0, 350)


@healthy
def the_entropy_falls_as_it_learns(draw: Draw) -> Made:
    start, share, steps = draw.within(0.5, 1.2), draw.within(0.2, 0.3), draw.within(120, 300)
    return Made(draw.setting(), by(entropy=lambda s, was: start * share ** min(1.0, s / steps)), 0, 300)


@healthy
def calls_that_fail_at_first(draw: Draw) -> Made:
    start, steps = draw.within(0.6, 0.9), draw.within(60, 130)
    return Made(
        draw.setting(tools=True, updates=1), by(tool_fails=lambda s, was: max(0.05, start * (1 - s / steps))), 0, 300
    )


@healthy
def caches_fill_and_settle(draw: Draw) -> Made:
    peak, at, steps = draw.within(100_000, 190_000), draw.within(20, 120), draw.within(20, 60)
    change = by(host_mib=lambda s, was: 20_000 + (peak - 20_000) * min(1.0, max(0.0, s - at) / steps))
    return Made(draw.setting(updates=1, step_s=20.0), change, 0, 400)


@healthy
def a_validation_below_the_training(draw: Draw) -> Made:
    below = draw.within(0.3, 0.8)
    return Made(draw.setting(updates=1, eval_every=25), by(held_out=to(-below)), 0, 400)


@healthy
def families_of_different_difficulty(draw: Draw) -> Made:
    names = draw.choose((("easy", "hard", "other"),), (("a", "b", "c", "d"),))
    return Made(draw.setting(families=names, updates=1), by(family=to(-draw.within(0.5, 1.5))), 0, 350)


@healthy
def one_step_ahead(draw: Draw) -> Made:
    gap = draw.within(0.03, 0.07)
    return Made(draw.setting(), by(gap=to(gap), staleness=to(1.0), weight=to(0.95)), 0, 250)


@healthy
def learned_to_the_end(draw: Draw) -> Made:
    return Made(draw.setting(speed=draw.within(0.05, 0.09), start=0.2, spread=0.7), None, 0, 300)


@healthy
def any_run_that_learns(draw: Draw) -> Made:
    setting = draw.setting(
        updates=draw.choose((1, 2, 4, 8), (1, 3, 6)),
        prompts=draw.choose((4, 8, 32), (6, 12)),
        group=draw.choose((4, 8, 16), (4, 6)),
        speed=draw.within(0.006, 0.05),
        eval_every=draw.choose((0, 25, 50), (0, 40)),
        resume_at=draw.choose((0, 133), (0, 177)),
    )
    return Made(setting, None, 0, 250)


# --- learning that comes late, ends early, or shows little -------------------------------------------------------


@healthy
def a_late_start_after_long_zeros(draw: Draw) -> Made:
    """No answer is right for a long time, while the form is learned; then the run takes off."""
    start, awakes, pace = draw.within(-7.5, -6.5), draw.within(120, 220), draw.within(0.03, 0.06)
    change = by(skill=lambda since, was: min(1.0, start + pace * max(0.0, since - awakes)))
    return Made(draw.setting(updates=1), change, onset=0, generations=450)


@healthy
def a_cosine_to_its_end(draw: Draw) -> Made:
    return Made(draw.setting(decays=True, speed=draw.within(0.02, 0.04)), None, 0, draw.choose((250, 500), (200, 400)))


@healthy
def a_plateau_after_learning(draw: Draw) -> Made:
    start, gains = draw.within(-1.4, -0.4), draw.within(0.9, 1.6)
    change = by(skill=lambda since, was: min(was, start + gains))
    setting = draw.setting(start=start, speed=draw.within(0.02, 0.04), updates=draw.choose((1, 2), (1, 3)))
    return Made(setting, change, 0, 450)


@healthy
def a_binary_reward_at_95_percent(draw: Draw) -> Made:
    setting = draw.setting(
        has_components=False, start=draw.within(1.2, 1.8), spread=draw.within(0.4, 0.9), speed=draw.within(0.0, 0.002)
    )
    return Made(setting, None, 0, 400)


@healthy
def a_long_warm_up(draw: Draw) -> Made:
    steps, updates = int(draw.within(60, 160)), draw.choose((1, 2), (1, 3))
    return Made(draw.setting(updates=updates, warm_up=steps * updates), None, 0, 350)


@healthy
def a_very_short_run(draw: Draw) -> Made:
    setting = draw.setting(speed=draw.within(0.02, 0.05), eval_every=draw.choose((0, 10), (0, 5)))
    return Made(setting, None, 0, draw.choose((40, 60), (45, 75)))


# --- figures that jump or drift by nature -------------------------------------------------------------------------


@healthy
def a_tiny_validation_set(draw: Draw) -> Made:
    setting = draw.setting(
        updates=draw.choose((1, 2), (1, 3)),
        eval_every=draw.choose((20, 50), (25, 40)),
        eval_prompts=draw.choose((2, 4), (3, 5)),
        has_components=draw.choose((True, False), (True, False)),
    )
    return Made(setting, None, 0, 500)


@healthy
def a_reasoning_model_that_thinks_longer(draw: Draw) -> Made:
    """Completions grow several times over; so do the steps."""
    longest, steps = draw.within(1200, 2600), draw.within(150, 300)
    setting = draw.setting(updates=1, cap=4096, speed=draw.within(0.015, 0.025))
    return Made(setting, by(tokens=towards(longest, steps)), 0, 400)


@healthy
def a_kl_that_drifts_without_a_penalty(draw: Draw) -> Made:
    kl, steps = draw.within(0.5, 3.0), draw.within(150, 300)
    return Made(draw.setting(beta=0.0, logs_kl=True), by(kl=towards(kl, steps)), 0, 300)


@healthy
def an_attempt_that_resumes_after_a_gap(draw: Draw) -> Made:
    """The host was gone for hours; the optimizer's state comes back, and the caches fill again."""
    at, hours = int(draw.within(60, 200)), draw.within(1, 40)
    updates = draw.choose((1, 2), (1, 4))
    setting = draw.setting(updates=updates, resume_at=at * updates + 1, gap_s=3600 * hours, eval_every=50)
    return Made(setting, None, 0, 300)


# --- prompts that are not drawn evenly ----------------------------------------------------------------------------


@healthy
def many_sources_in_small_batches(draw: Draw) -> Made:
    """A source has a prompt or two in a batch, or none, so its mean jumps."""
    names = draw.choose((tuple("abcdefgh"), tuple("abcdef")), (tuple("abcdefg"), tuple("abcdefghij")))
    setting = draw.setting(families=names, prompts=draw.choose((8, 16), (10, 12)), updates=1)
    return Made(setting, by(family=to(-draw.within(0.0, 1.2))), 0, 400)


@healthy
def a_curriculum_in_order(draw: Draw) -> Made:
    """The dataset is sorted, so its prompts get harder as fast as the policy gets better, or a little faster."""
    pace, ends = draw.within(0.004, 0.009), draw.within(150, 250)
    change = by(skill=lambda since, was: was - pace * min(since, ends), held_out=lambda s, was: pace * min(s, ends))
    setting = draw.setting(updates=1, in_order=True, start=0.0, eval_every=draw.choose((0, 25), (0, 40)))
    return Made(setting, change, 0, 350)


@healthy
def prompts_by_difficulty(draw: Draw) -> Made:
    """Prompts that teach are drawn, so about half of their completions are right, whatever is learned."""
    setting = draw.setting(updates=1, by_difficulty=True, has_components=False, start=draw.within(-0.5, 0.8))
    return Made(setting, None, 0, 400)


def a_short_run(draw: Draw) -> Made:
    """A run that ends before anything can be judged."""
    kl = draw.within(0.1, 0.2)
    change = by(kl=towards(kl, 20), spread=to(6.0))
    steps = draw.choose((16, 24, 30), (12, 20, 28))
    return Made(draw.setting(updates=1, speed=0.0, has_components=False), change, 0, steps)
