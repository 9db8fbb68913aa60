package workload

// This file reads and checks the workload specification of BLIS. spec_generate.go draws requests
// from it.

import (
	"errors"
	"fmt"
	"maps"
	"math"
	"slices"
	"strings"

	"gopkg.in/yaml.v3"

	"github.com/blis-train/blis-train/internal/files"
	"github.com/blis-train/blis-train/sim"
	"github.com/blis-train/blis-train/trace"
)

// specV2 is a workload specification of BLIS, version 2 (its sim/workload at f90a1e3): clients that
// share a total rate, or one that keeps a number of requests in flight. Keys that decide which
// requests are sent, when, and how long they are, are read. A key of the format that is not
// supported (unread) is an error that names it, because without it the workload would be another
// one. tenant_id, model and streaming do not matter here.
type specV2 struct {
	Version       string       `yaml:"version"`
	Seed          int64        `yaml:"seed"`
	Category      string       `yaml:"category"`
	AggregateRate float64      `yaml:"aggregate_rate"` // requests/s of all clients that have a rate_fraction
	Horizon       int64        `yaml:"horizon"`        // us, 0 = none
	NumRequests   int          `yaml:"num_requests"`   // 0 = up to the horizon
	Clients       []specClient `yaml:"clients"`

	Cohorts  unread `yaml:"cohorts"`
	ServeGen unread `yaml:"servegen_data"`
	PerfSpec unread `yaml:"inference_perf"`

	Targets map[string]specTargets `yaml:"goodput_slo_targets"` // by class
}

// specTargets are the goodput targets of a class, ms; 0 for none.
type specTargets struct {
	TTFTMs float64 `yaml:"ttft_ms"`
	ITLMs  float64 `yaml:"itl_ms"` // of the mean gap between a request's output tokens
	E2EMs  float64 `yaml:"e2e_ms"`
}

// specClient is a client of the specification: its share of the rate, and the distributions of its
// requests.
type specClient struct {
	ID           string         `yaml:"id"`
	Tenant       string         `yaml:"tenant_id"`
	SLOClass     string         `yaml:"slo_class"`
	Model        string         `yaml:"model"`
	Streaming    bool           `yaml:"streaming"`
	RateFraction float64        `yaml:"rate_fraction"` // of aggregate_rate; see rateOf
	Concurrency  int            `yaml:"concurrency"`   // requests in flight, in place of a rate
	ThinkUs      int64          `yaml:"think_time_us"` // with concurrency: from an answer to the next request
	Arrival      specArrival    `yaml:"arrival"`
	Input        specLength     `yaml:"input_distribution"`
	Output       specLength     `yaml:"output_distribution"`
	PrefixGroup  string         `yaml:"prefix_group"`
	PrefixTokens int64          `yaml:"prefix_length"`
	Lifecycle    *specLifecycle `yaml:"lifecycle"`
	TimeoutUs    *int64         `yaml:"timeout"`       // after which the client gives up; 0: never
	TargetUs     int64          `yaml:"slo_target_us"` // goodput target of TTFT

	Adapter    unread `yaml:"adapter"`
	Network    unread `yaml:"network"`
	Multimodal unread `yaml:"multimodal"`
	Reasoning  unread `yaml:"reasoning"`
	ClosedLoop unread `yaml:"closed_loop"`
}

// specArrival is the distribution of the gaps between a client's requests.
type specArrival struct {
	Process string   `yaml:"process"` // poisson | gamma | weibull | constant
	CV      *float64 `yaml:"cv"`
	Shape   *float64 `yaml:"shape"`
	ScaleUs *float64 `yaml:"scale"`
}

// specLength is a distribution of lengths, tokens.
type specLength struct {
	Type   string             `yaml:"type"`
	Params map[string]float64 `yaml:"params"`
	File   unread             `yaml:"file"`
}

// specLifecycle is the windows of time in which a client sends.
type specLifecycle struct {
	Windows []specWindow `yaml:"windows"`
}

// specWindow is one of them, us.
type specWindow struct {
	StartUs int64  `yaml:"start_us"`
	EndUs   int64  `yaml:"end_us"`
	Rate    unread `yaml:"trace_rate"`
	Arrival unread `yaml:"arrival"`
	Input   unread `yaml:"input_distribution"`
	Output  unread `yaml:"output_distribution"`
}

// Defaults of the format.
const (
	specPrefixTokens = 50          // tokens of a prefix group
	specTimeoutUs    = 300_000_000 // of a client that waits for its answer
)

// isSpecV2 reports whether data is such a specification, by keys that only it has. Its errors are
// found by [loadSpecV2].
func isSpecV2(data []byte) bool {
	only := []string{"clients", "cohorts", "aggregate_rate", "servegen_data", "inference_perf"}
	root, _ := files.ParseYAML(data, "")
	if root == nil || root.Kind != yaml.MappingNode {
		return false
	}
	for i, n := range root.Content {
		if i%2 == 0 && slices.Contains(only, n.Value) {
			return true
		}
	}
	return false
}

