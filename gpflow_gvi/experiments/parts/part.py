"""Parts of a configuration: if there are several kinds, `kind` says which one is built.

A table lists by its `kind` what a noun of the configuration can be, and `one_of` annotates it.
Each entry is

* a function. Its first argument is what a run supplies; the others, which are annotated with types
  of pydantic, are the keys of the part;
* or a `Constructor`, a class by its path, as to import it is to import TensorFlow.
"""

from __future__ import annotations

import dataclasses
import functools
import importlib
import inspect
import operator
import pkgutil
import re
from collections.abc import Callable, Mapping
from typing import Annotated, Any, ClassVar, Literal, TypeAlias, get_args

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


class LazyModule:
    """A module that is imported when it is first used, as TensorFlow is slow to load."""

    def __init__(self, name: str) -> None:
        self._name = name

    def __getattr__(self, name: str) -> Any:
        return getattr(importlib.import_module(self._name), name)


gpflow = LazyModule("gpflow")
keras = LazyModule("keras")
tf = LazyModule("tensorflow")


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
        return {
            name: {"kind": kind, **value}
            if isinstance(value, Mapping)
            and "kind" not in value
            and (kind := _default_kind(fields_of(cls).get(name))) is not None
            else value
            for name, value in values.items()
        }


MAX_INTEGER = 2**31 - 1
"""All libraries take seeds and sizes up to it."""

Count = Annotated[int, Field(strict=True, ge=1, le=MAX_INTEGER)]
Whole = Annotated[int, Field(strict=True, ge=0, le=MAX_INTEGER)]

MAX_NUMBER = 3.4e38
"""Single precision has numbers up to it."""

Positive = Annotated[float, Field(strict=True, gt=0.0, le=MAX_NUMBER)]
NonNegative = Annotated[float, Field(strict=True, ge=0.0, le=MAX_NUMBER)]
Fraction = Annotated[float, Field(strict=True, ge=0.0, lt=1.0)]
Flag = Annotated[bool, Field(strict=True)]


class Omitted(Part):
    """What is left out."""

    kind: Literal["none"] = "none"


class ByKind:
    """An annotation of a union of parts: `kind` decides which one it is.

    A name stands for the part of that kind, with all its defaults.

    :param union: the union, if it is not what is annotated.
    """

    def __init__(self, union: Any = None) -> None:
        self.union = union

    def __get_pydantic_core_schema__(
        self, source: Any, handler: GetCoreSchemaHandler
    ) -> core_schema.CoreSchema:
        """Put the name's translation in front of the validation."""
        parts = source if self.union is None else self.union
        union = handler.generate_schema(Annotated[parts, Field(discriminator="kind")])
        return core_schema.no_info_before_validator_function(
            lambda value: {"kind": value} if isinstance(value, str) else value, union
        )

    def __get_pydantic_json_schema__(
        self, schema: core_schema.CoreSchema, handler: Callable[[Any], dict[str, Any]]
    ) -> dict[str, Any]:
        """Offer the names beside the parts."""
        parts = handler(schema)
        return {"anyOf": [{"enum": sorted(parts["discriminator"]["mapping"])}, parts]}


class Built(Part):
    """A part that an entry of a table builds."""

    entry: ClassVar[Entry]
    keys: ClassVar[tuple[str, ...]]
    """Those that the entry takes."""

    def build(self, run: Any = None) -> Any:
        """Return the object that the part describes, given what a run supplies, if it is needed."""
        return type(self).entry(run, **{name: getattr(self, name) for name in self.keys})


@dataclasses.dataclass(frozen=True, eq=False)
class Constructor:
    """The constructor of a class, which receives what its parts build."""

    path: str
    """As "gpflow_gvi.losses:BetaLoss", or "...:CholeskySVGP.from_data"."""
    keys: Mapping[str, Any]
    """Its parameters that are keys: the type of each and its default, or a `Field`."""
    supplied: Mapping[str, Callable[[Any], Any]] = dataclasses.field(default_factory=dict)
    """Functions that compute others from what a run supplies, by the names of parameters."""

    def __call__(self, run: Any, **values: Any) -> Any:
        """Return the object."""
        constructor = pkgutil.resolve_name(self.path)
        known = inspect.signature(constructor).parameters
        takes_any = any(each.kind is each.VAR_KEYWORD for each in known.values())
        supplied = self.supplied.items()
        others = {name: of(run) for name, of in supplied if takes_any or name in known}
        built = {k: v.build(run) if isinstance(v, Built) else v for k, v in values.items()}
        return constructor(**others, **built)


Entry: TypeAlias = "Callable[..., Any]"
"""A function, or a `Constructor`."""


def one_of(noun: str, table: Mapping[str, Entry], base: type[Built] = Built) -> ByKind:
    """Return the annotation of any part of a table.

    :param noun: what they all are.
    :param table: what builds them, by their kinds.
    :param base: the class of the parts, with the keys that all of them have.
    """
    parts = (_part(kind, noun, entry, base) for kind, entry in table.items())
    return ByKind(functools.reduce(operator.or_, parts))


@functools.cache
def _part(kind: str, noun: str, entry: Entry, base: type[Built]) -> type[Built]:
    """Return the class of a part, which is the same in all types of the noun."""
    if isinstance(entry, Constructor):
        text, fields = None, dict(entry.keys)
    else:
        text = inspect.getdoc(entry) or ""
        described = re.findall(r"^:param (\w+): (.*?)(?=^:|\Z)", text, re.DOTALL | re.MULTILINE)
        descriptions = {name: " ".join(words.split()) for name, words in described}
        fields = {
            name: (
                each.annotation,
                Field(
                    ... if each.default is each.empty else each.default,
                    description=descriptions.get(name),
                ),
            )
            for name, each in list(inspect.signature(entry).parameters.items())[1:]
        }
    part: type[Built] = create_model(
        f"{kind.title().replace('_', '').removesuffix(noun)}{noun}",
        __base__=base,
        __doc__=text and text.partition("\n\n")[0],
        __module__=getattr(entry, "__module__", __name__),
        **{"kind": (Literal[kind], kind), **fields},
    )
    part.entry, part.keys = entry, tuple(fields)
    return part


def fields_of(part: type[Part]) -> dict[str, FieldInfo]:
    """Return the fields of a part, their annotations resolved: a table may be defined later."""
    part.model_rebuild()
    return part.model_fields


def _default_kind(field: FieldInfo | None) -> str | None:
    """Return the kind of the part that is a field's default, if it is one."""
    if field is None or not any(isinstance(each, ByKind) for each in field.metadata):
        return None
    default = field.default
    return default if isinstance(default, str) else getattr(default, "kind", None)


def kinds(part: type[Part]) -> tuple[str, ...]:
    """Return the values that the `kind` of a part may have."""
    field = part.model_fields.get("kind")
    return () if field is None else get_args(field.annotation)


def impossible(path: str, value: Any, reason: str) -> PydanticCustomError:
    """Return the error of a value at a path, as "regulariser.mode", that others do not allow."""
    text = f"is {value!r}; {reason}"
    # In a template braces would be taken for fields.
    steps = tuple(int(step) if step.isdigit() else step for step in path.split("."))
    return PydanticCustomError("impossible", "{text}", {"path": steps, "text": text})
