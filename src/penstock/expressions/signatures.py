"""The signatures of all functions of expressions: the number of arguments and the type of the result.

One table for three readers: parse refuses calls with a wrong number of arguments, infer gives types, and functions and sprig implement them
(tests/expressions/test_functions.py checks that both sides are complete).
"""

from __future__ import annotations

MANY = 32
"""The limit of "any number"."""

SIGNATURES: dict[str, tuple[int, int, str]] = {
    # CEL, and the Python front end
    "size": (1, 1, "int"), "string": (1, 1, "str"), "int": (1, 1, "int"), "double": (1, 1, "float"), "bool": (1, 1, "bool"),
    "has": (1, 1, "bool"), "truthy": (1, 1, "bool"), "format": (2, 2, "str"), "range": (1, 3, "list[int]"), "min": (2, 2, "any"),
    "max": (2, 2, "any"),
    # values that may be missing, and values as text
    "default": (2, 2, "any"), "get": (2, 2, "any"), "text": (1, 1, "str"), "json": (1, 2, "any"), "to_json": (1, 2, "str"),
    "type": (1, 1, "str"), "jsonpath": (2, 2, "any"), "sprintf": (1, MANY, "str"), "toInt": (1, 1, "int"), "toFloat": (1, 1, "float"),
    # text functions of Argo and Tekton
    "atom": (1, 1, "any"), "condition": (1, 1, "bool"), "collect": (1, 2, "str"), "collect_results": (1, 2, "str"),
    "collect_maps": (1, 2, "str"), "phase": (1, 1, "str"), "loop_names": (2, 2, "list[str]"),
    # texts
    "split": (2, 3, "list[str]"), "join": (1, 2, "str"), "replace": (3, 4, "str"), "upper": (1, 1, "str"), "lower": (1, 1, "str"),
    "trim": (1, 2, "str"), "trimPrefix": (2, 2, "str"), "trimSuffix": (2, 2, "str"), "repeat": (2, 2, "str"),
    "matches": (2, 2, "bool"), "indexOf": (2, 2, "int"), "lastIndexOf": (2, 2, "int"), "toBase64": (1, 1, "str"),
    "fromBase64": (1, 1, "str"),
    # lists and maps
    "keys": (1, 1, "list[str]"), "values": (1, 1, "list"), "first": (1, 1, "any"), "last": (1, 1, "any"), "slice": (2, 3, "any"),
    "flatten": (1, 1, "list"), "unique": (1, 1, "list"), "reverse": (1, 1, "list"), "sort": (1, 2, "list"),
    "sortBy": (2, 3, "list"), "groupBy": (2, 2, "dict"), "toPairs": (1, 1, "list"), "fromPairs": (1, 1, "dict"),
    # numbers, ints and doubles mixed
    "plus": (2, 2, "any"), "minus": (2, 2, "any"), "times": (2, 2, "any"), "over": (2, 2, "float"), "remainder": (2, 2, "int"),
    "power": (2, 2, "float"), "sum": (1, 1, "any"), "product": (1, 1, "any"), "mean": (1, 1, "float"), "median": (1, 1, "float"),
    "smallest": (1, 1, "any"), "largest": (1, 1, "any"), "abs": (1, 1, "any"), "floor": (1, 1, "float"), "ceil": (1, 1, "float"),
    "round": (1, 1, "float"),
    # times, as RFC 3339 text; and seconds
    "epoch": (1, 1, "float"), "timestamp": (1, 1, "str"), "seconds": (1, 1, "float"), "date": (2, 3, "str"),
    "parse_date": (1, 2, "str"),
}  # fmt: skip

