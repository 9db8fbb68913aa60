"""Evaluates coefficient files of blis-train: features of a step or a request, step times and delays, without dependencies.

The formulas are those of the specification, in formulas.json; blis-train's tests hold that file against its own code and this
package against the golden vectors. Errors carry the codes of blis-train. Specification 1.1 alone.
"""
import ast
import json
import math
import os

from . import _yaml

__all__ = ["CoefficientError", "Space", "Coefficients", "load"]

with open(os.path.join(os.path.dirname(__file__), "formulas.json")) as _f:
    _SPEC = json.load(_f)


class CoefficientError(ValueError):
    """An input that blis-train refuses too; code is blis-train's."""

    def __init__(self, code, message):
        super().__init__("%s: %s" % (code, message))
        self.code = code


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


_CONSTANTS = [(q["name"], _compile(q["formula"])) for q in _SPEC["constants"]]
_FEATURES = {kind: [dict(f, code=_compile(f["formula"])) for f in _SPEC[kind]] for kind in ("beta", "alpha")}


def _finite(v):
    return isinstance(v, (int, float)) and math.isfinite(v) and v >= 0


class Space:
    """A deployment with its derived constants: model, hardware, engine and tp as in a coefficient file's configurations."""

    def __init__(self, deployment):
        m, h = deployment["model"], deployment["hardware"]
        e = deployment["vllm"]
        self.tp = deployment.get("tensor_parallel_size", 1)
        _check(deployment, m, h, e, self.tp)
        env = {n: m.get(n) or 0 for n in _SPEC["model"]}
        env.update({n: h.get(n) or 0 for n in _SPEC["hardware"]})
        env.update(tp=self.tp, max_num_seqs=e["max_num_seqs"], max_num_batched_tokens=e["max_num_batched_tokens"],
                   block_size=e["block_size"], kv_blocks_total_gpu=e.get("kv_blocks_total_gpu") or 0,
                   kv_blocks_total_cpu=e.get("kv_blocks_total_cpu") or 0, chunked_prefill=int(bool(e.get("enable_chunked_prefill"))),
                   cpu_offloading=int(bool(e.get("cpu_offloading"))))
        env["interconnect_latency_us"] = env["interconnect_latency_us"] or _SPEC["default_latency_us"]
        fp8 = m.get("linear_compute") == "fp8" and env["TFlopsFP8"] > 0
        env["linear_peak_tflops"] = env["TFlopsFP8"] if fp8 else env["TFlopsPeak"]
        env.update(max=max, min=min, ln=math.log, log1p=math.log1p, pos=lambda x: 1.0 if x > 0 else 0.0, gate=self._gate,
                   expert_share=self._expert_share, weight_bytes=self._weight_bytes, __builtins__={})
        self.constants = env
        for name, code in _CONSTANTS:
            env[name] = eval(code, env)

    def _gate(self, running, usage):
        seats, memory = min(1, running / self.constants["max_num_seqs"]), min(1, max(0, usage))
        return seats + memory - seats * memory

    def _expert_share(self, tokens):
        c = self.constants
        if not c["num_experts"] or tokens <= 0:
            return 0.0
        if c["top_k"] == c["num_experts"]:
            return 1.0
        return -math.expm1(tokens * math.log1p(-c["top_k"] / c["num_experts"]))

    def _weight_bytes(self, tokens, seqs):
        c = self.constants
        if tokens == 0:
            return 0.0
        w = c["num_hidden_layers"] * c["weight_bytes_attn"] + (c["num_hidden_layers"] - c["num_moe_layers"]) * c["weight_bytes_mlp_dense"]
        w += c["num_moe_layers"] * (c["num_experts"] * self._expert_share(tokens) * c["weight_bytes_per_expert"] +
                                    c["weight_bytes_moe_fixed"])
        return w + (c["weight_bytes_lm_head"] if seqs > 0 else 0)

    def _features(self, kind, values):
        env = dict(self.constants, **values)
        out, hits = [], []
        for f in _FEATURES[kind]:
            x = eval(f["code"], env)
            env[f["name"]] = x
            if not math.isfinite(x):
                raise CoefficientError("bad_feature", "%s: got %g, want a finite number" % (f["name"], x))
            if x < 0 or x > f["bound"]:
                hits.append(f["slot"])
                x = min(max(x, 0.0), f["bound"])
            out.append(x)
        return out, hits

    def beta(self, step):
        """The 16 features of a step and the slots that hit a bound. step: a dict of counts, see formulas.json."""
        given = {n: step.get(n, 0) for n in _SPEC["step_inputs"]}
        for n, v in given.items():
            if not _finite(v):
                raise CoefficientError("bad_input", "%s: got %r, want a finite number >= 0" % (n, v))
        pre, dec, sched = given["prefill_tokens"], given["decode_tokens"], given["scheduled_tokens"]
        reqs = given["num_prefill_reqs"]
        if pre + dec != sched:
            raise CoefficientError("inconsistent_tokens", "scheduled_tokens: got %g, want %g + %g" % (sched, pre, dec))
        if dec != given["num_decode_reqs"] or pre < reqs or (pre == 0) != (reqs == 0):
            raise CoefficientError("inconsistent_requests", "got %g prefill tokens of %g requests and %g decode tokens of %g requests" %
                                   (pre, reqs, dec, given["num_decode_reqs"]))
        if given["num_sampled_seqs"] > reqs + given["num_decode_reqs"]:
            raise CoefficientError("inconsistent_sampled", "num_sampled_seqs: got %g" % given["num_sampled_seqs"])
        return self._features("beta", given)

    def alpha(self, request):
        """The 11 features of a request at its join and the slots that hit a bound."""
        given = {n: request.get(n, 0) for n in _SPEC["queue_inputs"]}
        for n, v in given.items():
            if not _finite(v) or n in ("kv_usage_ratio", "prefix_hit_ratio") and v > 1:
                raise CoefficientError("bad_input", "%s: got %r, want a finite number >= 0, a ratio at most 1" % (n, v))
        return self._features("alpha", given)