// loadSpecV2 reads and checks a specification and returns it as a generator of requests. name is
// for messages. Code of errors: bad_workload.
func loadSpecV2(data []byte, name string) (*Generator, error) {
	s := &specV2{}
	if err := files.DecodeYAML(data, name, s); err != nil {
		e, ok := errors.AsType[*trace.SyntaxError](err)
		if !ok {
			return nil, err
		}
		e.Code = codeBadWorkload
		e.Msg = "workload specification: " + e.Msg
		return nil, e
	}
	if key, at := s.firstUnread(); key != "" {
		return nil, &trace.SyntaxError{File: name, Line: int64(at.Line), Col: int64(at.Col), Code: codeBadWorkload,
			Msg: fmt.Sprintf("workload specification: got %s, which is not read, want a specification without it",
				key),
			Hint: "let `blis run --workload-spec FILE --trace-output PREFIX` write the requests, and give PREFIX.csv"}
	}
	if err := s.checkSpec(); err != nil {
		e := (*trace.Error)(nil)
		if errors.As(err, &e) {
			return nil, &trace.SyntaxError{File: name, Code: e.Code, Msg: "workload specification: " + e.Msg,
				Hint: e.Hint}
		}
		return nil, err
	}
	return &Generator{spec: s}, nil
}

// firstUnread returns the first unsupported key that the specification has, and its position; "" if
// there is none.
func (s *specV2) firstUnread() (key string, at unread) {
	type entry struct {
		key string
		at  unread
	}
	list := []entry{{"cohorts", s.Cohorts}, {"servegen_data", s.ServeGen}, {"inference_perf", s.PerfSpec}}
	for i := range s.Clients {
		c := &s.Clients[i]
		of := fmt.Sprintf("clients[%d].", i)
		list = append(list, entry{of + "adapter", c.Adapter}, entry{of + "network", c.Network},
			entry{of + "multimodal", c.Multimodal},
			entry{of + "reasoning", c.Reasoning}, entry{of + "closed_loop", c.ClosedLoop},
			entry{of + "input_distribution.file", c.Input.File}, entry{of + "output_distribution.file", c.Output.File})
		if c.Lifecycle == nil {
			continue
		}
		for k, w := range c.Lifecycle.Windows {
			in := fmt.Sprintf("%slifecycle.windows[%d].", of, k)
			list = append(list, entry{in + "trace_rate", w.Rate}, entry{in + "arrival", w.Arrival},
				entry{in + "input_distribution", w.Input},
				entry{in + "output_distribution", w.Output})
		}
	}
	for _, e := range list {
		if e.at.Line > 0 {
			return e.key, e.at
		}
	}
	return "", unread{}
}

// maxTargetMs is the largest target, ms: a day.
const maxTargetMs = 86_400_000.0

// checkSpec returns an error for values out of range and for combinations that are not supported.
func (s *specV2) checkSpec() error {
	bad := func(format string, args ...any) error { return trace.Errorf(codeBadWorkload, format, args...) }
	switch {
	case s.Version != "2":
		return bad("version: got %q, want \"2\"", s.Version)
	case s.Category != "" && s.Category != "language":
		return bad("category: got %q, want language", s.Category)
	case len(s.Clients) == 0:
		return bad("clients: got none, want at least one")
	case s.NumRequests < 0 || s.NumRequests > MaxGenerated || s.Horizon < 0 || s.Horizon > sim.LatestUs:
		return bad("num_requests, horizon: got %d and %d us, want 0 to %d, and 0 to %d us", s.NumRequests,
			s.Horizon, MaxGenerated, sim.LatestUs)
	case s.NumRequests == 0 && s.Horizon == 0:
		return bad("num_requests: got none and no horizon, want one of them")
	}
	for _, class := range slices.Sorted(maps.Keys(s.Targets)) {
		t := s.Targets[class]
		for _, ms := range []float64{t.TTFTMs, t.ITLMs, t.E2EMs} {
			if !(ms >= 0 && ms <= maxTargetMs) {
				return bad("goodput_slo_targets.%s: got %g ms, want 0 to %g", class, ms, maxTargetMs)
			}
		}
	}
	for i := range s.Clients {
		c := &s.Clients[i]
		if err := c.checkClient(s); err != nil {
			return bad("clients[%d].%s", i, strings.TrimPrefix(err.Error(), string(codeBadWorkload)+": "))
		}
	}
	return nil
}

