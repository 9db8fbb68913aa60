#!/usr/bin/env python3
"""What LMCache's own connector, engine and CPU backend decide inside vLLM's own scheduler, step by step.

    lmcache_oracle.py --tools DIR --scenarios --seed N --count M > s.jsonl
    lmcache_oracle.py --tools DIR --vllm DIR --lmcache DIR s.jsonl > t.jsonl

DIR of --lmcache is its unpacked wheel. Real are vllm_v1_adapter, cache_engine, token_database, lmcache_lookup_client, storage_manager,
local_cpu_backend and cache_policy; torch, the GPU and the memory are not: every chunk is as large as another and engine.offload says how
many fit. A step's loads and stores are done with its update. Lines have "stores", the chunks of each store, and "tier".
"""
import argparse
import importlib
import importlib.abc
import importlib.machinery
import importlib.util
import json
import os
import sys
import threading
import types
from collections import defaultdict, namedtuple
from unittest.mock import MagicMock

import offload_oracle

REAL = {"lmcache." + x for x in (
    "integration.vllm.vllm_v1_adapter v1.cache_engine v1.token_database v1.lookup_client.lmcache_lookup_client v1.lookup_client.abstract_client "
    "v1.storage_backend.local_cpu_backend v1.storage_backend.storage_manager v1.storage_backend.abstract_backend "
    "v1.storage_backend.cache_policy.base_policy v1.storage_backend.cache_policy.lru v1.storage_backend.cache_policy.fifo "
    "v1.storage_backend.cache_policy.lfu v1.storage_backend.cache_policy.mru").split()}


