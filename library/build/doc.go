// Package library makes what ships with the tool: the files of kernel tables that package kernels reads, from published Parquet
// tables ([Pack]), and the corrections that no table knows, learned from measured servers ([Build]).
//
// Tables are read in the layout of AIConfigurator's published systems folder (also that of the installed aiconfigurator-core
// package), all operator families of a GPU:
//
//	<dir>/<gpu>.yaml                                          datasheet
//	<dir>/data/<gpu>/<family>/<framework>/<version>/*.parquet
//
// Corrections are few, each has a prior, none belongs to a model. Measured points are simulated, a closed loop of clients each; a
// step's time is linear in the corrections, so that one simulation gives the derivatives of TPOT and TTFT. They are judged by leaving
// out whole families of measurements.
package build