def _check(d, m, h, e, tp):
    def refuse(code, name, got):
        raise CoefficientError(code, "%s: got %r" % (name, got))

    for n in ("num_hidden_layers", "hidden_size", "num_attention_heads", "num_key_value_heads", "intermediate_size", "vocab_size",
              "n_mlp_proj", "head_dim"):
        if not m.get(n, 0) > 0:
            refuse("bad_model", n, m.get(n))
    moe = m.get("num_experts", 0) > 0
    if moe and not 1 <= m.get("top_k", 0) <= m["num_experts"]:
        refuse("bad_top_k", "top_k", m.get("top_k"))
    if not tp >= 1:
        refuse("bad_tp", "tensor_parallel_size", tp)
    for n in ("TFlopsPeak", "BwPeakTBs"):
        if not h.get(n, 0) > 0:
            refuse("bad_hardware", n, h.get(n))
    if not 0 < h.get("pcie_efficiency", 0) <= 1:
        refuse("bad_hardware", "pcie_efficiency", h.get("pcie_efficiency"))
    for n, need in (("interconnect_bandwidth_gb_s", tp > 1), ("pcie_bandwidth_gb_s", e.get("cpu_offloading"))):
        if need and not h.get(n, 0) > 0:
            refuse("bad_hardware", n, h.get(n))
    for n in ("max_num_seqs", "max_num_batched_tokens", "block_size"):
        if not e.get(n, 0) > 0:
            refuse("bad_knobs", n, e.get(n))
    if d.get("pipeline_parallel_size", 1) > 1:
        refuse("unsupported_pp", "pipeline_parallel_size", d["pipeline_parallel_size"])
    if e.get("enable_expert_parallel"):
        refuse("unsupported_ep", "enable_expert_parallel", True)
    if e.get("speculative_decoding"):
        refuse("unsupported_speculative", "speculative_decoding", True)
    if m["num_attention_heads"] % tp:
        refuse("tp_heads", "tensor_parallel_size", tp)
    if m["num_key_value_heads"] % tp and tp % m["num_key_value_heads"]:
        refuse("tp_kv_heads", "tensor_parallel_size", tp)
    if moe and not (1 <= m.get("num_moe_layers", 0) <= m["num_hidden_layers"] and m.get("moe_intermediate_size", 0) > 0):
        refuse("bad_model", "num_moe_layers", m.get("num_moe_layers"))
    if e.get("cpu_offloading") and not (e.get("kv_blocks_total_gpu") or 0) > 0:
        refuse("bad_knobs", "kv_blocks_total_gpu", e.get("kv_blocks_total_gpu"))


class Coefficients:
    """A coefficient file on one deployment."""

    def __init__(self, document, label=None, deployment=None):
        p = document["physics_coefficients"]
        if p["spec_version"] != "1.1":
            raise CoefficientError("unknown_spec_version", "got %r, want '1.1'" % p["spec_version"])
        configs = p.get("configs") or []
        config = next((c for c in configs if label in (None, c["label"], c["key"])), None)
        if config is None and (label is not None or deployment is None):
            raise CoefficientError("no_configuration", "got %r, want %s" % (label, [c["label"] for c in configs]))
        self.deployment = deployment or config["deployment"]
        self.space = Space(self.deployment)
        names = [config["key"], config["label"]] if config else []
        known = p.get("deployment_factors") or {}
        every = next((known[n] for n in names if n in known), (p.get("hardware_factors") or {}).get(self.deployment["hardware"]["name"], 1))
        prompts = p.get("prompt_factors") or {}
        prompt = next((prompts[n] for n in names if n in prompts), 1)
        self.beta = [c["value"] * every * (prompt if f["prompt"] else 1) for c, f in zip(p["beta_coefficients"], _FEATURES["beta"])]
        self.alpha = {}
        for target, a in (p.get("alpha") or {}).items():
            own = a.get("deployments") or {}
            common = [c["value"] for c in a["coefficients"]]
            self.alpha[target] = (bool(a.get("replay")), next((own[n] for n in names if n in own), common))

    def step_us(self, step):
        """The time of a step, us, at least 1."""
        return max(1.0, sum(b * x for b, x in zip(self.beta, self.space.beta(step)[0])))

    def delay_us(self, target, request):
        """The delay of a request, us; a target that contains a wait is refused."""
        if target not in self.alpha:
            raise CoefficientError("no_such_target", "got %r, want %s" % (target, sorted(self.alpha)))
        replay, values = self.alpha[target]
        if not replay:
            raise CoefficientError("wait_as_delay", "%s contains a wait that a simulator produces itself" % target)
        return max(0.0, sum(a * x for a, x in zip(values, self.space.alpha(request)[0])))


def load(path, label=None, deployment=None):
    """Reads coefficients.yaml for one of its configurations (by label or key; default the first) or for another deployment."""
    with open(path) as f:
        return Coefficients(_yaml.loads(f.read()), label, deployment)
