package export

import (
	"bytes"
	"fmt"
	"maps"
	"math"
	"slices"
	"strings"
	"text/template"

	"gopkg.in/yaml.v3"

	"github.com/blis-train/blis-train/coeff"
	"github.com/blis-train/blis-train/deploy"
	"github.com/blis-train/blis-train/internal/stat"
	"github.com/blis-train/blis-train/model"
	"github.com/blis-train/blis-train/pipeline/features"
	"github.com/blis-train/blis-train/result"
	"github.com/blis-train/blis-train/sim"
	"github.com/blis-train/blis-train/sim/workload"
	"github.com/blis-train/blis-train/trace"
)

// regSet is the registry's CoefficientSet (schema v0.2.2). Field order is the
// order in the file.
type regSet struct {
	Kind         string                `yaml:"kind"`
	Name         string                `yaml:"name"`
	Coefficients []map[string]regEntry `yaml:"coefficients"`
}

// file is the set as YAML.
func (s *regSet) file() ([]byte, error) {
	var buf bytes.Buffer
	enc := yaml.NewEncoder(&buf)
	enc.SetIndent(2)
	err := enc.Encode(s)
	return buf.Bytes(), err
}

type regEntry struct {
	Value     float64     `yaml:"value"`
	Units     string      `yaml:"units"`
	Method    string      `yaml:"method"`
	Fitted    bool        `yaml:"fitted"`
	Scope     regScope    `yaml:"scope,flow"`
	CI95      []float64   `yaml:"ci95,omitempty,flow"`
	Sources   []regSource `yaml:"sources,omitempty"`
	Rationale string      `yaml:"rationale,omitempty"`
}

type regScope struct {
	Hardware []string `yaml:"hardware,omitempty"`
	Model    []string `yaml:"model,omitempty"`
	TP       []int64  `yaml:"tp,omitempty"`
}

type regSource struct {
	Kind string `yaml:"kind"`
	Cite string `yaml:"cite"`
	Role string `yaml:"role"`
}

// registryCite names the data exactly: the fit by hash (its sidecar lists every
// input), how many runs, where they came from, and the error on rows that were
// not fitted.
func registryCite(src Source) string {
	runs := stat.Count(src.Fit.Runs, func(r result.FitRun) bool { return r.Used })
	prov := map[string]bool{}
	for _, c := range src.Fit.Configs {
		if p := c.Deployment.Provenance; p != "" {
			prov[p] = true
		}
	}
	s := fmt.Sprintf("blis-train %s, fit.json sha256 %s, %d runs", src.Fit.ToolVersion, src.FitInput.SHA256, runs)
	if src.Library != "" {
		return fmt.Sprintf("blis-train %s, coefficients of its library %s", src.Fit.ToolVersion, src.Library)
	}
	if len(prov) > 0 {
		s += " (" + strings.Join(slices.Sorted(maps.Keys(prov)), "; ") + ")"
	}
	if m := modelNamed(src.Fit, blisModel); m != nil && m.Holdout != nil && m.Holdout.MAPE != nil {
		s += fmt.Sprintf("; hold-out rows, not fitted: step-time MAPE %.4f over %d rows", *m.Holdout.MAPE, m.Holdout.Rows)
	}
	return s
}

// registryScope is what the fit covers, each dimension sorted.
func registryScope(cfgs []result.FitConfig) regScope {
	hw := map[string]bool{}
	models := map[string]bool{}
	tp := map[int64]bool{}
	for _, c := range cfgs {
		hw[partOf(c.Deployment.Hardware.Name)] = true
		models[model.Name(c.Deployment.Model.ID)] = true
		tp[c.Deployment.TP] = true
	}
	return regScope{Hardware: slices.Sorted(maps.Keys(hw)), Model: slices.Sorted(maps.Keys(models)), TP: slices.Sorted(maps.Keys(tp))}
}

// partOf is the catalog's name of a device, else its own in lower case.
func partOf(device string) string {
	if part, ok := deploy.SpelledBy(deploy.BLISRegistry, device); ok {
		return part
	}
	return strings.ToLower(strings.ReplaceAll(device, " ", "-"))
}

