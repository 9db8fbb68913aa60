"""A model's dimensions from its Hugging Face config.json, by the rules of the specification (section on models).

Families of models and keys are in deployments.json, which blis-train's tests write from its own tables.
"""
import json
import numbers
import os
from typing import Any, Dict, Mapping, Optional

from ._error import CoefficientError

with open(os.path.join(os.path.dirname(__file__), "deployments.json")) as _f:
    RULES = json.load(_f)

_LARGEST = 1 << 30


def load_model(config: Mapping[str, Any], n_mlp_proj: Optional[int] = None, assume_full_attention: bool = False, max_model_len: Optional[int] = None,
               dtype: str = "", kv_cache_dtype: str = "", quantization: str = "") -> Dict[str, Any]:
    """The model section of a deployment. config: the decoded config.json; the rest as run.yaml gives it."""
    if not isinstance(config, dict):
        raise CoefficientError("bad_model", "want one JSON object")
    return _Config(_text_config(config)).model(n_mlp_proj, assume_full_attention, max_model_len, dtype, kv_cache_dtype, quantization)


def _text_config(outer):
    inner = outer.get("text_config")
    if not isinstance(inner, dict):
        return outer
    inner = dict(inner)
    if inner.get("dtype") is None and inner.get("torch_dtype") is None:
        inner["dtype"], inner["torch_dtype"] = outer.get("dtype"), outer.get("torch_dtype")
    if inner.get("quantization_config") is None:
        inner["quantization_config"] = outer.get("quantization_config")
    return inner


def _integer(v):
    if isinstance(v, bool) or not isinstance(v, numbers.Real) or v != v or abs(v) > 1 << 53 or v != int(v):
        return None
    return int(v)


def _refuse(code, message, *args):
    raise CoefficientError(code, message % args if args else message)


def _width(name):
    """Bytes per value of a dtype name, 0 if unknown."""
    name = name[6:] if name.startswith("torch.") else name
    if name.startswith(("fp8", "float8")):
        return 1.0
    return {"float32": 4.0, "float": 4.0, "float16": 2.0, "bfloat16": 2.0, "half": 2.0}.get(name, 0.0)


