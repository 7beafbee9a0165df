"""Parts of a configuration: if there are several kinds, `kind` says which one is built.

Most parts are derived from what they build. A table, `OneOf`, lists by its `kind` what a noun of
the configuration can be. Each entry is

* a class of this package, as "gpflow_gvi.losses:BetaLoss". The keys of the part are the parameters
  of its constructor, with their defaults, descriptions and checks;
* such a class, and for some keys the type and the default that its signature does not tell;
* a function. Its first argument is what a run supplies; the others, which are annotated with types
  of pydantic, are the keys. It receives parts as they are, where a class receives what they build.
"""

from __future__ import annotations

import dataclasses
import functools
import importlib
import operator
import pkgutil
from collections.abc import Callable, Mapping
from types import SimpleNamespace
from typing import Annotated, Any, ClassVar, Literal, TypeAlias, get_args, get_type_hints

from pydantic import (
    BaseModel,
    ConfigDict,
    Field,
    GetCoreSchemaHandler,
    create_model,
    model_validator,
)
from pydantic.fields import FieldInfo
from pydantic_core import PydanticCustomError, core_schema

from . import signatures


class Library:
    """A module that is imported when it is first used, as TensorFlow is slow to load."""

    def __init__(self, name: str) -> None:
        self._name = name

    def __getattr__(self, name: str) -> Any:
        return getattr(importlib.import_module(self._name), name)


gpflow = Library("gpflow")
keras = Library("keras")
tf = Library("tensorflow")


class Part(BaseModel):
    """A part of a configuration: nothing unknown is in it, and nothing is changed later."""

    model_config = ConfigDict(
        extra="forbid",
        frozen=True,
        allow_inf_nan=False,
        validate_default=True,  # so that a name can be the default
        defer_build=True,  # parts can have parts of their own kind
    )

    @model_validator(mode="before")
    @classmethod
    def _of_the_default_kind(cls, values: Any) -> Any:
        """Let a part that does not say its kind be of the kind that it has by default."""
        if not isinstance(values, Mapping):
            return values
        by_default = {
            name: {"kind": kind, **value}
            for name, value in values.items()
            if isinstance(value, Mapping) and "kind" not in value and name in cls.model_fields
            if (kind := default_kind(cls.model_fields[name])) is not None
        }
        return {**values, **by_default} if by_default else values


MAX_INTEGER = 2**31 - 1
"""All libraries take seeds and sizes up to it."""

Count = Annotated[int, Field(strict=True, ge=1, le=MAX_INTEGER)]
Whole = Annotated[int, Field(strict=True, ge=0, le=MAX_INTEGER)]
Number = Annotated[float, Field(strict=True)]
Positive = Annotated[float, Field(strict=True, gt=0.0)]
NonNegative = Annotated[float, Field(strict=True, ge=0.0)]
Fraction = Annotated[float, Field(strict=True, ge=0.0, lt=1.0)]
Flag = Annotated[bool, Field(strict=True)]

TYPES: Mapping[str, Any] = {
    "bool": Flag,
    "float": Number,
    "int": Annotated[int, Field(strict=True, le=MAX_INTEGER)],
}
"""Types of keys, by the annotations of classes."""


class Omitted(Part):
    """What is left out."""

    kind: Literal["none"] = "none"


class ByKind:
    """An annotation of a union of parts: `kind` decides which one it is.

    A name stands for the part of that kind, with all its defaults.
    """

    def __get_pydantic_core_schema__(
        self, source: Any, handler: GetCoreSchemaHandler
    ) -> core_schema.CoreSchema:
        """Put the name's translation in front of the validation."""
        union = handler.generate_schema(Annotated[source, Field(discriminator="kind")])
        return core_schema.no_info_before_validator_function(
            lambda value: {"kind": value} if isinstance(value, str) else value, union
        )

    def __get_pydantic_json_schema__(
        self, schema: core_schema.CoreSchema, handler: Callable[[Any], dict[str, Any]]
    ) -> dict[str, Any]:
        """Offer the names beside the parts."""
        parts = handler(schema)
        return {"anyOf": [{"enum": sorted(parts["discriminator"]["mapping"])}, parts]}


