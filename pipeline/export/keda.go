package export

// This file writes the resources of KEDA, which scales replicas by metrics.

import (
	"bytes"
	"errors"
	"fmt"
	"math"
	"strconv"
	"strings"

	"gopkg.in/yaml.v3"

	"github.com/blis-train/blis-train/deploy"
	"github.com/blis-train/blis-train/internal/files"
	"github.com/blis-train/blis-train/internal/stat"
	"github.com/blis-train/blis-train/sim"
	"github.com/blis-train/blis-train/sim/workload"
	"github.com/blis-train/blis-train/trace"
)

// resourceYAML returns documents as YAML with a comment above each. Names come from recordings and
// options: the library quotes values, and a comment stays on one line.
func resourceYAML(comments [][]string, resources ...any) ([]byte, error) {
	var out bytes.Buffer
	for i, r := range resources {
		if i > 0 {
			out.WriteString("---\n")
		}
		if i < len(comments) {
			for _, line := range comments[i] {
				fmt.Fprintf(&out, "# %s\n", files.Line(line))
			}
		}
		enc := yaml.NewEncoder(&out)
		enc.SetIndent(2)
		if err := errors.Join(enc.Encode(r), enc.Close()); err != nil {
			return nil, err
		}
	}
	return out.Bytes(), nil
}

// kedaSettings are the options of keda-token-aware.
var kedaSettings = []Setting{
	{Key: "ttft-ms", Usage: "MS, the TTFT target", Default: "0", Number: true},
	{Key: "statistic", Usage: "what the target is of: mean, p90 or p99; a tail gets 70 or 60 % of the threshold",
		Default: "mean", OneOf: []string{"mean", "p90", "p99"}},
	{Key: "rate-rps", Usage: "REQUESTS a second of all replicas: the formula's replicas beside our simulator's",
		Default: "0", Number: true},
	{Key: "cached-tokens", Usage: "TOKENS of the mean prompt found in the prefix cache", Default: "0", Number: true},
	{Key: "path", Usage: "direct, or pd (prefill and decode apart): refused, its transfer time is not known",
		Default: "direct", OneOf: []string{"direct", "pd"}},
	{Key: "name", Usage: "NAME of the Deployment", Default: "blis-train", Resource: true},
	{Key: "namespace", Usage: "NAMESPACE of the metrics; default all", Label: true},
	{Key: "prometheus", Usage: "ADDRESS of Prometheus", Default: "http://prometheus-operated:9090"},
}

// scaledObject is KEDA's resource (keda.sh/v1alpha1), after llm-d-benchmark's token-velocity guide (947b3d6). KEDA
// runs as many replicas as the larger of the two triggers' sums over their thresholds asks for, rounded up.
type scaledObject struct {
	APIVersion string       `yaml:"apiVersion"`
	Kind       string       `yaml:"kind"`
	Metadata   resourceName `yaml:"metadata"`
	Spec       struct {
		Target      resourceName  `yaml:"scaleTargetRef"`
		MinReplicas int           `yaml:"minReplicaCount"`
		Triggers    []kedaTrigger `yaml:"triggers"`
	} `yaml:"spec"`
}

// resourceName is a reference by name.
type resourceName struct {
	Name string `yaml:"name"`
}

// kedaTrigger is a query of Prometheus and a threshold.
type kedaTrigger struct {
	Type       string      `yaml:"type"`
	Name       string      `yaml:"name"`
	MetricType string      `yaml:"metricType"`
	Metadata   kedaMetrics `yaml:"metadata"`
}

// kedaMetrics is where a trigger reads: a query of a Prometheus server, and the value of it that one
// replica bears.
type kedaMetrics struct {
	Server    string `yaml:"serverAddress"`
	Query     string `yaml:"query"`
	Threshold string `yaml:"threshold"`
}

// decodeUsage is the share of the KV cache, a replica, at which the decode trigger adds replicas.
const decodeUsage = 0.8

// shares are the factors on the threshold, by the statistic of TTFT that the target bounds: for a tail
// replicas are added earlier.
var shares = map[string]float64{"mean": 1, "p90": 0.7, "p99": 0.6}

