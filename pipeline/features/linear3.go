package features

// Linear3Beta lists the terms of the three-parameter queueing models' iteration:
//
//	step_us = alpha + beta * tokens computed + gamma * KV tokens read
//
// A sequence with c tokens in KV of which n are new this step computes n and
// reads c + n.
var Linear3Beta = []Term{
	{"alpha", "us/step", "constant"},
	{"beta", "us/token", "tokens computed in the step, prefill and decode"},
	{"gamma", "us/token", "KV tokens read: the context of every sequence, its new tokens included"},
}

// Linear3 writes the three terms into x.
func Linear3(computed, read float64, x []float64) { x[0], x[1], x[2] = 1, computed, read }
