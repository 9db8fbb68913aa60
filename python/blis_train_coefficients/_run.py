"""A deployment from run.yaml and the config.json it names, with blis-train's rules, defaults and codes.

Read: model, hardware (by datasheet too, hardware.json beside run.yaml first), the parallel sizes, vllm. Known and left alone: name,
provenance, tracing, phases, workload, files.
"""
import json
import math
import os
import re
from typing import Any, Dict, Optional

from . import _yaml
from ._error import CoefficientError
from ._model import RULES, load_model

_TOP = ("name", "provenance", "model", "hardware", "tensor_parallel_size", "pipeline_parallel_size", "data_parallel_size", "vllm",
        "tracing", "phases", "workload", "files")
_RATES = {"TFlopsPeak": 1e5, "TFlopsFP8": 1e5, "BwPeakTBs": 1e3, "memory_gb": 1e5, "pcie_bandwidth_gb_s": 1e4, "pcie_efficiency": 1,
          "interconnect_bandwidth_gb_s": 1e5, "interconnect_latency_us": 1e5}


def load_deployment(path: str) -> Dict[str, Any]:
    """run.yaml and its config.json as a deployment: what the configurations of a coefficient file hold."""
    try:
        with open(path, encoding="utf-8-sig") as f:
            text = f.read()
    except FileNotFoundError:
        raise CoefficientError("missing_run_yaml", "%s: no such file" % path)
    try:
        doc = _yaml.loads(text)
    except ValueError as e:
        raise CoefficientError("bad_run_yaml", "%s: %s" % (path, e))
    missing = []
    top = _Section({} if doc is None else doc, "", missing)
    folder = os.path.dirname(os.path.abspath(path))
    d = {"name": top.text("name"), "tensor_parallel_size": top.whole("tensor_parallel_size", 1, 1),
         "pipeline_parallel_size": top.whole("pipeline_parallel_size", 1, 1), "data_parallel_size": top.whole("data_parallel_size", 1, 1)}
    section = top.sub("model")
    options = {"n_mlp_proj": section.whole("n_mlp_proj", 1, None), "assume_full_attention": section.flag("assume_full_attention", False),
               "dtype": section.text("dtype"), "kv_cache_dtype": section.text("kv_cache_dtype")}
    name, config = section.text("id"), section.text("config")
    section.require(config, "config")
    section.done(("id", "config"))
    d["hardware"] = _hardware(top.sub("hardware"), folder)
    d["vllm"] = _engine(top.sub("vllm"))
    top.done(_TOP)
    if missing:
        raise CoefficientError("bad_run_yaml", "%s: missing %s" % (path, ", ".join(missing)))
    options.update(max_model_len=d["vllm"]["max_model_len"], quantization=d["vllm"]["extra"].get("quantization") or "")
    d["model"] = load_model(_config(os.path.join(folder, config), config), **options)
    d["model"]["id"] = name or d["model"]["model_type"]
    return d


def _config(path, name):
    try:
        with open(path, encoding="utf-8-sig") as f:
            return json.load(f)
    except OSError as e:
        raise CoefficientError("missing_config", "model.config: got %r: %s" % (name, e.strerror))
    except ValueError as e:
        raise CoefficientError("bad_model", "%s: want one JSON object: %s" % (name, e))


class _Section:
    """One mapping of run.yaml: what is asked for is known, done refuses the rest."""

    def __init__(self, values, path, missing):
        if values is None:
            values = {}
        if not isinstance(values, dict):
            raise CoefficientError("bad_run_yaml", "%s: got %r, want a mapping" % (path or "run.yaml", values))
        self.values, self.path, self.missing, self.known = values, path, missing, set()

    def name(self, key):
        return self.path + "." + key if self.path else key

    def get(self, key):
        self.known.add(key)
        return self.values.get(key)

    def bad(self, key, want):
        raise CoefficientError("bad_run_yaml", "%s: got %r, want %s" % (self.name(key), self.values[key], want))

    def sub(self, key):
        return _Section(self.get(key), self.name(key), self.missing)

    def text(self, key):
        v = self.get(key)
        if isinstance(v, (dict, list)):
            self.bad(key, "a string")
        return "" if v is None else str(v)

    def whole(self, key, least, default):
        v = self.get(key)
        if v is None:
            return default
        if isinstance(v, bool) or not isinstance(v, int) or v < least:
            self.bad(key, "an integer >= %d" % least)
        return v

    def number(self, key, most):
        v = self.get(key)
        if v is not None and (isinstance(v, bool) or not isinstance(v, (int, float)) or not math.isfinite(v) or not 0 <= v <= most):
            self.bad(key, "a number in 0..%g" % most)
        return v

    def flag(self, key, default):
        v = self.get(key)
        if v is not None and not isinstance(v, bool):
            self.bad(key, "true or false")
        return default if v is None else v

    def require(self, found, key):
        if not found:
            self.missing.append(self.name(key))

    def done(self, known=()):
        for key in self.values:
            if key not in self.known and key not in known:
                raise CoefficientError("unknown_key", "unknown key %r" % self.name(key))


def _key(name):
    short = re.sub(r"sxm[2-6]([^0-9]|$)", r"sxm\1", name.lower())
    return re.sub(r"[-_ ]|nvidia|geforce|tesla|amd|instinct|oam|hbm[23]e?", "", short)