// keda returns the files of format keda-token-aware: one ScaledObject for each configuration.
func keda(src Source, opt Options) (*Output, error) {
	cfgs, err := src.Configs(opt.Config)
	if err != nil {
		return nil, err
	}
	slo := opt.Settings.Float("ttft-ms")
	switch {
	case !(slo > 0):
		return nil, trace.Errorf(NothingToExport, "%s: got no TTFT target",
			FormatKEDA).WithHint("--option ttft-ms=2000")
	case opt.Settings["path"] == "pd":
		return nil, trace.Errorf(NothingToExport,
			"%s: path=pd: the time to transfer KV from prefill to decode is not known, and without it V_P comes "+
				"out up to six times too high", FormatKEDA).WithHint("measure V_P through the router and both pools")
	}
	side := src.Sidecar(opt, FormatKEDA,
		"KEDA with the metrics of llm-d's endpoint picker and of vLLM (llm-d-benchmark 947b3d6); "+
			"workload-variant-autoscaler is deprecated")
	var objects []any
	var comments [][]string
	var warn []trace.Finding
	for i := range cfgs {
		c := &cfgs[i]
		rate, err := prefillRateOf(&src, c)
		if err != nil {
			return nil, err
		}
		lengths, assumed := opt.MeanLengths(*c)
		warn = append(warn, assumed...)
		s := scaler{
			Label:      c.Label,
			Rate:       rate,
			TTFTMs:     slo,
			Share:      shares[opt.Settings["statistic"]],
			Decode:     decodeUsage,
			Uncached:   lengths.Prompt - math.Min(lengths.Prompt, opt.Settings.Float("cached-tokens")),
			Name:       opt.Settings["name"],
			Prometheus: opt.Settings["prometheus"],
			statistic:  opt.Settings["statistic"],
		}
		if ns := opt.Settings["namespace"]; ns != "" {
			s.Selector = "{namespace=" + strconv.Quote(ns) + "}" // PromQL quotes as Go does
		}
		if len(cfgs) > 1 {
			s.Name += "-" + slug(c.Label)
		}
		// The backlog in front of a prompt may take what the target leaves after the prompt's own prefill, s.
		s.Threshold = s.Share * (slo/1e3 - s.Uncached/rate.PerS)
		if !(s.Threshold > 0) {
			return nil, trace.Errorf(impossibleValue,
				"%s: a prompt of %.0f uncached tokens alone takes %.0f ms, want less than the target of %g ms",
				c.Label, s.Uncached, 1e3*s.Uncached/rate.PerS,
				slo).WithHint("raise the target, or use a faster deployment")
		}
		config := SideConfig{Label: c.Label, PromptTokens: &lengths.Prompt, OutputTokens: &lengths.Output,
			Seats: c.Deployment.Seats(lengths.Prompt + lengths.Output)}
		if rateRPS := opt.Settings.Float("rate-rps"); rateRPS > 0 {
			if err := s.compareReplicas(&src, &c.Deployment, lengths, rateRPS); err != nil {
				return nil, fmt.Errorf("%s: %w", c.Label, err)
			}
			config.Note = strings.Join(s.Notes, "; ")
		}
		side.Configs = append(side.Configs, config)
		side.Values = append(side.Values, rate.sideValue(c.Label+".V_P"))
		objects = append(objects, s.object())
		comments = append(comments, s.comments())
	}
	data, err := resourceYAML(comments, objects...)
	if err != nil {
		return nil, err
	}
	side.Warnings = append(src.ValidationWarnings(), warn...)
	return side.OutputWith(warn, File{Data: data})
}

// scaler has the numbers from which a ScaledObject is made.
type scaler struct {
	Label      string
	Rate       *prefillRate
	TTFTMs     float64 // target
	Share      float64 // of the threshold, see shares
	Uncached   float64 // tokens of the mean prompt
	Threshold  float64 // prefill trigger, s
	Decode     float64 // decode trigger, share of the KV cache
	Name       string
	Prometheus string
	Selector   string   // of the metrics
	Notes      []string // comments of the generated file
	statistic  string
}

// object returns the ScaledObject.
func (s *scaler) object() *scaledObject {
	o := &scaledObject{APIVersion: "keda.sh/v1alpha1", Kind: "ScaledObject"}
	o.Metadata.Name = s.Name
	o.Spec.Target.Name = s.Name
	o.Spec.MinReplicas = 1
	trigger := func(name, query, threshold string) kedaTrigger {
		return kedaTrigger{
			Type:       "prometheus",
			Name:       name,
			MetricType: "AverageValue",
			Metadata:   kedaMetrics{Server: s.Prometheus, Query: query, Threshold: threshold},
		}
	}
	o.Spec.Triggers = []kedaTrigger{
		trigger("prefill", fmt.Sprintf("sum(llm_d_epp_inflight_tokens%s) / %.0f", s.Selector, s.Rate.PerS), fmt.Sprintf("%.4g", s.Threshold)),
		trigger("decode", fmt.Sprintf("sum(vllm:kv_cache_usage_perc%s)", s.Selector), number(s.Decode)),
	}
	return o
}

// comments returns the lines of the comment that explains the thresholds.
func (s *scaler) comments() []string {
	lines := []string{
		fmt.Sprintf("%s: %s.", s.Label, s.Rate.Sentence()),
		"prefill: replicas = ceil(sum(llm_d_epp_inflight_tokens) / V_P / threshold), s;",
		fmt.Sprintf("threshold = %s x (TTFT target %s ms - %.0f uncached tokens / V_P)", number(s.Share), number(s.TTFTMs), s.Uncached),
		fmt.Sprintf("decode: replicas = ceil(sum(vllm:kv_cache_usage_perc) / %s)", number(s.Decode)),
	}
	return append(lines, s.Notes...)
}

// number returns a value as text, as consumers' files have it.
func number(v float64) string { return joined([]float64{v}) }

