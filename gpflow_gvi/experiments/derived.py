"""Parts derived from the classes and functions that they build.

A table lists by its `kind` what a noun of the configuration can be. Each entry is

* a class of this package, as "gpflow_gvi.losses:BetaLoss". The keys of the part are the parameters
  of its constructor, with their defaults, descriptions and checks;
* a `Factory`: such a class with what its signature does not say, or a class of another library with
  all its keys;
* a function. Its first argument is what a run supplies; the others, which are annotated with types
  of pydantic, are the keys. It receives parts as they are, where a class receives what they build.
"""

from __future__ import annotations

import functools
import inspect
import operator
import pkgutil
import re
from collections.abc import Callable, Iterable, Mapping
from typing import Annotated, Any, ClassVar, Literal, TypeAlias

from pydantic import Field, GetCoreSchemaHandler, create_model, model_validator
from pydantic_core import PydanticCustomError, core_schema

from .parts import BY_KIND, MAX_INTEGER, OR_NAME, Flag, Part
from .signatures import PACKAGE, REQUIRED, Parameter, signature

TYPES: Mapping[str, Any] = {
    "None": None,
    "bool": Flag,
    "float": Annotated[float, Field(strict=True)],
    "int": Annotated[int, Field(strict=True, le=MAX_INTEGER)],
    "str": Annotated[str, Field(strict=True)],
}
"""Types of keys, by the names of annotations."""


class Factory:
    """A class that a part builds, and what its signature does not say.

    :param target: the class, or a class method of it, as "module:Class" or "module:Class.method".
    :param summary: a description, for a class of another library.
    :param supplied: the parameters that a run supplies, for a class of another library.
    :param keys: for each key its type and its default. They replace what the signature says; of a
        class of another library they are all.
    """

    def __init__(
        self,
        target: str,
        summary: str = "",
        *,
        supplied: Iterable[str] = (),
        **keys: tuple[Any, Any],
    ) -> None:
        self.target, self.module, self._given = target, __name__, keys
        self.parameters: dict[str, Parameter] = {name: Parameter() for name in (*supplied, *keys)}
        self.summary = summary
        if target.startswith(f"{PACKAGE}."):
            self.summary, parameters = signature(target)
            self.parameters |= parameters
        self.unshown = frozenset(
            name
            for name, parameter in self.parameters.items()
            if parameter.has_other_checks and name not in keys
            if TYPES.keys() >= set(_names(parameter))
        )
        """The keys that the class checks in a way that no schema shows."""

    def keys(self, supplied: Iterable[str], types: Mapping[str, Any]) -> dict[str, Any]:
        """Return type, default and description of each key, for pydantic's `create_model`.

        :param supplied: the names of parameters that a run supplies.
        :param types: types by the names of annotations.
        """
        keys: dict[str, Any] = {}
        for name, parameter in self.parameters.items():
            if name in self._given or name not in supplied:
                given = self._given.get(name)
                kind, default = given or (self._type(name, types), parameter.default)
                options = {} if default is REQUIRED else {"default": default}
                keys[name] = kind, Field(description=parameter.description or None, **options)
        return keys

    def _type(self, name: str, types: Mapping[str, Any]) -> Any:
        """Return the type of a key, from the annotation as it is written and from the checks."""
        parameter = self.parameters[name]
        names = _names(parameter)
        if not types.keys() >= set(names):
            raise TypeError(
                f"{self.target} annotates {name} as {parameter.annotation!r}, which is no type of "
                "the configuration; give the type of this key in the table."
            )
        bounds = Field(**parameter.bounds)
        kinds = [
            Annotated[types[each], bounds] if each in ("int", "float") else types[each]
            for each in names
        ]
        return functools.reduce(operator.or_, kinds)

    def build(self, values: Mapping[str, Any], supplied: Mapping[str, Any], run: Any) -> Any:
        """Call the class with the values of the keys, and with what a run supplies."""
        built = {k: v.build(run) if isinstance(v, Derived) else v for k, v in values.items()}
        supply = {k: v(run) for k, v in supplied.items() if k in self.parameters.keys() - built}
        return pkgutil.resolve_name(self.target)(**supply, **built)

    def check(self, values: Mapping[str, Any]) -> None:
        """Construct the class from values that are no parts; raise what it refuses."""
        plain = {name: value for name, value in values.items() if not isinstance(value, Part)}
        if any(each.default is REQUIRED for k, each in self.parameters.items() if k not in plain):
            return  # it needs what only a run supplies
        try:
            pkgutil.resolve_name(self.target)(**plain)
        except (TypeError, ValueError) as error:
            key, _, rest = str(error).partition(" ")  # messages begin with the argument's name
            context = {"key": key, "text": rest} if key in plain else {"text": f"fails: {error}"}
            raise PydanticCustomError("refused", "{text}", context) from error


