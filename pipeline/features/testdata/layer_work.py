"""The work of steps by brute force: every layer, matrix, rank and query-key pair, one at a time, with numpy.

usage: layer_work.py < input.json > output.json

Input: the group's peaks (16 bit, 8 bit) in FLOP/s, its bandwidth in B/s, models as documents hold them (kinds of layers and their order)
with tp, dp and ep, and steps as lists of [computed, prompt, new]. Output: for each model and step the seconds of linear layers, weights,
prefill attention, decode attention and cache reads at these rates. Nothing of it is shared with the Go code.
"""

import functools
import json
import sys

import numpy as np


@functools.lru_cache(maxsize=None)
def seen(kind, size, topk, ratio, c, n):
    """Pairs that n queries behind c cached tokens score, and entries that somebody reads."""
    entries = (c + n) // ratio if ratio else c + n
    keys = np.arange(entries)
    pairs, read = 0, np.zeros(entries, bool)
    for query in range(c, c + n):  # positions from 0
        sees = (keys + 1) * ratio - 1 <= query if ratio else keys <= query
        if kind == "window":
            sees = sees & (keys > query - size)
        elif kind == "chunk":
            sees = sees & (keys // size == query // size)
        count = int(sees.sum())
        pairs += min(count, topk) if topk else count
        read |= sees
    reads = int(read.sum())
    return pairs, min(reads, topk * n) if topk else reads


def attention(m, b, t):
    """Parts of a mixer that score pairs: (reach, flop of a prefill pair, of a decode pair, bytes of an entry, flop per cached token)."""
    h, dk, dv, x = m["heads"], m.get("dim_k", 0), m.get("dim_v", 0), m.get("index")
    full = ("full", 0, 0, 0)
    if m["kind"] == "gqa":
        heads = sum(max(1, m["kv_heads"] // t) for _ in range(t)) if m["kv_heads"] < t else m["kv_heads"]
        reach = full
        if m.get("window"):
            reach = ("window", m["window"], 0, 0)
        if m.get("chunk"):
            reach = ("chunk", m["chunk"], 0, 0)
        if x:
            reach = ("full", 0, x["topk"] * x["unit"], 0)
        flop = h * (2 * dk + 2 * dv)
        out = [(reach, flop, flop, heads * (dk + dv) * b, 0)]
        if x and not x.get("shared"):
            out.append((full, 2 * x["heads"] * x["dim"], 2 * x["heads"] * x["dim"], t * x["dim"] * min(b, 2), 0))
        return out
    if m["kind"] == "mla":
        rank, rope = m["kv_rank"], m["rope"]
        absorbed = h * (2 * (rank + rope) + 2 * rank)
        if not x:
            return [(full, h * (2 * dk + 2 * dv), absorbed, t * (rank + rope) * b, h * 2 * rank * (dk - rope + dv))]
        out = [(("full", 0, x["topk"], 0), absorbed, absorbed, t * (rank + rope) * b, 0)]
        if not x.get("shared"):
            out.append((full, 2 * x["heads"] * x["dim"], 2 * x["heads"] * x["dim"], t * (x["dim"] + 4 * x["dim"] / 128), 0))
        return out
    if m["kind"] == "v4":
        flop, entry = 4 * h * dk, t * (dk * b if b >= 2 else (dk - m["rope"]) + 2 * m["rope"] + 8)
        out = [(("window", m["window"], 0, 0), flop, flop, entry, 0)]
        if m.get("ratio"):
            out.append((("full", 0, x["topk"] if x else 0, m["ratio"]), flop, flop, entry, 0))
            if x:
                score = 2 * x["heads"] * x["dim"]
                out.append((("full", 0, 0, m["ratio"]), score, score, t * (x["dim"] + 4 * x["dim"] / 128), 0))
        return out
    return []


def recurrence(m, t):
    """FLOP of a prefill and of a decode token, bytes of the state on all ranks."""
    kind = m["kind"]
    if kind not in ("delta", "lightning", "mamba1", "mamba2"):
        return 0, 0, 0
    h, dv = m["heads"], m["dim_v"]
    dk = m["state_size"] if kind.startswith("mamba") else m["dim_k"]
    channels = {"delta": 2 * m.get("kv_heads", 0) * dk + h * dv, "mamba2": h * dv + 2 * m.get("state_groups", 0) * dk, "mamba1": dv,
                "lightning": 0}[kind]
    state = h * dk * dv * m["state_bytes"]
    if m.get("conv"):
        state += channels * (m["conv"] - 1) * m.get("conv_bytes", 0)
    prefill = 6 * h * dk * dv if kind == "mamba1" else h * (4 * dk * dv + 2 * 64 * (dk + dv))
    return prefill, 6 * h * dk * dv, state


def held(x, layer, t, d, ep):
    """Copies of a matrix on the ranks of one engine, rank by rank."""
    at, kv = x["placement"], (layer.get("mixer") or {}).get("kv_heads", 0) or 1
    total = 0.0
    for _ in range(t):
        if at in ("rows", "columns"):
            total += 1 / t
        elif at == "kv":
            total += 1 / t if kv >= t else 1 / kv
        elif at == "experts":
            total += -(-x["count"] // (t * d)) / x["count"] if ep else 1 / (t * d)
        else:
            total += 1
    return total


def step(model, chunks, peak, fast, bandwidth):
    doc, t, d, ep = model["layers"], model["tp"], model["dp"], model["ep"]
    tokens, linear, weights, prefill, decode, read = sum(n for _, _, n in chunks), 0.0, 0.0, 0.0, 0.0, 0.0
    matrices = [(doc, x) for x in doc.get("per_layer", [])[1:]]
    for kind in doc["order"]:
        layer = doc["kinds"][kind]
        mixer, ffn = layer.get("mixer") or {}, layer.get("ffn") or {}
        matrices += [(layer, x) for x in mixer.get("linears", []) + ffn.get("linears", [])]
        if not mixer:
            continue
        first, later, state = recurrence(mixer, t)
        for c, p, n in chunks:
            is_decode = c >= p and n == 1
            for reach, flop, decode_flop, entry, again in attention(mixer, doc["bytes_per_kv"], t):
                pairs, entries = seen(*reach, c, n)
                if is_decode:
                    decode += pairs * decode_flop
                else:
                    prefill += pairs * flop + c * again
                read += entries * entry
            if is_decode:
                decode += n * later
            else:
                prefill += n * first
            read += 2 * state
    for layer, x in matrices:
        size = float(np.prod([x["rows"], x["columns"]], dtype=float))
        copies, used, active = held(x, layer, t, d, ep), 1.0, x.get("active") or x["count"]
        rate = peak if x["quant"]["activation_bits"] == 16 else fast
        if x["placement"] == "experts":
            ffn = layer["ffn"]
            used = 1 - (1 - ffn["top_k"] / ffn["experts"]) ** (tokens * d)
            linear += 2 * size * active * tokens / rate
        else:
            linear += 2 * size * active * copies * tokens / rate
        weights += size * x["count"] * x["quant"]["bytes_per_weight"] * copies * used
    head = doc["vocab_size"] * doc["hidden_size"]
    linear += 2 * head * len(chunks) / peak
    weights += head * doc["head"]["quant"]["bytes_per_weight"]
    return [linear, weights / bandwidth, prefill / peak, decode / peak, read / bandwidth]


def main():
    given = json.load(sys.stdin)
    out = [[step(m, s, given["peak"] * m["tp"], given["fast"] * m["tp"], given["bandwidth"] * m["tp"]) for s in given["steps"]]
           for m in given["models"]]
    json.dump(out, sys.stdout)


main()
