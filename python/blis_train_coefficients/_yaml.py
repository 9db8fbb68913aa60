"""Reads the part of YAML that blis-train writes: block maps and lists, flow lists, plain and quoted scalars, literal text."""
import re

_KEY = re.compile(r"""((?:'(?:[^']|'')*'|"(?:[^"\\]|\\.)*"|[^\s#'"\[{][^#]*?))\s*:(?:\s+(.*))?$""")
_FLOAT = re.compile(r"[-+]?(\d+(\.\d*)?|\.\d+)([eE][-+]?\d+)?$")
_INT = re.compile(r"[-+]?\d+$")


def loads(text):
    """The document as dicts, lists, str, int, float, bool and None."""
    lines = []
    for number, raw in enumerate(text.split("\n"), 1):
        stripped = _uncommented(raw).strip()
        lines.append((number, len(raw) - len(raw.lstrip(" ")), stripped, raw))
    at, value = _block(lines, 0, 0)
    at = _skip(lines, at)
    if at < len(lines):
        raise ValueError("line %d: got %r, want the end of the document" % (lines[at][0], lines[at][2]))
    return value


def _uncommented(raw):
    """The line without the comment at its end: what follows # after a blank, outside quotes."""
    if "#" not in raw:
        return raw
    quote = ""
    for i, c in enumerate(raw):
        if quote:
            quote = "" if c == quote and raw[i - 1] != "\\" else quote
        elif c in "'\"" and (i == 0 or raw[i - 1] in " [{,:("):
            quote = c
        elif c == "#" and (i == 0 or raw[i - 1] in " \t"):
            return raw[:i]
    return raw


def _skip(lines, at):
    while at < len(lines) and (not lines[at][2] or lines[at][2].startswith("#") or lines[at][2] == "---"):
        at += 1
    return at


def _block(lines, at, least):
    at = _skip(lines, at)
    if at >= len(lines) or lines[at][1] < least:
        return at, None
    indent = lines[at][1]
    if lines[at][2].startswith("- ") or lines[at][2] == "-":
        return _list(lines, at, indent)
    return _map(lines, at, indent)


def _list(lines, at, indent):
    out = []
    while True:
        at = _skip(lines, at)
        if at >= len(lines) or lines[at][1] != indent or not (lines[at][2].startswith("- ") or lines[at][2] == "-"):
            return at, out
        number, _, text, raw = lines[at]
        rest = text[1:].strip()
        if not rest:
            at, value = _block(lines, at + 1, indent + 1)
        elif _KEY.match(rest) and rest[0] not in "[{":
            inner = indent + len(text) - len(rest)
            lines[at] = (number, inner, rest, raw)
            at, value = _map(lines, at, inner)
        else:
            at, value = at + 1, _scalar(rest, number)
        out.append(value)


def _map(lines, at, indent):
    out = {}
    while True:
        at = _skip(lines, at)
        if at >= len(lines) or lines[at][1] != indent or lines[at][2].startswith("- "):
            return at, out
        number, _, text, _ = lines[at]
        found = _KEY.match(text)
        if not found:
            raise ValueError("line %d: got %r, want KEY: VALUE" % (number, text))
        key, rest = str(_scalar(found.group(1), number)), (found.group(2) or "").strip()
        if key in out:
            raise ValueError("line %d: key %r stands twice" % (number, key))
        if rest in ("|", "|-", "|+"):
            at, out[key] = _literal(lines, at + 1, indent, rest)
        elif rest:
            at, out[key] = at + 1, _scalar(rest, number)
        else:
            at = _skip(lines, at + 1)
            here = at < len(lines) and lines[at][1] == indent and lines[at][2].startswith("-")
            at, out[key] = _block(lines, at, indent if here else indent + 1)


def _literal(lines, at, indent, kind):
    text, width = [], None
    while at < len(lines) and (not lines[at][2] or lines[at][1] > indent):
        if width is None and lines[at][2]:
            width = lines[at][1]
        text.append(lines[at][3][width or 0:])
        at += 1
    body = "\n".join(text).rstrip("\n")
    return at, body if kind == "|-" else body + "\n"


def _scalar(text, number):
    if text[0] == "[":
        return [_scalar(t, number) for t in _flow(text, number, "]")]
    if text[0] == "{":
        return _flow_map(_flow(text, number, "}"), number)
    if text[0] in "&*!|>%@`":
        raise ValueError("line %d: got %r, want a plain or a quoted value" % (number, text))
    if text[0] == "'":
        return text[1:-1].replace("''", "'")
    if text[0] == '"':
        return re.sub(r'\\(["\\/nt])', lambda m: {"n": "\n", "t": "\t"}.get(m.group(1), m.group(1)), text[1:-1])
    if text in ("null", "~"):
        return None
    if text in ("true", "false"):
        return text == "true"
    if _INT.match(text):
        return int(text)
    if _FLOAT.match(text):
        return float(text)
    return text


def _flow_map(items, number):
    out = {}
    for item in items:
        key, colon, value = item.partition(":")
        if item[0] in "'\"":
            end = item.index(item[0], 1) + 1
            key, (_, colon, value) = item[:end], item[end:].partition(":")
        key = str(_scalar(key.strip(), number))
        if key in out or not colon:
            raise ValueError("line %d: got %r, want KEY: VALUE once" % (number, item))
        out[key] = _scalar(value.strip(), number) if value.strip() else None
    return out


def _flow(text, number, end):
    """The items of a flow list or map that ends on its line."""
    if text[-1] != end:
        raise ValueError("line %d: got %r, want a list or a map that ends on its line" % (number, text))
    items, depth, quote, start = [], 0, "", 1
    for i, c in enumerate(text[:-1]):
        if quote:
            quote = "" if c == quote else quote
        elif c in "'\"":
            quote = c
        elif c in "[{":
            depth += 1
        elif c in "]}":
            depth -= 1
        elif c == "," and depth == 1:
            items.append(text[start:i].strip())
            start = i + 1
    items.append(text[start:-1].strip())
    return [t for t in items if t]
