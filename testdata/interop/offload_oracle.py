#!/usr/bin/env python3
"""What vLLM's own OffloadingConnectorScheduler and CPU managers decide beside its scheduler, step by step.

    offload_oracle.py --tools DIR --scenarios --seed N --count M > s.jsonl
    offload_oracle.py --tools DIR --vllm DIR s.jsonl > t.jsonl

Scenario and trace are those of the oracle in --tools; engine.offload says {"chunks", "blocks_per_chunk", "eviction_policy",
"store_threshold", "max_tracker_size", "offload_prompt_only", "sync_load_budget_bytes", "load_steps", "store_steps"}: a
copy is done with the update so many steps after it began. A line has also "stores" (chunks of each offer that stores),
"evicted", and "tier", the chunks that are there. Sets that vLLM walks are walked in the order of insertion.
"""
import argparse
import collections.abc
import importlib
import inspect
import json
import os
import sys
import types
from unittest.mock import MagicMock


class Ordered(collections.abc.MutableSet):
    def __init__(self, items=()):
        self.d = dict.fromkeys(items)

    def __contains__(self, x): return x in self.d
    def __iter__(self): return iter(self.d)
    def __len__(self): return len(self.d)
    def add(self, x): self.d[x] = None
    def discard(self, x): self.d.pop(x, None)
    def __class_getitem__(cls, x): return cls

    def update(self, *others):
        for o in others:
            self.d.update(dict.fromkeys(o))

    def difference_update(self, o):
        for x in o:
            self.discard(x)


def load(tools, root):
    sys.path.insert(0, tools)
    import vllm_stubs
    vllm_stubs.STUBBED = [x for x in vllm_stubs.STUBBED if x != "numpy"] + ["vllm.attention"]
    vllm_stubs.REAL |= {"vllm.v1.kv_offload." + x for x in (
        "abstract backend mediums lru_manager arc_manager reuse_manager base config backends.cpu cpu.common cpu.manager cpu.policies.abstract "
        "cpu.policies.base cpu.policies.lru cpu.policies.arc cpu.policies.factory").split()}
    kv = "vllm.distributed.kv_transfer.kv_connector.v1.offloading"
    vllm_stubs.REAL |= {kv + "_connector", kv + ".scheduler", kv + ".common"}
    vllm_stubs.REAL |= {"vllm.v1.metrics.cache_hit_source"}
    import oracle
    engine = vllm_stubs.Engine(root)

    def yield_req_data(out):
        for new in out.scheduled_new_reqs:
            yield new.req_id, new.block_ids, True
        cached = out.scheduled_cached_reqs
        yield from zip(cached.req_ids, cached.new_block_ids, (i in cached.resumed_req_ids for i in cached.req_ids))
    importlib.import_module("vllm.distributed.kv_transfer.kv_connector.utils").yield_req_data = yield_req_data
    config = importlib.import_module(kv + ".config")
    importlib.import_module(kv + ".metrics").OffloadingConnectorStats = type("Stats", (MagicMock,), {})
    importlib.import_module(kv + ".events").OffloadingEventsTracker = type("Tracker", (MagicMock,), {})
    config._group_kv_bytes_per_block = lambda group: group.kv_cache_spec.page_size_bytes
    try:
        engine.off = importlib.import_module(kv + ".scheduler")
        engine.off.OffloadingConnectorScheduler.__mro__
        if not getattr(engine.off, "__file__", None):
            raise ImportError
    except ImportError:
        engine.off = importlib.import_module(kv + "_connector")
    engine.off.set = engine.sched.set = Ordered
    return oracle, engine