def load(tools, root, wheel):
    oracle, engine = offload_oracle.load(tools, root)
    import numpy as np
    import vllm_stubs
    vllm_stubs.STUBBED += ["vllm.version", "vllm.distributed.parallel_state", "cachetools", "nvtx"]

    class Finder(vllm_stubs._Finder):
        def find_spec(self, name, path, target=None):
            if name in REAL:
                return importlib.util.spec_from_file_location(name, os.path.join(wheel, *name.split(".")) + ".py")
            if name.split(".")[0] == "lmcache":
                return importlib.machinery.ModuleSpec(name, self, is_package=True)
            return None
    sys.meta_path.insert(0, Finder(wheel))

    class Tensor(np.ndarray):
        def numel(self): return self.size
        def long(self): return self
        def to(self, device=None, dtype=None): return self
    torch = importlib.import_module("torch")
    torch.Tensor, torch.long, torch.bool, torch.int64 = Tensor, np.int64, np.bool_, np.int64
    torch.tensor = lambda x, dtype=np.int64, **k: np.array(x, dtype=dtype).view(Tensor)
    torch.arange = lambda a, b, dtype=np.int64: np.arange(a, b, dtype=dtype).view(Tensor)
    torch.ones = lambda n, dtype=np.int64, **k: np.ones(n, dtype=dtype).view(Tensor)
    torch.zeros = lambda n, dtype=np.int64, **k: np.zeros(n, dtype=dtype).view(Tensor)
    torch.sum = lambda x: np.sum(np.asarray(x))
    torch.inference_mode = lambda: (lambda f: f)
    utils = importlib.import_module("lmcache.utils")
    utils._lmcache_nvtx_annotate = lambda f: f
    utils.cdiv = lambda a, b: -(-a // b)
    utils.CacheEngineKey = namedtuple("Key", "model world worker chunk_hash dtype configs")
    base = importlib.import_module("vllm.distributed.kv_transfer.kv_connector.v1.base")
    base.KVConnectorMetadata = type("KVConnectorMetadata", (), {})
    importlib.import_module("lmcache.integration.vllm.utils").extract_mm_features = lambda *a, **k: (None, None)
    stats = importlib.import_module("lmcache.integration.vllm.utils")
    stats.extract_request_configs_from_sampling_params = lambda p: None
    monitor = MagicMock()
    for what in ("store", "retrieve"):
        s = getattr(monitor, f"on_{what}_request").return_value
        getattr(s, f"time_to_{what}").return_value = s.process_tokens_time = s.from_gpu_time = s.put_time = 1.0
    importlib.import_module("lmcache.observability").LMCStatsMonitor.GetOrCreate = staticmethod(lambda: monitor)
    policies = importlib.import_module("lmcache.v1.storage_backend.cache_policy")
    mods = {n: importlib.import_module(n) for n in sorted(REAL)}
    policies.get_cache_policy = lambda name: getattr(mods[f"lmcache.v1.storage_backend.cache_policy.{name}"], name.upper() + "CachePolicy")()
    for n, m in mods.items():
        assert getattr(m, "__file__", None), n
    mods["lmcache.v1.storage_backend.local_cpu_backend"].get_cache_policy = policies.get_cache_policy
    engine.lm = types.SimpleNamespace(
        adapter=mods["lmcache.integration.vllm.vllm_v1_adapter"], engine=mods["lmcache.v1.cache_engine"], db=mods["lmcache.v1.token_database"],
        client=mods["lmcache.v1.lookup_client.lmcache_lookup_client"], cpu=mods["lmcache.v1.storage_backend.local_cpu_backend"],
        manager=mods["lmcache.v1.storage_backend.storage_manager"], monitor=monitor)
    engine.lm.db.NONE_HASH = 0
    return oracle, engine


class Memory:
    """So many chunks."""

    def __init__(self, chunks):
        self.free = chunks

    def allocate(self, shapes, dtypes, fmt=None):
        if not self.free:
            return None
        self.free -= 1
        return Chunk(self)


class Chunk:
    def __init__(self, memory):
        self.memory, self.refs, self.pins = memory, 1, 0

    is_pinned = property(lambda self: self.pins > 0)
    can_evict = property(lambda self: not self.pins and self.refs == 1)

    def ref_count_up(self):
        self.refs += 1

    def ref_count_down(self):
        self.refs -= 1
        if not self.refs:
            self.memory.free += 1

    def pin(self):
        self.pins += 1

    def unpin(self):
        assert self.pins
        self.pins -= 1

    def get_size(self):
        return 1


def build(lm, o, block_size):
    """The connector of both roles and its engine, without their constructors, which start threads and ask the device."""
    make = lambda cls, **k: (x := object.__new__(cls), x.__dict__.update(k))[0]
    config = types.SimpleNamespace(
        chunk_size=o["chunk_size"], save_unfull_chunk=False, save_decode_cache=o["save_decode_cache"], min_retrieve_tokens=o["min_retrieve_tokens"],
        cache_policy=o["cache_policy"], local_cpu=True, priority_limit=None, enable_blending=False, use_layerwise=False, pd_bidirectional=False,
        get_extra_config_value=lambda k, d: d)
    meta = types.SimpleNamespace(model_name="m", world_size=1, worker_id=0, kv_dtype="f", get_shapes=lambda n: n, get_dtypes=lambda: 0,
                                 is_first_rank=lambda: True, use_mla=False)
    db = make(lm.db.ChunkedTokenDatabase, config=config, chunk_size=config.chunk_size, metadata=meta, hash_func=hash, save_only_first_rank=False)
    cpu = make(lm.cpu.LocalCPUBackend, cache_policy=lm.cpu.get_cache_policy(config.cache_policy), use_hot=True, memory_allocator=Memory(o["chunks"]),
               lmcache_worker=None, cpu_lock=threading.RLock(), stats_monitor=lm.monitor, layerwise=False, enable_blending=False, config=config,
               keys_in_request=[], batched_msg_sender=None)
    cpu.hot_cache = cpu.cache_policy.init_mutable_mapping()
    store = make(lm.manager.StorageManager, storage_backends={"LocalCPUBackend": cpu}, allocator_backend=cpu, _bypass_lock=threading.RLock(),
                 _bypassed_backends=set(), config=config, internal_copy_stream=None, metadata=meta, local_cpu_backend=cpu)
    store.get_active_storage_backends = lambda location=None, search_range=None: iter(store.storage_backends.items())
    lm.manager.get_backend_cname = lambda b: "cpu"
    cpu.get_allocator_backend = lambda: cpu
    engine = make(lm.engine.LMCacheEngine, config=config, metadata=meta, token_database=db, gpu_connector=MagicMock(), storage_manager=store,
                  save_only_first_rank=False, async_loading=False, use_layerwise=False, kv_events_enabled=False, remove_after_retrieve=False,
                  store_location=None, retrieve_locations=None, num_layers=1, fmt=None, stats_monitor=lm.monitor, lookup_pins=defaultdict(lambda: defaultdict(list)),
                  event_manager=MagicMock(), kv_events=[])
    for name, value in (("is_healthy", True), ("is_frozen", False), ("_is_passive", False), ("_log_kvcache_for_check", None)):
        setattr(engine, name, lambda *a, v=value, **k: v)
    transport = types.SimpleNamespace(world_size=1, send_and_recv_all=lambda m: [engine.lookup(
        hashes=m[0], offsets=m[1], lookup_id=m[2], pin=True).to_bytes(4, "big")])
    client = make(lm.client.LMCacheLookupClient, config=config, transport=transport, reqs_status={}, enable_blending=False, token_database=db)
    parent = types.SimpleNamespace()
    impl = make(lm.adapter.LMCacheConnectorV1Impl, _parent=parent, config=config, kv_role="kv_both", device="cpu", worker_count=1,
                _manager=types.SimpleNamespace(lmcache_engine=engine, lookup_client=client), async_loading=False, layerwise_retrievers=[],
                _layerwise_save_storers={}, _stats_monitor=lm.monitor, _unfinished_requests={}, use_layerwise=False, enable_blending=False,
                kv_caches={"layer": None}, _block_size=block_size, load_specs={}, _request_trackers={}, _discard_partial_chunks=True,
                _lmcache_chunk_size=config.chunk_size, skip_last_n_tokens=0, force_skip_save=False, _requests_priority={}, _max_tokens_per_load=0,
                _invalid_block_ids=set(), num_layers=1, current_layer=0)
    return impl, cpu


def connector_class(base):
    class LMCache(base):
        def setup(self, v, o, block_size):
            self.impl, self.cpu = build(v.lm, o, block_size)
            self.chunk = o["chunk_size"]

        def get_num_new_matched_tokens(self, request, computed, *a):
            return self.impl.get_num_new_matched_tokens(request, computed), False

        def update_state_after_alloc(self, request, blocks, n):
            self.impl.update_state_after_alloc(request, n)

        def build_connector_meta(self, out):
            meta = self.impl.build_connector_meta(out)
            self.stores = []
            for r in meta.requests:
                skip = r.save_spec.skip_leading_tokens
                if r.save_spec.can_save and skip != len(r.token_ids):
                    self.stores.append(len(r.token_ids) // self.chunk - skip // self.chunk)
            return meta

        def request_finished(self, request, blocks):
            return self.impl.request_finished(request, blocks)

        request_finished_all_groups = request_finished

        def execute(self, meta):
            self.impl._parent._get_connector_metadata = lambda: meta
            self.impl.start_load_kv(types.SimpleNamespace(attn_metadata={}))
            assert not self.impl._invalid_block_ids, "a load failed"
            self.impl.wait_for_save()
    return LMCache


def run_class(oracle):
    class Run(oracle.Run):
        def __init__(self, engine, scenario):
            scenario = json.loads(json.dumps(scenario))
            self.offload = scenario["engine"].pop("offload")
            scenario["engine"]["kv_connector"] = True
            oracle.Connector = connector_class(Run.base)
            super().__init__(engine, scenario)

        def _make_scheduler(self):
            super()._make_scheduler()
            self.connector.setup(self.v, self.offload, self.e["block_size"])

        def _schedule(self, line):
            batch = super()._schedule(line)
            if self.connector.stores:
                line["stores"] = self.connector.stores
            line["tier"] = len(self.connector.cpu.hot_cache)
            return batch

        def _update(self, batch, line):
            self.batch = batch
            super()._update(batch, line)

        def _connector_output(self, line):
            self.connector.execute(self.batch.out.kv_connector_metadata)
            return oracle.Record(finished_recving=None, finished_sending=None, invalid_block_ids=None, expected_finished_count=0)
    Run.base = oracle.Connector
    return Run


def scenario(rs, seed, i):
    s = offload_oracle.scenario(rs, f"lmcache {seed}", i)
    d = rs.Draw(f"lmcache {seed}/{i}")
    e = s["engine"]
    e["offload"] = {"lmcache": True, "chunks": d.one(2, 4, 6, 10, 16, 40), "chunk_size": e["block_size"] * d.one(1, 1, 2, 4),
                    "cache_policy": d.one("lru", "lru", "fifo", "lfu", "mru"), "save_decode_cache": d.chance(0.4),
                    "min_retrieve_tokens": d.one(0, 0, 0, 8, 24)}
    e["enable_prefix_caching"] = d.chance(0.8)
    for r in s["requests"]:
        for key in ("abort_step", "abort_when"):  # to their time-out pins stay of requests that are aborted while they wait
            r.pop(key, None)
    s["name"] = f"{seed}-{i:04d}-lmcache"
    return s


def main():
    p = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    p.add_argument("--tools", required=True)
    p.add_argument("--vllm")
    p.add_argument("--lmcache")
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
    oracle, engine = load(os.path.abspath(a.tools), a.vllm, os.path.abspath(a.lmcache))
    run = run_class(oracle)
    with open(a.file) as f:
        for text in f:
            for line in run(engine, json.loads(text)).trace():
                print(oracle.dump(line))


if __name__ == "__main__":
    main()
