package simulate

import (
	"cmp"
	"context"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/blis-train/blis-train/deploy"
	"github.com/blis-train/blis-train/internal/option"
	"github.com/blis-train/blis-train/internal/par"
	"github.com/blis-train/blis-train/library"
	"github.com/blis-train/blis-train/report"
	"github.com/blis-train/blis-train/sim"
	"github.com/blis-train/blis-train/trace"
)

// Question is a server that nobody runs yet and a load on it.
type Question struct {
	Model        string       // built-in name, or path of a config.json; "": as Serve says
	Hardware     string       // device
	Serve        string       // arguments of vllm serve
	Set          []string     // settings of run.yaml, "key.path=value"; they go before all else
	GPU          *library.GPU // tables in place of the embedded ones; nil: those
	InputTokens  int64
	OutputTokens int64
	Concurrency  int     // clients of a closed loop; 0: RateRPS
	RateRPS      float64 // Poisson arrivals
	SLO          []Bound // the highest load that keeps them is looked for
}

// Bound is a limit on a latency.
type Bound struct {
	Metric string  `json:"metric"` // ttft, itl or e2e
	Figure string  `json:"figure"` // mean, p50, p90 or p99 over requests, of itl over tokens
	Ms     float64 `json:"ms"`
}

// String is the bound as it is given.
func (b Bound) String() string { return fmt.Sprintf("%s.%s=%gms", b.Metric, b.Figure, b.Ms) }

// ParseSLO reads bounds such as "ttft=500ms,itl.p99=30ms"; without a figure it is the 90th percentile.
func ParseSLO(text string) (out []Bound, err error) {
	for _, word := range strings.FieldsFunc(text, func(r rune) bool { return r == ',' || r == ' ' }) {
		name, value, _ := strings.Cut(word, "=")
		metric, figure, _ := strings.Cut(strings.ToLower(name), ".")
		d, err := time.ParseDuration(value)
		b := Bound{metric, cmp.Or(figure, "p90"), float64(d) / 1e6}
		if err != nil || d <= 0 || !slices.Contains(metricNames[:], b.Metric) || figureAt(b.Figure) < 0 {
			return nil, option.Misusef("--slo: got %q, want ttft, itl or e2e (also .mean, .p50, .p90, .p99) and a time, as in ttft=500ms", word)
		}
		out = append(out, b)
	}
	return out, nil
}

var metricNames = [3]string{"ttft", "itl", "e2e"}

// figureAt is where a figure stands in a spread, -1 for none.
func figureAt(name string) int {
	return slices.Index([]string{"mean", "p50", "p90", "p95", "p99"}, name)
}

// Figures are of one latency, ms.
type Figures struct {
	Mean *float64 `json:"mean_ms"`
	P50  *float64 `json:"p50_ms"`
	P90  *float64 `json:"p90_ms"`
	P99  *float64 `json:"p99_ms"`
}

// Share is what part of the engine's steps a kind of work takes.
type Share struct {
	Name  string  `json:"name"`
	Share float64 `json:"share"`
}

// MaxLoad is the highest load that keeps the bounds.
type MaxLoad struct {
	SLO         []Bound `json:"slo"`
	Concurrency int     `json:"concurrency,omitempty"` // 0: none does
	RateRPS     float64 `json:"rate_rps,omitempty"`
	Breaks      string  `json:"breaks,omitempty"` // what the next higher load that was tried does not keep
	TokensPerS  float64 `json:"output_tokens_per_sec_per_gpu"`
}

