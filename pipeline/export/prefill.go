package export

import (
	"bytes"
	"fmt"
	"math"
	"strings"
	"text/template"

	"github.com/blis-train/blis-train/deploy"
	"github.com/blis-train/blis-train/internal/stat"
	"github.com/blis-train/blis-train/pipeline/features"
	"github.com/blis-train/blis-train/pipeline/result"
	"github.com/blis-train/blis-train/sim"
	"github.com/blis-train/blis-train/sim/workload"
	"github.com/blis-train/blis-train/trace"
)

// prefillRate is how fast an idle engine takes prompts in: what autoscalers and routers call V_P or peak prefill
// throughput, tokens/s (spec#prefill-rate).
type prefillRate struct {
	Chunk   int64       // tokens of the prompt: max_num_batched_tokens, or the longest prompt
	PerS    float64     // Chunk / TTFT of it on an idle engine
	CI95    *[2]float64 // of the step's coefficients; nil: their covariance is not known
	SlopeUs float64     // of idle TTFT over the prompt, us/token: least squares over eight lengths
	TTFTMs  float64     // of that prompt
}

// prefillRateOf asks the coefficients for the idle TTFT of prompts up to a full chunk.
func prefillRateOf(src *Source, c *result.FitConfig) (*prefillRate, error) {
	d := &c.Deployment
	t, err := src.Timer(*c)
	if err != nil {
		return nil, err
	}
	r := &prefillRate{Chunk: min(d.Engine.MaxNumBatchedTokens, max(1, d.LongestSequence().Or(math.MaxInt32)-1))}
	ttftUs := func(n int64) (float64, error) {
		us, err := t.StepUs([]trace.Chunk{{Prompt: n, New: n}})
		if src.OverheadUs != nil && err == nil {
			if delay, missing := src.OverheadUs(*d, n); missing == nil {
				us += delay
			}
		}
		return us, err
	}
	const lengths = 8
	var x, y [lengths]float64
	var mx, my float64
	for i := range lengths {
		n := max(1, r.Chunk*int64(i+1)/lengths)
		if y[i], err = ttftUs(n); err != nil {
			return nil, fmt.Errorf("%s: %w", c.Label, err)
		}
		x[i] = float64(n)
		mx, my = mx+float64(x[i]/lengths), my+float64(y[i]/lengths)
	}
	var xx, xy float64
	for i := range lengths {
		xx, xy = xx+float64((x[i]-mx)*(x[i]-mx)), xy+float64((x[i]-mx)*(y[i]-my))
	}
	us := y[lengths-1]
	r.PerS, r.TTFTMs, r.SlopeUs = float64(r.Chunk)/us*1e6, us/1e3, xy/math.Max(xx, 1)
	r.CI95, err = src.rateInterval(d, t, float64(r.Chunk), us)
	return r, err
}

// rateInterval is the 95 % interval of tokens / us of the step that t was last asked for, tokens/s.
func (src *Source) rateInterval(d *deploy.Deployment, t StepTimer, tokens, us float64) (*[2]float64, error) {
	f, ok := t.(featured)
	if !ok || src.Set == nil {
		return nil, nil
	}
	set, err := src.Set()
	if err != nil {
		return nil, err
	}
	x, cov := f.Features(), features.On(set, d).Covariance
	if len(cov) != len(x) {
		return nil, nil
	}
	variance := 0.0
	for i, row := range cov {
		for j, v := range row {
			variance += float64(x[i] * float64(v*x[j]))
		}
	}
	half := 1.96 * math.Sqrt(math.Max(0, variance))
	return &[2]float64{tokens / (us + float64(half)) * 1e6, tokens / math.Max(1, us-float64(half)) * 1e6}, nil
}

// Said is the rate in a comment.
func (r *prefillRate) Said() string {
	s := fmt.Sprintf("V_P %.0f tokens/s", r.PerS)
	if r.CI95 != nil {
		s += fmt.Sprintf(" (95 %%: %.0f to %.0f, of the step time's coefficients)", r.CI95[0], r.CI95[1])
	}
	return s + fmt.Sprintf(": a prompt of %d tokens on an idle engine has a TTFT of %.1f ms", r.Chunk, r.TTFTMs)
}

// side is the rate as a value of a sidecar.
func (r *prefillRate) side(key string) SideValue {
	return SideValue{Key: key, Name: "prefill throughput", Value: &r.PerS, Unit: "tokens/s", CI95: r.CI95, Identified: "derived",
		Learned: true, Origin: "max_num_batched_tokens / idle TTFT of such a prompt", Effect: "turns tokens in flight into a wait"}
}

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

