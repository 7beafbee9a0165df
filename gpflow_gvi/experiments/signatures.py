"""Signatures, docstrings and checks of this package's classes, read without importing them.

To import a class is to import TensorFlow, which takes seconds. A schema, or the validation of a
file, needs only what is written in the source, so that is parsed.
"""

from __future__ import annotations

import ast
import functools
import importlib.util
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

PACKAGE = __name__.partition(".")[0]

REQUIRED: Any = object()
"""The default of a parameter that has none."""


@dataclass(frozen=True)
class Parameter:
    """A parameter of a constructor."""

    annotation: str = ""
    """As written; empty if there is none."""
    default: Any = REQUIRED
    description: str = ""
    bounds: Mapping[str, Any] = field(default_factory=dict)
    """What `checks.positive` or `checks.count` demands in the body: `gt` or `ge` and a number."""
    has_other_checks: bool = False
    """Whether the body raises depending on the value in any other way."""


@functools.cache
def signature(target: str) -> tuple[str, dict[str, Parameter]]:
    """Return the first paragraph of a class's docstring, and the parameters of its constructor.

    Checks of inherited constructors are those of parameters of the same name.

    :param target: as "gpflow_gvi.losses:BetaLoss", or "...:CholeskySVGP.from_data" for a class
        method.
    """
    module, _, path = target.partition(":")
    name, _, method = path.partition(".")
    classes = list(_with_bases(module, name))
    if not classes:
        raise LookupError(f"{target} is not in the source of {module}; correct the table of kinds.")
    functions = [
        node
        for definition in classes
        for node in definition.body
        if isinstance(node, ast.FunctionDef) and node.name == (method or "__init__")
    ]
    text = ast.get_docstring(classes[0]) or ""
    bounds = {k: v for function in reversed(functions) for k, v in _bounds(function)}
    others = {name for function in functions for name in _other_checks(function)}
    described = dict(
        re.findall(r"^:param (\w+): (.*?)(?=^:|\n\n|\Z)", text, re.DOTALL | re.MULTILINE)
    )
    parameters = {
        argument.arg: Parameter(
            annotation="" if argument.annotation is None else ast.unparse(argument.annotation),
            default=REQUIRED if default is None else ast.literal_eval(default),
            description=" ".join(described.get(argument.arg, "").split()),
            bounds=bounds.get(argument.arg, {}),
            has_other_checks=argument.arg in others,
        )
        for function in functions[:1]
        for argument, default in _arguments(function.args)
    }
    return " ".join(text.partition("\n\n")[0].split()), parameters


def _arguments(arguments: ast.arguments) -> list[tuple[ast.arg, ast.expr | None]]:
    """Return the arguments after `self` or `cls`, and their defaults."""
    positional = [*arguments.posonlyargs, *arguments.args]
    defaults = [None] * (len(positional) - len(arguments.defaults)) + list(arguments.defaults)
    pairs = list(zip(positional, defaults, strict=True))[1:]
    return pairs + list(zip(arguments.kwonlyargs, arguments.kw_defaults, strict=True))


def _bounds(function: ast.FunctionDef) -> Iterator[tuple[str, dict[str, Any]]]:
    """Yield what `checks.positive(name, value)` and `checks.count(name, value)` demand."""
    for check, call in _checks(function):
        if check in ("positive", "count") and isinstance(call.args[1], ast.Name):
            option = ast.literal_eval(call.keywords[0].value) if call.keywords else None
            if check == "count":
                yield call.args[1].id, {"ge": 1 if option is None else option}
            else:
                yield call.args[1].id, {"ge": 0.0} if option else {"gt": 0.0}


def _other_checks(function: ast.FunctionDef) -> set[str]:
    """Return the names on which it depends whether the function raises."""
    tests: list[ast.AST] = [
        node.test
        for node in ast.walk(function)
        if isinstance(node, ast.If) and any(isinstance(child, ast.Raise) for child in node.body)
    ]
    tests += [call for check, call in _checks(function) if check not in ("positive", "count")]
    return {node.id for test in tests for node in ast.walk(test) if isinstance(node, ast.Name)}


def _checks(function: ast.FunctionDef) -> Iterator[tuple[str, ast.Call]]:
    for node in ast.walk(function):
        if isinstance(node, ast.Call):
            owner, _, check = ast.unparse(node.func).rpartition(".")
            if owner == "checks":
                yield check, node


def _with_bases(module: str, name: str) -> Iterator[ast.ClassDef]:
    """Yield a class and its bases, as far as this package defines them; imports are followed."""
    if module.partition(".")[0] != PACKAGE:
        return
    tree, package = _parsed(module)
    for node in tree.body:
        if isinstance(node, ast.ClassDef) and node.name == name:
            yield node
            for base in node.bases:
                yield from _with_bases(module, ast.unparse(base))
        elif isinstance(node, ast.ImportFrom):
            for alias in node.names:
                if (alias.asname or alias.name) == name:
                    origin = "." * node.level + (node.module or "")
                    yield from _with_bases(importlib.util.resolve_name(origin, package), alias.name)


@functools.cache
def _parsed(module: str) -> tuple[ast.Module, str]:
    """Return the syntax tree of a module, and the package to which its imports are relative."""
    path = Path(__file__).parents[1].joinpath(*module.split(".")[1:])
    file = path / "__init__.py" if path.is_dir() else path.with_suffix(".py")
    if not file.is_file():
        raise LookupError(f"{module} cannot be found; correct the table of kinds.")
    return ast.parse(file.read_bytes()), module if path.is_dir() else module.rpartition(".")[0]