// Prediction is the answer to one question, or why there is none.
type Prediction struct {
	Model        string  `json:"model"`
	Hardware     string  `json:"hardware"`
	TP           int64   `json:"tensor_parallel_size"`
	DP           int64   `json:"data_parallel_size"`
	GPUs         int64   `json:"gpus"`
	EP           bool    `json:"enable_expert_parallel,omitempty"`
	Version      string  `json:"vllm_version"`
	Seats        int64   `json:"max_num_seqs"`
	Budget       int64   `json:"max_num_batched_tokens"`
	KVBytes      float64 `json:"bytes_per_kv"` // of a cached value
	InputTokens  int64   `json:"input_tokens"`
	OutputTokens int64   `json:"output_tokens"`
	Concurrency  int     `json:"concurrency,omitempty"`
	RateRPS      float64 `json:"rate_rps,omitempty"`
	LatencyModel string  `json:"latency_model,omitempty"`
	Trust        *Trust  `json:"trust,omitempty"`

	TTFT         Figures         `json:"ttft"`
	ITL          Figures         `json:"itl"`
	E2E          Figures         `json:"e2e"`
	RequestsPerS float64         `json:"requests_per_sec"`
	TokensPerS   float64         `json:"output_tokens_per_sec_per_gpu"`
	KVTokens     int64           `json:"kv_cache_tokens"` // of one engine
	KVPeak       float64         `json:"kv_cache_peak_share"`
	LimitedBy    string          `json:"limited_by,omitempty"`
	Shares       []Share         `json:"step_shares,omitempty"`
	MaxLoad      *MaxLoad        `json:"max_load,omitempty"`
	Warnings     []trace.Finding `json:"warnings,omitempty"`
	Refused      string          `json:"refused,omitempty"`
	Hint         string          `json:"hint,omitempty"`

	Step  *library.Step `json:"-"` // the plan of a step; nil with the roofline
	Batch library.Batch `json:"-"` // a decode step of the load
	on    *Simulation   // simulates it
	whole *Summary
}

// assumedVersion is the engine where nobody says which: the one whose kernels most tables hold.
const assumedVersion = "0.24.0"

// Deployment is what the question asks of, with what vLLM takes for knobs that nobody gave.
func (q *Question) Deployment() (*deploy.Deployment, []trace.Finding, error) {
	draft := deploy.NewDraft()
	if q.Serve != "" {
		line := strings.TrimPrefix(strings.TrimSpace(q.Serve), "serve ")
		if !strings.Contains(line, "serve ") && !strings.Contains(line, "api_server") && !strings.Contains(line, " run ") {
			line = "vllm serve " + line
		}
		var err error
		if draft, err = deploy.FromCommandLine(line, os.ReadFile); err != nil {
			return nil, nil, err
		}
		for _, f := range draft.Findings(nil) {
			if flag, left := strings.CutSuffix(f.Message, "; it is left out"); left {
				return nil, nil, trace.Errorf(f.Code, "--vllm: %s", flag).WithHint("correct it, or leave it out")
			}
		}
	}
	named, _ := draft.Get("model.id").(string)
	name := cmp.Or(q.Model, named)
	for _, set := range append([]string{"model.id=" + name}, q.Set...) {
		path, value, _ := strings.Cut(set, "=")
		if said := draft.Get(path); said != nil && fmt.Sprint(said) != value {
			return nil, nil, trace.Errorf(deploy.BadKnobs, "%s: got %v in --vllm and %s beside it", path, said, value).WithHint("say it once")
		}
	}
	if id, ok := deploy.ModelNamed(name); ok {
		draft.Set("model.id", id)
	} else if info, err := os.Stat(name); err == nil && name != "" {
		path, err := filepath.Abs(name)
		if err != nil {
			return nil, nil, err
		}
		if info.IsDir() {
			path = filepath.Join(path, "config.json")
		}
		draft.Set("model.config", path)
	} else {
		return nil, nil, deploy.NoSuchModel(name)
	}
	draft.Set("name", deploy.ModelName(name))
	draft.Set("hardware.name", q.Hardware)
	if draft.Get("vllm.version") == nil {
		draft.Set("vllm.version", assumedVersion)
	}
	draft.FillDefaults()
	d, err := deploy.LoadSettings(append(draft.Settings(), q.Set...)...)
	return d, draft.Findings(nil), err
}

// Predict answers a question. Codes: those of deploy, kernels and sim.
func Predict(ctx context.Context, q Question) (*Prediction, error) {
	p, err := q.bind(ctx)
	if err != nil {
		return nil, err
	}
	d := p.on.Deployment
	n := q.InputTokens + q.OutputTokens
	if longest := d.MaxModelLen(); longest.OK && n > longest.V {
		return nil, trace.Errorf(sim.CodeBadConfig, "--input-len, --output-len: got %s tokens together, want at most %s, the longest of "+
			"the model", trace.Thousands(n), trace.Thousands(longest.V)).WithHint("ask for fewer, or raise --max-model-len where --vllm has it")
	}
	blocks, _, err := d.KVBlocks()
	if err != nil {
		return nil, fitting(err, d, n)
	}
	size := d.Engine.BlockSize
	p.on.o.KVBlocks = blocks
	p.KVTokens = blocks * size
	if pool, ok := d.Model.Layers().KVPool(d.Parallel(), size); ok && len(pool.Groups) > 1 {
		// layers of windows and states draw blocks of their own: the cache in requests like these, as vLLM logs it
		p.KVTokens = blocks * ((n + size - 1) / size) / max(1, pool.RequestBlocks(n, d.Engine.MaxNumBatchedTokens)) * size
	}
	if p.KVTokens < n {
		return nil, fitting(trace.Errorf(deploy.BadHardware, "KV cache: got room for %s tokens, want %s and %s of one request",
			trace.Thousands(p.KVTokens), trace.Thousands(q.InputTokens), trace.Thousands(q.OutputTokens)), d, n)
	}
	if err := p.run(&q); err != nil {
		return nil, err
	}
	if len(q.SLO) > 0 {
		p.MaxLoad, err = p.highest(&q)
	}
	return p, err
}