// kedaText is a ScaledObject as llm-d-benchmark's token-velocity guide has them (947b3d6): replicas are the larger of the two
// triggers' sums over their thresholds, rounded up.
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

// shares of the threshold by what the target is of.
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
		return nil, trace.Errorf(NothingToExport, "%s: got no TTFT target", FormatKEDA).WithHint("--option ttft-ms=2000")
	case opt.Settings["path"] == "pd":
		return nil, trace.Errorf(NothingToExport, "%s: prefill and decode apart: got no time for the transfer of KV between them: "+
			"the pod alone is up to six times as fast as the path", FormatKEDA).WithHint("measure V_P through the path itself")
	}
	side := src.Sidecar(opt, FormatKEDA, "KEDA with the metrics of llm-d's endpoint picker and of vLLM (llm-d-benchmark 947b3d6); "+
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
		s := scaler{Label: c.Label, Rate: r, TTFTMs: slo, Share: shares[opt.Settings["statistic"]], Decode: decodeUsage,
			Uncached: l.Prompt - math.Min(l.Prompt, opt.Settings.Float("cached-tokens")), Name: opt.Settings["name"],
			Prometheus: opt.Settings["prometheus"], statistic: opt.Settings["statistic"]}
		if ns := opt.Settings["namespace"]; ns != "" {
			s.Selector = fmt.Sprintf("{namespace=%q}", ns)
		}
		if len(cfgs) > 1 {
			s.Name += "-" + slug(c.Label)
		}
		if s.Threshold = s.Share * (slo/1e3 - s.Uncached/r.PerS); !(s.Threshold > 0) {
			return nil, trace.Errorf(impossibleValue, "%s: a prompt of %.0f uncached tokens alone takes %.0f ms, want less than the target of %g ms",
				c.Label, s.Uncached, 1e3*s.Uncached/r.PerS, slo).WithHint("raise the target, or use a faster deployment")
		}
		sc := SideConfig{Label: c.Label, PromptTokens: &l.Prompt, OutputTokens: &l.Output, Seats: c.Deployment.Seats(l.Prompt + l.Output)}
		if rate := opt.Settings.Float("rate-rps"); rate > 0 {
			if err := s.compare(&src, &c.Deployment, l, rate); err != nil {
				return nil, fmt.Errorf("%s: %w", c.Label, err)
			}
			sc.Note = strings.Join(s.Says, "; ")
		}
		side.Configs, side.Values = append(side.Configs, sc), append(side.Values, r.side(c.Label+".V_P"))
		data, err := fill(kedaText, &s)
		if err != nil {
			return nil, err
		}
		texts = append(texts, data)
	}
	side.Warnings = append(src.ValidationWarnings(), warn...)
	return side.Beside(warn, File{Data: bytes.Join(texts, []byte("---\n"))})
}

// scaler is what a ScaledObject is made of.
type scaler struct {
	Label                      string
	Rate                       *prefillRate
	TTFTMs, Share, Uncached    float64
	Threshold, Decode          float64
	Name, Prometheus, Selector string
	Says                       []string
	statistic                  string
}

