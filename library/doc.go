// Package kernels holds measured times of GPU kernels and adds them up to the time of a
// step: what one step of a deployment costs when every operator in it takes as long as it
// was measured to take inside vLLM on that GPU.
//
// A [GPU] is one file of tables: every row of every published table, its time as log2 at
// 1/64 octave (off by at most 0.55 %), delta-coded along the size and compressed. Nine are
// embedded; `blis-train library build` makes them, also from a user's own Parquet files in
// the layout of AIConfigurator's systems folder. A table is unpacked when it is first used.
package library
