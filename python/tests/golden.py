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
EXTRACTION = ("summary_only_steps", "transfers", "alpha_join", "alpha_target", "cadence_rows")
FROZEN = ("nonrich_prefill_attn_work", "nonrich_decode_context", "prefix_hit_ratio_training_frozen", "alpha_target_us")
worst, numbers, wrong = 0.0, 0, []


def deployment(config):
    engine = {ENGINE.get(k, k): v for k, v in config["vllm"].items()}
    hardware = dict({"interconnect_latency_us": 10}, **config["hardware"])
    return {"model": config["model"], "hardware": hardware, "tensor_parallel_size": config["tp"], "vllm": engine,
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


def features(c):
    space = btc.Space(deployment(c["config"]), c["spec_version"])
    for name, want in c["expected_physics_config"].items():
        same(c["id"] + " " + name, space.constants[name], want)
    for kind, call in (("alpha", space.alpha), ("beta", space.beta)):
        got, hits = call(c[kind + "_input"])
        want = c["expected_%s_features" % kind]
        if len(got) != len(want):
            wrong.append("%s %s: got %d features, want %d" % (c["id"], kind, len(got), len(want)))
        for slot, (a, b) in enumerate(zip(got, want), 1):
            same("%s %s %d" % (c["id"], kind, slot), a, b)
        if hits != c.get("expected_%s_bound_hits" % kind, hits):
            wrong.append("%s %s: slots %s hit a bound, want %s" % (c["id"], kind, hits, c["expected_%s_bound_hits" % kind]))


def rejected_config(c):
    refused(c["id"], c["reason"], lambda: btc.Space(deployment(c["config"]), c["spec_version"]))


def rejected_input(c):
    space = btc.Space(deployment(c["config"]), c["spec_version"])
    refused(c["id"], c["reason"], lambda: getattr(space, c["kind"])(c["input"]))


def load(c):
    options = c.get("overrides") or {}
    if c.get("reason"):
        refused(c["id"], c["reason"], lambda: btc.load_model(c["config_json"], **options))
        return
    got = btc.load_model(c["config_json"], **options)
    for name, want in c["expected"].items():
        if isinstance(want, (int, float)):
            same(c["id"] + " " + name, got[name], want)
        elif got[name] != want:
            wrong.append("%s %s: got %r, want %r" % (c["id"], name, got[name], want))


def ema(c):
    value = c["initial"]
    for preempted, running, want in zip(c["num_preempted"], c["running_depth"], c["expected"]):
        value = btc.preemption_ema(value, c["gamma"], preempted, running)
        same(c["id"], value, want)


def sums(name, requests, want):
    got = btc.step_of(requests)
    for field, v in want.items():
        same(name + " " + field, got[field], v)


def rich(c):
    at = ("request.num_computed_tokens", "request.num_prompt_tokens", "request.scheduled_tokens_this_step")
    sums(c["id"], [tuple(s[k] for k in at) for s in c["snapshots"]], c["expected_1_1"])


def journey(c):
    for step in c["expected_steps"]:
        sums(c["id"], [(r["computed"], r["prompt"], r["n"]) for r in step["requests"]], step["inputs"])


def free_bytes(c):
    space = btc.Space(FREE_BYTES, "1.0")
    got = space.kv_free_bytes(c["total_blocks"], c["usage"]) / space.constants["block_size_bytes"] * c["block_size_bytes"]
    same("kv_free_bytes", got, c["expected"])


def attention_work(c):
    got = btc.step_of([(computed, computed + n, n) for computed, n in c["requests"]], "1.0", 16)
    same("prefill_attn_work", got["sum_prefill_attn_work"], c["expected"])


counts = {}


def run(kind, cases, call):
    for c in cases:
        counts[kind] = counts.get(kind, 0) + 1
        call(c)


FREE_BYTES = None
left = {}
for path in sys.argv[1:]:
    with open(path) as f:
        golden = json.load(f)
    for c in golden.get("test_cases", []):
        run("features " + c["spec_version"], [c], features)
        FREE_BYTES = FREE_BYTES or deployment(c["config"])
    for c in golden.get("rejected_configs", []):
        run("rejected deployments", [c], rejected_config)
    run("rejected inputs", golden.get("rejected_inputs", []), rejected_input)
    if counts.get("models"):  # a later file repeats them
        golden.pop("load_cases", None)
    run("models", golden.get("load_cases", []), load)
    run("preemption averages", golden.get("ema_cases", []) if "preemption averages" not in counts else [], ema)
    sourcing = golden.get("sourcing_cases", {}) if "batches" not in counts else {}
    run("batches", sourcing.get("rich_steps", []), rich)
    run("batches", sourcing.get("journey_reconstruction", []), journey)
    frozen = sourcing.get("frozen", {})
    run("inputs of 1.0", frozen.get("kv_free_bytes", []), free_bytes)
    run("inputs of 1.0", frozen.get("prefill_attn_work", []), attention_work)
    for kind in EXTRACTION:
        left[kind] = left.get(kind, 0) + len(sourcing.get(kind, []))
    for kind in FROZEN:
        left["1.0 " + kind] = left.get("1.0 " + kind, 0) + len(frozen.get(kind, []))
    for kind, cases in (("prefix_hit_1_1", sourcing.get("prefix_hit_1_1", [])),
                        ("1.0 prefix_hit_ratio_simulation", frozen.get("prefix_hit_ratio_simulation", []))):
        left[kind] = left.get(kind, 0) + len(cases)
if wrong or not counts:
    sys.exit("\n".join(wrong[:20]) + "\n%d wrong of %d numbers in %s" % (len(wrong), numbers, counts))
print("%d cases, %d numbers, largest relative difference %.1e: %s; not of this package, which reads no recordings, %d cases: %s" % (
    sum(counts.values()), numbers, worst, ", ".join("%d %s" % (n, k) for k, n in counts.items()), sum(left.values()),
    ", ".join("%d %s" % (n, k) for k, n in left.items() if n)))