class _Config:
    def __init__(self, values):
        self.v = values
        kind = values.get("model_type")
        self.type = kind if isinstance(kind, str) else ""

    def first(self, *keys):
        return next(((k, self.v[k]) for k in keys if self.v.get(k) is not None), ("", None))

    def flag(self, key, default):
        v = self.v.get(key)
        return v if isinstance(v, bool) else default

    def count(self, *keys):
        """A positive integer under the first key that is there; None without one."""
        key, v = self.first(*keys)
        if v is None:
            return None
        n = _integer(v)
        if n is None or not 0 < n <= _LARGEST:
            _refuse("bad_model", "%s: got %r, want an integer from 1 to %d", key, v, _LARGEST)
        return n

    def need(self, *keys):
        n = self.count(*keys)
        if n is None:
            _refuse("bad_model", "%s: missing, want a positive integer", keys[0])
        return n

    def layer(self, key, default):
        v = self.v.get(key)
        if v is None:
            return default
        n = _integer(v)
        if n is None or not 0 <= n <= _LARGEST:
            _refuse("bad_model", "%s: got %r, want an integer from 0 to %d", key, v, _LARGEST)
        return n

    def model(self, n_mlp_proj, full, max_model_len, dtype, kv_dtype, quantization):
        self.refuse()
        m = {"model_type": self.type, "num_hidden_layers": self.need("num_hidden_layers", "n_layer", "num_layers"),
             "hidden_size": self.need("hidden_size", "n_embd", "d_model"),
             "num_attention_heads": self.need("num_attention_heads", "n_head"),
             "vocab_size": self.need("vocab_size")}
        heads = m["num_attention_heads"]
        kv = m["num_key_value_heads"] = self.kv_heads(heads)
        if kv > heads or heads % kv:
            _refuse("bad_model", "num_key_value_heads: got %d, want a divisor of %d heads", kv, heads)
        m["head_dim"] = self.count("head_dim")
        if m["head_dim"] is None:
            if m["hidden_size"] % heads:
                _refuse("bad_model", "hidden_size/num_attention_heads: got %d/%d", m["hidden_size"], heads)
            m["head_dim"] = m["hidden_size"] // heads
        self.moe(m)
        self.projections(m, n_mlp_proj)
        self.widths(m, dtype, kv_dtype, quantization)
        m["warnings"] = self.window(full, max_model_len)
        return m

    def layer_types(self):
        kinds = self.v.get("layer_types")
        return [k if isinstance(k, str) else "" for k in kinds] if isinstance(kinds, list) else []

    def refuse(self):
        for key in ("kv_lora_rank", "q_lora_rank", "qk_rope_head_dim"):
            if self.v.get(key) is not None:
                _refuse("unsupported_model", "%s: multi-head latent attention is not modelled", key)
        if self.flag("is_encoder_decoder", False) or self.type in ("t5", "bart", "whisper"):
            _refuse("unsupported_model", "model_type: got %r, want a decoder-only model", self.type)
        for key in RULES["other_attention"]:
            v = self.v.get(key)
            if v is not None and v is not False and not (isinstance(v, int) and v == 0):
                _refuse("unsupported_model", "%s: linear, state-space, sparse and shared attention are not modelled", key)
        if self.type in RULES["state_space"]:
            _refuse("unsupported_model", "model_type: got %r, want attention in every layer", self.type)
        for kind in self.layer_types():
            if kind not in ("full_attention", "sliding_attention", "chunked_attention"):
                _refuse("unsupported_model", "layer_types: got %r, want full, sliding or chunked attention", kind)

    def kv_heads(self, heads):
        if self.type == "falcon" and self.flag("new_decoder_architecture", False):
            return self.count("num_kv_heads") or heads
        if self.type in ("falcon", "gpt_bigcode"):
            return 1 if self.flag("multi_query", True) else heads
        return self.count("num_key_value_heads") or heads

    def moe(self, m):
        experts = self.count("num_experts", "num_local_experts", "n_routed_experts", "moe_num_experts") or 0
        width = self.count("intermediate_size", "n_inner", "ffn_dim", "ffn_hidden_size")
        own = self.count("moe_intermediate_size")
        expert_width = width if own is None else own
        if width is None:
            if self.type in RULES["four_hidden_mlp"]:
                width = 4 * m["hidden_size"]
            elif experts >= 2 and own is not None:
                width = own
            else:
                _refuse("bad_model", "intermediate_size: missing, want a positive integer")
        m.update(intermediate_size=width, num_experts=0, top_k=0, moe_intermediate_size=0, num_moe_layers=0, shared_expert_size=0)
        if experts < 2:
            return
        expert_width = expert_width or width
        m.update(num_experts=experts, moe_intermediate_size=expert_width)
        m["top_k"] = self.need("num_experts_per_tok", "moe_topk", "moe_k", "num_experts_per_token")
        if m["top_k"] > experts:
            _refuse("bad_model", "num_experts_per_tok: got %d, want 1..%d experts", m["top_k"], experts)
        m["num_moe_layers"] = self.moe_layers(m["num_hidden_layers"])
        if not m["num_moe_layers"]:
            _refuse("bad_model", "the layer rules leave 0 of %d layers with the %d experts", m["num_hidden_layers"], experts)
        if self.type in ("llama4", "llama4_text"):
            m.update(moe_intermediate_size=width, shared_expert_size=width, intermediate_size=self.count("intermediate_size_mlp") or width)
        else:
            m["shared_expert_size"] = self.shared_width(expert_width)

    def shared_width(self, expert_width):
        for keys, unit in ((("shared_expert_intermediate_size", "shared_intermediate_size"), 1),
                           (("n_shared_experts", "num_shared_experts"), expert_width)):
            key, v = self.first(*keys)
            if v is not None:
                return self.layer(key, 0) * unit
        return 0

    def moe_layers(self, layers):
        freq = self.v.get("moe_layer_freq")
        if isinstance(freq, list):
            if len(freq) != layers:
                _refuse("bad_model", "moe_layer_freq: got a list of %d, want one entry for each of %d layers", len(freq), layers)
            return sum(1 for v in freq if v is True or _integer(v))
        freq = self.layer("moe_layer_freq", 1)
        if freq == 0:
            _refuse("bad_model", "moe_layer_freq: got 0, want a positive integer or a list of %d", layers)
        first, step = self.layer("first_k_dense_replace", 0), 1
        key, v = self.first("decoder_sparse_step", "interleave_moe_layer_step")
        if v is not None:
            step = self.layer(key, 1)
        dense = self.v.get("mlp_only_layers")
        dense = [_integer(v) for v in dense] if isinstance(dense, list) else []
        return sum(1 for i in range(first, layers) if step > 0 and i % freq == 0 and (i + 1) % step == 0 and i not in dense)

    def projections(self, m, given):
        if given is not None:
            if given <= 0:
                _refuse("bad_model", "n_mlp_proj: got %d, want a positive integer", given)
            m["n_mlp_proj"] = given
        elif self.type in RULES["gated_mlp"]:
            m["n_mlp_proj"] = 3
        elif self.type in RULES["plain_mlp"]:
            m["n_mlp_proj"] = 2
        else:
            _refuse("unsupported_model", "model_type: got %r, want a known family or model.n_mlp_proj in run.yaml", self.type)

    def widths(self, m, dtype, kv_dtype, quantization):
        name = dtype
        if name in ("", "auto"):
            name = self.first("dtype", "torch_dtype")[1]
            if name is None:
                _refuse("bad_model", "dtype: missing, want the activations' type (also read as torch_dtype, or model.dtype)")
        act = _width(name) if isinstance(name, str) else 0
        if dtype in ("", "auto"):
            act = min(act, 2.0)  # vLLM runs float32 checkpoints in 16 bits
        if not act:
            _refuse("unsupported_model", "dtype: got %r, want float32, float16, bfloat16 or an fp8 name", name)
        kv = act if kv_dtype in ("", "auto") else _width(kv_dtype)
        if not kv:
            _refuse("unsupported_model", "kv_cache_dtype: got %r, want auto, bfloat16, float16, float32 or fp8*", kv_dtype)
        weight, compute = self.quantization(act, quantization)
        m.update(bytes_per_activation=act, bytes_per_lm_head=act, bytes_per_kv=kv, bytes_per_weight=weight, bytes_per_param=weight,
                 linear_compute=compute)

    def quantization(self, act, flag):
        q = self.v.get("quantization_config")
        if not isinstance(q, dict):
            if flag not in ("", "fp8"):
                _refuse("unsupported_model", "quantization: got %r without a quantization_config, want fp8 or none", flag)
            return (1.0, "fp8") if flag else (act, "native")
        method = q.get("quant_method")
        if method in ("fp8", "fbgemm_fp8"):
            return 1.0, "fp8"
        if method in ("awq", "gptq"):
            bits = _integer(q["bits"] if q.get("bits") is not None else q.get("w_bit"))
            if bits not in (2, 3, 4, 8):
                _refuse("unsupported_model", "quantization_config.bits: got %r, want 2, 3, 4 or 8", bits)
            return bits / 8, "native"
        if method == "compressed-tensors":
            return _compressed(q)
        return _refuse("unsupported_model", "quantization_config.quant_method: got %r", method)

    def window(self, full, max_model_len):
        sliding, chunk = self.count("sliding_window"), self.count("attention_chunk_size")
        if not self.flag("use_sliding_window", True):
            sliding = None
        if sliding is None and chunk is None:
            return []
        kinds = self.layer_types()
        if kinds and "sliding_attention" not in kinds and "chunked_attention" not in kinds:
            return []
        size = min(n for n in (sliding, chunk) if n is not None)
        longest = max_model_len or self.positions()
        if longest and longest <= size:
            return []
        if full:
            return ["full_attention_assumed"]
        return _refuse("unsupported_model", "attention window: got %d tokens, want none or max_model_len <= the window", size)

    def positions(self):
        """The position limit as vLLM derives it, 0 when unknown."""
        n = _integer(self.first("max_position_embeddings", "n_positions", "max_sequence_length", "seq_length")[1]) or 0
        rope = self.first("rope_scaling", "rope_parameters")[1]
        rope = rope if isinstance(rope, dict) else {}
        kind = rope["rope_type"] if rope.get("rope_type") is not None else rope.get("type")
        factor = rope.get("factor")
        if isinstance(factor, bool) or not isinstance(factor, numbers.Real) or not 1 <= factor <= 1e4 or \
                kind in ("su", "longrope", "llama3", "mrope"):
            return max(n, 0)
        if kind == "yarn":
            n = _integer(rope.get("original_max_position_embeddings")) or n
        return int(max(n, 0) * factor)


def _compressed(q):
    groups = q.get("config_groups")
    groups = list(groups.values()) if isinstance(groups, dict) else []
    if len(groups) > 1:
        _refuse("unsupported_model", "quantization_config.config_groups: got %d groups, want exactly one", len(groups))
    group = groups[0] if groups and isinstance(groups[0], dict) else {}
    weights, inputs = group.get("weights") or {}, group.get("input_activations") or {}
    bits = _integer(weights.get("num_bits"))
    if bits is None or not 0 < bits <= 16:
        _refuse("unsupported_model", "quantization_config.config_groups: want one group with weights.num_bits")
    fp8 = bits == 8 and weights.get("type") == "float" and inputs.get("num_bits") == 8
    return bits / 8, "fp8" if fp8 else "native"
