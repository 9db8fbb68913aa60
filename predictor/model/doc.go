// Package model fits the competitors of the latency race on identical rows:
// a constant, a ridge, boosted trees in four forms, and physics, alone and with
// trees on its residuals. It knows columns, not where rows come from.
//
// Trees learn log(ms), so that errors are relative. The columns that llm-d's
// models hold as categories are constants here: no tree splits on them.
package model