// bind makes ready to simulate.
func (q *Question) bind(ctx context.Context) (*Prediction, error) {
	d, findings, err := q.Deployment()
	if err != nil {
		return nil, err
	}
	o := DefaultOptions()
	o.InputTokens = q.InputTokens
	o.OutputTokens = q.OutputTokens
	o.RangeRatio = lengthSpread
	o.GPU = q.GPU
	s := &Simulation{ctx: ctx, o: &o, Deployment: d}
	if err := s.bind(); err != nil {
		return nil, err
	}
	p := &Prediction{Model: d.Model.ID, Hardware: d.Hardware.Name, TP: d.TP, DP: d.DP, GPUs: d.GPUs(), EP: d.Engine.ExpertParallel,
		Version: d.Engine.VLLMVersion, Seats: d.Engine.MaxNumSeqs, Budget: d.Engine.MaxNumBatchedTokens, KVBytes: d.Model.BytesPerKV,
		InputTokens: q.InputTokens, OutputTokens: q.OutputTokens, Concurrency: q.Concurrency, RateRPS: q.RateRPS, LatencyModel: s.model,
		Trust: s.trust, Step: s.step, on: s}
	for _, f := range append(findings, d.NotModelled()...) {
		isRanks := strings.HasPrefix(f.Message, "data_parallel_size: ") // all of them are simulated
		if f.Code != deploy.UnsupportedEngine && !isRanks && !slices.Contains(p.Warnings, f) {
			p.Warnings = append(p.Warnings, f)
		}
	}
	return p, nil
}

// fitting names the number of GPUs that holds the model and so many tokens.
func fitting(err error, d *deploy.Deployment, tokens int64) error {
	if !strings.Contains(err.Error(), "room for") { // of layers that share no pool, say
		return err
	}
	for wider := *d; wider.TP <= 8; {
		wider.TP *= 2
		if blocks, _, e := wider.KVBlocks(); e == nil && wider.CheckTables() == nil && blocks*d.Engine.BlockSize >= tokens {
			return trace.Hinted(err, fmt.Sprintf("raise --tp to %d", wider.TP))
		}
	}
	return trace.Hinted(err, "take a GPU with more memory, or weights of fewer bits")
}

// lengthSpread is by how much simulated lengths differ, as those of benchmarks whose answers stop a little early; without it all requests
// of a closed loop would march in step.
const lengthSpread = 0.02

// leastOpen and mostOpen are how many requests of open arrivals are simulated: a minute's.
const leastOpen, mostOpen = 500, 5000

// load simulates clients, or arrivals.
func (p *Prediction) load(clients int, rate float64, watch func(*sim.Config)) (*Summary, error) {
	s := *p.on
	o := *p.on.o
	rounds := 10
	switch {
	case clients > 128:
		rounds = 3
	case clients == 128:
		rounds = 5
	}
	o.Concurrency = clients
	o.RateRPS = rate
	o.Requests = max(rounds*clients, 5*rounds)
	if clients == 0 {
		o.Requests = int(min(mostOpen, max(leastOpen, 60*rate)))
	}
	s.o = &o
	if err := s.loadWorkload(); err != nil {
		return nil, err
	}
	reqs, err := s.Requests(o.Seed)
	if err != nil {
		return nil, err
	}
	cfg, err := s.Engine(o.Seed)
	if err != nil {
		return nil, err
	}
	cfg.Ranks = s.Deployment.DP > 1
	if watch != nil {
		watch(&cfg)
	}
	sum := NewCollector(len(reqs))
	res, err := stream(cfg, reqs, nil, func(r *sim.RequestResult) error { sum.Add(r); return nil })
	if err != nil {
		return nil, err
	}
	out := sum.Close(res)
	if out.CompletedRequests == 0 {
		return nil, trace.Errorf(sim.CodeBadConfig, "no request of %d and %d tokens completed: the KV cache holds %d tokens", p.InputTokens,
			p.OutputTokens, p.KVTokens).WithHint("shorten --input-len and --output-len, or raise --tp")
	}
	return out, nil
}