// checkClient returns an error for values of the client out of range. s is the specification it is
// part of.
func (c *specClient) checkClient(s *specV2) error {
	switch {
	case c.Concurrency < 0 || c.ThinkUs < 0 || c.PrefixTokens < 0 || c.TargetUs < 0 ||
		c.TimeoutUs != nil && *c.TimeoutUs < 0:
		return fmt.Errorf("concurrency, think_time_us, prefix_length, slo_target_us, timeout: got a negative " +
			"number, want >= 0")
	case c.Concurrency > 0 && (len(s.Clients) > 1 || c.Lifecycle != nil || c.RateFraction != 0 || s.NumRequests == 0):
		return fmt.Errorf("concurrency: got it beside other clients, a rate_fraction or a lifecycle, or without " +
			"num_requests, want one such client and num_requests")
	case c.Concurrency == 0 &&
		!(c.RateFraction > 0 && c.RateFraction < math.MaxFloat64 && s.AggregateRate > 0 && s.AggregateRate < 1e9):
		return fmt.Errorf("rate_fraction: got %g of aggregate_rate %g/s, want both > 0, or concurrency",
			c.RateFraction, s.AggregateRate)
	case c.Concurrency == 0 && !slices.Contains([]string{"poisson", "gamma", "weibull", "constant"}, c.Arrival.Process):
		return fmt.Errorf("arrival.process: got %q, want poisson, gamma, weibull or constant", c.Arrival.Process)
	}
	numbers := []struct {
		key    string
		v      *float64
		lo, hi float64
	}{
		{key: "cv", v: c.Arrival.CV, lo: 0.01, hi: 10.4},
		{key: "shape", v: c.Arrival.Shape, lo: 1e-3, hi: 1e6},
		{key: "scale", v: c.Arrival.ScaleUs, lo: 1e-6, hi: 1e15},
	}
	for _, n := range numbers {
		if n.v != nil && !(*n.v >= n.lo && *n.v <= n.hi) {
			return fmt.Errorf("arrival.%s: got %g, want %g..%g", n.key, *n.v, n.lo, n.hi)
		}
	}
	if c.Lifecycle != nil {
		if len(c.Lifecycle.Windows) == 0 {
			return fmt.Errorf("lifecycle.windows: got none, want at least one")
		}
		for _, w := range c.Lifecycle.Windows {
			if w.StartUs < 0 || w.EndUs <= w.StartUs || w.EndUs > sim.LatestUs {
				return fmt.Errorf("lifecycle.windows: got %d to %d us, want 0 <= start < end <= %d", w.StartUs,
					w.EndUs, sim.LatestUs)
			}
		}
	}
	if err := c.Input.checkLength(); err != nil {
		return fmt.Errorf("input_distribution: %w", err)
	}
	if err := c.Output.checkLength(); err != nil {
		return fmt.Errorf("output_distribution: %w", err)
	}
	return nil
}

// specParams are the parameters of each distribution of lengths.
var specParams = map[string]struct{ needed, allowed []string }{
	"gaussian":         {needed: []string{"mean", "std_dev", "min", "max"}},
	"exponential":      {needed: []string{"mean"}, allowed: []string{"min", "max"}},
	"lognormal":        {needed: []string{"mu", "sigma"}, allowed: []string{"min", "max"}},
	"pareto_lognormal": {needed: []string{"alpha", "xm", "mu", "sigma", "mix_weight"}},
	"constant":         {needed: []string{"value"}},
}

// checkLength returns an error for an unknown type and for parameters that it lacks or does not
// have.
func (l *specLength) checkLength() error {
	given := slices.Sorted(maps.Keys(l.Params))
	for _, key := range given {
		if v := l.Params[key]; math.IsNaN(v) || math.IsInf(v, 0) || v < 0 && key != "mu" {
			return fmt.Errorf("params.%s: got %g, want a finite number >= 0", key, v)
		}
	}
	if l.Type == "empirical" {
		_, err := l.chances()
		return err
	}
	params, ok := specParams[l.Type]
	if !ok {
		return fmt.Errorf("type: got %q, want gaussian, exponential, lognormal, pareto_lognormal, constant or empirical", l.Type)
	}
	for _, key := range params.needed {
		if _, ok := l.Params[key]; !ok {
			return fmt.Errorf("params.%s: missing, want it with type %s", key, l.Type)
		}
	}
	for _, key := range given {
		if !slices.Contains(params.needed, key) && !slices.Contains(params.allowed, key) {
			return fmt.Errorf("params.%s: got it, want %s with type %s", key,
				trace.OneOf(slices.Concat(params.needed, params.allowed)), l.Type)
		}
	}
	if lo, hi := l.Params["min"], l.Params["max"]; hi > 0 && lo > hi ||
		l.Type == "pareto_lognormal" && !(l.Params["alpha"] > 0) {
		return fmt.Errorf("params: got min %g, max %g and alpha %g, want min <= max, alpha > 0", lo, hi,
			l.Params["alpha"])
	}
	return nil
}
