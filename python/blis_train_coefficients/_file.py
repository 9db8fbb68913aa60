"""The checks of a coefficient file that blis-train makes when it reads one (spec.md#artifact-load)."""
import hashlib
import json
import math
import numbers
import os
import warnings

from ._error import CoefficientError

with open(os.path.join(os.path.dirname(__file__), "coefficients.schema.json")) as _f:
    _SCHEMA = json.load(_f)

_WAITS = ("admission", "queue")  # delays that contain queueing time, which a simulator produces itself


def bad(message, *args):
    """The error of a file that is not a coefficient file, or is a damaged one."""
    return CoefficientError("bad_coefficient_file", message % args if args else message)


def check_document(path, text, document):
    """Refuses a document with other keys, lists or numbers than a coefficient file has, and one without its digest.

    Warns of a file that was changed after it was written, or made by hand. None in place of a value is no value."""
    if not isinstance(document, dict):
        raise bad("got %s, want a coefficient set", "an empty file" if document is None else "another document")
    _check_shape(document, _SCHEMA, "")
    for c in _items((document.get("physics_coefficients") or {}).get("beta_coefficients")):
        _check_value(c)
    for a in ((document.get("physics_coefficients") or {}).get("alpha") or {}).values():
        for c in _items((a or {}).get("coefficients")):
            _check_value(c)
    _check_origin(path, text, document)


def _items(values):
    return values or []


def _check_value(c):
    if isinstance(c, dict) and c.get("value") is None:
        raise bad("coefficient %r: got no value, want a number", c.get("name"))


def _check_shape(value, schema, where):
    """Compares a value with the part of the schema that the program's reader enforces: keys, lists and numbers."""
    while "$ref" in schema:
        schema = _SCHEMA["$defs"][schema["$ref"].rsplit("/", 1)[1]]
    if value is None:
        return
    for part in schema.get("allOf", []):
        _check_shape(value, part, where)
    choices = [s for s in schema.get("oneOf", []) if s.get("type") != "null"]
    kind = schema.get("type")
    if kind is None and "properties" not in schema and len(choices) == 1:
        return _check_shape(value, choices[0], where)
    if choices:  # a value, or a list of them
        choices = [s for s in choices if (s.get("type") == "array") == isinstance(value, list)]
        return _check_shape(value, choices[0], where) if choices else None
    kinds = kind if isinstance(kind, list) else [kind]
    if "object" in kinds:
        if not isinstance(value, dict):
            raise bad("%s: got %r, want a mapping", where, value)
        known, others = schema.get("properties", {}), schema.get("additionalProperties")
        for key, item in value.items():
            if key in known:
                _check_shape(item, known[key], where + "." + key if where else key)
            elif others is False:
                raise bad("unknown key %r", where + "." + key if where else key)
            elif isinstance(others, dict):
                _check_shape(item, others, where + "." + key)
    elif "array" in kinds:
        if not isinstance(value, list):
            raise bad("%s: got %r, want a list", where, value)
        if "maxItems" in schema and len(value) != schema["maxItems"]:
            raise bad("%s: got %d values, want %d", where, len(value), schema["maxItems"])
        for i, item in enumerate(value):
            _check_shape(item, schema.get("items", {}), "%s[%d]" % (where, i))
    elif "number" in kinds or "integer" in kinds:
        if not isinstance(value, numbers.Real) or isinstance(value, bool) or not math.isfinite(value):
            raise bad("%s: got %r, want a finite number", where, value)
        if "number" not in kinds and value != int(value):
            raise bad("%s: got %r, want a whole number", where, value)
    elif "boolean" in kinds and not isinstance(value, bool):
        raise bad("%s: got %r, want true or false", where, value)
    elif "string" in kinds and isinstance(value, (dict, list)):
        raise bad("%s: got %r, want a text", where, value)


def _check_origin(path, text, document):
    """Does what the program does with a file whose last line is not the SHA-256 of the lines before it."""
    origin = document.get("origin") or ""
    if origin not in ("", "hand"):
        raise bad("origin: got %r, want hand or no such key", origin)
    if origin == "hand":
        warnings.warn("%s: the coefficients were made or changed by hand (origin: hand)" % path, stacklevel=4)
        return
    if not document.get("digest"):
        if document.get("platform"):
            raise bad("got no digest in the last line: the file is cut, or was changed")
        return
    body = text.replace("\r\n", "\n")
    at = body.rfind("\ndigest: ") + 1
    want = 'digest: "%s"\n' % hashlib.sha256(body[:at].encode("utf-8")).hexdigest()
    if body[at:] != want:
        warnings.warn("%s was changed after it was written; its values are used as they stand" % path, stacklevel=4)


def check_set(document, versions, base):
    """Refuses a set whose terms are not those of its version; base is the version that lists the features."""
    p, want = document["physics_coefficients"], versions[base]
    flat = base == "1.0" and p.get("alpha_coefficients") is not None
    if (document.get("schema_version") or ("1" if flat else "")) != "1":
        raise bad('schema_version: got %r, want "1"', document.get("schema_version"))
    recorded = (p.get("feature_set") or {}).get("hash")
    if recorded and recorded != want["hash"]:
        raise CoefficientError("wrong_feature_set", "feature_set: got %s, want %s" % (recorded, want["hash"]))
    _check_terms("beta_coefficients", _items(p.get("beta_coefficients")), want["beta"], base)
    _check_matrix("covariance", p.get("covariance"), len(want["beta"]))
    for target, a in (p.get("alpha") or {}).items():
        a = a or {}
        _check_terms("alpha.%s.coefficients" % target, _items(a.get("coefficients")), want["alpha"], base)
        _check_matrix("alpha.%s.covariance" % target, a.get("covariance"), len(want["alpha"]))
        if a.get("replay") and target in _WAITS:
            raise bad("alpha.%s.replay: got true for a target that contains a wait, want overhead or egress", target)
        for name, values in (a.get("deployments") or {}).items():
            if len(values) != len(want["alpha"]):
                raise bad("alpha.%s.deployments.%s: got %d values, want %d", target, name, len(values), len(want["alpha"]))
    for factors in ("deployment_factors", "prompt_factors", "hardware_factors"):
        for name, factor in (p.get(factors) or {}).items():
            if not factor or factor <= 0:
                raise bad("factor of %s: got %r, want a finite number above 0", name, factor)
    if not 0 <= (p.get("gamma") or 0) <= 1:
        raise bad("gamma: got %r, want 0 to 1", p["gamma"])


def _check_terms(where, terms, features, base):
    if len(terms) != len(features):
        raise bad("%s: got %d coefficients, want %d", where, len(terms), len(features))
    for i, (c, f) in enumerate(zip(terms, features)):
        if not isinstance(c, dict) or base == "1.0" and not c.get("name"):
            continue
        if c.get("name") != f["name"]:
            raise bad("%s[%d].name: got %r, want %r", where, i, c.get("name"), f["name"])
        if c.get("unit") != f["unit"]:
            raise bad("%s[%d].unit: got %r for %s, want %r", where, i, c.get("unit"), f["name"], f["unit"])
        if c.get("identified") not in (None, "", "within", "between-configs", "prior-only"):
            raise bad("%s[%d].identified: got %r for %s", where, i, c["identified"], f["name"])


def _check_matrix(where, rows, n):
    if rows and len(rows) != n:
        raise bad("%s: got %d rows, want %d", where, len(rows), n)
    for i, row in enumerate(_items(rows)):
        if len(row or []) != n:
            raise bad("%s[%d]: got %d columns, want %d", where, i, len(row or []), n)
