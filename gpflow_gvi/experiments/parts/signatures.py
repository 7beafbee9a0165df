"""Signatures, docstrings and checks of what a part builds: functions, and classes by source.

To import a class of this package is to import TensorFlow, which is slow to load. A schema, or the
validation of a file, needs only what is written in the source, so that is parsed.
"""

from __future__ import annotations

import ast
import functools
import importlib.util
import inspect
import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

PACKAGE = __name__.partition(".")[0]


@dataclass(frozen=True)
class Parameter:
    """A parameter of a function, or of a constructor."""

    annotation: str
    """As written; empty if there is none."""
    default: Any
    """An ellipsis if there is none."""
    description: str
    bounds: Mapping[str, Any] = field(default_factory=dict)
    """What the checks in the body demand: `gt`, `ge`, `lt` and a number."""


@dataclass(frozen=True)
class Signature:
    """What is known of a function, or of a class."""

    summary: str
    """The first paragraph of its docstring."""
    parameters: dict[str, Parameter]


def of_function(function: Callable[..., Any]) -> Signature:
    """Return the signature of a function, without its first parameter."""
    text = inspect.getdoc(function) or ""
    described = _descriptions(text)
    parameters = list(inspect.signature(function).parameters.values())[1:]
    return Signature(
        text.partition("\n\n")[0],
        {
            each.name: Parameter(
                each.annotation,
                ... if each.default is each.empty else each.default,
                described.get(each.name, ""),
            )
            for each in parameters
        },
    )


@functools.cache
def of_class(target: str) -> Signature:
    """Return the signature of a class of this package, or of a class method.

    Checks of inherited constructors are those of parameters of the same name.

    :param target: as "gpflow_gvi.losses:BetaLoss", or "...:CholeskySVGP.from_data".
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
    described = _descriptions(text)
    bounds = {k: v for function in reversed(functions) for k, v in _bounds(function)}
    parameters = {
        argument.arg: Parameter(
            annotation="" if argument.annotation is None else ast.unparse(argument.annotation),
            default=... if default is None else ast.literal_eval(default),
            description=described.get(argument.arg, ""),
            bounds=bounds.get(argument.arg, {}),
        )
        for function in functions[:1]
        for argument, default in _arguments(function.args)
    }
    return Signature(" ".join(text.partition("\n\n")[0].split()), parameters)


def _descriptions(text: str) -> dict[str, str]:
    """Return the description of each parameter in a docstring."""
    found = re.findall(r"^:param (\w+): (.*?)(?=^:|\n\n|\Z)", text, re.DOTALL | re.MULTILINE)
    return {name: " ".join(described.split()) for name, described in found}


def _arguments(arguments: ast.arguments) -> list[tuple[ast.arg, ast.expr | None]]:
    """Return the arguments after `self` or `cls`, and their defaults."""
    positional = [*arguments.posonlyargs, *arguments.args]
    defaults = [None] * (len(positional) - len(arguments.defaults)) + list(arguments.defaults)
    pairs = list(zip(positional, defaults, strict=True))[1:]
    return pairs + list(zip(arguments.kwonlyargs, arguments.kw_defaults, strict=True))


def _bounds(function: ast.FunctionDef) -> Iterator[tuple[str, dict[str, Any]]]:
    """Yield what calls of the package's `checks`, as `checks.positive(name, value)`, demand."""
    for call in ast.walk(function):
        if not (isinstance(call, ast.Call) and ast.unparse(call.func).startswith("checks.")):
            continue
        check, value = ast.unparse(call.func).partition(".")[2], call.args[-1]
        option = ast.literal_eval(call.keywords[0].value) if call.keywords else None
        demanded = {
            "positive": {"ge": 0.0} if option else {"gt": 0.0},
            "count": {"ge": 1 if option is None else option},
            "fraction": {"ge": 0.0, "lt": 1.0},
        }
        if check in demanded and isinstance(value, ast.Name):
            yield value.id, demanded[check]


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
    path = Path(__file__).parents[2].joinpath(*module.split(".")[1:])
    file = path / "__init__.py" if path.is_dir() else path.with_suffix(".py")
    if not file.is_file():
        raise LookupError(f"{module} cannot be found; correct the table of kinds.")
    return ast.parse(file.read_bytes()), module if path.is_dir() else module.rpartition(".")[0]