// The registry's readers of today load sets of the resource-decomposed cost model; of those the
// engine's host work is what recordings of a server measure. Names and vocabularies as
// coefficients/cost-model-host-overheads.yaml@1dd3dc7 and docs/reference/format.md@81bd9a6 of
// inference-sim/blis-registry have them, schema v0.2.2.
const (
	hostSet        = "cost-model-host-overheads"
	hostCompletion = "host_completion"
	hostAdmission  = "host_admission_per_token"
	hostRequest    = "host_admission_per_request"
	hostOutput     = "host_output_token"
)

// hostRegistry writes the host work that the recordings measured: what a finished request still
// costs before its answer leaves (egress), what a request and a prompt token cost before the engine has them
// (constant and slope of overhead). What the data do not show is left out and said. Output tokens cost nothing
// beside the engine, whose stamps TTFT and ITL are measured by.
func hostRegistry(src Source, opt Options) (*Output, error) {
	cfgs, err := src.Configs(opt.Config)
	if err != nil {
		return nil, err
	}
	var rs []Refusal
	for _, c := range cfgs {
		if _, ok := deploy.SpelledBy(deploy.BLISRegistry, c.Deployment.Hardware.Name); !ok {
			rs = append(rs, Refusal{BadEntry, fmt.Sprintf("%s: the registry's catalog has no part for %q, want %s", c.Label,
				c.Deployment.Hardware.Name, trace.OneOf(deploy.BLISRegistry.Spelled()))})
		}
	}
	set := regSet{Kind: "CoefficientSet", Name: hostSet}
	side := src.Sidecar(opt, FormatRegistryHost, "readers of the BLIS registry's cost-model sets, CoefficientSet schema v0.2.2 "+
		"(inference-sim/blis-schemas)")
	if e := completion(src, cfgs); e != nil {
		set.Coefficients = append(set.Coefficients, map[string]regEntry{hostCompletion: *e})
		side.Values = append(side.Values, hostValue(hostCompletion, e, "each request at completion, E2E only"))
	} else {
		rs = append(rs, Refusal{unlearnedValue, hostCompletion + ": no egress target in the fit"})
	}
	warn, err := opt.Refuse(rs, "choose other configurations with --config LABEL, or write them all the same with --force %s")
	if err != nil {
		return nil, err
	}
	output := measuredHost(src, cfgs, 0, "us_per_token")
	output.Method = "not_charged"
	output.Fitted = false
	output.Sources = nil
	output.Rationale = "ITL is measured inside the engine: what a token costs the host is in its step"
	for _, c := range cfgs {
		e, us, why, err := admission(src, c)
		if err != nil {
			return nil, err
		}
		if us > 0 {
			constant := measuredHost(src, []result.FitConfig{c}, us, "us_per_request")
			set.Coefficients = append(set.Coefficients, map[string]regEntry{hostRequest: *constant})
			side.Values = append(side.Values, hostValue(c.Label+"."+hostRequest, constant, "each request, before it can be scheduled"))
		}
		if e == nil {
			warn = append(warn, trace.Findingf(unlearnedValue, "%s: %s is left out: %s", c.Label, hostAdmission, why))
			continue
		}
		set.Coefficients = append(set.Coefficients, map[string]regEntry{hostAdmission: *e})
		side.Values = append(side.Values, hostValue(c.Label+"."+hostAdmission, e, "each prompt token, before the request can be scheduled"))
	}
	if len(set.Coefficients) == 0 {
		return nil, trace.Errorf(unlearnedValue, "the fit measures neither %s nor %s", hostCompletion, hostAdmission)
	}
	set.Coefficients = append(set.Coefficients, map[string]regEntry{hostOutput: *output})
	data, err := set.file()
	if err != nil {
		return nil, err
	}
	lines, assumed := regions(cfgs, opt)
	side.Configs = lines
	warn = append(warn, assumed...)
	side.Warnings = append(src.ValidationWarnings(), warn...)
	return side.Beside(warn, File{"", data})
}