def datasheet(name: str, own: Any = ()) -> Optional[Dict[str, Any]]:
    """A device by its name, its driver's name or its alias; None for none."""
    want, found = _key(name), None
    for sheet in own:
        if want and _key(sheet["name"]) == want:
            return sheet
    for s in RULES["datasheets"]:
        if want in s["names"]:
            return s["sheet"]
        if want in s["aliases"] and s["sheet"]["memory_gb"] > (found or {"memory_gb": 0})["memory_gb"]:
            found = s["sheet"]
    return found


def _own_sheets(folder):
    try:
        with open(os.path.join(folder, "hardware.json"), encoding="utf-8-sig") as f:
            sheets = json.load(f)
    except FileNotFoundError:
        return []
    except ValueError as e:
        raise CoefficientError("bad_hardware", "hardware.json: %s" % e)
    allowed = set(_RATES) | {"source", "names"}
    if not isinstance(sheets, dict) or not all(isinstance(v, dict) and set(v) <= allowed for v in sheets.values()):
        raise CoefficientError("bad_hardware", "hardware.json: want {name: {TFlopsPeak, ...}}")
    blank = dict.fromkeys(_RATES, 0)
    blank.update(pcie_efficiency=RULES["pcie_efficiency"], interconnect_latency_us=RULES["latency_us"])
    return [dict(blank, name=n, **{k: v for k, v in sheets[n].items() if k in _RATES}) for n in sorted(sheets)]


def _hardware(s, folder):
    name = s.text("name")
    blank = dict.fromkeys(_RATES, 0)
    blank.update(name=name, pcie_efficiency=RULES["pcie_efficiency"], interconnect_latency_us=RULES["latency_us"])
    h = dict(datasheet(name, _own_sheets(folder)) or blank) if name else blank
    for key, most in _RATES.items():
        v = s.number(key, most)
        if v is not None:
            h[key] = v
    s.done()
    if not h["TFlopsPeak"] and not h["BwPeakTBs"] and name:
        raise CoefficientError("unknown_hardware", "hardware.name: got %r, want a built-in datasheet, or TFlopsPeak and BwPeakTBs" % name)
    s.require(h["TFlopsPeak"] or name, "name (or hardware.TFlopsPeak)")
    if not name:
        h["name"] = "unnamed"
        s.require(h["BwPeakTBs"] or not h["TFlopsPeak"], "BwPeakTBs")
    return h


def _version(release):
    """A release's first two numbers; None without, and of a checkout."""
    version = re.match(r"v?(\d+)\.(\d+)(?:\.(dev)?)?", release.strip())
    return version and (None if version.groups() == ("0", "1", "dev") else (int(version.group(1)), int(version.group(2))))


def _flags(release):
    """The flags of vllm serve in a release; of every release where it has no number."""
    version = _version(release)
    out = set()
    for line in RULES["serve_flags"]:
        name, since, until = line.split()
        since, until = (tuple(int(n) for n in v.split(".")) for v in (since, until))
        if version is None or since <= version and (until == (0, 0) or version <= until):
            out.add(name)
    return out


def _engine(s):
    def knob(key):
        v = s.get(key)
        if key not in s.values:
            s.require(False, key)
        elif isinstance(v, float) or isinstance(v, (str, list, dict, bool)):
            s.bad(key, "an integer")
        elif v is None or v <= 0:
            raise CoefficientError("bad_knobs", "vllm.%s: got %r, want > 0" % (key, v))
        return v

    e = {"max_model_len": s.whole("max_model_len", 1, None), "max_num_seqs": knob("max_num_seqs"),
         "max_num_batched_tokens": knob("max_num_batched_tokens"), "enable_chunked_prefill": s.flag("enable_chunked_prefill", True),
         "enable_prefix_caching": s.flag("enable_prefix_caching", True), "block_size": s.whole("block_size", 1, RULES["block_size"]),
         "cpu_offloading": s.flag("cpu_offloading", False), "kv_blocks_total_cpu": s.whole("kv_blocks_total_cpu", 0, 0),
         "async_scheduling": s.flag("async_scheduling", None), "version": s.text("version"),
         "long_prefill_token_threshold": s.whole("long_prefill_token_threshold", 0, 0),
         "enable_expert_parallel": s.flag("enable_expert_parallel", False), "speculative_decoding": s.flag("speculative_decoding", False)}
    memory = s.number("gpu_memory_utilization", 1)
    e["gpu_memory_utilization"] = RULES["gpu_memory_utilization"] if memory is None else memory
    blocks, override = s.whole("kv_blocks_total_gpu", 1, None), s.whole("num_gpu_blocks_override", 1, None)
    if blocks is not None and override is not None and abs(blocks - override) > max(2, 0.01 * override):
        s.bad("kv_blocks_total_gpu", f"the {override} of num_gpu_blocks_override")
    e["kv_blocks_total_gpu"] = max(1, override - 1) if blocks is None and override is not None else blocks
    e["scheduling_policy"] = s.text("scheduling_policy") or "fcfs"
    if e["scheduling_policy"] not in ("fcfs", "priority"):
        s.bad("scheduling_policy", "fcfs or priority")
    s.require(e["version"], "version")
    for key in ("speculative_config", "speculative_model", "num_speculative_tokens"):
        e["speculative_decoding"] = s.get(key) is not None or e["speculative_decoding"]
    quantization = s.text("quantization")
    e["extra"] = {k: v for k, v in s.values.items() if k not in s.known}
    flags = _flags(e["version"])
    for key in e["extra"]:
        if key not in flags:
            raise CoefficientError("unknown_key", "unknown key %r" % s.name(key))
    if quantization:
        e["extra"]["quantization"] = quantization
    return e