def _names(parameter: Parameter) -> list[str]:
    return [name.strip() for name in parameter.annotation.split("|")]


class Function:
    """A function that a part calls; see the module."""

    def __init__(self, function: Callable[..., Any]) -> None:
        self._function, self.module = function, function.__module__
        self.summary = inspect.getdoc(function) or ""

    def keys(self, supplied: Iterable[str], types: Mapping[str, Any]) -> dict[str, Any]:
        """Return type, default and description of each key, for pydantic's `create_model`.

        :param supplied: unused; what a run supplies is the first argument.
        :param types: unused; the annotations are types of pydantic.
        """
        described = dict(re.findall(r"^:param (\w+): (.*)", self.summary, re.MULTILINE))
        keys: dict[str, Any] = {}
        for name, parameter in list(inspect.signature(self._function).parameters.items())[1:]:
            options = {} if parameter.default is parameter.empty else {"default": parameter.default}
            keys[name] = parameter.annotation, Field(description=described.get(name), **options)
        return keys

    def build(self, values: Mapping[str, Any], supplied: Mapping[str, Any], run: Any) -> Any:
        """Call the function with what a run supplies and with the values of the keys."""
        return self._function(run, **values)


class Derived(Part):
    """A part that is derived from what it builds."""

    factory: ClassVar[Factory | Function]
    passed: ClassVar[tuple[str, ...]]
    """The keys that are parameters of the factory."""
    supplied: ClassVar[Mapping[str, Callable[[Any], Any]]]

    def build(self, *run: Any) -> Any:
        """Return what the part describes.

        :param run: what a run supplies, if it is needed.
        """
        return self.factory.build(self._values(), self.supplied, *(run or (None,)))

    def _values(self) -> dict[str, Any]:
        return {name: getattr(self, name) for name in self.passed}

    @model_validator(mode="after")
    def _accepted(self) -> Derived:
        if isinstance(self.factory, Factory) and self.model_fields_set & self.factory.unshown:
            self.factory.check(self._values())
        return self


Entry: TypeAlias = "str | Factory | Callable[..., Any]"


class OneOf:
    """An annotation: the parts of a table. A name stands for the part with all its defaults.

    :param noun: what they all are, as classes name it in their annotations.
    :param table: the parts, by their kinds.
    :param supplied: what a run supplies, by the names of parameters: functions of the argument of
        `build`.
    :param types: types of keys, by the names of annotations of classes.
    :param base: the class of the parts, with the keys that all of them have.
    :param beside: another table, whose parts may stand here too.
    """

    def __init__(
        self,
        noun: str,
        table: Mapping[str, Entry],
        *,
        supplied: Mapping[str, Callable[[Any], Any]] | None = None,
        types: Mapping[str, Any] | None = None,
        base: type[Derived] = Derived,
        beside: OneOf | None = None,
    ) -> None:
        self._noun, self._table, self._base, self._beside = noun, table, base, beside
        self._supplied = supplied or {}
        self._types = {**TYPES, noun: Annotated[Any, self], **(types or {})}

    @functools.cached_property
    def parts(self) -> dict[str, type[Part]]:
        """The parts, by their kinds; they are made when they are first needed."""
        others = {} if self._beside is None else self._beside.parts
        return others | {kind: self._part(kind, entry) for kind, entry in self._table.items()}

    def __get_pydantic_core_schema__(
        self, source: Any, handler: GetCoreSchemaHandler
    ) -> core_schema.CoreSchema:
        """Return the schema of the union that `kind` decides."""
        union: Any = functools.reduce(operator.or_, self.parts.values())
        return handler.generate_schema(Annotated[union, BY_KIND, OR_NAME])

    def _part(self, kind: str, entry: Entry) -> type[Part]:
        entry = Factory(entry) if isinstance(entry, str) else entry
        factory = entry if isinstance(entry, Factory) else Function(entry)
        keys = factory.keys(self._supplied, self._types)
        fields: dict[str, Any] = {"kind": (Literal[kind], kind), **keys}
        name = "".join(word.capitalize() for word in kind.split("_"))
        part: type[Derived] = create_model(
            name.removesuffix(self._noun) + self._noun,
            __base__=self._base,
            __doc__=factory.summary.partition("\n\n")[0],
            __module__=factory.module,
            **fields,
        )
        part.factory, part.supplied = factory, self._supplied
        part.passed = tuple(key for key in keys if key not in self._base.model_fields)
        return part
