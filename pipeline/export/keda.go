package export

import (
	"bytes"
	"fmt"
	"math"
	"strings"
	"text/template"

	"github.com/blis-train/blis-train/deploy"
	"github.com/blis-train/blis-train/internal/stat"
	"github.com/blis-train/blis-train/sim"
	"github.com/blis-train/blis-train/sim/workload"
	"github.com/blis-train/blis-train/trace"
)

// fill executes a template of a small format.
func fill(text string, values any) ([]byte, error) {
	t, err := template.New("").Funcs(template.FuncMap{"g": func(v float64) string { return joined([]float64{v}) },
		"round": func(v float64) string { return fmt.Sprintf("%.0f", v) }}).Parse(text)
	if err != nil {
		return nil, err
	}
	var b bytes.Buffer
	err = t.Execute(&b, values)
	return b.Bytes(), err
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
	{Key: "name", Usage: "NAME of the Deployment", Default: "blis-train"},
	{Key: "namespace", Usage: "NAMESPACE of the metrics; default all"},
	{Key: "prometheus", Usage: "ADDRESS of Prometheus", Default: "http://prometheus-operated:9090"},
}

// kedaText is a ScaledObject after llm-d-benchmark's token-velocity guide (947b3d6). KEDA runs as many
// replicas as the larger of the two triggers' sums over their thresholds asks for, rounded up.
const kedaText = `# {{.Label}}: {{.Rate.Said}}.
# prefill: replicas = ceil(sum(llm_d_epp_inflight_tokens) / V_P / threshold), s;
# threshold = {{g .Share}} x (TTFT target {{g .TTFTMs}} ms - {{round .Uncached}} uncached tokens / V_P)
# decode: replicas = ceil(sum(vllm:kv_cache_usage_perc) / {{g .Decode}})
{{range .Says}}# {{.}}
{{end}}apiVersion: keda.sh/v1alpha1
kind: ScaledObject
metadata:
  name: {{.Name}}
spec:
  scaleTargetRef:
    name: {{.Name}}
  minReplicaCount: 1
  triggers:
  - type: prometheus
    name: prefill
    metricType: AverageValue
    metadata:
      serverAddress: {{.Prometheus}}
      query: sum(llm_d_epp_inflight_tokens{{.Selector}}) / {{round .Rate.PerS}}
      threshold: "{{printf "%.4g" .Threshold}}"
  - type: prometheus
    name: decode
    metricType: AverageValue
    metadata:
      serverAddress: {{.Prometheus}}
      query: sum(vllm:kv_cache_usage_perc{{.Selector}})
      threshold: "{{g .Decode}}"
`

// decodeUsage is the share of the KV cache at which decode replicas are added.
const decodeUsage = 0.8

// shares of the threshold by the statistic that the target bounds.
var shares = map[string]float64{"mean": 1, "p90": 0.7, "p99": 0.6}

// keda writes one ScaledObject a configuration.
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
	var texts [][]byte
	var warn []trace.Finding
	for i := range cfgs {
		c := &cfgs[i]
		r, err := prefillRateOf(&src, c)
		if err != nil {
			return nil, err
		}
		l, w := opt.MeanLengths(*c)
		warn = append(warn, w...)
		s := scaler{
			Label:      c.Label,
			Rate:       r,
			TTFTMs:     slo,
			Share:      shares[opt.Settings["statistic"]],
			Decode:     decodeUsage,
			Uncached:   l.Prompt - math.Min(l.Prompt, opt.Settings.Float("cached-tokens")),
			Name:       opt.Settings["name"],
			Prometheus: opt.Settings["prometheus"],
			statistic:  opt.Settings["statistic"],
		}
		if ns := opt.Settings["namespace"]; ns != "" {
			s.Selector = fmt.Sprintf("{namespace=%q}", ns)
		}
		if len(cfgs) > 1 {
			s.Name += "-" + slug(c.Label)
		}
		s.Threshold = s.Share * (slo/1e3 - s.Uncached/r.PerS)
		if !(s.Threshold > 0) {
			return nil, trace.Errorf(impossibleValue,
				"%s: a prompt of %.0f uncached tokens alone takes %.0f ms, want less than the target of %g ms",
				c.Label, s.Uncached, 1e3*s.Uncached/r.PerS,
				slo).WithHint("raise the target, or use a faster deployment")
		}
		sc := SideConfig{Label: c.Label, PromptTokens: &l.Prompt, OutputTokens: &l.Output,
			Seats: c.Deployment.Seats(l.Prompt + l.Output)}
		if rate := opt.Settings.Float("rate-rps"); rate > 0 {
			if err := s.compareReplicas(&src, &c.Deployment, l, rate); err != nil {
				return nil, fmt.Errorf("%s: %w", c.Label, err)
			}
			sc.Note = strings.Join(s.Says, "; ")
		}
		side.Configs = append(side.Configs, sc)
		side.Values = append(side.Values, r.sideValue(c.Label+".V_P"))
		data, err := fill(kedaText, &s)
		if err != nil {
			return nil, err
		}
		texts = append(texts, data)
	}
	side.Warnings = append(src.ValidationWarnings(), warn...)
	return side.Beside(warn, File{Data: bytes.Join(texts, []byte("---\n"))})
}

// scaler holds the values of kedaText.
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
	Says       []string // comments
	statistic  string
}

// compareReplicas adds a comment that compares the replicas of the formula at a rate with those that
// our simulator needs for the target.
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
	least := max(1, int(math.Ceil(rateRPS/capacity)))
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
	s.Says = append(s.Says, fmt.Sprintf("%g requests/s of %.0f + %.0f tokens: the formula keeps %d replicas "+
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

// simulateReplica simulates one replica under its share of the traffic. Means over time follow from
// Little's law.
func (s *scaler) simulateReplica(d *deploy.Deployment, m sim.Model, t *workload.Traffic) (out replicaLoad, err error) {
	blocks, _, err := d.KVBlocks()
	if err != nil {
		return out, err
	}
	reqs, _ := t.Draw()
	uncached := s.Uncached / (s.Uncached + t.Shape.Cached)
	var ttft []float64
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
