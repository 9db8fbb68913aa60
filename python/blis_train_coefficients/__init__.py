"""Evaluates coefficient files of blis-train: features of a step or a request, step times and delays, without dependencies.

The formulas are those of the specification, in formulas.json; blis-train's tests hold that file against its own code and this
package against the golden vectors. Errors carry the codes of blis-train. Specifications 1.0 (frozen, errors included), 1.1, 1.2 and
1.3, all but 1.0 also with +principal-components; 1.3 on the configurations of its file, which holds the sums over their layers.
"""
import ast
import bisect
import functools
import json
import math
import numbers
import operator
import os
import re
import subprocess
from typing import Any, Dict, Iterable, List, Mapping, Optional, Tuple, Union

from . import _yaml
from ._error import CoefficientError
from ._file import bad, check_document, check_set
from ._model import RULES, load_model
from ._run import _version, datasheet, load_deployment

__all__ = ["CoefficientError", "Space", "Coefficients", "load", "step_time", "predict", "load_deployment", "load_model", "datasheet", "step_of",
           "preemption_ema"]

Request = Tuple[int, int, int]  # tokens computed before the step, of the prompt, scheduled in the step

with open(os.path.join(os.path.dirname(__file__), "formulas.json")) as _f:
    _SPEC = json.load(_f)


def _compile(formula):
    """A formula as a function of its names. ln(1 + x) is log1p(x), as exact as it can be."""

    class Exact(ast.NodeTransformer):
        def visit_Call(self, node):
            self.generic_visit(node)
            arg = node.args[0]
            if node.func.id == "ln" and isinstance(arg, ast.BinOp) and isinstance(arg.op, ast.Add) and getattr(arg.left, "value", 0) == 1:
                node.func.id, node.args = "log1p", [arg.right]
            return node

    tree = ast.fix_missing_locations(Exact().visit(ast.parse(formula, mode="eval")))
    allowed = (ast.Expression, ast.BinOp, ast.Add, ast.Sub, ast.Mult, ast.Div, ast.Call, ast.Name, ast.Load, ast.Constant)
    for node in ast.walk(tree):
        if not isinstance(node, allowed):
            raise ValueError("formula %r: %s is not part of one" % (formula, type(node).__name__))
    return compile(tree, formula, "eval")


_CONSTANTS = {v: [(q["name"], _compile(q["formula"])) for q in s["constants"]] for v, s in _SPEC["versions"].items()}


@functools.lru_cache(maxsize=None)
def _features(version, kind):
    """The slots of a version in order."""
    slots = _SPEC["versions"][_known(version)][kind]
    return [dict(f, slot=i, code=_compile(f["formula"])) for i, f in enumerate(slots, 1)]


def preemption_ema(previous: float, gamma: float, num_preempted: float, running_depth: float) -> float:
    """The average of preemptions per running request after one more step."""
    return gamma * num_preempted / max(1, running_depth) + (1 - gamma) * previous