// run answers for the load of the question.
func (p *Prediction) run(q *Question) error {
	w := &watch{}
	sum, err := p.load(q.Concurrency, q.RateRPS, func(c *sim.Config) { w.over(c, p.on) })
	if err != nil {
		return err
	}
	p.whole = sum
	for i, to := range []*Figures{&p.TTFT, &p.ITL, &p.E2E} {
		s := sum.spreads[i]
		*to = Figures{s[0], s[1], s[2], s[4]}
	}
	p.RequestsPerS = sum.ResponsesPerSec
	p.TokensPerS = sum.TokensPerSec / float64(p.GPUs)
	p.KVPeak = float64(sum.PeakBlocks*p.on.Deployment.KVUnits().Blocks) / float64(p.on.o.KVBlocks)
	p.Shares = w.shares()
	p.LimitedBy = p.limit(sum)
	n := math.Max(1, math.Round(sum.RequestsPerStep()))
	p.Batch = library.Batch{Tokens: n, Sequences: n, Decodes: n, DecodeContext: n * float64(q.InputTokens+q.OutputTokens/2)}
	return nil
}

// RequestsPerStep is how many requests a step decodes, in the mean.
func (s *Summary) RequestsPerStep() float64 {
	return float64(s.TotalOutputTokens) / float64(max(1, s.Steps))
}

// limit says what keeps the load from being served faster.
func (p *Prediction) limit(s *Summary) string {
	switch {
	case s.PreemptionCount > 0 || p.KVPeak > 0.97 && s.PeakWaiting > 0:
		return fmt.Sprintf("KV cache (%s tokens, %s preemptions)", trace.Thousands(p.KVTokens), trace.Thousands(int64(s.PreemptionCount)))
	case s.PeakWaiting > 0 && s.PeakRunning >= p.Seats:
		return fmt.Sprintf("batch limit (max_num_seqs %d)", p.Seats)
	case p.RateRPS > 0 && s.BusyShare < 0.9:
		return fmt.Sprintf("arrivals (the engine idles %.0f %% of the time)", 100*(1-s.BusyShare))
	case len(p.Shares) == 0:
		return ""
	}
	top := slices.MaxFunc(p.Shares, func(a, b Share) int { return cmp.Compare(a.Share, b.Share) })
	what := map[string]string{shareNames[ofWeights]: "memory bandwidth", shareNames[ofKV]: "memory bandwidth",
		shareNames[ofCompute]: "compute", shareNames[ofReduce]: "interconnect"}[top.Name]
	return fmt.Sprintf("%s (%s takes %.0f %% of the steps)", cmp.Or(what, "launches and host work"), top.Name, 100*top.Share)
}

// breaks names the first bound that a run does not keep.
func (s *Summary) breaks(slo []Bound) string {
	for _, b := range slo {
		v := s.spreads[slices.Index(metricNames[:], b.Metric)][figureAt(b.Figure)]
		if v == nil {
			return "no " + strings.ToUpper(b.Metric)
		}
		if *v > b.Ms {
			return fmt.Sprintf("%s %s %.4g ms, want at most %g", strings.ToUpper(b.Metric), b.Figure, *v, b.Ms)
		}
	}
	return ""
}

// highest looks for the highest load that keeps the bounds, within 2 %.
func (p *Prediction) highest(q *Question) (*MaxLoad, error) {
	out := &MaxLoad{SLO: q.SLO}
	try := func(v float64) (bool, error) {
		clients, rate := 0, v
		if q.RateRPS == 0 {
			clients, rate = int(v), 0
		}
		s, err := p.load(clients, rate, nil)
		if err != nil {
			return false, err
		}
		why := s.breaks(q.SLO)
		if why == "" && rate > 0 && s.Overload.Saturated {
			why = "the engine does not keep up"
		}
		if why != "" {
			out.Breaks = why
			return false, nil
		}
		out.Concurrency = clients
		out.RateRPS = rate
		out.TokensPerS = s.TokensPerSec / float64(p.GPUs)
		return true, nil
	}
	lo := 0.0
	hi := 1.0
	least := 1.0
	if q.RateRPS > 0 {
		hi, least = q.RateRPS/64, 0
	}
	for most := math.Max(1<<14*q.RateRPS, 4*float64(p.Seats)); hi <= most; lo, hi = hi, 2*hi {
		if ok, err := try(hi); err != nil || !ok {
			if err != nil {
				return nil, err
			}
			break
		}
	}
	for hi-lo > max(least, 0.02*lo) && lo > 0 {
		mid := (lo + hi) / 2
		if least > 0 {
			mid = math.Floor(mid)
		}
		ok, err := try(mid)
		if err != nil {
			return nil, err
		}
		if ok {
			lo = mid
		} else {
			hi = mid
		}
	}
	return out, nil
}

