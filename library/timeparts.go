package library

// This file divides a step's time by what it is spent on, for people.

import "strings"

// TimePart is a part of a step's time.
type TimePart int

// The parts of a step's time.
const (
	LinearTime     TimePart = iota // matrices of attention, dense layers and the head
	AttentionTime                  // over the context, with the cache
	ExpertsTime                    // routed experts
	CollectiveTime                 // between GPUs
	SmallTime                      // kernels that no table has
	LaunchTime                     // by which launching kernels outside CUDA graphs takes longer than running them
	HostTime                       // between steps
	NumTimeParts
)

// partOf returns the part that an operator belongs to.
func partOf(op *Operator) TimePart {
	switch {
	case op.Kind == Experts:
		return ExpertsTime
	case op.Kind == Collective:
		return CollectiveTime
	case op.Reached == Analytic && op.Table == "":
		return SmallTime
	case strings.HasSuffix(op.Name, "_prefill") || strings.HasSuffix(op.Name, "_decode"):
		return AttentionTime
	}
	return LinearTime
}

// TimeParts returns the parts of a batch's step time in us under corrections; they add up to it.
func (p *Pricer) TimeParts(b *Batch, theta *[NumStep]float64) (parts [NumTimeParts]float64) {
	var x [NumStep]float64
	p.Columns(b, &x)
	kernelsUs, launchesUs := 0.0, 0.0
	for _, k := range kernelTimes {
		kernelsUs += theta[k] * x[k]
	}
	for _, k := range launches {
		launchesUs += theta[k] * x[k]
	}
	for k := range x {
		parts[HostTime] += theta[k] * x[k]
	}
	parts[HostTime] -= kernelsUs + launchesUs // the rest is the host's
	parts[LaunchTime] = max(0, launchesUs-kernelsUs)
	sum := 0.0
	for i, us := range p.Us(b) {
		parts[partOf(&p.Operators[i])] += us
		sum += us
	}
	// The operators' times are those of the tables. The corrections of kernels scale them all, except for
	// what is added per kernel without a table.
	smallUs := theta[SmallKernel] * x[SmallKernel]
	for k := range parts[:LaunchTime] {
		parts[k] *= (kernelsUs - smallUs) / sum
	}
	parts[SmallTime] += smallUs
	return parts
}

// LaunchUs returns the time in us in which the host launches a step outside CUDA graphs, and its standard error.
func (s *Step) LaunchUs(c *Corrections) (us, se float64) {
	counts := [NumStep]float64{EagerLayer: s.Layers, EagerExperts: s.expertLayers, EagerLatent: s.latentLayers, EagerFP8: s.chosenFP8}
	if s.decodesOnly {
		counts[EagerWhole] = s.Layers
	}
	for _, k := range launches {
		each, eachSE := c.Value(k, s.GPU.Hardware)
		us += counts[k] * each
		se += counts[k] * eachSE
	}
	return us, se
}
