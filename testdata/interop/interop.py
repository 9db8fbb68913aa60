"""Reads an extracted folder with DuckDB and pandas and compares counts and sums.

usage: interop.py OUT

Both read OUT/tables/run=*/<table>.parquet as one dataset partitioned by `run`
and must agree with extract.json and with each other.
"""
import json
import os
import sys

import duckdb
import pandas as pd

SUMS = {
    "requests": ["prompt_tokens", "output_tokens", "queued_ns"],
    "journey_events": ["ts_ns", "step"],
    "steps": ["ts_start_ns", "scheduled_tokens", "kv_usage_ratio"],
    "snapshots": ["num_computed_tokens", "scheduled_tokens"],
    "kv_events": ["block_count", "copies"],
    "observed_requests": ["output_tokens", "send_ns"],
    "iterations": ["elapsed_us", "generation_tokens"],
    "points": ["prompt_tokens", "tpot_ms"],
}


def duck(pattern, table, run):
    """Counts and sums of one run, by DuckDB, over the partitioned dataset."""
    sums = ", ".join(f"sum({c}::DOUBLE)" for c in SUMS[table])
    q = f"select count(*), {sums} from read_parquet('{pattern}', hive_partitioning=true, hive_types_autocast=false, union_by_name=true) where run = ?"
    return [0 if v is None else v for v in duckdb.execute(q, [run]).fetchone()]


def panda(path, table):
    """The same of one file, by pandas."""
    f = pd.read_parquet(path)
    return [len(f)] + [float(f[c].astype("float64").sum()) for c in SUMS[table]]


def main(out):
    doc = json.load(open(os.path.join(out, "extract.json")))
    checked = wrong = 0
    for run in doc["runs"]:
        for table, rows in run["tables"].items():
            pattern = os.path.join(out, "tables", "*", table + ".parquet")
            path = os.path.join(out, "tables", "run=" + run["id"], table + ".parquet")
            d, p = duck(pattern, table, run["id"]), panda(path, table)
            same = d[0] == p[0] == rows and all(abs(a - b) <= 1e-9 * max(1, abs(b)) for a, b in zip(d[1:], p[1:]))
            checked += 1
            if not same:
                wrong += 1
                print(f"{run['id']}/{table}: extract.json {rows} rows, duckdb {d}, pandas {p}")
        tables = run["tables"]
        if tables.get("steps", 0) != run["steps"]["summaries"]:
            wrong += 1
            print(f"{run['id']}: {run['steps']['summaries']} summaries, {tables.get('steps')} rows")
    print(f"interop: {checked} tables read by duckdb {duckdb.__version__} and pandas {pd.__version__}, {wrong} differ")
    return 1 if wrong or not checked else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1]))
