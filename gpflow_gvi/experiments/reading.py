"""YAML to parts, with errors that name the file, the line, the value and what is allowed."""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any, TypeVar, get_args

import yaml
from pydantic import ValidationError

from .parts import Part, kinds

AnyPart = TypeVar("AnyPart", bound=Part)
Location = tuple[int | str, ...]


class ConfigError(ValueError):
    """A configuration that cannot be run; the message says where it is wrong, and what is right."""


class _Loader(yaml.SafeLoader):
    """YAML without Python tags and repeated keys; `yes` is a string, and `1e-3` a number."""


_Loader.yaml_implicit_resolvers = {
    first: [(tag, pattern) for tag, pattern in pairs if not tag.endswith((":bool", ":timestamp"))]
    for first, pairs in yaml.SafeLoader.yaml_implicit_resolvers.items()
}
_Loader.add_implicit_resolver(
    "tag:yaml.org,2002:bool", re.compile("^(?:true|True|TRUE|false|False|FALSE)$"), list("tTfF")
)
_Loader.add_implicit_resolver(
    "tag:yaml.org,2002:float",
    re.compile(r"^[-+]?[0-9]+(?:\.[0-9]*)?[eE][-+]?[0-9]+$"),
    list("-+0123456789"),
)


def _mapping(loader: _Loader, node: yaml.MappingNode) -> dict[Any, Any]:
    first: dict[Any, yaml.Mark] = {}
    for key, _ in node.value:
        if key.value in first:
            raise yaml.constructor.ConstructorError(
                None, None, f"the key {key.value!r} appears twice; keep one", key.start_mark
            )
        first[key.value] = key.start_mark
    return loader.construct_mapping(node, deep=True)


_Loader.add_constructor("tag:yaml.org,2002:map", _mapping)


class Document:
    """A mapping that was read from YAML, and where each part of it stood.

    :param text: the YAML.
    :param source: what to call it in errors: the path of its file.
    """

    def __init__(self, text: str, source: str) -> None:
        self.source = source
        loader = _Loader(text)
        try:
            self.node = loader.get_single_node()
            self.value: Any = None if self.node is None else loader.construct_document(self.node)
        except yaml.MarkedYAMLError as error:
            line = error.problem_mark.line + 1 if error.problem_mark else 1
            raise ConfigError(f"{source}:{line}: {error.problem}.") from error
        except (yaml.YAMLError, RecursionError) as error:
            raise ConfigError(f"{source} cannot be read as YAML ({error}).") from error
        finally:
            loader.dispose()

    @classmethod
    def read(cls, path: str | Path) -> Document:
        """Return what a file holds, which must be a mapping with string keys."""
        try:
            text = Path(path).read_text("utf-8")
        except FileNotFoundError as error:
            raise ConfigError(f"{path} does not exist; give the path of a YAML file.") from error
        except UnicodeDecodeError as error:
            raise ConfigError(f"{path} is no text in UTF-8 ({error}).") from error
        document = cls(text, str(path))
        if document.value is None:
            raise ConfigError(f"{path} is empty; it must at least say `data: ...`.")
        if not isinstance(document.value, dict):
            raise ConfigError(
                f"{path} holds a {type(document.value).__name__}; it must hold keys with values, "
                "as `data: yacht`."
            )
        return document

    def validated(self, kind: type[AnyPart], value: Any = None) -> AnyPart:
        """Return a part made of the mapping, or of the value if one is given."""
        try:
            return kind.model_validate(self.value if value is None else value)
        except ValidationError as error:
            raise ConfigError(self._text(kind, error)) from error

    def _text(self, kind: type[Part], error: ValidationError) -> str:
        told: dict[tuple[int, str], list[str]] = {}
        for item in error.errors():
            location: Location = item["loc"]
            if item["type"] == "impossible":
                steps = item["ctx"]["path"].split(".")
                location = tuple(int(step) if step.isdigit() else step for step in steps)
            line, found = self._place(location)
            if item["type"] == "impossible":  # it may be a default
                path = _written(location)
            else:
                path = _written([*found, *location[-1:]] if item["type"] == "missing" else found)
            told.setdefault((line, path), []).append(_complaint(kind, location, dict(item)))
        return "\n".join(
            f"{self.source}:{line}: {path or 'it'} {' Or: '.join(dict.fromkeys(complaints))}"
            for (line, path), complaints in told.items()
        )

    def _place(self, location: Location) -> tuple[int, list[int | str]]:
        """Return the line, and the path as it stands in the file: without kinds of unions."""
        node, line = self.node, 1
        path: list[int | str] = []
        for step in location:
            if isinstance(node, yaml.SequenceNode) and isinstance(step, int):
                node = node.value[step]
                line = node.start_mark.line + 1
                path.append(step)
            elif isinstance(node, yaml.MappingNode):
                for key, value in node.value:
                    if key.value == str(step):
                        node, line = value, key.start_mark.line + 1
                        path.append(step)
                        break
        return line, path


def _written(path: Iterable[int | str]) -> str:
    steps = (f"[{step}]" if isinstance(step, int) else f".{step}" for step in path)
    return "".join(steps).lstrip(".")


def _complaint(kind: type[Part], location: Location, item: dict[str, Any]) -> str:
    value, context = item["input"], item.get("ctx", {})
    if item["type"] == "missing":
        return "is missing; it has no default."
    if item["type"] == "impossible":
        return str(context["text"])
    if item["type"] == "extra_forbidden":
        keys = sorted(_keys(kind, location[:-1]))
        return f"is no key of this part; its keys are {', '.join(keys)}.{_near(location[-1], keys)}"
    if item["type"] == "union_tag_invalid":
        known = sorted(context["expected_tags"].replace("'", "").split(", "))
        return f"is of kind {context['tag']!r}; it must be one of {', '.join(known)}." + _near(
            context["tag"], known
        )
    if item["type"] in ("union_tag_not_found", "model_type", "model_attributes_type"):
        known = sorted({tag for part in _choices(kind, location) for tag in kinds(part)})
        remedy = f" with a `kind`: one of {', '.join(known)}" if known else ""
        return f"is {value!r}; it must be a mapping{remedy}."
    return f"is {value!r}; {item['msg'][:1].lower()}{item['msg'][1:]}."


def _near(given: Any, known: list[str]) -> str:
    near = difflib.get_close_matches(str(given), known, n=1)
    return f" Did you mean {near[0]!r}?" if near else ""


def _keys(kind: type[Part], location: Location) -> set[str]:
    return {key for part in _choices(kind, location) for key in part.model_fields}


def _choices(kind: type[Part], location: Location) -> list[type[Part]]:
    """Return the parts that may stand at a location."""
    choices = [kind]
    for step in location:
        tagged = [part for part in choices if step in kinds(part) or step == part.__name__]
        fields = [part.model_fields[str(step)] for part in choices if step in part.model_fields]
        if fields:
            choices = [part for field in fields for part in _parts_in(field.annotation)]
        elif tagged:
            choices = tagged
    return choices


def _parts_in(annotation: Any) -> Iterator[type[Part]]:
    if isinstance(annotation, type) and issubclass(annotation, Part):
        yield annotation
    for argument in get_args(annotation):
        yield from _parts_in(argument)