_SPRIG: dict[str, tuple[int, int, str]] = {
    "add": (0, MANY, "int"), "add1": (1, 1, "int"), "sub": (2, 2, "int"), "mul": (1, MANY, "int"), "div": (2, 2, "int"),
    "mod": (2, 2, "int"), "min": (1, MANY, "int"), "max": (1, MANY, "int"), "biggest": (1, MANY, "int"), "addf": (0, MANY, "float"),
    "add1f": (1, 1, "float"), "subf": (1, MANY, "float"), "mulf": (1, MANY, "float"), "divf": (1, MANY, "float"),
    "minf": (1, MANY, "float"), "maxf": (1, MANY, "float"), "floor": (1, 1, "float"), "ceil": (1, 1, "float"), "round": (2, 3, "float"),
    "int": (1, 1, "int"), "int64": (1, 1, "int"), "float64": (1, 1, "float"), "atoi": (1, 1, "int"), "toDecimal": (1, 1, "int"),
    "until": (1, 1, "list[int]"), "untilStep": (3, 3, "list[int]"), "seq": (0, 3, "str"),
    "trim": (1, 1, "str"), "trimAll": (2, 2, "str"), "trimall": (2, 2, "str"), "trimPrefix": (2, 2, "str"), "trimSuffix": (2, 2, "str"),
    "upper": (1, 1, "str"), "lower": (1, 1, "str"), "title": (1, 1, "str"), "untitle": (1, 1, "str"), "repeat": (2, 2, "str"),
    "substr": (3, 3, "str"), "trunc": (2, 2, "str"), "nospace": (1, 1, "str"), "initials": (1, 1, "str"), "contains": (2, 2, "bool"),
    "hasPrefix": (2, 2, "bool"), "hasSuffix": (2, 2, "bool"), "quote": (0, MANY, "str"), "squote": (0, MANY, "str"),
    "cat": (0, MANY, "str"), "indent": (2, 2, "str"), "nindent": (2, 2, "str"), "replace": (3, 3, "str"), "plural": (3, 3, "any"),
    "snakecase": (1, 1, "str"), "kebabcase": (1, 1, "str"), "camelcase": (1, 1, "str"), "swapcase": (1, 1, "str"),
    "toString": (1, 1, "str"), "toStrings": (1, 1, "list[str]"), "join": (2, 2, "str"), "split": (2, 2, "dict[str]"),
    "splitn": (3, 3, "dict[str]"), "splitList": (2, 2, "list[str]"), "sortAlpha": (1, 1, "list[str]"), "regexMatch": (2, 2, "bool"),
    "sha1sum": (1, 1, "str"), "sha256sum": (1, 1, "str"), "sha512sum": (1, 1, "str"), "adler32sum": (1, 1, "str"),
    "b64enc": (1, 1, "str"), "b64dec": (1, 1, "str"), "b32enc": (1, 1, "str"), "b32dec": (1, 1, "str"),
    "default": (1, 2, "any"), "empty": (1, 1, "bool"), "coalesce": (0, MANY, "any"), "all": (0, MANY, "bool"), "any": (0, MANY, "bool"),
    "ternary": (3, 3, "any"), "compact": (1, 1, "list"), "toJson": (1, 1, "str"), "toRawJson": (1, 1, "str"),
    "toPrettyJson": (1, 1, "str"), "fromJson": (1, 1, "any"),
    "list": (0, MANY, "list"), "tuple": (0, MANY, "list"), "append": (2, 2, "list"), "push": (2, 2, "list"), "prepend": (2, 2, "list"),
    "concat": (0, MANY, "list"), "first": (1, 1, "any"), "last": (1, 1, "any"), "rest": (1, 1, "any"), "initial": (1, 1, "any"),
    "reverse": (1, 1, "list"), "uniq": (1, 1, "list"), "without": (1, MANY, "list"), "has": (2, 2, "bool"), "slice": (1, 3, "any"),
    "chunk": (2, 2, "list"), "dict": (0, MANY, "dict"), "get": (2, 2, "any"), "set": (3, 3, "dict"), "unset": (2, 2, "dict"),
    "hasKey": (2, 2, "bool"), "pluck": (1, MANY, "list"), "pick": (1, MANY, "dict"), "omit": (1, MANY, "dict"),
    "keys": (0, MANY, "list[str]"), "values": (1, 1, "list"), "merge": (1, MANY, "dict"), "mergeOverwrite": (1, MANY, "dict"),
    "dig": (3, MANY, "any"), "deepEqual": (2, 2, "bool"), "kindOf": (1, 1, "str"), "kindIs": (2, 2, "bool"),
    "base": (1, 1, "str"), "dir": (1, 1, "str"), "clean": (1, 1, "str"), "ext": (1, 1, "str"), "isAbs": (1, 1, "bool"),
    "date": (2, 2, "str"), "dateInZone": (3, 3, "str"), "htmlDate": (1, 1, "str"), "dateModify": (2, 2, "str"),
    "toDate": (2, 2, "str"), "unixEpoch": (1, 1, "str"), "duration": (1, 1, "str"), "durationRound": (1, 1, "str"),
    "semverCompare": (2, 2, "bool"), "fail": (1, 1, "any"),
}  # fmt: skip
SIGNATURES |= {f"sprig_{name}": signature for name, signature in _SPRIG.items()}

_PYTHON: dict[str, tuple[int, int, str]] = {
    "add": (2, 2, "any"), "sub": (2, 2, "any"), "mul": (2, 2, "any"), "div": (2, 2, "any"), "floordiv": (2, 2, "any"), "mod": (2, 2, "any"),
    "pow": (2, 2, "any"), "neg": (1, 1, "any"), "abs": (1, 1, "any"), "compare": (3, 3, "bool"), "in": (2, 2, "bool"), "item": (2, 2, "any"),
    "slice": (3, 4, "any"), "set": (3, 3, "any"), "round": (1, 2, "any"), "int": (1, 1, "int"), "float": (1, 1, "float"), "sum": (1, 2, "any"),
    "min": (1, 1, "any"), "max": (1, 1, "any"), "min_or": (2, 2, "any"), "max_or": (2, 2, "any"), "sorted": (1, 2, "list"),
    "any": (1, 1, "bool"), "all": (1, 1, "bool"), "list": (1, 1, "list"), "dict": (1, 1, "dict"), "enumerate": (1, 2, "list"),
    "zip": (1, MANY, "list"), "chain": (1, 1, "list"), "method": (2, MANY, "any"),
}  # fmt: skip
SIGNATURES |= {f"py_{name}": signature for name, signature in _PYTHON.items()}
