"""Hostile variants of the folder of a saved model.

As a program it loads them, one after the other, under an audit hook that notes what else happens:
`python -m tests.attacks.model_folders FOLDER`.
"""

from __future__ import annotations

import base64
import copy
import hashlib
import io
import json
import marshal
import os
import shutil
import sys
import tempfile
import zipfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import gpflow
import h5py
import keras
import numpy as np
import tensorflow_probability as tfp

import gpflow_gvi as gvi
from gpflow_gvi.learning.rows.scaling import Scaling
from gpflow_gvi.saving import load, save
from tests import networks

Change = Callable[[Path], Any]

NAMES = (
    *("os:system", "subprocess:Popen", "builtins:eval", "builtins:__import__", "intruder:Intruder"),
    *("tensorflow:py_function", "tensorflow.io:write_file", "tensorflow.nn:__builtins__"),
    *("tensorflow:Module", "gpflow_gvi.saving.model_folder:os.system", "gpflow_gvi..os:system"),
    *("gpflow_gvi.training.backup:Backup", "gpflow_gvi.integrations.saved_model:export"),
    "tensorflow_probability.python.util.deferred_tensor:DeferredTensor",
    "tensorflow_probability.python.distributions.autoregressive:Autoregressive",
    "tensorflow_probability.python.bijectors.inline:Inline",
    *("", 5, None, ["os", "system"], {"class": "float", "value": "1"}, "a" * 10**6),
)
"""What is outside the registry, and what is no name."""

REFERENCE = {"same": 10**6}

_SAME = ("assets", "compiled", "no dates", "empty metadata.json", "loop")

SAME = frozenset(
    {
        *("files: extra", "files: symbolic link to the same", "files: the folder is a link"),
        *("json: spaces", "json: another version", "json: jitter is 7.5"),
        "json: versions is {'a': []}",
        *(f"keras: {name}" for name in _SAME),
    }
)
"""The variants that say the same as the folder; all others are refused, or are other models."""

OTHER = frozenset(
    {
        *("values: NaN", "values: float32"),
        *("json: root is x", "json: root is 7.5", "json: root is [[]]"),
        *(f"nodes: tuple of {items}" for items in ("x", "[]", "[[[]]]")),
        *(f"nodes: object of {config}" for config in ("{}", REFERENCE)),
    }
)
"""The variants that are folders of other things."""


def thing() -> list[Any]:
    """Parts of every kind of node."""
    kernel = gpflow.kernels.Matern12(lengthscales=[1.0, 2.0])
    kernel.variance.prior = tfp.distributions.Gamma(np.float64(2.0), np.float64(3.0))
    return [
        kernel,
        gpflow.likelihoods.Bernoulli(),
        gpflow.likelihoods.HeteroskedasticTFPConditional(tfp.distributions.Laplace),
        Scaling.of(np.arange(6.0).reshape(3, 2)),
        {"a": (slice(1, 2), np.inf), "kernel": kernel},
        np.float64(1.0),
        gvi.mean_functions.Network(networks.dense(keras)),
    ]


def variants() -> dict[str, Change]:
    """Return the changes of a saved folder by name."""
    parts = (_names(), _nodes(), _json(), _files(), _values(), _networks())
    return {name: change for part in parts for name, change in part}


# Helpers.


def structured(change: Callable[[dict[str, Any]], Any]) -> Change:
    """A change of `structure.json`."""

    def apply(folder: Path) -> None:
        file = folder / "structure.json"
        structure = json.loads(file.read_text())
        change(structure)
        file.write_text(json.dumps(structure))

    return apply


def rehashed(name: str, change: Change) -> Change:
    """A change of a file, together with the sum that would tell of it."""

    def apply(folder: Path) -> None:
        change(folder / name)
        digest = hashlib.sha256((folder / name).read_bytes()).hexdigest()
        structured(lambda structure: structure["files"].update({name: digest}))(folder)

    return apply


