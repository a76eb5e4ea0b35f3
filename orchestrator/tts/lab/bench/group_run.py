"""`tts bench` with several strategies or values: a run of each, in one group, resumed as one."""

from __future__ import annotations

import re
from collections.abc import Awaitable, Mapping, Sequence
from dataclasses import replace
from itertools import product
from pathlib import Path
from typing import Any

import msgspec

from tts.base.choices import ServerKind
from tts.base.errors import ConfigError
from tts.build.spec import Deployment
from tts.endpoints.functions import described, name_of
from tts.runs.compare import read_rows
from tts.runs.config import FunctionSource, Limits, RunConfig, check_same
from tts.runs.folder import locked, refuse_begun
from tts.runs.groups import GroupConfig, Member, create_group, read_whole_group, write_comparison
from tts.search import SearchConfig
from tts.session.functions import Loaded, names_function
from tts.session.plan import Plan
from tts.session.strategy import ChosenStrategy, choose
from tts.strategies.catalog import all_strategies, find_strategy
from tts.strategies.parameters import configure_all, settable_of
from tts.strategies.strategy import Strategy

from ..campaign import Campaign, carry_out
from ..observer import Observer
from .fitting import fit
from .single_run import fitted_to_budget, folder_of, on_deployment, prepare, way_on

Variant = tuple[str, Mapping[str, Any], SearchConfig]
"""A search: the strategy's name, the swept values that it has to set, and all its parameters."""


def run_all(
    config: RunConfig,
    out: Path | None,
    observer: Observer,
    *,
    names: Sequence[str] = (),
    sweep: Mapping[str, Sequence[Any]] | None = None,
    endpoints: tuple[str, ...] = (),
) -> Path:
    """Run strategies on the same problems, after checking all of them; the group's folder.

    `names` are the strategies; none: every one there is. Each runs with every combination of the
    values in `sweep`, which are listed by the name of their parameter. A budget of tokens without
    an n is the mean cost of a problem to which the n of each strategy is fitted.
    """
    sweep = sweep or {}
    if config.limits.budget_tokens and "n" not in {**config.parameters, **sweep}:
        config = fitted_to_budget(config)

    def members_on(spec: Deployment, own: Mapping[str, Loaded]) -> list[Member]:
        strategies = strategies_of(names, own)
        return members_of(variants_of(spec, config.parameters, strategies, sweep), strategies)

    def pick(spec: Deployment, loaded: Mapping[str, Loaded]) -> ChosenStrategy:
        own = own_strategies(loaded)
        return _chosen(members_on(spec, own)[0], spec, own)

    plan = prepare(config, observer, endpoints, pick=pick)
    members = members_on(plan.deployment, own_strategies(plan.loaded))
    for member in members:
        _plan_of(member, plan)  # refused here, if the verifier does not score what it asks for
    what = "sweep" if sweep else "comparison" if names else config.strategy
    folder = folder_of(plan, what, out)
    campaign = Campaign(observer, endpoints, plan.verifier)

    async def plans() -> dict[str, tuple[Plan, Path]]:
        runs = await _fitted(plan, names, sweep, campaign) if config.fitted_to else members
        create_group(folder, GroupConfig(_shared(plan), runs).to_json())
        return _plans(folder, runs, plan)

    with locked(folder):
        refuse_begun(folder)
        _run(folder, plans(), plan, campaign)
    return folder


def strategies_of(names: Sequence[str], own: Mapping[str, Loaded]) -> dict[str, Strategy]:
    """The strategies by name, those of Python files in their turn; without names all there are."""
    in_order = iter(own)
    compared = [next(in_order) if names_function(name) else name for name in names]
    strategies = {n: own[n].value if n in own else find_strategy(n) for n in compared}
    return strategies or all_strategies()


def variants_of(
    spec: Deployment,
    parameters: Mapping[str, Any],
    strategies: Mapping[str, Strategy],
    sweep: Mapping[str, Sequence[Any]],
) -> list[Variant]:
    """Each strategy with every combination of swept values; raises ConfigError for a bad value."""
    points = [dict(zip(sweep, values, strict=True)) for values in product(*sweep.values())]
    configs = [configure_all(spec, {**parameters, **point}, strategies) for point in points]
    return [
        (name, settable_of(strategy, point), by_name[name])
        for name, strategy in strategies.items()
        for point, by_name in zip(points, configs, strict=True)
    ]