// compareReplicas adds a comment that compares the number of replicas of the formula at a rate with
// that which the simulator needs for the target.
func (s *scaler) compareReplicas(src *Source, d *deploy.Deployment, l Lengths, rateRPS float64) error {
	if src.Set == nil {
		return trace.Errorf(NothingToExport, "no coefficients to simulate with")
	}
	set, err := src.Set()
	if err != nil {
		return err
	}
	m, err := sim.NewPhysics(set, d)
	if err != nil {
		return err
	}
	t := workload.ChatTraffic(d, l.Prompt, l.Output)
	t.Shape.Cached = l.Prompt - s.Uncached
	capacity, err := t.Capacity(d, m)
	if err != nil {
		return err
	}
	// loadWith simulates one of so many replicas under its share of the rate, once for each number.
	known := map[int]replicaLoad{}
	loadWith := func(replicas int) (replicaLoad, error) {
		if x, ok := known[replicas]; ok {
			return x, nil
		}
		t.Requests = ComparedRequests
		t.RateRPS = rateRPS / float64(replicas)
		x, err := s.simulateReplica(d, m, &t)
		known[replicas] = x
		return x, err
	}
	least := max(1, int(math.Ceil(rateRPS/capacity))) // replicas that can serve the rate at all
	// fewest finds the smallest number of replicas that is enough. The upper end, a load of an eighth
	// of the capacity, is taken to be enough.
	fewest := func(enough func(n int, x replicaLoad) bool) (int, error) {
		lo, hi := least, 8*least+8
		for lo < hi {
			mid := (lo + hi) / 2
			x, err := loadWith(mid)
			if err != nil {
				return 0, err
			}
			if enough(mid, x) {
				hi = mid
			} else {
				lo = mid + 1
			}
		}
		return lo, nil
	}
	// The formula has enough replicas when neither trigger would add one: the time to prefill all tokens
	// in flight over the threshold, and the used shares of the KV caches over the bound of one.
	formula, err := fewest(func(n int, x replicaLoad) bool {
		prefill := math.Ceil(float64(n) * x.inflight / s.Rate.PerS / s.Threshold)
		decode := math.Ceil(float64(n) * x.usage / s.Decode)
		return prefill <= float64(n) && decode <= float64(n)
	})
	if err != nil {
		return err
	}
	simulated, err := fewest(func(_ int, x replicaLoad) bool { return x.ttftMs <= s.TTFTMs })
	if err != nil {
		return err
	}
	x, err := loadWith(formula)
	s.Notes = append(s.Notes, fmt.Sprintf("%g requests/s of %.0f + %.0f tokens: the formula keeps %d replicas "+
		"(simulated %s TTFT %.0f ms); our simulator needs %d for the target", rateRPS, l.Prompt, l.Output, formula,
		s.statistic, x.ttftMs, simulated))
	return err
}

// replicaLoad is the state of one replica in the metrics that KEDA reads.
type replicaLoad struct {
	ttftMs   float64 // at the statistic of the target
	inflight float64 // uncached prompt tokens of requests without a first token, mean over time
	usage    float64 // share of the KV cache in use, mean over time
}

// simulateReplica returns the state of one replica under its share of the traffic. Means over time
// follow from Little's law.
func (s *scaler) simulateReplica(d *deploy.Deployment, m sim.Model, t *workload.Traffic) (out replicaLoad, err error) {
	blocks, _, err := d.KVBlocks()
	if err != nil {
		return out, err
	}
	reqs, _ := t.Draw()
	uncached := s.Uncached / (s.Uncached + t.Shape.Cached) // share of the prompt tokens
	var ttft []float64
	// Sums over requests of time times tokens, us: waiting counts uncached prompt tokens until the first
	// token, held the tokens in KV (half of the output on average) from scheduling to the end. Over the
	// simulated time, to last, they are means.
	var waiting, held, last float64
	_, err = sim.Stream(sim.DefaultConfig(d, m), reqs, nil,
		sim.InOrder(len(reqs), func(_ int, r *sim.RequestResult) bool {
			if us, ok := r.TTFTUs(); ok && r.FinishedUs.OK {
				ttft = append(ttft, us/1e3)
				waiting += us * float64(r.PromptTokens) * uncached
				whole := float64(r.FinishedUs.V - r.ScheduledUs.V)
				held += whole * float64(r.PromptTokens+r.OutputTokens/2)
				last = math.Max(last, float64(r.FinishedUs.V))
			}
			return true
		}))
	if err != nil || last == 0 {
		return out, err
	}
	out = replicaLoad{
		ttftMs:   stat.Mean(ttft),
		inflight: waiting / last,
		usage:    held / last / float64(blocks*d.Engine.BlockSize),
	}
	switch s.statistic {
	case "p90":
		out.ttftMs = stat.Quantile(stat.Sorted(ttft), 0.9)
	case "p99":
		out.ttftMs = stat.Quantile(stat.Sorted(ttft), 0.99)
	}
	return out, nil
}