def _pairs(r, c, n):
    """Queries times the entries they read within a reach: c tokens in the cache, n new ones."""
    if r.get("chunk"):
        size = r["chunk"]
        return sum(s * (m // size * (size * (size + 1) // 2) + m % size * (m % size + 1) // 2) for s, m in ((1, c + n), (-1, c)))
    if r.get("ratio"):
        def summed(m):  # of floor(j / ratio), at most topk, over the first m tokens
            over = max(0, m - r["topk"] * r["ratio"] + 1) if r.get("topk") else 0
            m -= over
            full = m // r["ratio"]
            return r["ratio"] * (full * (full - 1) // 2) + (m - full * r["ratio"] + 1) * full + over * r.get("topk", 0)
        return summed(c + n) - summed(c)
    most = r.get("window", 0) + r.get("topk", 0)
    below = max(0, min(n, most - c)) if most else n
    return below * c + below * (below + 1) // 2 + (n - below) * most


def _read(r, c, n):
    """Entries that the n new tokens read together."""
    if r.get("chunk"):
        return min(c + n, c % r["chunk"] + n)
    if r.get("window"):
        return min(c + n, r["window"] - 1 + n)
    entries = (c + n) // (r.get("ratio") or 1)
    return min(entries, r["topk"] * n) if r.get("topk") else entries


def _reach_name(r):
    return "_".join("%s_%d" % (k, r[k]) for k in ("window", "chunk", "ratio", "topk") if r.get(k))


def step_of(requests: Iterable[Request], version: str = "1.1", block_size: Optional[int] = None,
            reaches: Iterable[Mapping[str, int]] = ()) -> Dict[str, int]:
    """A step's counts from its requests (computed, prompt, new): tokens before the step, of the prompt, scheduled in it.

    The sums of the specification as a simulator makes them; block_size (tokens) is what 1.0 asks for, reaches those of the space
    with 1.3. Requests without new tokens are ignored; the preemption average, transfers and, for 1.0, running_depth are the caller's.
    """
    _known(version)
    s = dict.fromkeys(_SPEC["step_inputs"], 0)
    for r in reaches:
        s.update(dict.fromkeys([k + _reach_name(r) for k in ("prefill_pairs_", "decode_pairs_", "entries_read_")], 0))
    for computed, prompt, new in ([v if isinstance(v, float) else operator.index(v) for v in r] for r in requests):  # numpy's overflow
        if not new:
            continue
        decode = new == 1 and computed >= prompt
        s["scheduled_tokens"] += new
        if decode:
            s["decode_tokens"] += 1
            s["num_decode_reqs"] += 1
            s["decode_context_tokens"] += computed + 1
        else:
            s["prefill_tokens"] += new
            s["num_prefill_reqs"] += 1
        if version == "1.0":
            s["sum_prefill_attn_work"] += 0 if decode else (computed + new) * new
            s["sum_decode_kv_blocks"] += -(-(computed + 1) // block_size) if decode else 0
            continue
        s["num_sampled_seqs"] += 1
        s["kv_read_tokens"] += computed + new
        s["prefill_causal_work"] += 0 if decode else new * computed + new * (new + 1) // 2
        if version.startswith("1.3"):
            s["prefill_context_tokens"] = s.get("prefill_context_tokens", 0) + (0 if decode else computed)
        for r in reaches:
            s[("decode_pairs_" if decode else "prefill_pairs_") + _reach_name(r)] += _pairs(r, computed, new)
            s["entries_read_" + _reach_name(r)] += _read(r, computed, new)
    return s


def _known(version):
    """The version that lists the features: without "+principal-components", which says how 1.1 or 1.2 was fitted."""
    base, plus, way = str(version).partition("+")
    if base not in _SPEC["versions"]:
        raise CoefficientError("unknown_spec_version", "got %r, want one of %s" % (version, sorted(_SPEC["versions"])))
    if plus and (base == "1.0" or way != "principal-components"):
        raise CoefficientError("unknown_spec_version", "got %r, want 1.1, 1.2 or 1.3, alone or with +principal-components" % (version,))
    return base


def _curve(size, sizes, us):
    """us at a size, bytes: linear between the published ones, proportional beyond the largest."""
    if size <= sizes[0]:
        return us[0]
    if size >= sizes[-1]:
        return us[-1] * size / sizes[-1]
    i = bisect.bisect_left(sizes, size)
    return us[i - 1] + (size - sizes[i - 1]) / (sizes[i] - sizes[i - 1]) * (us[i] - us[i - 1])


def _finite(v):
    return isinstance(v, numbers.Real) and math.isfinite(v) and v >= 0


class Space:
    """A deployment with its derived constants: model, hardware, engine and tp as in a coefficient file's configurations."""

    def __init__(self, deployment: Mapping[str, Any], version: str = "1.1", layer_sums: Optional[Mapping[str, Any]] = None) -> None:
        self.base, self.version, self.sums = _known(version), version, layer_sums if _known(version) == "1.3" else None
        m, h = deployment["model"], deployment["hardware"]
        e = deployment["vllm"]
        self.tp = deployment.get("tensor_parallel_size", 1)
        if self.base == "1.3" and not layer_sums:
            _refuse("bad_coefficient_file", "layer_sums, which 1.3 reads and the configurations of a coefficient file hold", layer_sums)
        self.reaches = [a["reach"] for a in (layer_sums or {}).get("attention", []) if a["reach"]]
        _check(m, h, e, self.tp, bool(self.sums))
        if version != "1.0":
            _check_supported(deployment, m, e, self.tp, bool(self.sums))
        env = {n: m.get(n) or 0 for n in _SPEC["model"]}
        env.update({n: h.get(n) or 0 for n in _SPEC["hardware"]})
        env.update(tp=self.tp, max_num_seqs=e["max_num_seqs"], max_num_batched_tokens=e["max_num_batched_tokens"],
                   block_size=e["block_size"], kv_blocks_total_gpu=e.get("kv_blocks_total_gpu") or 0,
                   kv_blocks_total_cpu=e.get("kv_blocks_total_cpu") or 0, chunked_prefill=int(bool(e.get("enable_chunked_prefill"))),
                   cpu_offloading=int(bool(e.get("cpu_offloading"))))
        env["interconnect_latency_us"] = env["interconnect_latency_us"] or _SPEC["default_latency_us"]
        if env["num_experts"] < 2:
            env["num_experts"] = env["top_k"] = env["num_moe_layers"] = 0
        moe = env["num_experts"] > 0
        env["mlp_width"] = moe and env["moe_intermediate_size"] or env["intermediate_size"]
        env["active_experts"] = env["top_k"] / env["num_experts"] if moe else 1
        fp8 = m.get("linear_compute") == "fp8" and env["TFlopsFP8"] > 0
        env["linear_peak_tflops"] = env["TFlopsFP8"] if fp8 else env["TFlopsPeak"]
        env.update(max=max, min=min, ln=math.log, log1p=math.log1p, pos=lambda x: 1.0 if x > 0 else 0.0, gate=self._gate,
                   expert_share=self._expert_share, weight_bytes=self._weight_bytes, all_reduce_s=self._all_reduce_s,
                   logits_gather_s=self._logits_gather_s, __builtins__={})
        self.constants = env
        self._graphs = self.sums["cuda_graph_tokens"] or [0] if self.sums else _graph_sizes(h["name"], e) or [0] if self.base == "1.2" else [0]
        if self.sums:
            self._add_layers(max(1, deployment.get("data_parallel_size", 1)))
        for name, code in _CONSTANTS[self.base]:
            env[name] = eval(code, env)
        self._reduce, self._fused = _interconnect(
            h["name"], e, self.tp, deployment.get("pipeline_parallel_size", 1), max(1, deployment.get("data_parallel_size", 1))) if self.base in ("1.2", "1.3") else (None, None)

    def _add_layers(self, engines):
        """What 1.3 reads in place of a model's dimensions: the sums over its layers."""
        c, w = self.constants, self.sums
        peak = c["TFlopsPeak"] * 1e12 * self.tp
        fast = (c["TFlopsFP8"] or c["TFlopsPeak"]) * 1e12 * self.tp
        linear, blocks = w["linear_flops"], w["mixers"] + w["ffns"]
        c.update(blocks=blocks, engines=engines, kv_head_share=w["kv_head_share"], flops_body_per_token=sum(linear),
                 group_peak_linear_flops=sum(linear) / (linear[0] / peak + (linear[1] + linear[2]) / fast), weight_bytes_fixed=w["fixed_bytes"],
                 flops_lm_head_per_seq=w["head_flops"], weight_bytes_lm_head=w["head_bytes"], kv_bytes_per_token=w["cache_bytes"],
                 activation_bytes_per_token=c["bytes_per_activation"] * (blocks * 4 * c["hidden_size"] * self.tp + w["activation_widths"]),
                 experts_touched=lambda n: self._over_experts(n, lambda x: x["layers"] * x["experts"] / engines),
                 expert_layers=lambda n: self._over_experts(n, lambda x: x["layers"]),
                 prompt_attention_s=lambda n: self._layer_sums(step_of([(0, n, n)], "1.3", None, self.reaches))["prefill_attention_flops"] / peak)

    def _over_experts(self, tokens, each):
        """A sum over kinds of ffns with experts, times the share of the experts that the tokens of all engines touch."""
        tokens *= self.constants["engines"]
        return sum(each(x) * -math.expm1(tokens * math.log1p(-x["top_k"] / x["experts"]) if x["top_k"] < x["experts"] else -math.inf)
                   for x in self.sums.get("experts", [])) if tokens > 0 else 0.0

    def _layer_sums(self, step):
        """FLOP of attention and bytes read of a step, as sums over reaches and layers."""
        w, sums = self.sums, dict.fromkeys(("prefill_attention_flops", "decode_attention_flops", "cache_read_bytes"), 0.0)
        context, prefill, decode = (step.get(n, 0) for n in ("prefill_context_tokens", "prefill_tokens", "decode_tokens"))
        for a in w.get("attention", []):
            name, pairs = _reach_name(a["reach"]), (step["prefill_causal_work"], step["decode_context_tokens"], step["kv_read_tokens"])
            if name:
                pairs = [step[k + name] for k in ("prefill_pairs_", "decode_pairs_", "entries_read_")]
            sums["prefill_attention_flops"] += a["prefill_flops"] * pairs[0] + a["context_flops"] * context
            sums["decode_attention_flops"] += a["decode_flops"] * pairs[1]
            sums["cache_read_bytes"] += a["bytes"] * pairs[2]
        sums["prefill_attention_flops"] += w["state_prefill_flops"] * prefill
        sums["decode_attention_flops"] += w["state_decode_flops"] * decode
        sums["cache_read_bytes"] += w["state_bytes"] * (step["num_prefill_reqs"] + step["num_decode_reqs"])
        return sums

    def _all_reduce_s(self, tokens):
        """One all-reduce of so many tokens' activations, in the CUDA graph that runs them."""
        c = self.constants
        captured = tokens <= self._graphs[-1]
        tokens = self._graphs[bisect.bisect_left(self._graphs, math.ceil(tokens))] if captured else tokens
        size = tokens * c["hidden_size"] * c["bytes_per_activation"]
        if self._fused and size <= self._fused[1]:
            return _curve(size, *self._fused[0]) * 1e-6
        if self._reduce:
            return _curve(size, *self._reduce[0 if captured else 1]) * 1e-6
        return c["allreduce_latency"] + 2 * (self.tp - 1) / self.tp * size / c["link_bandwidth"]

    def _logits_gather_s(self, seqs):
        """The gather of so many sequences' logits, which moves half of what reducing them would."""
        c = self.constants
        if not self._reduce or not seqs:
            return seqs * c["comm_bytes_per_seq"] / c["link_bandwidth"] if self.tp > 1 else 0.0
        return _curve(seqs * c["vocab_size"] * c["bytes_per_activation"], *self._reduce[0]) / 2 * 1e-6

    def _gate(self, running, usage):
        seats, memory = min(1, running / self.constants["max_num_seqs"]), min(1, max(0, usage))
        return seats + memory - seats * memory

    def _expert_share(self, tokens):
        c = self.constants
        if not c["num_experts"] or tokens <= 0:
            return 0.0
        if c["top_k"] == c["num_experts"]:
            return 1.0
        if self.version == "1.0":
            tokens = max(1, tokens)
        return -math.expm1(tokens * math.log1p(-c["top_k"] / c["num_experts"]))

    def _weight_bytes(self, tokens, seqs):
        c = self.constants
        if self.version == "1.0":
            used = c["num_experts"] * self._expert_share(tokens) if c["num_experts"] else 1
            return c["num_hidden_layers"] * (c["weight_bytes_attn"] + c["weight_bytes_per_expert"] * used)
        if tokens == 0:
            return 0.0
        if self.sums:
            return c["weight_bytes_fixed"] + self._over_experts(tokens, lambda x: x["bytes"]) + (c["weight_bytes_lm_head"] if seqs > 0 else 0)
        w = c["num_hidden_layers"] * c["weight_bytes_attn"] + (c["num_hidden_layers"] - c["num_moe_layers"]) * c["weight_bytes_mlp_dense"]
        w += c["num_moe_layers"] * (c["num_experts"] * self._expert_share(tokens) * c["weight_bytes_per_expert"] +
                                    c["weight_bytes_moe_fixed"])
        return w + (c["weight_bytes_lm_head"] if seqs > 0 else 0)

    def _features(self, kind, values):
        env = dict(self.constants, **values)
        out, hits = [], []
        for f in _features(self.version, kind):
            x = eval(f["code"], env)
            env[f["name"]] = x
            if not math.isfinite(x):
                raise CoefficientError("bad_input", "%s: got %g, want a finite number" % (f["name"], x))
            if x < 0 or x > f["bound"]:
                hits.append(f["slot"])
                x = min(max(x, 0.0), f["bound"])
            out.append(x)
        return out, hits

    def kv_free_bytes(self, total_blocks: int, usage: float) -> float:
        """The free bytes that 1.0's queue features read; they cancel its doubled block size."""
        return total_blocks * self.constants["block_size_bytes"] * max(1e-6, 1 - usage)

    def _finite(self, given):
        for n, v in given.items():
            if not isinstance(v, numbers.Real) or not math.isfinite(v):
                raise CoefficientError("bad_input", "%s: got %r, want a finite number" % (n, v))

    def beta(self, step: Mapping[str, float]) -> Tuple[List[float], List[int]]:
        """The features of a step, 16 or with 1.2 20, and the slots that hit a bound. step: a dict of counts, see formulas.json."""
        within = [k + _reach_name(r) for r in self.reaches for k in ("prefill_pairs_", "decode_pairs_", "entries_read_")]
        step = {n: int(v) if isinstance(v, numbers.Integral) else v for n, v in step.items()}
        given = {n: step.get(n, 0) for n in _SPEC["step_inputs"] + (["prefill_context_tokens"] if self.sums else [])}
        for n in within:
            if n not in step:
                _refuse("bad_input", n + ", see step_of and the space's reaches", None)
            given[n] = step[n]
        if self.version == "1.0":
            self._finite(given)
            return self._features("beta", given)
        for n, v in given.items():
            if not _finite(v):
                raise CoefficientError("bad_input", "%s: got %r, want a finite number >= 0" % (n, v))
        pre, dec, sched = given["prefill_tokens"], given["decode_tokens"], given["scheduled_tokens"]
        reqs = given["num_prefill_reqs"]
        if pre + dec != sched:
            raise CoefficientError("bad_input", "scheduled_tokens: got %g, want %g + %g" % (sched, pre, dec))
        if dec < given["num_decode_reqs"] or (dec > 0 and given["num_decode_reqs"] == 0) or pre < reqs or (pre == 0) != (reqs == 0):
            raise CoefficientError("bad_input", "got %g prefill tokens of %g requests and %g decode tokens of %g requests" %
                                   (pre, reqs, dec, given["num_decode_reqs"]))
        if given["num_sampled_seqs"] > reqs + dec:
            raise CoefficientError("bad_input", "num_sampled_seqs: got %g" % given["num_sampled_seqs"])
        return self._features("beta", dict(given, **self._layer_sums(given)) if self.sums else given)

    def alpha(self, request: Mapping[str, float]) -> Tuple[List[float], List[int]]:
        """The 11 features of a request at its join and the slots that hit a bound."""
        given = {n: request.get(n, 0) for n in _SPEC["queue_inputs"]}
        if self.version == "1.0":
            self._finite(given)
            return self._features("alpha", given)
        for n, v in given.items():
            if not _finite(v) or n in ("kv_usage_ratio", "prefix_hit_ratio") and v > 1:
                raise CoefficientError("bad_input", "%s: got %r, want a finite number >= 0, a ratio at most 1" % (n, v))
        return self._features("alpha", given)


def _refuse(code, name, got):
    raise CoefficientError(code, "%s: got %r" % (name, got))


def _within(v, most):
    return isinstance(v, numbers.Real) and 0 < v <= most


def _check(m, h, e, tp, layered=False):
    """The rules of every version; of 1.3 less, whose layers were summed up before."""
    for n in ("hidden_size", "vocab_size") if layered else ("num_hidden_layers", "hidden_size", "num_attention_heads", "num_key_value_heads",
                                                            "intermediate_size", "vocab_size", "n_mlp_proj"):
        if not _within(m.get(n), 1 << 30):
            _refuse("bad_model", n, m.get(n))
    if not layered and not _within(m.get("bytes_per_param", m.get("bytes_per_weight")), math.inf):
        _refuse("bad_model", "bytes_per_param", m.get("bytes_per_param"))
    if m.get("num_experts", 0) >= 2 and not 1 <= m.get("top_k", 0) <= m["num_experts"]:
        _refuse("bad_model", "top_k", m.get("top_k"))
    if not _within(tp, 1 << 16):
        _refuse("bad_knobs", "tensor_parallel_size", tp)
    rates = (("TFlopsPeak", True), ("BwPeakTBs", True), ("interconnect_bandwidth_gb_s", tp > 1),
             ("pcie_bandwidth_gb_s", e.get("cpu_offloading")))
    for n, need in rates:
        if need and not _within(h.get(n), 1e15):
            _refuse("bad_hardware", n, h.get(n))
    if not _within(h.get("pcie_efficiency"), 1):
        _refuse("bad_hardware", "pcie_efficiency", h.get("pcie_efficiency"))
    for n in ("TFlopsFP8", "interconnect_latency_us"):
        if not 0 <= (h.get(n) or 0) <= 1e15:
            _refuse("bad_hardware", n, h.get(n))
    for n, most in (("max_num_batched_tokens", 1 << 31), ("max_num_seqs", 1 << 20), ("block_size", 1 << 16)):
        if not _within(e.get(n), most):
            _refuse("bad_knobs", n, e.get(n))
    for n, most in (("kv_blocks_total_gpu", 1 << 24), ("kv_blocks_total_cpu", 1 << 24), ("max_model_len", 1 << 31),
                    ("long_prefill_token_threshold", 1 << 31)):
        if not 0 <= (e.get(n) or 0) <= most:
            _refuse("bad_knobs", n, e.get(n))


def _transfers(v):
    return v.get("kv_connector") not in (None, "", "OffloadingConnector") if isinstance(v, dict) else bool(isinstance(v, str) and v)


def _above(most):
    return lambda v: isinstance(v, numbers.Real) and not isinstance(v, bool) and v > most


def _given(v):
    return v is not None and v is not False and v != ""


# Knobs of vLLM that no step time covers: code, when it is reached, keys.
_UNSUPPORTED = (
    ("unsupported_engine", _given, ("speculative_config", "speculative_model", "num_speculative_tokens", "spec_method", "spec_model",
                                         "spec_tokens")),
    ("unsupported_engine", _above(1), ("decode_context_parallel_size", "prefill_context_parallel_size")),
    ("unsupported_engine", _transfers, ("kv_transfer_config",)),
    ("unsupported_engine", _given, ("ec_transfer_config",)),
    ("unsupported_engine", _above(0), ("cpu_offload_gb", "offload_group_size")),
    ("unsupported_engine", lambda v: v is True, ("enable_dbo",)),
    ("unsupported_engine", _above(0), ("ubatch_size",)),
    ("unsupported_engine", lambda v: v in ("pooling", "draft"), ("runner",)),
    ("unsupported_engine", lambda v: v in ("embed", "embedding", "classify", "score", "reward", "pooling", "transcription"), ("task",)),
)


def _check_supported(d, m, e, tp, layered=False):
    """The rules of 1.1 and later."""
    moe = m.get("num_experts", 0) >= 2
    if d.get("pipeline_parallel_size", 1) > 1:
        _refuse("unsupported_engine", "pipeline_parallel_size", d["pipeline_parallel_size"])
    if e.get("enable_expert_parallel") and not layered:
        _refuse("unsupported_engine", "enable_expert_parallel", True)
    if e.get("speculative_decoding"):
        _refuse("unsupported_engine", "speculative_decoding", True)
    if not layered and moe and d.get("data_parallel_size", 1) > 1:
        _refuse("unsupported_engine", "data_parallel_size", d["data_parallel_size"])
    extra = e.get("extra") or {}
    for code, reached, keys in _UNSUPPORTED:
        for key in keys:
            if reached(extra.get(key)):
                _refuse(code, key, extra[key])
    if layered:
        return
    if m["num_attention_heads"] % tp:
        _refuse("bad_knobs", "tensor_parallel_size", tp)
    if m["num_key_value_heads"] % tp and tp % m["num_key_value_heads"]:
        _refuse("bad_knobs", "tensor_parallel_size", tp)
    if not m.get("head_dim", 0) > 0:
        _refuse("bad_model", "head_dim", m.get("head_dim"))
    if moe and not (1 <= m.get("num_moe_layers", 0) <= m["num_hidden_layers"] and m.get("moe_intermediate_size", 0) > 0):
        _refuse("bad_model", "num_moe_layers", m.get("num_moe_layers"))
    if e.get("cpu_offloading") and not (e.get("kv_blocks_total_gpu") or 0) > 0:
        _refuse("bad_knobs", "kv_blocks_total_gpu", e.get("kv_blocks_total_gpu"))
    for n in ("bytes_per_weight", "bytes_per_kv", "bytes_per_activation", "bytes_per_lm_head"):
        if not _within(m.get(n), 1e15):
            _refuse("bad_model", n, m.get(n))


def _fuses(e, tp, pp, dp):
    """Whether vLLM of the stated release fuses all-reduce and norm on compute capability 10.0 (vllm/config/vllm.py)."""
    extra = e.get("extra") or {}
    config = extra.get("compilation_config")
    if tp < 2:
        return False
    if isinstance(config, str):
        try:
            config = json.loads(config)
        except ValueError:
            if "fuse_allreduce_rms" in config or "enable_fi_allreduce_fusion" in config:
                return True
    config = config if isinstance(config, dict) else {}
    passes = config.get("pass_config")
    for key in ("fuse_allreduce_rms", "enable_fi_allreduce_fusion"):
        if isinstance(passes, dict) and isinstance(passes.get(key), bool):
            return passes[key]

    def setting(key):
        return _number(extra[key] if extra.get(key) is not None else config.get(key))
    level, mode = setting("optimization_level"), setting("mode")
    if level is not None and level < 2 or mode is not None and mode < 3 or extra.get("enforce_eager") is True:
        return False
    release = _version(e.get("version") or "") or (1 << 30, 0)
    return release >= (0, 17) and pp == 1 and (dp == 1 or release >= (0, 21))


def _interconnect(name, e, tp, pp, dp):
    """Published curves of an all-reduce among tp devices, in CUDA graphs and outside; that of the fused kernel and its largest size."""
    sheet = datasheet(name) if tp > 1 else None
    fuses = name.startswith("B200") and _fuses(e, tp, pp, dp)
    published = RULES["all_reduce"].get(sheet["name"], {}).get(str(tp)) if sheet else None
    fused = RULES["fused_all_reduce"].get(str(tp)) if fuses else None

    def curve(text):
        return list(zip(*((float(v) for v in point.split(":")) for point in text.split())))
    return published and [curve(text) for text in published], fused and (curve(fused[0]), float(fused[1]))


def _number(value):
    return value if isinstance(value, numbers.Real) and not isinstance(value, bool) else None


def _graph_sizes(device, e):
    """The numbers of tokens that vLLM captures CUDA graphs for, ascending (vllm/config/vllm.py of the stated release)."""
    extra = e.get("extra") or {}
    compiled = extra.get("compilation_config")
    compiled = compiled if isinstance(compiled, dict) else {}

    def setting(key):
        return extra[key] if extra.get(key) is not None else compiled.get(key)
    mode, most = str(setting("cudagraph_mode")).upper(), _number(setting("max_cudagraph_capture_size"))
    plain = any((_number(setting(key)) if _number(setting(key)) is not None else compiles) < compiles
                for key, compiles in (("optimization_level", 1), ("level", 3), ("mode", 3)))
    if (extra.get("enforce_eager") is True or mode == "NONE" and setting("cudagraph_mode") is not None or setting("use_cudagraph") is False
            or most is not None and most < 1 or plain and mode not in ("FULL", "FULL_DECODE_ONLY")):
        return []
    stated = {int(n) for key in ("cudagraph_capture_sizes", "cuda_graph_sizes") if isinstance(setting(key), list)
              for n in setting(key) if (_number(n) or 0) >= 1}
    budget = e["max_num_batched_tokens"]
    if stated:
        return sorted(n for n in stated if n <= budget or budget <= 0)
    release = _version(e.get("version") or "") or (1 << 30, 0)
    seats, name = e["max_num_seqs"], re.sub("[-_ ]", "", device.lower())
    largest = 1024 if release >= (0, 28) and ("b200" in name or "b300" in name) else 512
    config = extra.get("speculative_config")
    query = 1 + max(0, int((_number(config.get("num_speculative_tokens")) or 0) if isinstance(config, dict) else 0))
    most = min(largest, 2 * seats * query)
    capped = (_number(setting("max_cudagraph_capture_size")) or 0) >= 1
    if capped:
        most = int(setting("max_cudagraph_capture_size"))
    budget = budget if budget > 0 else most

    def grid(limit, times):
        n = 1
        while n <= limit:
            yield n * times
            n = 2 * n if n < 4 else 8 if n < 8 else n + 8 if n < 256 else n + 16
    sizes = set(grid(min(most, budget), 1))
    if extra.get("performance_mode") == "interactivity":
        sizes.update(range(1, min(most, budget, 32) + 1))
    if budget <= most and release >= (0, 23):
        sizes.add(budget)
    if release >= (0, 29) and not capped:
        sizes.update(grid(min(seats, largest, min(most, budget) // query), query))
        if min(seats, largest) * query <= min(most, budget):
            sizes.add(min(seats, largest) * query)
    return sorted(sizes)


def _label(d):
    return "%s %s tp%d" % (d["model"].get("id", "").rstrip("/").split("/")[-1].lower(), d["hardware"].get("name", ""),
                           d.get("tensor_parallel_size", 1))


def _identity(d):
    """What makes two deployments one configuration."""
    m, h, e = d["model"], d["hardware"], d["vllm"]
    named = [_label(d), m.get("model_type") or "", m.get("linear_compute"), e.get("kv_blocks_total_gpu"), m.get("layers")]
    return named + [m.get(n) or 0 for n in _SPEC["model"] if n != "bytes_per_param"] + [h.get(n) or 0 for n in _SPEC["hardware"]] + [
        e.get(n) or 0 for n in ("max_num_seqs", "max_num_batched_tokens", "block_size", "kv_blocks_total_cpu", "gpu_memory_utilization",
                                "enable_chunked_prefill", "enable_prefix_caching", "cpu_offloading")]


class Coefficients:
    """A coefficient file on one deployment."""

    def __init__(self, document: Mapping[str, Any], label: Optional[str] = None, deployment: Optional[Mapping[str, Any]] = None) -> None:
        p = document["physics_coefficients"]
        version = str(p["spec_version"])
        configs = p.get("configs") or []
        if deployment is not None and label is None:
            config = next((c for c in configs if _identity(c["deployment"]) == _identity(deployment)), None)
        else:
            config = next((c for c in configs if label in (None, c.get("label"), c.get("key"))), None)
        if config is None and (label is not None or deployment is None):
            raise CoefficientError("no_configuration", "got %r, want %s" % (label, [c.get("label") for c in configs]))
        self.deployment = deployment or config["deployment"]
        self.space = Space(self.deployment, version, (config or {}).get("layer_sums"))
        names = [config.get("key"), config.get("label")] if config else [_label(self.deployment)]  # else factors of the same model, device and tp
        known = p.get("deployment_factors") or {}
        every = next((known[n] for n in names if n in known), (p.get("hardware_factors") or {}).get(self.deployment["hardware"].get("name"), 1))
        prompts = p.get("prompt_factors") or {}
        prompt = next((prompts[n] for n in names if n in prompts), 1)
        features = _features(version, "beta")
        values = [c["value"] for c in p["beta_coefficients"]]
        if len(values) != len(features):
            raise CoefficientError("bad_coefficient_file", "got %d beta terms, want the %d of %s" %
                                   (len(values), len(features), version))
        for c, f in zip(p["beta_coefficients"], features):
            if c["name"] != f["name"]:
                raise CoefficientError("bad_coefficient_file", "beta term %d: got %r, want %r" % (f["slot"], c["name"], f["name"]))
        self.beta = [v * every * (prompt if f["prompt"] else 1) for v, f in zip(values, features)]
        self.alpha = {}
        for target, a in (p.get("alpha") or {}).items():
            own = a.get("deployments") or {}
            common = [c["value"] for c in a["coefficients"]]
            self.alpha[target] = (bool(a.get("replay")), next((own[n] for n in names if n in own), common))

    def step_us(self, step: Mapping[str, float]) -> float:
        """The time of a step, us, at least 1."""
        return max(1.0, sum(b * x for b, x in zip(self.beta, self.space.beta(step)[0])))

    def delay_us(self, target: str, request: Mapping[str, float]) -> float:
        """The delay of a request, us; a target that contains a wait is refused."""
        if target not in self.alpha:
            raise CoefficientError("no_such_target", "got %r, want %s" % (target, sorted(self.alpha)))
        replay, values = self.alpha[target]
        if not replay:
            raise CoefficientError("no_such_target", "%s contains a wait that a simulator produces itself" % target)
        return max(0.0, sum(a * x for a, x in zip(values, self.space.alpha(request)[0])))


def load(path: str, label: Optional[str] = None, deployment: Optional[Mapping[str, Any]] = None) -> Coefficients:
    """Reads coefficients.yaml for one of its configurations (by label or key; default the first) or for another deployment.

    A file that blis-train refuses is refused with its code: one that was cut, has lost its digest or has other terms; one that was changed, or says that it was made by hand
    (origin: hand), is read with a warning."""
    with open(path, encoding="utf-8") as f:
        text = f.read()
    return Coefficients(_check_file(path, text), label, deployment)


def _check_file(path, text):
    """The document of a coefficient file, refused where blis-train refuses it, with the same code."""
    try:
        document = _yaml.loads(text)
    except ValueError as e:
        raise bad("%s: %s", path, e)
    check_document(path, text, document)
    p = document.get("physics_coefficients") or {}
    base = _known(p.get("spec_version") or "")
    check_set(document, _SPEC["versions"], base)
    for config in p.get("configs") or []:
        d, layered = config.get("deployment") or {}, bool(config.get("layer_sums"))
        m = d.get("model") or {}
        widths = [] if layered else ["bytes_per_param"] if base == "1.0" else [
            "bytes_per_param", "head_dim", "bytes_per_weight", "bytes_per_kv", "bytes_per_activation", "bytes_per_lm_head"]
        try:
            _check(m, d.get("hardware") or {}, d.get("vllm") or {}, d.get("tensor_parallel_size"), layered)
            for n in widths:
                if not _within(m.get(n), math.inf):
                    _refuse("bad_model", n, m.get(n))
        except CoefficientError as e:
            raise bad("configs: deployment of %r: %s", config.get("key"), e)
    return document


def step_time(coefficients: Union[str, Coefficients], requests: Iterable[Request], configuration: Optional[str] = None) -> float:
    """The time of one engine step, us, from coefficients.yaml alone: step_time("coefficients.yaml", [(512, 512, 1)] * 32).

    coefficients is a path, or what load gave for many steps; requests are (computed, prompt, new) in tokens, see step_of;
    configuration is a label or key of the file, by default its first. Source: spec.md#two-models. Raises CoefficientError.
    """
    c = load(coefficients, configuration) if isinstance(coefficients, str) else coefficients
    return c.step_us(step_of(requests, c.space.version, c.deployment["vllm"]["block_size"], c.space.reaches))


def predict(model: str, hardware: str, binary: str = "blis-train", **flags: Union[str, float]) -> Dict[str, Any]:
    """The document of `blis-train predict --json`: predict("Qwen/Qwen3-32B", "H100", tp=2, input_len=2000, output_len=300, concurrency=32).

    binary is the program, flags are its own with underscores. Raises CoefficientError with the program's code and message.
    """
    words = [binary, "predict", "--json", "--model", model, "--hardware", hardware]
    for name, value in flags.items():
        words += ["--" + name.replace("_", "-"), str(value)]
    done = subprocess.run(words, stdout=subprocess.PIPE, stderr=subprocess.PIPE, universal_newlines=True)
    document: Dict[str, Any] = json.loads(done.stdout or "{}")
    if done.returncode or "error" in document:
        error = document.get("error") or {}
        code, text = error.get("code") or "failed", "\n".join(error.get("messages") or [done.stderr.strip()])
        raise CoefficientError(code, text.replace(code + ": ", "", 1) + ("; hint: " + error["hint"] if error.get("hint") else ""))
    return document