// completion is the median egress with the interval of its constant about it.
func completion(src Source, cfgs []result.FitConfig) *regEntry {
	m := src.Fit.AlphaNamed(coeff.Egress)
	if m == nil || m.TargetErrors == nil || m.TargetErrors.MedianPredUs == nil || !(*m.TargetErrors.MedianPredUs > 0) {
		return nil
	}
	e := measuredHost(src, cfgs, *m.TargetErrors.MedianPredUs, "us_per_request")
	if i := slices.IndexFunc(m.Coefficients, func(c result.Coefficient) bool { return c.Name == "base_bias" }); i >= 0 {
		if c := m.Coefficients[i]; c.CI95 != nil {
			e.CI95 = within(e.Value, e.Value+c.CI95[0]-c.Value, e.Value+c.CI95[1]-c.Value)
		}
	}
	return e
}

// admission is what one more prompt token adds to the overhead of a configuration's idle server, and what is left of a request of no
// tokens, us; without the first, why.
func admission(src Source, c result.FitConfig) (*regEntry, float64, string, error) {
	m := src.Fit.AlphaNamed(coeff.Overhead)
	if m == nil || src.OverheadUs == nil {
		return nil, 0, "no overhead target in the fit", nil
	}
	prompt := int64(assumedPrompt)
	if c.MeanPromptTokens != nil {
		prompt = max(1, int64(min(*c.MeanPromptTokens, 1<<40)))
	}
	var us [2]float64
	for k, tokens := range []int64{prompt, 2 * prompt} {
		var err error
		if us[k], err = src.OverheadUs(c.Deployment, tokens); err != nil {
			return nil, 0, "", fmt.Errorf("%s: overhead: %w", c.Label, err)
		}
	}
	slope := (us[1] - us[0]) / float64(prompt)
	i := slices.IndexFunc(m.Coefficients, func(c result.Coefficient) bool { return c.Name == "admission_compute" })
	if i < 0 || !learned(m.Coefficients[i]) || !(slope > 0) {
		return nil, us[0], "the overhead does not grow with the prompt in these data", nil
	}
	e := measuredHost(src, []result.FitConfig{c}, slope, "us_per_token")
	if t := m.Coefficients[i]; t.CI95 != nil {
		e.CI95 = within(slope, slope*t.CI95[0]/t.Value, slope*t.CI95[1]/t.Value)
	}
	return e, math.Max(0, us[0]-slope*float64(prompt)), "", nil
}

// measuredHost is an entry with its source: the fit, and the recordings it was made from.
func measuredHost(src Source, cfgs []result.FitConfig, value float64, units string) *regEntry {
	runs := slices.Concat(stat.Map(cfgs, func(c result.FitConfig) []string { return c.Runs })...)
	slices.Sort(runs)
	e := &regEntry{Value: value, Units: units, Method: "measured", Fitted: true, Scope: registryScope(cfgs), Sources: []regSource{{
		Kind: "model", Cite: registryCite(src) + "; recordings " + strings.Join(slices.Compact(runs), ", "), Role: "primary"}}}
	if src.Library != "" {
		e.Method, e.Fitted, e.Sources[0].Cite = "assumed", false, registryCite(src)
		e.Rationale = "predicted from published kernel times; no server of this deployment was measured"
	}
	return e
}

// within is an interval the registry takes: it holds the value; nil otherwise.
func within(value, lo, hi float64) []float64 {
	if lo = max(0, lo); lo <= value && value <= hi {
		return []float64{lo, hi}
	}
	return nil
}

func hostValue(key string, e *regEntry, effect string) SideValue {
	v := SideValue{Key: key, Name: key, Value: result.OrNull(e.Value), Unit: e.Units, Identified: "measured", Learned: true,
		Origin: e.Sources[0].Cite, Effect: "charged to " + effect}
	if e.CI95 != nil {
		v.CI95 = &[2]float64{e.CI95[0], e.CI95[1]}
	}
	return v
}

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
		mx, my = mx+x[i]/lengths, my+y[i]/lengths
	}
	var xx, xy float64
	for i := range lengths {
		xx = xx + (x[i]-mx)*(x[i]-mx)
		xy = xy + (x[i]-mx)*(y[i]-my)
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
	x := f.Features()
	cov := features.On(set, d).Covariance
	if len(cov) != len(x) {
		return nil, nil
	}
	variance := 0.0
	for i, row := range cov {
		for j, v := range row {
			variance += x[i] * (v * x[j])
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
		t.Requests = ComparedRequests
		t.RateRPS = rateRPS / float64(n)
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