def connector_class(base):
    class Offloading(base):
        def setup(self, v, config, kv_config, o, block_size):
            self.o, self.jobs, self.waiting, self.waits = o, {}, [], Ordered()
            config.parallel_config.world_size = 1
            f, chunks = o["blocks_per_chunk"], o["chunks"]
            names = lambda **k: types.SimpleNamespace(**k)
            for g in kv_config.kv_cache_groups:
                # From 0.33 on (kv_cache_planning) the group with the drafter's layers says so; before, one group of all layers does not.
                s = config.speculative_config
                g.is_eagle_group = v.version >= "0.33" and bool(s and s.use_eagle_block_drop())
            spec = names(
                gpu_block_size=(block_size,), offloaded_block_size=block_size * f, block_size_factor=f, hash_block_size=block_size,
                tokens_per_block=(block_size,), blocks_per_chunk=f, tokens_per_hash=block_size, extra_config=o, kv_events_config=None,
                offload_prompt_only=o["offload_prompt_only"], vllm_config=config, kv_cache_config=kv_config,
                config=names(groups=(names(group_id=0, tokens_per_block=block_size, layer_names=("layer",),
                                           sliding_window_size_in_chunks=None),)),
                get_manager=lambda: self.manager)
            cls = v.off.OffloadingConnectorScheduler
            self.old = "_get_reqs_to_store" in vars(cls)
            policy, limit = o["eviction_policy"], o["store_threshold"]
            if v.version < "0.19":
                spec.gpu_block_size = block_size if v.version < "0.18" else (block_size,)
                backend = importlib.import_module("vllm.v1.kv_offload.backends.cpu").CPUBackend(block_size * f, chunks)
                m = importlib.import_module(f"vllm.v1.kv_offload.{policy}_manager")
                self.manager = getattr(m, policy.upper() + "OffloadingManager")(backend)
                self.tier = lambda: backend.num_allocated_blocks - len(backend.allocated_blocks_free_list)
                if v.version >= "0.18" and limit >= 2:
                    reuse = importlib.import_module("vllm.v1.kv_offload.reuse_manager").FilterReusedOffloadingManager
                    self.manager = reuse(self.manager, limit, o["max_tracker_size"])
            else:
                m = importlib.import_module("vllm.v1.kv_offload.cpu.manager").CPUOffloadingManager
                known = inspect.signature(m.__init__).parameters
                args = {"num_blocks": chunks, "num_chunks": chunks, "block_size": block_size * f, "cache_policy": policy,
                        "store_threshold": limit, "max_tracker_size": o["max_tracker_size"]}
                inner = self.manager = m(**{k: a for k, a in args.items() if k in known})
                if "store_threshold" not in known and limit >= 2:
                    reuse = importlib.import_module("vllm.v1.kv_offload.reuse_manager").FilterReusedOffloadingManager
                    self.manager = reuse(inner, limit, o["max_tracker_size"])
                kind = "chunks" if hasattr(inner, "_num_allocated_chunks") else "blocks"
                self.tier = lambda: getattr(inner, "_num_allocated_" + kind) - len(inner._free_list)
            prepare, self.stores, self.evicted = self.manager.prepare_store, [], 0

            def counted(*a):
                used = self.tier()
                out = prepare(*a)
                stored = 0
                if out is not None:
                    stored = len(getattr(out, "keys_to_store", None) or getattr(out, "block_hashes_to_store", []))
                if stored:
                    self.stores.append(stored)
                self.evicted += used + stored - self.tier()
                return out
            self.manager.prepare_store = counted
            n = len(inspect.signature(cls.__init__).parameters)
            self.impl = cls(spec, config, kv_config) if n > 2 else cls(spec)

        def get_num_new_matched_tokens(self, request, computed, *a):
            return self.impl.get_num_new_matched_tokens(request, computed, *a)

        def update_state_after_alloc(self, request, blocks, n):
            self.impl.update_state_after_alloc(request, blocks, n)
            if n and request.request_id not in getattr(self.impl, "_current_batch_sync_loads", ()):
                self.parked.append(request.request_id)

        def build_connector_meta(self, out):
            return self.impl.build_connector_meta(out)

        def request_finished(self, request, blocks):
            return self.impl.request_finished(request, blocks) if self.old else self.impl.request_finished(request)

        request_finished_all_groups = request_finished

        def on_new_request(self, request):
            getattr(self.impl, "on_new_request", lambda r: None)(request)

        def has_pending_push_work(self):
            f = getattr(self.impl, "has_pending_push_work", None)
            return f() if f else False

        def update_connector_output(self, output):
            self.impl.update_connector_output(output)

        def execute(self, out, meta, step):
            """Worker: what of the copies is done with this step."""
            recv, send, done = Ordered(), Ordered(), []
            due = lambda store: step + self.o["store_steps" if store else "load_steps"]
            for job, rid in self.waiting:
                self.jobs[job] = (rid, True, due(True))
            self.waiting = []
            if self.old:
                flush = {j for j, (rid, store, _) in self.jobs.items() if store and rid in (out.preempted_req_ids or ())}
                for rid in meta.reqs_to_load:
                    self.jobs["load", rid, step] = (rid, False, due(False))
            else:
                flush = set(meta.jobs_to_flush or ())
                for job, t in meta.load_jobs.items():
                    self.jobs[job] = (t.req_id, False, step if getattr(t, "sync", False) else due(False))
            for job, (rid, store, at) in list(self.jobs.items()):
                if step >= at or job in flush:
                    del self.jobs[job]
                    done.append(job)
                    if not store and not (self.old is False and self.is_sync(job)):
                        recv.add(rid)
            if self.old:
                self.waiting = [(("store", rid, step), rid) for rid in meta.reqs_to_store]
                self.waits.update(out.finished_req_ids)
                for rid in list(self.waits):
                    left = any(s and r == rid for r, s, _ in self.jobs.values())
                    if not left:
                        self.waits.discard(rid)
                        if rid in self.impl._reqs_being_stored:
                            send.add(rid)
            else:
                self.waiting = [(job, t.req_id) for job, t in meta.store_jobs.items()]
            return recv, send, done

        def is_sync(self, job):
            return getattr(self.impl._jobs.get(job), "is_sync_load", False)
    return Offloading


