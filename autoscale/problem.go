package autoscale

// This file reads an allocation problem: the fleet, and the servers that need replicas.

import (
	"cmp"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"

	"gopkg.in/yaml.v3"

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
//	    ttft_ms: 500                        # targets are means; absent: none
//	    itl_ms: 40
//	    min_replicas: 1
//	    current: {accelerator: H100, replicas: 2} # under a name of capacity, or 2xH100 for replicas of two
//	    keep: false
type Problem struct {
	Fleet    `yaml:",inline"`
	UnitCost map[string]float64 `yaml:"unit_cost"`
	Servers  []problemServer    `yaml:"servers"`

	file string     // the problem's file, for errors; "" for a problem that was not read from one
	root *yaml.Node // its content, for the places of errors
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

	index int // position in the file
}

// ReadProblem reads and checks an allocation problem. Unknown keys are errors. name is the file in
// messages.
func ReadProblem(data []byte, name string) (*Problem, error) {
	p := &Problem{Fleet: Fleet{Policy: policyNone}}
	if err := files.DecodeYAML(data, name, p); err != nil {
		if e, ok := errors.AsType[*trace.SyntaxError](err); ok {
			e.Code = badModel
		}
		return nil, err
	}
	p.file = name
	p.root, _ = files.ParseYAML(data, name) // which was parsed just now without an error
	if err := p.check(); err != nil {
		return nil, err
	}
	var capacityErr, costErr error
	p.Capacity, capacityErr = byDevice(p, "capacity", p.Capacity)
	p.UnitCost, costErr = byDevice(p, "unit_cost", p.UnitCost)
	if err := cmp.Or(capacityErr, costErr); err != nil {
		return nil, err
	}
	return p, nil
}

// check returns an error for the first value of the problem that no problem can have, and sets the priority of
// servers that have none.
func (p *Problem) check() error {
	if len(p.Servers) == 0 {
		return p.refuse("list the servers that need replicas", nil, "got no servers, want at least one")
	}
	if !p.Unlimited && !slices.Contains(policies, p.Policy) {
		return p.refuse("leave policy out for None", []any{"policy"}, "saturation policy: got %q, want %s", p.Policy, trace.OneOf(policies))
	}
	names := map[string]bool{}
	for i := range p.Servers {
		s := &p.Servers[i]
		s.index = i
		if s.Name == "" || names[s.Name] {
			return p.refuse("give every server a name of its own", s.at("name"), "server %q: want a name, each once", s.Name)
		}
		names[s.Name] = true
		for _, x := range []struct {
			number
			aboveZero bool // 0 is refused too: who wants none leaves the key out
		}{
			{number{"rate_rps", s.RateRPS, 0}, false},
			{number{"tps", s.TPS, 0}, true},
			{number{"ttft_ms", s.TTFTMs, 0}, true},
			{number{"itl_ms", s.ITLMs, 0}, true},
			{number{"prompt_tokens", s.PromptTokens, 0}, true},
			{number{"output_tokens", s.OutputTokens, 1}, true},
			{number{"min_replicas", float64(s.MinReplicas), 0}, false},
			{number{"priority", float64(s.Priority), 1}, false},
			{number{"current.replicas", float64(s.Current.Replicas), 0}, false},
		} {
			path := s.at(strings.Split(x.name, ".")...)
			isGiven := files.NodeAt(p.root, path) != nil
			isAbsent := x.value == 0 && !isGiven
			switch {
			case isAbsent:
			case x.aboveZero && x.value == 0:
				return p.refuse("leave the key out for none", path, "server %q: %s: got 0, want more than 0", s.Name, x.name)
			case x.checkRange() != nil:
				return p.refuse(fmt.Sprintf("give a number from %g to %g, or leave the key out", x.least, float64(mostWanted)), path,
					"server %q: %s: got %g, want %g to %g", s.Name, x.name, x.value, x.least, float64(mostWanted))
			}
		}
		s.Priority = cmp.Or(s.Priority, 1) // the first, if none is stated
		if s.Current.Accelerator == "" && s.Current.Replicas > 0 {
			return p.refuse("current: {accelerator: NAME, replicas: N}", s.at("current"),
				"server %q: current: got %d replicas without an accelerator, want its name", s.Name, s.Current.Replicas)
		}
	}
	return nil
}

// at returns the path to a key of the server in the file.
func (s *problemServer) at(keys ...string) []any {
	path := []any{"servers", s.index}
	for _, k := range keys {
		path = append(path, k)
	}
	return path
}

// refuse returns an error for a value of the problem, with its place in the file: that of the value at the path, or
// of the closest that there is around it.
func (p *Problem) refuse(hint string, path []any, format string, args ...any) error {
	if p.file == "" {
		return trace.Errorf(badModel, format, args...).WithHint(hint)
	}
	err := &trace.SyntaxError{File: p.file, Code: badModel, Msg: fmt.Sprintf(format, args...), Hint: hint}
	err.Line, err.Col = files.PlaceOf(p.root, path)
	return err
}

// byDevice returns checked values of devices by the datasheet's name, which is the same for all
// spellings of a device.
func byDevice[V int | float64](p *Problem, what string, of map[string]V) (map[string]V, error) {
	out := map[string]V{}
	for _, typ := range slices.Sorted(maps.Keys(of)) {
		path := []any{what, typ}
		if x := (number{"", float64(of[typ]), 0}); x.checkRange() != nil {
			return nil, p.refuse(fmt.Sprintf("give a number from 0 to %g", float64(mostWanted)), path,
				"%s of %s: got %g, want 0 to %g", what, typ, x.value, float64(mostWanted))
		}
		if _, ok := out[deviceName(typ)]; ok {
			return nil, p.refuse("keep one of the two", path, "%s: got %q, which is there under another name", what, typ)
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
		return d, nil, p.refuse("keep one of the two", s.at("tps"),
			"server %q: got tps %g and rate_rps %g, want one of them, at most %g", s.Name, s.TPS, s.RateRPS,
			float64(mostWanted))
	}
	for i := range q.Servers {
		at := &q.Servers[i]
		if !slices.Contains(known, at.Model) {
			known = append(known, at.Model)
		}
		if at.Model != s.Model {
			continue
		}
		if len(s.Parameters) > 0 && !slices.Contains(s.Parameters, at.ID) {
			continue
		}
		if slices.ContainsFunc(d.Options, func(o Option) bool { return o.Accelerator == acceleratorOf(at) }) {
			return d, nil, p.refuse("choose with parameters: ["+at.ID+"]", s.at("model"),
				"server %q: queue.json has several servers of %q on %s", s.Name, s.Model, acceleratorOf(at))
		}
		cost, ok := p.UnitCost[deviceName(at.Accelerator)]
		if !ok {
			return d, nil, p.refuse("unit_cost: {"+at.Accelerator+": CENTS}", []any{"unit_cost"},
				"unit_cost: got none for %q, want cents per device and hour", at.Accelerator)
		}
		z, err := sizedOf(at, Flavour(q.Flavour), s.PromptTokens, s.OutputTokens)
		if err != nil {
			findings = append(findings, trace.Findingf(badModel, "%s on %s: %s", s.Name, at.ID, withoutCode(err)))
			continue
		}
		size, err := z.Size(Targets{TTFTMs: s.TTFTMs, ITLMs: s.ITLMs})
		if err != nil {
			findings = append(findings,
				trace.Findingf(targetBelowRange, "%s on %s: %s", s.Name, acceleratorOf(at), withoutCode(err)))
			continue
		}
		findings = append(findings, size.Findings...)
		for _, f := range append(outsideFitted(at.Fitted, &z, &size), outsideJudged(&z, &size)...) {
			f.Message = s.Name + " on " + at.ID + ": " + f.Message
			findings = append(findings, f)
		}
		o := Option{
			Accelerator: acceleratorOf(at),
			Type:        deviceName(at.Accelerator),
			Units:       int(at.AccCount),
			UnitCost:    cost,
			RateRPS:     size.RateRPS,
			DemandRPS:   z.rateOf(s.TPS),
		}
		d.RateRPS = max(d.RateRPS, o.DemandRPS)
		d.Options = append(d.Options, o)
	}
	if !slices.Contains(known, s.Model) {
		return d, nil, p.refuse("write the model as queue.json has it", s.at("model"), "server %q: got model %q, want one of queue.json: %s", s.Name,
			s.Model, trace.OneOf(known))
	}
	if err := p.checkParameters(s, q); err != nil {
		return d, nil, err
	}
	if err := p.place(&d.Current, s, q); err != nil {
		return d, nil, err
	}
	if len(d.Options) > 0 && len(d.candidates()) == 0 {
		findings = append(findings, trace.Findingf(badModel, "%s: keep: its accelerator %s is none of its options", s.Name,
			d.Current.Accelerator))
	}
	return d, findings, nil
}

// withoutCode returns the text of an error without its code, for a finding that has the code.
func withoutCode(err error) string {
	if coded, ok := errors.AsType[*trace.Error](err); ok {
		return coded.Msg
	}
	return err.Error()
}

// checkParameters returns an error for an id in `parameters` of a server that is none of queue.json, or of another
// model.
func (p *Problem) checkParameters(s *problemServer, q *Queue) error {
	for i, id := range s.Parameters {
		if at := q.Server(id); at != nil && at.Model == s.Model {
			continue
		}
		var ids []string
		for _, at := range q.Servers {
			if at.Model == s.Model {
				ids = append(ids, at.ID)
			}
		}
		return p.refuse("leave parameters out for every server of the model", append(s.at("parameters"), i), "server %q: parameters: got %q, want ids of queue.json for %s: %s",
			s.Name, id, s.Model, trace.OneOf(ids))
	}
	return nil
}

// place sets the accelerator of a server's present replicas to the name of the option that it is, and their cost. It may
// be named as an option is (2xH100) or, where the device has one option, as the device is (H100). Replicas on a device
// of capacity or unit_cost that is no option are accepted too: they are to be moved.
func (p *Problem) place(current *Placement, s *problemServer, q *Queue) error {
	if current.Accelerator == "" {
		return nil
	}
	name := deviceName(current.Accelerator)
	units := 1
	device := name
	var same []*QueueServer // of the device, with any number of it
	var known []string
	for i := range q.Servers {
		at := &q.Servers[i]
		if at.Model != s.Model {
			continue
		}
		if full := acceleratorOf(at); !slices.Contains(known, full) {
			known = append(known, full)
			if deviceName(at.Accelerator) == name {
				same = append(same, at)
			}
			if deviceName(full) == name {
				same = []*QueueServer{at}
				break
			}
		}
	}
	switch {
	case len(same) > 1:
		var names []string
		for _, at := range same {
			names = append(names, acceleratorOf(at))
		}
		return p.refuse("current: {accelerator: "+names[0]+", replicas: N}", s.at("current", "accelerator"),
			"server %q: current.accelerator: got %q, want %s", s.Name, current.Accelerator, trace.OneOf(names))
	case len(same) == 1:
		current.Accelerator = acceleratorOf(same[0])
		device = deviceName(same[0].Accelerator)
		units = int(same[0].AccCount)
	default:
		if count, rest, ok := strings.Cut(name, "x"); ok && p.hasDevice(rest) {
			if n, err := strconv.Atoi(count); err == nil && n > 0 {
				units = n
				device = rest
			}
		}
		if !p.hasDevice(device) {
			for _, typ := range slices.Sorted(maps.Keys(p.Capacity)) {
				isSame := func(name string) bool { return deviceName(name) == typ }
				if !slices.ContainsFunc(known, isSame) {
					known = append(known, typ)
				}
			}
			return p.refuse("name it as capacity and unit_cost do", s.at("current", "accelerator"),
				"server %q: current.accelerator: got %q, want %s", s.Name, current.Accelerator, trace.OneOf(known))
		}
	}
	current.Cost = p.UnitCost[device] * float64(units*current.Replicas)
	return nil
}

// hasDevice reports whether capacity or unit_cost has a device, by its datasheet's name.
func (p *Problem) hasDevice(name string) bool {
	_, isCounted := p.Capacity[name]
	_, hasCost := p.UnitCost[name]
	return isCounted || hasCost
}