class Derived(Part):
    """A part that is derived from what it builds."""

    target: ClassVar[str | Callable[..., Any]]
    parameters: ClassVar[tuple[str, ...]]
    """Those of the target that are keys of the part."""
    supplied: ClassVar[Mapping[str, Callable[[Any], Any]]]
    """Functions that compute the other ones from what a run supplies."""

    def build(self, run: Any = None) -> Any:
        """Return the object that the part describes.

        :param run: what a run supplies, if it is needed.
        """
        values = {name: getattr(self, name) for name in self.parameters}
        target = type(self).target
        if callable(target):
            return target(run, **values)
        built = {k: v.build(run) if isinstance(v, Derived) else v for k, v in values.items()}
        others = {name: value(run) for name, value in self.supplied.items()}
        return pkgutil.resolve_name(target)(**others, **built)


Keys: TypeAlias = "dict[str, tuple[Any, Any]]"
Entry: TypeAlias = "str | tuple[str, Keys] | Callable[..., Any]"


@dataclasses.dataclass(frozen=True, eq=False)
class OneOf:
    """An annotation: the parts of a table. A name stands for the part with all its defaults."""

    noun: str
    """What they all are, as classes name it in their annotations."""
    table: Mapping[str, Entry]
    """The parts, by their kinds."""
    supplied: Mapping[str, Callable[[Any], Any]] = dataclasses.field(default_factory=dict)
    """What a run supplies, by the names of parameters: functions of the argument of `build`."""
    types: Mapping[str, Any] = dataclasses.field(default_factory=dict)
    """Types of keys, by the names of annotations of classes."""
    base: type[Derived] = Derived
    """The class of the parts, with the keys that all of them have."""
    beside: OneOf | None = None
    """Another table, whose parts are allowed, too."""

    @functools.cached_property
    def parts(self) -> dict[str, type[Part]]:
        """The parts, by their kinds; they are made when they are first needed."""
        others = {} if self.beside is None else self.beside.parts
        return others | {kind: self._part(kind, entry) for kind, entry in self.table.items()}

    def __get_pydantic_core_schema__(
        self, source: Any, handler: GetCoreSchemaHandler
    ) -> core_schema.CoreSchema:
        """Return the schema of the union that `kind` decides."""
        union: Any = functools.reduce(operator.or_, self.parts.values())
        return handler.generate_schema(Annotated[union, ByKind()])

    def _part(self, kind: str, entry: Entry) -> type[Part]:
        target, given = entry if isinstance(entry, tuple) else (entry, {})
        if callable(target):
            types = target.__globals__
            signature, module = signatures.of_function(target), target.__module__
        else:
            types = {**TYPES, self.noun: Annotated[Any, self], **self.types}
            signature, module = signatures.of_class(target), __name__
        keys = {name: p for name, p in signature.parameters.items() if name not in self.supplied}
        derived = {name: p for name, p in keys.items() if name not in given}
        hints = _resolved({name: p.annotation for name, p in derived.items()}, types, target)
        fields: dict[str, Any] = {
            name: (hints[name], Field(p.default, description=p.description or None, **p.bounds))
            for name, p in derived.items()
        }
        name = "".join(word.capitalize() for word in kind.split("_"))
        part: type[Derived] = create_model(
            name.removesuffix(self.noun) + self.noun,
            __base__=self.base,
            __doc__=signature.summary,
            __module__=module,
            **{"kind": (Literal[kind], kind), **given, **fields},
        )
        part.target, part.parameters = target, tuple(keys)
        part.supplied = {k: v for k, v in self.supplied.items() if k in signature.parameters}
        return part


def _resolved(annotations: dict[str, str], types: dict[str, Any], target: Any) -> dict[str, Any]:
    """Return the types that annotations name, in the module of a function or in a table."""
    try:
        return get_type_hints(
            SimpleNamespace(__annotations__=annotations), types, include_extras=True
        )
    except NameError as error:
        raise TypeError(
            f"{target} has an annotation that is no type of the configuration ({error}); give the "
            "type of this key in the table."
        ) from error


def default_kind(field: FieldInfo) -> str | None:
    """Return the kind of the part that is a field's default, if it is one."""
    default = field.default
    if isinstance(default, Part):
        return getattr(default, "kind", None)
    return default if isinstance(default, str) and field.annotation is Any else None


def kinds(part: type[Part]) -> tuple[str, ...]:
    """Return the values that the `kind` of a part may have."""
    field = part.model_fields.get("kind")
    return () if field is None else get_args(field.annotation)


def impossible(path: str, value: Any, reason: str) -> PydanticCustomError:
    """Return the error of a value at a path, as "regulariser.mode", that others do not allow."""
    text = f"is {value!r}; {reason}"
    # In a template braces would be taken for fields.
    return PydanticCustomError("impossible", "{text}", {"path": path, "text": text})