// compare says how many replicas the formula keeps at a rate, and how many our simulator needs for the target.
func (s *scaler) compare(src *Source, d *deploy.Deployment, l Lengths, rateRPS float64) error {
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
	known := map[int]shown{}
	at := func(n int) (shown, error) {
		if x, ok := known[n]; ok {
			return x, nil
		}
		t.Requests, t.RateRPS = ComparedRequests, rateRPS/float64(n)
		x, err := s.simulate(d, m, &t)
		known[n] = x
		return x, err
	}
	least := max(1, int(math.Ceil(rateRPS/capacity)))
	first := func(enough func(n int, x shown) bool) (int, error) {
		lo, hi := least, 8*least+8 // enough at hi: an eighth of the capacity
		for lo < hi {
			mid := (lo + hi) / 2
			x, err := at(mid)
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
	formula, err := first(func(n int, x shown) bool {
		return math.Ceil(float64(n)*x.inflight/s.Rate.PerS/s.Threshold) <= float64(n) && math.Ceil(float64(n)*x.usage/s.Decode) <= float64(n)
	})
	if err != nil {
		return err
	}
	simulated, err := first(func(_ int, x shown) bool { return x.ttftMs <= s.TTFTMs })
	if err != nil {
		return err
	}
	x, err := at(formula)
	s.Says = append(s.Says, fmt.Sprintf("%g requests/s of %.0f + %.0f tokens: the formula keeps %d replicas (simulated %s TTFT %.0f ms); "+
		"our simulator needs %d for the target", rateRPS, l.Prompt, l.Output, formula, s.statistic, x.ttftMs, simulated))
	return err
}

// shown is what one replica shows: its TTFT, prompt tokens in flight without a first token, and the used share of its KV cache.
type shown struct{ ttftMs, inflight, usage float64 }

// simulate is one replica under its share of the traffic; means over time by Little's law.
func (s *scaler) simulate(d *deploy.Deployment, m sim.Model, t *workload.Traffic) (out shown, err error) {
	blocks, _, err := d.KVBlocks()
	if err != nil {
		return out, err
	}
	reqs, _ := t.Draw()
	uncached := s.Uncached / (s.Uncached + t.Shape.Cached)
	var ttft []float64
	var waiting, held, last float64
	_, err = sim.Stream(sim.DefaultConfig(d, m), reqs, nil, sim.InOrder(len(reqs), func(_ int, r *sim.RequestResult) bool {
		if us, ok := r.TTFTUs(); ok && r.FinishedUs.OK {
			ttft = append(ttft, us/1e3)
			waiting += float64(us * float64(r.PromptTokens) * uncached)
			whole := float64(r.FinishedUs.V - r.ScheduledUs.V)
			held += float64(whole * float64(r.PromptTokens+r.OutputTokens/2))
			last = math.Max(last, float64(r.FinishedUs.V))
		}
		return true
	}))
	if err != nil || last == 0 {
		return out, err
	}
	out = shown{stat.Mean(ttft), waiting / last, held / last / float64(blocks*d.Engine.BlockSize)}
	if s.statistic != "mean" {
		out.ttftMs = stat.Quantile(stat.Sorted(ttft), map[string]float64{"p90": .9, "p99": .99}[s.statistic])
	}
	return out, nil
}

// eppText is the plugin chain that llm-d's router ships with the predictor on (router@ebab687, config/charts/routerlib).
const eppText = `# {{.Label}}: {{.Rate.Said}}.
apiVersion: llm-d.ai/v1alpha1
kind: EndpointPickerConfig
plugins:
- type: predicted-latency-producer
- name: strict-affinity-filter
  type: prefix-cache-affinity-filter
  parameters: {affinityThreshold: 0.99, {{.Source}}, maxTTFTPenaltyMs: 5000}
- name: loose-affinity-filter
  type: prefix-cache-affinity-filter
  parameters: {affinityThreshold: 0.80, {{.Source}}, maxTTFTPenaltyMs: 5000}
- type: latency-scorer
- type: weighted-random-picker
- type: slo-headroom-tier-filter
- type: latency-slo-admitter
{{- if .P2P}}
- type: p2p-source-producer
  parameters:
    costModel:
      prefillMicrosecondsPerToken: {{printf "%.4g" .Rate.SlopeUs}}
{{- end}}
schedulingProfiles:
- name: default
  plugins:
  - pluginRef: predicted-latency-producer
  - pluginRef: strict-affinity-filter
  - pluginRef: slo-headroom-tier-filter
  - pluginRef: loose-affinity-filter
  - pluginRef: latency-scorer
  - pluginRef: weighted-random-picker
`

// endpointPicker writes the configuration of llm-d's router for one deployment.
func endpointPicker(src Source, opt Options) (*Output, error) {
	c, err := src.one(opt, FormatEPP)
	if err != nil {
		return nil, err
	}
	r, err := prefillRateOf(&src, c)
	if err != nil {
		return nil, err
	}
	source := "ttftSource: " + opt.Settings["ttft-source"]
	side := src.Sidecar(opt, FormatEPP, "llm-d's router, EndpointPickerConfig llm-d.ai/v1alpha1 (ebab687)")
	if opt.Settings["ttft-source"] == "prefillThroughput" {
		source += fmt.Sprintf(", peakPrefillThroughput: %.0f", r.PerS)
		side.Values = append(side.Values, r.side("peakPrefillThroughput"))
	}
	p2p := opt.Settings["p2p"] == "true"
	if p2p {
		side.Values = append(side.Values, SideValue{Key: "prefillMicrosecondsPerToken", Name: "slope of idle TTFT", Value: &r.SlopeUs,
			Unit: "us/token", Identified: "derived", Learned: true, Origin: "least squares over eight prompt lengths up to a chunk",
			Effect: "what a block costs to compute that another pod could send"})
	}
	data, err := fill(eppText, map[string]any{"Label": c.Label, "Rate": r, "Source": source, "P2P": p2p})
	if err != nil {
		return nil, err
	}
	lines, assumed := regions([]result.FitConfig{*c}, opt)
	side.Configs, side.Warnings = lines, src.ValidationWarnings()
	return side.Beside(assumed, File{Data: data})
}
