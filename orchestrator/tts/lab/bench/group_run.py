"""`tts bench` with several strategies: a run of each, in a group that can be continued."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path

import msgspec

from tts.build.server_kinds import ServerKind
from tts.runs.compare import read_rows
from tts.runs.config import FunctionSource, Limits, RunConfig, check_same
from tts.runs.folder import refuse_begun
from tts.runs.groups import GroupConfig, Member, create_group, read_whole_group, write_comparison
from tts.runs.lock import locked
from tts.search import SearchConfig
from tts.session.plan import Plan, deployment_of
from tts.session.strategy import choose
from tts.strategies.catalog import find_strategy
from tts.strategies.parameters import configure_all, settable_of

from ..campaign import Campaign
from ..observer import Observer
from .fitting import fit_all
from .single_run import carry_out_all, folder_of, on_deployment, plan_with, problems_of


def run_all(
    config: RunConfig,
    out: Path | None,
    observer: Observer,
    *,
    names: Sequence[str] = (),
    endpoints: tuple[str, ...] = (),
) -> Path:
    """Run strategies on the same problems, after checking all of them; the group's folder.

    `names` are the strategies; none: every one there is. A budget of tokens without an n is the
    mean cost of a problem to which the n of each strategy is fitted.
    """
    if config.limits.budget_tokens and "n" not in config.parameters:
        config = msgspec.structs.replace(
            config,
            limits=Limits(deadline_s=config.limits.deadline_s),
            fitted_to=Limits(config.limits.budget_tokens),
        )
    config, problems = problems_of(config, observer.say)
    spec = deployment_of(config)
    members = members_of(configure_all(spec, config.parameters, names))
    first = choose(members[0].strategy, spec, members[0].parameters)
    plan = plan_with(config, problems, spec, first, endpoints, say=observer.say)
    for member in members:
        _plan_of(member, plan)  # refused here, if the verifier does not score what it asks for
    folder = folder_of(plan, "comparison" if names else config.strategy, out)
    with locked(folder):
        if config.fitted_to:
            refuse_begun(folder)
            observer.say("Fitting n of each strategy to the budget on a few problems")
            campaign = Campaign(observer, endpoints, plan.verifier, cold=False)
            names = [member.strategy for member in members]
            wanted = [(n, settable_of(find_strategy(n), config.parameters)) for n in names]
            found = fit_all(plan, wanted, campaign, observer.say)
            fitted = zip(members, found, strict=True)
            members = members_of({name: each for member, each in fitted for name in member.votes})
        create_group(folder, GroupConfig(plan.config, members).to_json())
        _carry_out(folder, members, plan, observer, endpoints)
    return folder


def resume_group(
    folder: Path,
    deployment: str | None,
    observer: Observer,
    *,
    repair: bool = False,
    endpoints: tuple[str, ...] = (),
    server: ServerKind | None = None,
    sources: Mapping[str, FunctionSource] | None = None,
) -> Path:
    """Continue a group: finished runs are kept, a begun one goes on, the others follow.

    With `repair`, damaged logs are cut off first. `sources`: as `on_deployment`.
    """
    before = read_whole_group(folder)
    config = on_deployment(before.shared, folder, deployment, server, sources or {})
    folder = folder.resolve()
    config, problems = problems_of(config, observer.say)
    spec = deployment_of(config)
    chosen = [choose(each.strategy, spec, each.parameters) for each in before.members]
    plan = plan_with(config, problems, spec, chosen[0], endpoints, say=observer.say)
    members = [
        replace(member, parameters=each.parameters)
        for member, each in zip(before.members, chosen, strict=True)
    ]
    check_same(GroupConfig(plan.config, members).to_json(), before.to_json(), folder)
    with locked(folder):
        _carry_out(folder, members, plan, observer, endpoints, repair=repair)
    return folder


def members_of(configs: Mapping[str, SearchConfig]) -> list[Member]:
    """The runs that strategies with these parameters need: one for all that search the same."""
    shared: dict[tuple[type[SearchConfig], SearchConfig], list[str]] = {}
    for name, config in configs.items():
        shared.setdefault((type(config), config), []).append(name)
    return [
        Member(
            names[0],
            {name: find_strategy(name).vote for name in names},
            config.to_json(),
        )
        for (_, config), names in shared.items()
    ]


def _plan_of(member: Member, plan: Plan) -> Plan:
    """The plan of one run of a group, whose first one has this plan."""
    strategy, asked = choose(member.strategy, plan.deployment, member.parameters), plan.asked
    if asked.fitted_to and strategy.config and strategy.config.TAKES_BUDGET:
        limits = Limits(asked.fitted_to.budget_tokens, asked.limits.deadline_s)
        asked = msgspec.structs.replace(asked, limits=limits)
    return replace(plan, strategy=strategy, asked=asked)


def _carry_out(
    folder: Path,
    members: Sequence[Member],
    plan: Plan,
    observer: Observer,
    endpoints: tuple[str, ...],
    *,
    repair: bool = False,
) -> None:
    """Run what has not finished and keep the comparison's numbers; the first run has this plan."""
    plans = {
        f"{number}/{len(members)} {' and '.join(member.votes)}": (
            _plan_of(member, plan),
            folder / member.folder,
        )
        for number, member in enumerate(members, start=1)
    }
    campaign = Campaign(observer, endpoints, plan.verifier)
    carry_out_all(plans, folder, observer, campaign, repair=repair)
    rows, _ = read_rows(folder)
    write_comparison(folder, {"rows": [row.to_json() for row in rows]})