OFFLOAD = {"chunks": 8, "blocks_per_chunk": 1, "eviction_policy": "lru", "store_threshold": 0, "max_tracker_size": 64000,
           "offload_prompt_only": True, "sync_load_budget_bytes": 0, "load_steps": 0, "store_steps": 0}


def run_class(oracle):
    class Run(oracle.Run):
        def __init__(self, engine, scenario):
            scenario = json.loads(json.dumps(scenario))
            self.offload = {**OFFLOAD, **scenario["engine"].pop("offload")}
            scenario["engine"]["kv_connector"] = True
            oracle.Connector = connector_class(Run.base)
            super().__init__(engine, scenario)

        def _make_scheduler(self):
            super()._make_scheduler()
            self.connector.setup(self.v, self.s.vllm_config, self.s.kv_cache_config, self.offload, self.e["block_size"])

        def _schedule(self, line):
            c = self.connector
            c.stores, c.evicted = [], 0
            batch = super()._schedule(line)
            if c.stores:
                line["stores"] = c.stores
            if c.evicted:
                line["evicted"] = c.evicted
            line["tier"] = c.tier()
            return batch

        def _update(self, batch, line):
            self.batch, over = batch, set(self.done) - self.aborted
            super()._update(batch, line)
            # To 0.18 a finished request whose blocks stay goes on giving tokens; the front end drops them.
            told = {r: n for r, n in line.pop("delivered", {}).items() if r not in over}
            if told:
                line["delivered"] = told

        def _connector_output(self, line):
            out = self.batch.out
            recv, send, done = self.connector.execute(out, out.kv_connector_metadata, self.batch.step)
            self.parked_at = {"copies": 0} if self.connector.jobs or self.connector.waiting else {}
            meta = None
            if not self.connector.old and done:
                meta = self.v.off.OffloadingWorkerMetadata()
                meta.completed_jobs = dict.fromkeys(done, 1)
            return oracle.Record(finished_recving=recv or None, finished_sending=send or None, invalid_block_ids=None,
                                 expected_finished_count=0, kv_connector_worker_meta=meta)
    Run.base = oracle.Connector
    return Run


def scenario(rs, seed, i):
    d = rs.Draw(f"offload {seed}/{i}")
    e, reqs = d.one(rs.prefixes, rs.prefixes, rs.sessions)(d)
    if d.chance(0.3):
        k = d.int(1, 4)
        e["speculative"] = {"method": d.one("eagle3", "mtp", "draft_model", "ngram"), "num_speculative_tokens": k}
        if e["speculative"]["method"] == "draft_model":
            e["max_num_batched_tokens"] += e["max_num_seqs"]
        for r in reqs:
            r["accept"] = [d.int(0, k) for _ in range(r["max_tokens"])]
    e["async_scheduling"] = d.chance(0.4)
    rs.finish(d, e, reqs)
    f = d.one(1, 1, 2, 3)
    o = {"chunks": d.one(2, 4, 6, 10, 16, 40), "blocks_per_chunk": f, "eviction_policy": d.one("lru", "arc"),
         "store_threshold": d.one(0, 0, 0, 1, 2, 2, 3), "offload_prompt_only": d.chance(0.5),
         "max_tracker_size": d.one(64000, 1, 2, 5, 12, 30),
         "load_steps": d.int(0, 3), "store_steps": d.int(0, 3),
         "sync_load_budget_bytes": d.one(0, 0, 1 << 40, 4 * e["block_size"] * d.int(1, 8))}
    e["offload"] = o
    if d.chance(0.5):
        e["num_blocks"] = max(e["num_blocks"] * 2 // 3, max(rs.blocks(size(r, reqs), e["block_size"]) for r in reqs))
    if not d.chance(0.2):
        e.pop("watermark", None)
    return {"name": f"{seed}-{i:04d}-offload", "engine": e, "requests": reqs, "max_steps": 400}


def size(r, reqs):
    n = r.get("prompt_len") or 0
    for p in r.get("prompt") or ():
        if "request" in p:
            other = next(x for x in reqs if x["id"] == p["request"])
            n += size(other, reqs)
        n += p.get("len", 0) + p.get("own", 0)
    return n + r["max_tokens"]


def main():
    p = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    p.add_argument("--tools", required=True)
    p.add_argument("--vllm")
    p.add_argument("--scenarios", action="store_true")
    p.add_argument("--seed", type=int)
    p.add_argument("--count", type=int)
    p.add_argument("file", nargs="?")
    a = p.parse_args()
    if a.scenarios:
        sys.path.insert(0, a.tools)
        import random_scenarios
        for i in range(a.count):
            print(json.dumps(scenario(random_scenarios, a.seed, i), separators=(",", ":")))
        return
    oracle, engine = load(os.path.abspath(a.tools), a.vllm)
    run = run_class(oracle)
    with open(a.file) as f:
        for text in f:
            if engine.version.startswith("0.15") and '"arc"' in text:
                continue  # its arc fails with a KeyError at the first chunk that it touches
            for line in run(engine, json.loads(text)).trace():
                print(oracle.dump(line))


if __name__ == "__main__":
    main()
