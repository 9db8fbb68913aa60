"""Holds the package against golden vectors: `python golden.py FILE...`. Numbers to 1e-12, codes and slots exactly."""
import json
import math
import os
import sys

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), ".."))
import blis_train_coefficients as btc  # noqa: E402

TOLERANCE = 1e-12
ENGINE = {"max_batched_tokens": "max_num_batched_tokens", "block_size_tokens": "block_size", "total_kv_blocks_gpu": "kv_blocks_total_gpu",
          "total_kv_blocks_cpu": "kv_blocks_total_cpu", "chunked_prefill_enabled": "enable_chunked_prefill",
          "expert_parallel": "enable_expert_parallel"}
worst, numbers, wrong = 0.0, 0, []


def deployment(config):
    engine = {ENGINE.get(k, k): v for k, v in config["vllm"].items()}
    return {"model": config["model"], "hardware": config["hardware"], "tensor_parallel_size": config["tp"], "vllm": engine,
            "pipeline_parallel_size": config["vllm"].get("pipeline_parallel_size", 1)}


def same(name, got, want):
    global worst, numbers
    numbers += 1
    error = abs(got - want) / abs(want) if want else abs(got)
    worst = max(worst, error)
    if not error <= TOLERANCE or math.isnan(got):
        wrong.append("%s: got %r, want %r" % (name, got, want))


def refused(name, code, call):
    try:
        call()
    except btc.CoefficientError as e:
        if e.code != code:
            wrong.append("%s: got code %s, want %s" % (name, e.code, code))
        return 1
    wrong.append("%s: not refused, want %s" % (name, code))
    return 1


cases = 0
for path in sys.argv[1:]:
    with open(path) as f:
        golden = json.load(f)
    for c in golden.get("test_cases", []):
        if c["spec_version"] != "1.1":
            continue
        cases += 1
        space = btc.Space(deployment(c["config"]))
        for name, want in c["expected_physics_config"].items():
            same(c["id"] + " " + name, space.constants[name], want)
        for kind, call in (("alpha", space.alpha), ("beta", space.beta)):
            got, hits = call(c[kind + "_input"])
            for slot, (a, b) in enumerate(zip(got, c["expected_%s_features" % kind]), 1):
                same("%s %s %d" % (c["id"], kind, slot), a, b)
            if hits != c["expected_%s_bound_hits" % kind]:
                wrong.append("%s %s: slots %s hit a bound, want %s" % (c["id"], kind, hits, c["expected_%s_bound_hits" % kind]))
    for c in golden.get("rejected_configs", []):
        if c["spec_version"] == "1.1":
            cases += refused(c["id"], c["reason"], lambda: btc.Space(deployment(c["config"])))
    for c in golden.get("rejected_inputs", []):
        if c["spec_version"] == "1.1":
            space = btc.Space(deployment(c["config"]))
            cases += refused(c["id"], c["reason"], lambda: getattr(space, c["kind"])(c["input"]))
if wrong or not cases:
    sys.exit("\n".join(wrong[:20]) + "\n%d wrong of %d numbers in %d cases" % (len(wrong), numbers, cases))
print("%d cases of specification 1.1, %d numbers, largest relative difference %.1e" % (cases, numbers, worst))