async def _fitted(
    plan: Plan, names: Sequence[str], sweep: Mapping[str, Sequence[Any]], campaign: Campaign
) -> list[Member]:
    """The runs of a group, each with the n that its budget of tokens has room for on average."""
    campaign.observer.say("Fitting n of each strategy to the budget on a few problems")
    own, parameters = own_strategies(plan.loaded), plan.request.parameters
    strategies = strategies_of(names, own)
    configs: dict[SearchConfig, SearchConfig] = {}
    variants = variants_of(plan.deployment, parameters, strategies, sweep)
    for name, point, default in variants:
        if default not in configs:
            values = settable_of(strategies[name], {**parameters, **point})
            strategy = own[name].value if name in own else name
            configs[default] = await fit(plan, strategy, values, campaign)
    fitted = [(name, point, configs[default]) for name, point, default in variants]
    return members_of(fitted, strategies)


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

    def pick(spec: Deployment, loaded: Mapping[str, Loaded]) -> ChosenStrategy:
        return _chosen(before.members[0], spec, own_strategies(loaded))

    plan = prepare(config, observer, endpoints, pick=pick)
    members = [
        replace(member, parameters=_plan_of(member, plan).strategy.parameters)
        for member in before.members
    ]
    check_same(GroupConfig(_shared(plan), members).to_json(), before.to_json(), folder)
    campaign = Campaign(observer, endpoints, plan.verifier)

    async def plans() -> dict[str, tuple[Plan, Path]]:
        return _plans(folder, members, plan)

    with locked(folder):
        _run(folder, plans(), plan, campaign, repair=repair)
    return folder


def own_strategies(loaded: Mapping[str, Loaded]) -> dict[str, Loaded]:
    """The strategies of Python files by their names; raises ConfigError for what is none."""
    own: dict[str, Loaded] = {}
    for role, each in loaded.items():
        if role == "verifier":
            continue
        value = each.value
        if isinstance(value, type) and issubclass(value, SearchConfig):
            value = Strategy(name_of(value), "", value, "weighted")
        if not isinstance(value, Strategy):
            what = f"{each.source.name} of {each.source.file} is "
            hint = "Give a Strategy or a SearchConfig"
            if not callable(value):
                raise ConfigError(f"{what}{described(value)}, and no strategy.", hint=f"{hint}.")
            raise ConfigError(
                f"{what}a function, whose n is not known: it cannot be compared with others in one "
                "command.",
                hint=f"{hint}, or run it by itself; then: tts report RUN RUN.",
            )
        if value.name in own:
            raise ConfigError(f"Two of the strategies that are compared are named {value.name}.")
        own[value.name] = replace(each, value=value)
    return own


def _shared(plan: Plan) -> RunConfig:
    """What all runs are asked for: each has the function of its own strategy."""
    config = plan.config
    functions = {role: name for role, name in config.functions.items() if role != "strategy"}
    return msgspec.structs.replace(config, functions=functions)


def members_of(variants: Sequence[Variant], strategies: Mapping[str, Strategy]) -> list[Member]:
    """The runs that searches need: one for all that search the same."""
    shared: dict[SearchConfig, list[Variant]] = {}
    for variant in variants:
        shared.setdefault(variant[2], []).append(variant)
    members: dict[str, Member] = {}
    for config, alike in shared.items():
        first, point, _ = alike[0]
        assigned = (f"{name}={value}" for name, value in point.items())
        # a name of the user's, and a value, may be any text
        words = (re.sub(r"[^A-Za-z0-9_.=-]+", "-", each) for each in (first, *assigned))
        folder = ",".join(words)[:90]
        while folder in members:
            folder += f"-{len(members) + 1}"
        votes: dict[str, str] = {name: strategies[name].vote for name, *_ in alike}
        members[folder] = Member(folder, votes, config.to_json())
    return list(members.values())


def _chosen(member: Member, spec: Deployment, own: Mapping[str, Loaded]) -> ChosenStrategy:
    """The strategy of a run of a group."""
    name = member.strategy
    return choose(own[name].value if name in own else name, spec, member.parameters)


def _plan_of(member: Member, plan: Plan) -> Plan:
    """The plan of one run of a group, whose first one has this plan."""
    requested, own = plan.request, own_strategies(plan.loaded)
    strategy = _chosen(member, plan.deployment, own)
    loaded = {role: each for role, each in plan.loaded.items() if role == "verifier"}
    if member.strategy in own:
        loaded["strategy"] = own[member.strategy]
    if requested.fitted_to and strategy.config and strategy.config.TAKES_BUDGET:
        limits = Limits(requested.fitted_to.budget_tokens, requested.limits.deadline_s)
        requested = msgspec.structs.replace(requested, limits=limits)
    return replace(plan, strategy=strategy, request=requested, loaded=loaded)


def _plans(folder: Path, members: Sequence[Member], plan: Plan) -> dict[str, tuple[Plan, Path]]:
    """The plan and folder of each run by title; the first has this plan."""
    return {
        f"{number}/{len(members)} {member.title}": (_plan_of(member, plan), folder / member.folder)
        for number, member in enumerate(members, start=1)
    }


def _run(
    folder: Path,
    plans: Awaitable[dict[str, tuple[Plan, Path]]],
    plan: Plan,
    campaign: Campaign,
    *,
    repair: bool = False,
) -> None:
    """Run what has not finished and keep the comparison's numbers."""
    carry_out(campaign, plans, folder, way_on(plan, folder), repair=repair)
    rows = read_rows(folder, campaign.finished)
    write_comparison(folder, {"rows": [row.to_json() for row in rows]})
