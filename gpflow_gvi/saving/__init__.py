"""Models written to a folder and read in another process, without pickle and without code.

A saved folder holds

* `structure.json`: the version of the format and those of packages, the default float and jitter,
  the SHA-256 sums of the other files, and as `root` what the parts are and how they hang together;
* `values.npz`: the arrays, each by the place of its part, `PGVI.kernel.lengthscales`;
* `networks/1.keras` ...: networks, as Keras writes them;
* `estimators/1.skops` ...: estimators of scikit-learn, as skops writes them.

In the structure, numbers, texts, null and lists stand for themselves, and everything else is one of

* `{"class": name, "config": {name: part, ...}}`: a part of a registered class, by the attributes or
  the arguments that it is made of;
* `{"class": name, "value": part}`: a part that is made of one other, a tuple of its items, say;
* `{"array": name}`: one of the arrays;
* `{"same": id}`: the part above that has this `"id"`. Objects, parameters, variables, networks and
  estimators are shared so; tuples, dicts, bijectors and distributions are written in each place.

`parts` says how each kind of part is taken apart and built, and `registry` which names are known.
"""

from .model_folder import load, save

__all__ = ["load", "save"]