def nodes(part: Any) -> Iterator[dict[str, Any]]:
    """All JSON objects in a part."""
    if isinstance(part, dict):
        yield part
    for inside in part.values() if isinstance(part, dict) else part:
        if isinstance(inside, dict | list):
            yield from nodes(inside)


def on_node(kind: str, change: Callable[[dict[str, Any]], Any]) -> Change:
    """A change of the first node of a kind."""

    def is_of_kind(node: dict[str, Any]) -> bool:
        return str(node.get("class")).rpartition(":")[2] == KINDS.get(kind, kind)

    return structured(lambda s: change(next(n for n in nodes(s["root"]) if is_of_kind(n))))


# The structure.

KINDS = {
    "object": "Matern12",
    "heteroskedastic": "HeteroskedasticTFPConditional",
    "constructed": "Gamma",
    "parameter": "Parameter",
    "record": "Scaling",
    "enum": "PriorOn",
    "network_function": "NetworkFunction",
}
"""Classes of the parts of each kind; other kinds are called as in files."""


def _names() -> Iterator[tuple[str, Change]]:
    for kind in (*KINDS, "named"):
        key = "value" if kind == "named" else "class"
        for i, name in enumerate(NAMES):
            change = on_node(kind, lambda node, key=key, name=name: node.update({key: name}))
            yield f"names: {kind} {i} {str(name)[:60]}", change


def _nodes() -> Iterator[tuple[str, Change]]:
    system = {"class": "named", "value": "os:system"}
    deferred = {
        "class": "tensorflow_probability.python.util.deferred_tensor:DeferredTensor",
        "config": {"_transform_fn": system},
    }
    for slot in ("transform", "prior", "variable", "shape", "prior_on"):
        change = on_node("parameter", lambda n, slot=slot: n["config"].update({slot: deferred}))
        yield f"nodes: deferred as {slot}", change
    for kind in ("object", "parameter", "constructed", "variable", "network", "record", "tuple"):
        for value in (None, 5, "x", [], {}, [[[]]], REFERENCE):

            def change(node: dict[str, Any], value: Any = value) -> None:
                node.update({key: value for key in node if key not in ("class", "id")})

            yield f"nodes: {kind} of {value}", on_node(kind, change)
        yield f"nodes: {kind} without keys", on_node(kind, lambda n: [n.pop(k) for k in [*n][1:]])
    for name in ("__class__", "__dict__", "__setstate__", "__call__"):
        yield (
            f"nodes: attribute {name}",
            on_node("object", lambda n, name=name: n["config"].update({name: system})),
        )
    for kind in ("eval", "__class__", "tuple", None, ["named"], "x" * 10**6):
        change = on_node("slice", lambda n, kind=kind: n.update({"class": kind, "value": 1}))
        yield f"nodes: kind {str(kind)[:20]}", change

    def doubling(make: Callable[[int, Any], dict[str, Any]]) -> Any:
        """A part that is made of the one before twice, and so on: 2^60 leaves."""
        part: Any = 1.0
        for i in range(901, 960):
            part = make(i, [part, {"same": i - 1}])
        return part

    chain = "tensorflow_probability.python.bijectors.chain:Chain"
    doubled = {
        "tuples": lambda i, both: {"class": "tuple", "id": i, "value": both},
        "chains": lambda i, both: {"class": chain, "id": i, "config": {"bijectors": both}},
    }
    for name, make in doubled.items():
        for place, kind in (("low", "constructed"), ("transform", "parameter"), ("a", "object")):
            change = on_node(
                kind,
                lambda n, place=place, make=make: n["config"].update({place: doubling(make)}),
            )
            yield f"nodes: exponential {name} as {place}", change
    cycle = {"class": "tuple", "id": 900, "value": [{"same": 900}]}
    yield "nodes: tuple in itself", structured(lambda s: s["root"].append(cycle))


