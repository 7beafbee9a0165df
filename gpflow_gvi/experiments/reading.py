"""YAML to parts, with errors that name the file, the line, the value and what is allowed."""

from __future__ import annotations

import difflib
import itertools
import re
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any, TypeVar, get_args

import yaml
from pydantic import ValidationError

from ..errors import MAX_SHOWN, short_repr
from .parts.part import ByKind, Part, fields_of, kinds

AnyPart = TypeVar("AnyPart", bound=Part)
Location = tuple[int | str, ...]


class ConfigError(ValueError):
    """A configuration that cannot be run; the message says where it is wrong, and what is right."""


MAX_VALUES = 1_000_000
"""The maximal number of values in a file, each alias counted as what it stands for."""

MAX_PATH = 1000
"""The maximal number of characters of a path in a message."""

MAX_LINES = 20
"""The maximal number of lines of a message."""


class _Loader(yaml.SafeLoader):
    """YAML without Python tags and repeated keys; `yes` is a string, and `1e-3` a number."""

    def construct_object(self, node: yaml.Node, deep: bool = False) -> Any:
        """Return the value of a node; whatever is wrong with it is an error with a line."""
        try:
            return super().construct_object(node, deep)
        except (ArithmeticError, AttributeError, LookupError, TypeError, ValueError) as error:
            raise yaml.constructor.ConstructorError(
                None, None, f"this is no {node.tag.rpartition(':')[2]} ({error})", node.start_mark
            ) from error


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
    found: set[str] = set()
    for key, _ in node.value:
        problem = None
        if not isinstance(key, yaml.ScalarNode):
            problem = f"a key is a {key.id}; write a word"
        elif key.value in found:
            problem = f"the key {short_repr(key.value)} appears twice; keep one"
        if problem is not None:
            raise yaml.constructor.ConstructorError(None, None, problem, key.start_mark)
        found.add(key.value)
    return loader.construct_mapping(node, deep=True)


def _refused(_: _Loader, node: yaml.Node) -> Any:
    tag = node.tag.replace("tag:yaml.org,2002:", "!!")
    problem = f"{short_repr(tag)} is not allowed; write a number, a text, a list or a mapping"
    raise yaml.constructor.ConstructorError(None, None, problem, node.start_mark)


_Loader.yaml_constructors = {
    f"tag:yaml.org,2002:{of}": yaml.SafeLoader.yaml_constructors[f"tag:yaml.org,2002:{of}"]
    for of in ("null", "bool", "int", "float", "str", "seq")
}
_Loader.add_constructor("tag:yaml.org,2002:map", _mapping)
_Loader.add_constructor(None, _refused)


def _size(node: yaml.Node, known: dict[int, int]) -> int:
    """Return the number of values in a node, each alias counted as what it stands for."""
    if id(node) not in known:
        known[id(node)] = 1  # while it is counted; it may hold itself
        children = [] if isinstance(node, yaml.ScalarNode) else node.value
        flat = itertools.chain(*children) if isinstance(node, yaml.MappingNode) else children
        known[id(node)] += sum(_size(child, known) for child in flat)
    return known[id(node)]


class Document:
    """A mapping that was read from YAML, and where each part of it stood.

    :param source: what to call it in errors: the path of its file.
    """

    def __init__(self, text: str, source: str) -> None:
        self.source = source
        try:
            loader = _Loader(text)
            self.node = loader.get_single_node()
            if self.node is not None and (size := _size(self.node, {})) > MAX_VALUES:
                raise ConfigError(
                    f"{source}:1: it holds {size} values, its aliases written out; the maximal "
                    f"number is {MAX_VALUES}."
                )
            self.value: Any = None if self.node is None else loader.construct_document(self.node)
        except yaml.MarkedYAMLError as error:
            line = error.problem_mark.line + 1 if error.problem_mark else 1
            raise ConfigError(f"{source}:{line}: {error.problem}.") from error
        except yaml.reader.ReaderError as error:
            line = text.count("\n", 0, error.position) + 1
            raise ConfigError(
                f"{source}:{line}: the character {chr(error.character)!r} is not allowed."
            ) from error
        except RecursionError as error:
            raise ConfigError(f"{source}:1: its values are nested too deeply.") from error

    @classmethod
    def read(cls, path: str | Path) -> Document:
        """Return the content of a file, which must be a mapping with string keys."""
        try:
            text = Path(path).read_text("utf-8")
        except (OSError, ValueError) as error:
            shown, reason = str(path)[:MAX_PATH], getattr(error, "strerror", error)
            raise ConfigError(
                f"{shown} cannot be read as text in UTF-8 ({reason}); give the path of a YAML file."
            ) from error
        document = cls(text, str(path))
        if document.value is None:
            raise ConfigError(f"{path} is empty; it must at least say `data: ...`.")
        if not isinstance(document.value, dict):
            raise ConfigError(
                f"{path} holds a {type(document.value).__name__}; it must hold keys with values, "
                "as `data: yacht`."
            )
        return document

    def validated(self, kind: type[AnyPart]) -> AnyPart:
        """Return the part that the mapping describes."""
        try:
            return kind.model_validate(self.value)
        except ValidationError as error:
            raise ConfigError(self._text(kind, error)) from error
        except UnicodeEncodeError as error:  # as of "\\ud800"
            raise ConfigError(
                f"{self.source}:1: {short_repr(error.object)} has half of a pair of characters, "
                "which is no text. Write the character itself."
            ) from error

    def _text(self, kind: type[Part], error: ValidationError) -> str:
        messages: dict[tuple[int, str], list[str]] = {}
        items: list[dict[str, Any]] = [dict(item) for item in error.errors()]
        for item in items:
            if _follows_from_another(item, items):
                continue
            location: Location = item["loc"]
            path = self._place(location)[1]
            if item["type"] == "impossible":  # it may be a default, which stands nowhere
                steps = item["ctx"]["path"]
                location, path = (*location, *steps), [*path, *steps]
            elif item["type"] == "missing":
                path.append(location[-1])
            elif item["type"] == "invalid_key":
                path = self._place(location[:-1])[1]
            line = self._place(location)[0]
            message = _complaint(kind, location, item)
            messages.setdefault((line, _written(path) or "it"), []).append(message)
        lines = [
            f"{self.source}:{line}: {path} {' Or: '.join(dict.fromkeys(texts))}"
            for (line, path), texts in messages.items()
        ]
        more = [f"And {len(lines) - MAX_LINES} more."] if len(lines) > MAX_LINES else []
        return "\n".join([*lines[:MAX_LINES], *more])

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


