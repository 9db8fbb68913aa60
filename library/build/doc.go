// Package build makes the files that package library embeds: kernel tables, packed from published Parquet
// tables ([Pack]), and corrections of what no table contains, learned from measured servers ([Read], then
// the method Learn).
//
// Tables are read in the layout of AIConfigurator's published systems folder (also that of the installed aiconfigurator-core
// package), all operator families of a GPU:
//
//	<dir>/<gpu>.yaml                                          datasheet
//	<dir>/data/<gpu>/<family>/<framework>/<version>/*.parquet
//
// There are few corrections. Each has a prior, and no correction is for one model alone. Every measured point is
// simulated as a closed loop of clients. A step's time is linear in the corrections, so one simulation also
// gives the derivatives of TPOT and TTFT. The corrections are cross-validated over whole families of
// measurements.
package build