def _json() -> Iterator[tuple[str, Change]]:
    def text(change: Callable[[str], str | bytes]) -> Change:
        def apply(folder: Path) -> None:
            file = folder / "structure.json"
            new = change(file.read_text())
            file.write_bytes(new if isinstance(new, bytes) else new.encode())

        return apply

    def root(value: str) -> Change:
        return text(lambda t: json.dumps(json.loads(t) | {"root": "ROOT"}).replace('"ROOT"', value))

    yield "json: spaces", text(lambda t: t.replace("\n", "\n\n "))
    version = structured(lambda s: s["versions"].update(gpflow="9.9"))
    yield "json: another version", version
    yield "json: deep", root("[" * 10**5 + "]" * 10**5)
    yield "json: deep objects", root('{"class": "tuple", "value": [' * 5000 + "]}" * 5000)
    yield "json: huge", root(f'{{"class": "{"x" * 3 * 10**7}"}}')
    yield "json: many", root("[" + "0," * 10**6 + "{}]")
    yield "json: many digits", root("9" * 10**5)
    yield "json: latin-1", text(lambda t: t.replace("matern12", "é").encode("latin-1"))
    yield "json: empty", text(lambda t: "")
    yield "json: cut", text(lambda t: t[: len(t) // 2])
    for value in ("null", "[]", "5", '"text"', "{}"):
        yield f"json: {value}", text(lambda t, value=value: value)
    for key in ("format", "versions", "float", "jitter", "files", "root"):
        yield f"json: no {key}", structured(lambda s, key=key: s.pop(key))
        for value in ([[]], {"a": []}, "x", 7.5):
            change = structured(lambda s, key=key, value=value: s.update({key: value}))
            yield f"json: {key} is {value}", change


def _files() -> Iterator[tuple[str, Change]]:
    def moved(name: str) -> Change:
        """Another file in the place of the values."""
        return structured(lambda s: s["files"].update({name: s["files"].pop("values.npz")}))

    for name in ("../values.npz", "/etc/passwd", "networks/../values.npz", "a\0b", "values.npz/"):
        yield f"files: {name!r}", moved(name)
    for name in ("../1.keras", "/tmp/1.keras", "networks/../networks/1.keras", "9.keras", 5):
        change = on_node("network", lambda n, name=name: n["config"].update(file=name))
        yield f"files: network {name}", change

    def linked(target: Callable[[Path], Path]) -> Change:
        def apply(folder: Path) -> None:
            file = folder / "values.npz"
            source = target(folder)
            file.unlink()
            file.symlink_to(source)

        return apply

    def copied(folder: Path) -> Path:
        return Path(shutil.copy(folder / "values.npz", folder.with_name("elsewhere.npz")))

    def folder_linked(folder: Path) -> None:
        folder.rename(folder.with_name("real"))
        folder.symlink_to(folder.with_name("real"))

    def circle(folder: Path) -> None:
        shutil.rmtree(folder)
        folder.symlink_to(folder)

    yield "files: the folder is a link to itself", circle
    yield "files: symbolic link to the same", linked(copied)
    yield "files: symbolic link to a device", linked(lambda folder: Path("/dev/zero"))
    yield "files: symbolic link to itself", linked(lambda folder: folder / "values.npz")
    yield "files: symbolic link outside", linked(lambda folder: Path("/etc/passwd"))
    yield "files: the folder is a link", folder_linked
    yield "files: extra", lambda folder: (folder / "__init__.py").write_text("import intruder")
    yield "files: missing", lambda folder: (folder / "networks" / "1.keras").unlink()
    yield "files: no structure", lambda folder: (folder / "structure.json").unlink()
    yield "files: nothing", shutil.rmtree
    yield "files: other content", lambda folder: (folder / "values.npz").write_bytes(b"PK")

    def replaced(make: Change) -> Change:
        def apply(folder: Path) -> None:
            (folder / "values.npz").unlink()
            make(folder / "values.npz")

        return apply

    yield "files: a folder", replaced(Path.mkdir)
    yield "files: a pipe", replaced(os.mkfifo)
    for digest in ("", 5, None, "0" * 64):
        change = structured(lambda s, digest=digest: s["files"].update({"values.npz": digest}))
        yield f"files: sum {digest}", change


# The numbers.


def _header(shape: str, dtype: str = "<f8") -> bytes:
    stream = io.BytesIO()
    stream.write(np.lib.format.magic(1, 0))
    text = f"{{'descr': '{dtype}', 'fortran_order': False, 'shape': {shape}, }}\n"
    stream.write(len(text).to_bytes(2, "little") + text.encode())
    return stream.getvalue()


def _values() -> Iterator[tuple[str, Change]]:
    def mapped(change: Callable[[Any], Any], **options: Any) -> Change:
        def apply(file: Path) -> None:
            with np.load(file) as values:
                new = {name: change(values[name]) for name in values}
            with file.open("wb") as stream:
                options.get("save", np.savez)(stream, **new)

        return rehashed("values.npz", apply)

    def first(content: bytes, compression: int = zipfile.ZIP_STORED, *, twice: bool = False) -> Any:
        def apply(file: Path) -> None:
            with zipfile.ZipFile(file) as archive:
                parts = {name: archive.read(name) for name in archive.namelist()}
            name = next(iter(parts))
            with zipfile.ZipFile(file, "w", compression) as archive:
                for key, part in parts.items():
                    archive.writestr(key, content if key == name else part)
                if twice:
                    archive.writestr(name, content)

        return rehashed("values.npz", apply)

    class Intruder:
        def __reduce__(self) -> Any:
            return os.system, ("true",)

    yield "values: NaN", mapped(lambda a: a * np.nan if a.dtype.kind == "f" else a)
    yield "values: float32", mapped(lambda a: a.astype(np.float32) if a.dtype.kind == "f" else a)
    yield "values: int", mapped(lambda a: a.astype(int))
    yield "values: complex", mapped(lambda a: a.astype(complex))
    yield "values: records", mapped(lambda a: np.zeros(3, [("a", float)]))
    yield "values: text", mapped(lambda a: a.astype(str))
    yield "values: longer", mapped(lambda a: np.concatenate([np.ravel(a)] * 3))
    yield "values: shape", mapped(lambda a: a[None])
    yield "values: empty", mapped(lambda a: a[..., :0] if a.ndim else np.zeros(0))
    yield "values: pickled", mapped(lambda a: np.array([Intruder()], dtype=object))
    yield "values: compressed", mapped(lambda a: a, save=np.savez_compressed)
    bomb = first(_header("(30000000,)") + bytes(24 * 10**7), zipfile.ZIP_DEFLATED)
    yield "values: bomb", bomb
    yield "values: twice", first(_header("()") + bytes(8), twice=True)
    for shape in ("(1000000000000,)", "(-1,)", "(10**9,)", "'a'", "(True, 1)", "(1" * 3000):
        yield f"values: shape {shape[:20]}", first(_header(shape))
    for dtype in ("O", "V8", "|O8", "x", "<f8,<f8"):
        yield f"values: dtype {dtype}", first(_header("(1,)", dtype) + bytes(8))
    for content in (b"", b"\x93NUMPY", b"\x80\x04cos\nsystem\n", b"\x93NUMPY\x09\x09" + bytes(99)):
        yield f"values: {content[:9]!r}", first(content)
    yield "values: no archive", rehashed("values.npz", lambda f: f.write_bytes(b"cos\nsystem"))
    change = rehashed("values.npz", lambda f: f.write_bytes(f.read_bytes()[:-40]))
    yield "values: cut", change


# The networks.


def _networks() -> Iterator[tuple[str, Change]]:
    name = "networks/1.keras"

    def archived(change: Callable[[dict[str, bytes]], Any], **options: Any) -> Change:
        def apply(file: Path) -> None:
            with zipfile.ZipFile(file) as archive:
                parts = {key: archive.read(key) for key in archive.namelist()}
            change(parts)
            with zipfile.ZipFile(file, "w", **options) as archive:
                for key, part in parts.items():
                    archive.writestr(key, part)

        return rehashed(name, apply)

    def configured(change: Callable[[dict[str, Any]], Any]) -> Change:
        def apply(parts: dict[str, bytes]) -> None:
            config = json.loads(parts["config.json"])
            parts["config.json"] = json.dumps(change(config) or config).encode()

        return archived(apply)

    def layer(**new: Any) -> Change:
        """Another first layer."""
        return configured(lambda c: c["config"]["layers"][1].update(copy.deepcopy(new)))

    def option(**new: Any) -> Change:
        """Other options of the first layer."""
        return configured(lambda c: c["config"]["layers"][1]["config"].update(copy.deepcopy(new)))

    code = compile("__import__('os').system('true')", "x", "eval")
    lambdas = base64.b64encode(marshal.dumps(code)).decode()
    value = {"class_name": "__lambda__", "config": {"value": {"code": lambdas}}}
    own = "keras.layers"
    yield "keras: __lambda__", option(activation=value)
    for function in (value, [lambdas, None, None], "os.system"):
        config = {"function": function, "function_type": "lambda", "arguments": {}, "module": "os"}
        change = layer(class_name="Lambda", module=own, config=config)
        yield f"keras: Lambda of {str(function)[:30]}", change
    for function in ("os.system", "system", "eval", "get", "deserialize", "serialize", "keras"):
        yield f"keras: activation {function}", option(activation=function)
        for module in ("os", "builtins", "keras.activations", "intruder", "posix", None):
            new = {"class_name": "function", "config": function, "module": module}
            yield f"keras: function {module} {function}", option(activation=new)
    for utility in ("get_file", "load_img", "clear_session"):
        new = {"class_name": "function", "config": utility, "module": "keras.utils"}
        yield f"keras: {utility}", option(kernel_initializer=new)
    for module, kind in (
        *(("intruder", "Intruder"), ("subprocess", "Popen"), ("os", "system"), (None, "Popen")),
        *(
            ("keras.src.backend.torch", "Dense"),
            ("keras.src.utils.torch_utils", "TorchModuleWrapper"),
        ),
        *(("keras.layers", "TorchModuleWrapper"), ("keras.layers", "TFSMLayer")),
        *(("keras.layers", "TextVectorization"), ("keras.layers", "StringLookup")),
        *(("keras.layers", "JaxLayer"), ("keras.layers", "DistributionLambda")),
        *(("keras.src.ops.core", "Map"), ("keras.src.ops.core", "VectorizedMap")),
        *(("keras.saving", "load_model"), ("keras.models", "load_model"), ("keras.layers", 5)),
        *(("tf_keras.src.layers.core.tf_op_layer", "ClassMethod"), ("keras", "__builtins__")),
        *(("tf_keras.src.layers.core.tf_op_layer", "TFOpLambda"), ("keras.layers", ["a"])),
    ):
        config = {
            **{"name": "a", "function": "io.write_file", "filepath": "/tmp/x", "vocabulary": "/x"},
            **{"module": lambdas, "make_distribution_fn": [lambdas, None, None]},
        }
        change = layer(module=module, class_name=kind, config=config, registered_name=None)
        yield f"keras: {module}.{kind}", change
    for registered in ("DistributionLambda", "IndependentNormal", "Custom>SGD", "os.system"):
        yield f"keras: registered {registered}", layer(registered_name=registered)
    spec = {"class_name": "__typespec__", "module": "intruder", "spec_name": "Intruder"}
    yield "keras: type", option(dtype=spec | {"registered_name": None, "config": []})
    yield "keras: root", configured(lambda c: c.update(module="os", class_name="system"))
    yield "keras: no class", configured(lambda c: c.pop("class_name") and None)
    yield "keras: list", configured(lambda c: [c])
    yield "keras: units", option(units=10**9)
    yield "keras: more units", option(units=10**12)
    yield "keras: negative units", option(units=-1)
    yield "keras: other units", option(units=5)
    compiled = {"optimizer": {"class_name": "system", "module": "os", "config": {}}}
    yield "keras: compiled", configured(lambda c: c.update(compile_config=compiled))
    deep = archived(lambda p: p.update({"config.json": b"[" * 10**5 + b"]" * 10**5}))
    yield "keras: deep", deep
    yield "keras: compressed", archived(lambda p: None, compression=zipfile.ZIP_DEFLATED)
    yield "keras: assets", archived(lambda p: p.update({"assets/../../intruder.py": b"x"}))
    yield "keras: no dates", archived(lambda p: p.update({"metadata.json": b"{}"}))
    for key in ("config.json", "metadata.json", "model.weights.h5"):
        yield f"keras: no {key}", archived(lambda p, key=key: p.pop(key))
        yield f"keras: empty {key}", archived(lambda p, key=key: p.update({key: b""}))
    yield "keras: no archive", rehashed(name, lambda f: f.write_bytes(b"cos\nsystem"))

    def weights(change: Callable[[Any, str], Any]) -> Change:
        """A change of the first array of weights."""

        def apply(parts: dict[str, bytes]) -> None:
            stream = io.BytesIO(parts["model.weights.h5"])
            with h5py.File(stream, "a") as file:
                found: list[str] = []
                file.visititems(
                    lambda n, p: found.append(n) if isinstance(p, h5py.Dataset) else None
                )
                change(file, found[0])
            parts["model.weights.h5"] = stream.getvalue()

        return archived(apply)

    def instead(make: Callable[[Any, str], Any]) -> Change:
        def change(file: Any, name: str) -> None:
            del file[name]
            made = make(file, name)
            if made is not None:
                file[name] = made

        return weights(change)

    external = [("/etc/passwd", 0, 64)]
    layout = h5py.VirtualLayout((2, 4), "f8")
    layout[:] = h5py.VirtualSource("/tmp/other.h5", "a", (2, 4))
    yield "keras: link outside", instead(lambda f, n: h5py.ExternalLink("/tmp/x.h5", "/a"))
    yield "keras: soft link", instead(lambda f, n: h5py.SoftLink("/nowhere"))
    yield (
        "keras: external",
        instead(lambda f, n: f.create_dataset(n, (2, 4), "f8", external=external) and None),
    )
    yield "keras: virtual", instead(lambda f, n: f.create_virtual_dataset(n, layout) and None)
    yield (
        "keras: not stored",
        instead(lambda f, n: f.create_dataset(n, (10**6, 10**6), "f8", chunks=(100, 100)) and None),
    )
    yield "keras: texts", instead(lambda f, n: f.create_dataset(n, data=["a"]) and None)
    yield (
        "keras: other shape",
        instead(lambda f, n: f.create_dataset(n, data=np.zeros((7, 7))) and None),
    )
    yield "keras: loop", weights(lambda f, n: f.__setitem__("loop", f["/"]))
    yield "keras: no weights", weights(lambda f, n: f.__delitem__(n))


# The program.


class Watch:
    """Notes what happens in the process that has to do with anything outside it."""

    def __init__(self, scratch: Path, folder: Path) -> None:
        self.scratch, self.folder = str(scratch), str(folder)
        self.known = {name.partition(".")[0] for name in sys.modules}
        self.libraries = (sys.prefix, sys.base_prefix, str(Path(gvi.__file__).parents[1]))
        self.libraries += ("/usr", "/proc", "/sys", "/dev/null", "/dev/urandom")
        self.found: list[str] | None = None
        sys.addaudithook(self)

    def __call__(self, event: str, arguments: tuple[Any, ...]) -> None:
        if self.found is None or not self._is_outside(event, arguments):
            return
        found, self.found = self.found, None  # what follows raises events as well
        found.append(f"{event}{arguments}"[:300])
        self.found = found

    def _is_outside(self, event: str, arguments: tuple[Any, ...]) -> bool:
        if event == "import":
            return str(arguments[0]).partition(".")[0] not in self.known
        if event == "open":
            path, mode, flags = arguments
            if not isinstance(path, str | bytes | os.PathLike):
                return False
            path = os.fsdecode(path)
            writes = flags & (os.O_WRONLY | os.O_RDWR | os.O_CREAT) if flags else mode != "r"
            places = (self.scratch,) if writes else (self.scratch, self.folder, *self.libraries)
            return not path.startswith(places)
        if event in ("marshal.loads", "exec", "compile"):
            frame = sys._getframe(2)
            return "importlib" not in frame.f_code.co_filename and event == "marshal.loads"
        if event in ("os.remove", "os.rename", "os.mkdir", "os.rmdir", "shutil.rmtree"):
            in_opened_folder = arguments[-1] != -1 and not os.path.isabs(arguments[0])
            return not in_opened_folder and not os.fsdecode(arguments[0]).startswith(self.scratch)
        outside = ("os.system", "os.exec", "os.fork", "os.posix_spawn", "os.spawn", "os.kill")
        outside += (
            "os.putenv",
            "subprocess.",
            "socket.",
            "pickle.",
            "shutil.",
            "urllib.",
            "ctypes.",
        )
        return event.startswith(outside) and event != "ctypes.string_at"


def content(folder: Path) -> Any:
    """What a folder says, but for the sums of files, which have dates in them."""
    structure = json.loads((folder / "structure.json").read_text())
    with np.load(folder / "values.npz") as values:
        numbers = {name: values[name].tobytes() for name in values}
    weights = []
    for file in sorted(folder.glob("networks/*")):
        with zipfile.ZipFile(file) as archive:
            weights.append(archive.read("model.weights.h5"))
    networks_of = [
        {name: part[()].tobytes() for name, part in _datasets(h5py.File(io.BytesIO(content)))}
        for content in weights
    ]
    return structure["root"], numbers, networks_of


def _datasets(file: Any) -> list[tuple[str, Any]]:
    found: list[tuple[str, Any]] = []
    file.visititems(lambda n, p: found.append((n, p)) if isinstance(p, h5py.Dataset) else None)
    return found


def attack(saved: Path, change: Change, place: Path) -> tuple[str, str]:
    """Load a changed copy of a folder; return the error's type, `same` or `other`, and a text."""
    folder = place / "attacked"
    shutil.copytree(saved, folder)
    change(folder)
    try:
        loaded = load(folder)
    except BaseException as error:
        text = str(error)
        return type(error).__name__, text if str(folder) in text else f"no folder in: {text}"
    try:
        save(loaded, place / "again")
    except RecursionError:
        return "other", ""
    return ("same" if content(place / "again") == content(saved) else "other"), ""


def main(place: Path) -> None:
    """Attack with all variants, and write what came of it to `results.json`."""
    scratch = place / "scratch"
    scratch.mkdir()
    (place / "intruder.py").write_text("class Intruder: pass\n")
    sys.path.insert(0, str(place))
    tempfile.tempdir = str(scratch)
    save(thing(), place / "saved")
    attack(place / "saved", lambda folder: None, _new(place, "first"))  # imports what it needs
    watch = Watch(scratch, place)
    results = {}
    real = load

    def watched(folder: Path) -> Any:
        watch.found = []
        try:
            return real(folder)
        finally:
            events, watch.found = watch.found, None
            found.extend(events)

    globals()["load"] = watched
    for i, (name, change) in enumerate(variants().items()):
        found: list[str] = []
        work = _new(place, str(i))
        outcome, text = attack(place / "saved", change, work)
        shutil.rmtree(work)
        results[name] = [outcome, text[:4000], found]
    (place / "results.json").write_text(json.dumps(results))


def _new(place: Path, name: str) -> Path:
    folder = place / name
    folder.mkdir()
    return folder


if __name__ == "__main__":
    main(Path(sys.argv[1]).resolve())