def _follows_from_another(item: dict[str, Any], items: list[dict[str, Any]]) -> bool:
    """Return True if a list is too short only because pydantic does not count invalid items."""
    N = len(item["loc"])
    return item["type"] == "too_short" and any(
        other["loc"][:N] == item["loc"] and len(other["loc"]) > N for other in items
    )


def _written(path: Iterable[int | str]) -> str:
    steps = (f"[{step}]" if isinstance(step, int) else f".{step[:MAX_SHOWN]}" for step in path)
    return "".join(steps).lstrip(".")


def _complaint(kind: type[Part], location: Location, item: dict[str, Any]) -> str:
    value, context = item["input"], item.get("ctx", {})
    if item["type"] == "missing":
        return "is missing; it has no default."
    if item["type"] == "invalid_key":
        return f"has the key {short_repr(value)}; a key must be text."
    if item["type"] == "impossible":
        return str(context["text"])
    if item["type"] == "extra_forbidden":
        keys = sorted({k for part in _choices(kind, location[:-1]) for k in part.model_fields})
        remedy = _other_kinds(kind, location) or _near(location[-1], keys)
        return f"is no key of this part; its keys are {', '.join(keys)}.{remedy}"
    if item["type"] == "union_tag_invalid":
        known = sorted(context["expected_tags"].replace("'", "").split(", "))
        return (
            f"is of kind {short_repr(context['tag'])}; it must be one of {', '.join(known)}."
            + _near(context["tag"], known)
        )
    if item["type"] in ("union_tag_not_found", "model_type", "model_attributes_type"):
        known = sorted({tag for part in _choices(kind, location) for tag in kinds(part)})
        remedy = f" with a `kind`: one of {', '.join(known)}" if known else ""
        return f"is {short_repr(value)}; it must be a mapping{remedy}."
    return f"is {short_repr(value)}; {item['msg'][:1].lower()}{item['msg'][1:]}."


def _other_kinds(kind: type[Part], location: Location) -> str:
    """The other kinds of a part that have the key, where a kind stands before it, as a sentence."""
    if len(location) < 2:
        return ""
    *way, tag, key = location
    parts = _choices(kind, tuple(way))
    if not any(tag in kinds(part) for part in parts):
        return ""
    others = sorted(each for part in parts if key in part.model_fields for each in kinds(part))
    return f" It is of kind {tag}; {key} is a key of {', '.join(others)}." if others else ""


def _near(given: Any, known: list[str]) -> str:
    near = difflib.get_close_matches(str(given)[:100], known, n=1)
    return f" Did you mean {near[0]!r}?" if near else ""


def _choices(kind: type[Part], location: Location) -> list[type[Part]]:
    """Return the parts that may stand at a location."""
    choices = [kind]
    for step in location:
        tagged = [part for part in choices if step in kinds(part) or step == part.__name__]
        fields = [fields_of(part)[str(step)] for part in choices if step in part.model_fields]
        if fields:
            annotations = (a for field in fields for a in (field.annotation, *field.metadata))
            choices = [part for annotation in annotations for part in _parts_in(annotation)]
        elif tagged:
            choices = tagged
    return choices


def _parts_in(annotation: Any) -> Iterator[type[Part]]:
    if isinstance(annotation, type) and issubclass(annotation, Part):
        yield annotation
    inner = annotation.union if isinstance(annotation, ByKind) else annotation
    for argument in get_args(inner):
        yield from _parts_in(argument)