// Kinds of work in a step.
const (
	ofWeights = iota
	ofKV
	ofCompute
	ofReduce
	ofSmall
	ofHost
	numShares
)

var shareNames = [numShares]string{"reading weights", "reading the KV cache", "computing tokens", "collectives", "small kernels",
	"the host"}

// watch takes steps of a simulation apart, one in sampled.
type watch struct {
	sim.Model
	on    *Simulation
	theta [library.NumStep]float64
	us    [numShares]float64
	n     int
}

const sampled = 16

// touched is at how many tokens all experts have some and still wait for their weights.
const touched = 256

func (w *watch) over(c *sim.Config, on *Simulation) {
	if on.step != nil {
		w.Model, w.on, w.theta = c.Latency, on, library.Learned().On(on.Deployment.Hardware.Name)
		c.Latency = w
	}
}

// StepUs is the model's.
func (w *watch) StepUs(b *sim.Batch) (float64, error) {
	us, err := w.Model.StepUs(b)
	if w.n++; w.n%sampled != 1 || err != nil {
		return us, err
	}
	batch := b.Kernels()
	one := library.Batch{Tokens: 1, Sequences: 1}
	some := library.Batch{Tokens: touched, Sequences: 1}
	all := w.on.step.Us(&batch)
	least := w.on.step.Us(&one)
	experts := w.on.step.Us(&some)
	sum := 0.0
	for i := range w.on.step.Operators {
		op := &w.on.step.Operators[i]
		v := all[i] * w.theta[library.ScaleGPU]
		kind := ofSmall
		sum += v
		switch {
		case op.Kind == library.Collective:
			kind = ofReduce
		case strings.HasSuffix(op.Name, "_decode"):
			kind = ofKV
		case strings.HasSuffix(op.Name, "_prefill"):
			kind = ofCompute
		case op.Table != "": // one token's time is that of the weights
			kind = ofCompute
			if op.Kind == library.Experts {
				least[i] = experts[i]
			}
			read := math.Min(v, least[i]*w.theta[library.ScaleGPU])
			w.us[ofWeights] += read
			v -= read
		}
		w.us[kind] += v
	}
	w.us[ofHost] += math.Max(0, us-sum)
	return us, nil
}

func (w *watch) shares() (out []Share) {
	total := 0.0
	for _, us := range w.us {
		total += us
	}
	for i, us := range w.us {
		if total > 0 {
			out = append(out, Share{shareNames[i], us / total})
		}
	}
	return out
}

// Sweep is every question of the product of some settings, such as "tp=1,2,4 concurrency=1..256"; a..b doubles. Keys: model, hardware, tp,
// ep, concurrency, rate, input-len, output-len.
func (q Question) Sweep(text string) ([]Question, error) {
	out := []Question{q}
	for _, word := range strings.Fields(text) {
		key, list, _ := strings.Cut(word, "=")
		var values []string
		for _, v := range strings.Split(list, ",") {
			from, to, ranged := strings.Cut(v, "..")
			lo, err1 := strconv.ParseFloat(from, 64)
			hi, err2 := strconv.ParseFloat(to, 64)
			if !ranged {
				values = append(values, v)
				continue
			}
			if err1 != nil || err2 != nil || !(lo > 0 && lo <= hi && hi/lo <= 1<<20) {
				return nil, option.Misusef("--sweep: %s: got %q, want two numbers above 0, the second no less, as in 1..256", key, v)
			}
			for ; lo <= hi; lo *= 2 {
				values = append(values, strconv.FormatFloat(lo, 'g', -1, 64))
			}
		}
		var next []Question
		for _, base := range out {
			for _, v := range values {
				one := base
				if err := one.take(key, v); err != nil {
					return nil, err
				}
				next = append(next, one)
			}
		}
		out = next
	}
	return out, nil
}

