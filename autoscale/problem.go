package autoscale

// This file reads an allocation problem: the fleet, and the servers that need replicas.

import (
	"cmp"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/blis-train/blis-train/deploy"
	"github.com/blis-train/blis-train/internal/files"
	"github.com/blis-train/blis-train/trace"
)

// Problem is a fleet and the servers that it shall serve, in YAML:
//
//	policy: None                            # None, PriorityExhaustive, PriorityRoundRobin, RoundRobin, BestEffortLast
//	unlimited: false
//	delay_best_effort: false
//	capacity: {H100: 16, A100: 24}          # devices, under any of their names
//	unit_cost: {H100: 400, A100: 250}       # cents per device and hour
//	servers:
//	  - name: chat
//	    model: meta-llama/Llama-3.1-8B      # every server of queue.json with this model is an option
//	    parameters: [h100-monday]           # or only these, by id
//	    priority: 1                         # 1 first
//	    rate_rps: 12
//	    tps: 2400                           # in place of rate_rps: output tokens per second
//	    ttft_ms: 500                        # targets are means; 0 or absent: none
//	    itl_ms: 40
//	    min_replicas: 1
//	    current: {accelerator: H100, replicas: 2}
//	    keep: false
type Problem struct {
	Fleet    `yaml:",inline"`
	UnitCost map[string]float64 `yaml:"unit_cost"`
	Servers  []problemServer    `yaml:"servers"`
}

// problemServer is one demand, with the targets and lengths for which its options are sized.
type problemServer struct {
	Demand `yaml:",inline"`
	Model  string `yaml:"model"`
	// Parameters are the ids of the servers of queue.json that are options; empty for all of the
	// model.
	Parameters   []string `yaml:"parameters"`
	TPS          float64  `yaml:"tps"` // output tokens per second, in place of a rate
	TTFTMs       float64  `yaml:"ttft_ms"`
	ITLMs        float64  `yaml:"itl_ms"`
	PromptTokens float64  `yaml:"prompt_tokens"`
	OutputTokens float64  `yaml:"output_tokens"`
}

// ReadProblem reads and checks an allocation problem. Unknown keys are errors. name is the file in
// messages.
func ReadProblem(data []byte, name string) (*Problem, error) {
	p := &Problem{Fleet: Fleet{Policy: policyNone}}
	if err := files.DecodeYAML(data, name, p); err != nil {
		if at := (*trace.SyntaxError)(nil); errors.As(err, &at) {
			return nil, err
		}
		at, _ := trace.YAMLError(name, err)
		at.Code = badModel
		return nil, at
	}
	if len(p.Servers) == 0 {
		return nil, trace.Errorf(badModel, "%s: got no servers, want at least one", name)
	}
	for i := range p.Servers {
		s := &p.Servers[i]
		s.Priority = cmp.Or(s.Priority, 1) // the first, if none is stated
		// Each value is at least the number after it.
		for _, x := range []number{{"rate_rps", s.RateRPS, 0}, {"tps", s.TPS, 0}, {"ttft_ms", s.TTFTMs, 0},
			{"itl_ms", s.ITLMs, 0},
			{"prompt_tokens", s.PromptTokens, 0}, {"output_tokens", s.OutputTokens, 0},
			{"min_replicas", float64(s.MinReplicas), 0},
			{"priority", float64(s.Priority), 1}} {
			if err := x.checkRange(); err != nil {
				return nil, fmt.Errorf("%s: server %q: %w", name, s.Name, err)
			}
		}
	}
	var capacityErr, costErr error
	p.Capacity, capacityErr = byDevice("capacity", p.Capacity)
	p.UnitCost, costErr = byDevice("unit_cost", p.UnitCost)
	if err := cmp.Or(capacityErr, costErr); err != nil {
		return nil, fmt.Errorf("%s: %w", name, err)
	}
	return p, nil
}

// byDevice returns checked values of devices by the datasheet's name, which is the same for all
// spellings of a device.
func byDevice[V int | float64](what string, of map[string]V) (map[string]V, error) {
	out := map[string]V{}
	for _, typ := range slices.Sorted(maps.Keys(of)) {
		if err := (number{what + " of " + typ, float64(of[typ]), 0}).checkRange(); err != nil {
			return nil, err
		}
		if _, ok := out[deviceName(typ)]; ok {
			return nil, trace.Errorf(badModel, "%s: got %q, which is there under another name", what, typ)
		}
		out[deviceName(typ)] = of[typ]
	}
	return out, nil
}

