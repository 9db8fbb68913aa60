"""Asks AIConfigurator 0.12 for forward passes: ROOT MODEL SYSTEM TP EP; requests, tokens and context of each on stdin, ms on stdout."""
import logging
import os
import shutil
import sys
import warnings

warnings.filterwarnings("ignore")
logging.disable(logging.CRITICAL)
import aiconfigurator_core
from aiconfigurator.cli.api import cli_estimate

root, model, system, tp, spread = sys.argv[1:]
tp, ep = int(tp), int(tp) if spread == "true" else 1
shutil.copy(os.path.join(os.path.dirname(aiconfigurator_core.__file__), "systems", system + ".yaml"), root)
for line in sys.stdin:
    n, tokens, context = map(int, line.split())
    shape = {"mode": "static_ctx", "isl": tokens + context, "prefix": context, "osl": 1}
    if tokens == 0:  # it samples the middle of the output behind the prompt
        shape = {"mode": "static_gen", "isl": context - 1, "osl": 2}
    got = cli_estimate(model, system, backend_name="vllm", backend_version="0.24.0", tp_size=tp, moe_tp_size=tp // ep, moe_ep_size=ep,
                       kvcache_quant_mode="bfloat16", forward_model="fpm", systems_paths=root + ",default", batch_size=n, **shape)
    print(got.tpot if tokens == 0 else got.ttft)
