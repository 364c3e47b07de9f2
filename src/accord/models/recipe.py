"""Modules that say how they were made, so that a run's folder is enough to make them again."""

import functools
from collections.abc import Callable
from typing import Any, ParamSpec

from torch import nn

P = ParamSpec("P")


def named(name: str) -> Callable[[Callable[P, nn.Module]], Callable[P, nn.Module]]:
    """Of a constructor that takes keywords alone: its modules keep their name and these keywords."""

    def kept(make: Callable[P, nn.Module]) -> Callable[P, nn.Module]:
        @functools.wraps(make)
        def made(*none: P.args, **options: P.kwargs) -> nn.Module:
            module = make(*none, **options)
            vars(module)["recipe"] = {"name": name, **options}
            return module

        return made

    return kept


def recipe_of(module: nn.Module) -> dict[str, Any] | None:
    """The name and the keywords that a module was made with, if one of accord's constructors made it."""
    recipe: dict[str, Any] | None = vars(module).get("recipe")
    return recipe
