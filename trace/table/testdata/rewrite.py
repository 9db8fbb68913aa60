"""Writes the tables of one run folder anew with other programs, as their users
would: DuckDB 2.0.0, pandas 3.1.1, polars 2.1.0, pyarrow 26.0.1.

usage: rewrite.py OUT/tables/run=smoke DESTINATION

rewritten/extract holds the tables of testdata/traces/smoke; the folders beside
it hold some of what this script made of them.
"""
import duckdb, pandas as pd, polars as pl, pyarrow as pa, pyarrow.parquet as pq, glob, os, sys
src, dst = sys.argv[1], sys.argv[2]
for f in glob.glob(src + "/*.parquet"):
    name = os.path.basename(f)[:-8]
    for how in ["duckdb", "duckdb-v2", "duckdb-zstd", "pandas", "pandas-numpy", "polars", "pyarrow-v2", "pyarrow-plain", "int32", "large"]:
        d = f"{dst}/{how}"; os.makedirs(d, exist_ok=True); out = f"{d}/{name}.parquet"
        if how == "duckdb": duckdb.execute(f"copy (from '{f}') to '{out}' (format parquet)")
        elif how == "duckdb-v2": duckdb.execute(f"copy (from '{f}') to '{out}' (format parquet, parquet_version v2)")
        elif how == "duckdb-zstd": duckdb.execute(f"copy (from '{f}') to '{out}' (format parquet, compression zstd, row_group_size 2048)")
        elif how == "pandas": pd.read_parquet(f, dtype_backend="pyarrow").to_parquet(out)
        elif how == "pandas-numpy": pd.read_parquet(f).to_parquet(out)
        elif how == "polars": pl.read_parquet(f).write_parquet(out)
        elif how == "pyarrow-v2": pq.write_table(pq.read_table(f), out, data_page_version="2.0", compression="gzip")
        elif how == "pyarrow-plain": pq.write_table(pq.read_table(f), out, use_dictionary=False, compression="none", data_page_size=300)
        elif how == "int32":
            t = pq.read_table(f)
            for i, c in enumerate(t.schema):
                if c.type == pa.int64():
                    try: t = t.set_column(i, pa.field(c.name, pa.int32(), c.nullable), t.column(i).cast(pa.int32()))
                    except Exception: pass
            pq.write_table(t, out)
        elif how == "large":
            t = pq.read_table(f)
            for i, c in enumerate(t.schema):
                if c.type == pa.string(): t = t.set_column(i, c.name, t.column(i).cast(pa.large_string()))
            pq.write_table(t, out)