// deviceName returns the datasheet's name of a device, or of several in the form 2xH100. Unknown
// names are returned as they are.
func deviceName(name string) string {
	before := ""
	n, rest, ok := strings.Cut(name, "x")
	isCount := n != "" && strings.Trim(n, "0123456789") == ""
	if ok && isCount {
		before = n + "x"
		name = rest
	}
	if h, ok := deploy.Datasheet(name); ok {
		name = h.Name
	}
	return before + name
}

// acceleratorOf returns the name of a server as an option: the device, with its number if a replica
// takes several.
func acceleratorOf(s *QueueServer) string {
	if s.AccCount > 1 {
		return fmt.Sprintf("%dx%s", s.AccCount, s.Accelerator)
	}
	return s.Accelerator
}

// Demands returns every demand with its options, sized by the servers of queue.json. Options that
// miss a target at any load are omitted with a finding.
func (p *Problem) Demands(q *Queue) ([]Demand, []trace.Finding, error) {
	var demands []Demand
	var findings []trace.Finding
	for i := range p.Servers {
		d, found, err := p.demand(&p.Servers[i], q)
		if err != nil {
			return nil, nil, err
		}
		demands = append(demands, d)
		findings = append(findings, found...)
	}
	return demands, findings, nil
}

// demand returns one demand with its options, which are the servers of queue.json with its model, and
// findings. A target in output tokens per second becomes a rate.
func (p *Problem) demand(s *problemServer, q *Queue) (Demand, []trace.Finding, error) {
	d := s.Demand
	var findings []trace.Finding
	var known []string // models of queue.json, for the error
	inRange := s.TPS >= 0 && s.TPS <= mostWanted
	both := s.TPS > 0 && s.RateRPS > 0
	if !inRange || both {
		return d, nil, trace.Errorf(badModel,
			"server %q: got tps %g and rate_rps %g, want one of them, at most %g", s.Name, s.TPS, s.RateRPS,
			mostWanted)
	}
	for i := range q.Servers {
		at := &q.Servers[i]
		known = append(known, at.Model)
		if at.Model != s.Model {
			continue
		}
		if len(s.Parameters) > 0 && !slices.Contains(s.Parameters, at.ID) {
			continue
		}
		if slices.ContainsFunc(d.Options, func(o Option) bool { return o.Accelerator == acceleratorOf(at) }) {
			return d, nil, trace.Errorf(badModel,
				"server %q: queue.json has several servers of %q on %s", s.Name, s.Model, acceleratorOf(at)).
				WithHint("choose with parameters: [" + at.ID + "]")
		}
		cost, ok := p.UnitCost[deviceName(at.Accelerator)]
		if !ok {
			return d, nil, trace.Errorf(badModel,
				"unit_cost: got none for %q, want cents per device and hour", at.Accelerator)
		}
		z, err := sizedOf(at, Flavour(q.Flavour), s.PromptTokens, s.OutputTokens)
		if err != nil {
			findings = append(findings, trace.Findingf(badModel, "%s on %s: %v", s.Name, at.ID, err))
			continue
		}
		size, err := z.Size(Targets{TTFTMs: s.TTFTMs, ITLMs: s.ITLMs})
		if err != nil {
			findings = append(findings,
				trace.Findingf(targetBelowRange, "%s on %s: %v", s.Name, acceleratorOf(at), err))
			continue
		}
		findings = append(findings, size.Findings...)
		o := Option{
			Accelerator: acceleratorOf(at),
			Type:        deviceName(at.Accelerator),
			Units:       int(at.AccCount),
			UnitCost:    cost,
			RateRPS:     size.RateRPS,
			DemandRPS:   z.rateOf(s.TPS),
		}
		d.RateRPS = max(d.RateRPS, o.DemandRPS)
		if deviceName(o.Accelerator) == deviceName(d.Current.Accelerator) { // it runs on this option now
			d.Current.Accelerator = o.Accelerator
			d.Current.Cost = cost * float64(o.Units*d.Current.Replicas)
		}
		d.Options = append(d.Options, o)
	}
	if !slices.Contains(known, s.Model) {
		return d, nil, trace.Errorf(badModel, "server %q: got model %q, want one of queue.json: %s", s.Name,
			s.Model, trace.OneOf(known))
	}
	return d, findings, nil
}