// take sets one thing of the question.
func (q *Question) take(key, value string) error {
	n, err := strconv.ParseFloat(value, 64)
	bad := option.Misusef("--sweep: %s: got %q, want a whole number of at least 1", key, value)
	whole := err == nil && n >= 1 && n == math.Trunc(n) && n <= 1<<30
	set := func(path, value string) { q.Set = append(slices.Clone(q.Set), path+"="+value) }
	switch key {
	case "model":
		q.Model, whole = value, true
	case "hardware":
		q.Hardware, whole = value, true
	case "tp":
		set("tensor_parallel_size", value)
	case "ep":
		set("vllm.enable_expert_parallel", value)
		whole = value == "true" || value == "false"
	case "concurrency":
		q.Concurrency, q.RateRPS = int(n), 0
	case "rate":
		q.RateRPS = n
		q.Concurrency = 0
		whole = err == nil && n > 0
	case "input-len":
		q.InputTokens = int64(n)
	case "output-len":
		q.OutputTokens = int64(n)
	default:
		return option.Misusef("--sweep: got key %q, want model, hardware, tp, ep, concurrency, rate, input-len or output-len", key)
	}
	if !whole {
		return bad
	}
	return nil
}

// PredictAll answers questions, several at a time, in their order; one that is refused says why in its place.
func PredictAll(ctx context.Context, qs []Question, workers int) ([]*Prediction, error) {
	out := make([]*Prediction, len(qs))
	err := par.Try(ctx, workers, len(qs), func(i int) error {
		p, err := Predict(ctx, qs[i])
		if err != nil {
			q := &qs[i]
			p = &Prediction{Model: q.Model, Hardware: q.Hardware, InputTokens: q.InputTokens, OutputTokens: q.OutputTokens,
				Concurrency: q.Concurrency, RateRPS: q.RateRPS, Refused: err.Error(), Hint: trace.HintOf(err)}
			if d, _, e := q.Deployment(); e == nil {
				p.Model, p.Hardware, p.TP, p.DP, p.GPUs, p.EP = d.Model.ID, d.Hardware.Name, d.TP, d.DP, d.GPUs(), d.Engine.ExpertParallel
			}
		}
		out[i] = p
		return ctx.Err()
	}, nil)
	return out, err
}

// Plan is the question's deployment with its step, operator by operator, and without an answer.
func (q *Question) Plan(ctx context.Context) (*Prediction, error) {
	p, err := q.bind(ctx)
	if err != nil {
		return nil, err
	}
	if p.Step == nil {
		return nil, trace.Errorf(library.NoTables, "%s", p.Trust.Unjudged)
	}
	return p, nil
}

// Picture draws latency against throughput, one line for each server, as SVG.
func Picture(points []*Prediction) []byte {
	var x, y report.Span
	lines := map[string][][2]float64{}
	names := []string(nil)
	for _, p := range points {
		if p.Refused != "" || p.ITL.Mean == nil {
			continue
		}
		name := fmt.Sprintf("%s, %d x %s, %d + %d tokens", p.Model, p.GPUs, p.Hardware, p.InputTokens, p.OutputTokens)
		if lines[name] == nil {
			names = append(names, name)
		}
		lines[name] = append(lines[name], [2]float64{p.TokensPerS, *p.ITL.Mean})
		x.TakePositive(p.TokensPerS)
		y.TakePositive(*p.ITL.Mean)
	}
	fig := &report.Figure{ID: "predict", Title: "Latency against throughput"}
	f := report.NewFrame(720, 420, "", report.Logarithmic("output tokens per second and GPU", x.Lo, x.Hi),
		report.Logarithmic("mean ITL, ms", y.Lo, y.Hi))
	paints := []report.Paint{report.Decode, report.Prefill, report.Mixed, report.Other}
	for i, name := range names {
		paint := paints[i%len(paints)]
		dash := i / len(paints) % 3
		fig.Legend = append(fig.Legend, report.Key{P: paint, Dash: dash, Text: name})
		f.Curve(lines[name], paint, 2, dash)
		for _, v := range lines[name] {
			f.Dot(f.At(v[0], v[1]), 3, paint, 1, fmt.Sprintf("%.0f tokens/s, %.3g ms", v[0], v[1]))
		}
	}
	fig.Panels = []report.Panel{{D: &f.Drawing, Desc: fig.Title}}
	return fig.SVG()
}
