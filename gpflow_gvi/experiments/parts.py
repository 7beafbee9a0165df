"""What all parts of a configuration have in common: nothing unknown, nothing changed later."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Annotated, Any, Literal, get_args

from pydantic import BaseModel, ConfigDict, Field, model_validator
from pydantic.fields import FieldInfo
from pydantic_core import PydanticCustomError, core_schema


class Part(BaseModel):
    """A part of a configuration. Of several kinds `kind` says which one it is."""

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


class Off(Part):
    """What is left out."""

    kind: Literal["none"] = "none"


class Named:
    """An annotation: a name stands for the part of that kind, with all its defaults."""

    def __get_pydantic_core_schema__(
        self, source: Any, handler: Callable[[Any], core_schema.CoreSchema]
    ) -> core_schema.CoreSchema:
        """Put the name's translation in front of the validation."""
        return core_schema.no_info_before_validator_function(
            lambda value: {"kind": value} if isinstance(value, str) else value, handler(source)
        )

    def __get_pydantic_json_schema__(
        self, schema: core_schema.CoreSchema, handler: Callable[[Any], dict[str, Any]]
    ) -> dict[str, Any]:
        """Offer the names beside the parts."""
        parts = handler(schema)
        return {"anyOf": [{"enum": sorted(parts["discriminator"]["mapping"])}, parts]}


BY_KIND = Field(discriminator="kind")
OR_NAME = Named()
"""What makes a union of parts one that `kind` decides: `Annotated[A | B, BY_KIND, OR_NAME]`."""


def default_kind(field: FieldInfo) -> str | None:
    """Return the kind of the part that is a field's default, if it is one."""
    default = field.default
    if isinstance(default, Part):
        return getattr(default, "kind", None)
    if isinstance(default, Mapping):
        return default.get("kind")
    return default if isinstance(default, str) and field.annotation is Any else None


def kinds(part: type[Part]) -> tuple[str, ...]:
    """Return the values that the `kind` of a part may have."""
    field = part.model_fields.get("kind")
    return () if field is None else get_args(field.annotation)


def impossible(path: str, value: Any, reason: str) -> PydanticCustomError:
    """Return the error of a value that does not go together with others.

    :param path: where it stands, as "regulariser.mode".
    :param value: the value.
    :param reason: what is in its way, and the remedy.
    """
    text = f"is {value!r}; {reason}"
    # In a template braces would be taken for fields.
    return PydanticCustomError("impossible", "{text}", {"path": path, "text": text})
