package cluster

import (
	"flag"
	"fmt"
	"strconv"
	"strings"
	"testing"

	"github.com/blis-train/blis-train/internal/testkit"
	"github.com/blis-train/blis-train/sim"
	"github.com/blis-train/blis-train/sim/forecast"
	"github.com/blis-train/blis-train/vllm"
)

var update = flag.Bool("update", false, "rewrite what testdata/*.txt tell")

// TestScripts runs the scenarios of testdata: prose, a cluster and requests in, what
// became of each request out. -update rewrites what they tell; read the difference.
func TestScripts(t *testing.T) { testkit.Scripts(t, *update, runScript) }

// script is a cluster of small engines: 64 tokens a step, blocks of 4.
type script struct {
	t      *testing.T
	cfg    *Config
	step   [3]float64
	seats  int64
	blocks int64
	n      int
	reqs   []sim.Request
	gate   map[string]string
}

// runScript understands `cluster k=v ...`, `step k=v ...`, `gate policy k=v ...` and
// `request id k=v ...`, the last with times=N every=US for several; # starts prose.
func runScript(t *testing.T, text string) string {
	s := &script{
		t:      t,
		cfg:    plain(nil),
		step:   [3]float64{1000, 10, 100},
		seats:  4,
		n:      2,
		blocks: 400,
	}
	for n, line := range strings.Split(text, "\n") {
		words := strings.Fields(line)
		if len(words) == 0 || words[0] == "#" {
			continue
		}
		switch words[0] {
		case "cluster":
			s.cluster(testkit.Pairs(s.t, n, words[1:]))
		case "step":
			p := testkit.Pairs(s.t, n, words[1:])
			s.step = [3]float64{s.number(p["base"]), s.number(p["prefill"]), s.number(p["decode"])}
		case "gate":
			s.gate = testkit.Pairs(s.t, n, words[2:])
			s.gate["policy"] = words[1]
		case "request":
			s.request(words[1], testkit.Pairs(s.t, n, words[2:]))
		default:
			t.Fatalf("line %d: %q", n+1, line)
		}
	}
	return s.run()
}

func (s *script) number(text string) float64 {
	v, err := strconv.ParseFloat(text, 64)
	if err != nil {
		s.t.Fatal(err)
	}
	return v
}

func (s *script) cluster(p map[string]string) {
	for k, v := range p {
		switch k {
		case "instances":
			s.n = int(s.number(v))
		case "roles": // of prefill and of decode instances
			var prefill, decode int
			if _, err := fmt.Sscanf(v, "%d:%d", &prefill, &decode); err != nil {
				s.t.Fatal(err)
			}
			s.n = prefill + decode
			s.cfg.Instances.Groups = []group{{Count: prefill, Role: rolePrefill}, {Count: decode, Role: roleDecode}}
		case "bandwidth": // GB/s
			s.cfg.Transfer.BandwidthGBs = s.number(v)
			s.cfg.Transfer.Shared = true
		case "latency":
			s.cfg.Transfer.LatencyUs = int64(s.number(v))
		case "proxy":
			s.cfg.Transfer.ProxyUs = int64(s.number(v))
		case "blocks":
			s.blocks = int64(s.number(v))
		case "seats":
			s.seats = int64(s.number(v))
		case "refresh":
			s.cfg.RefreshUs = int64(s.number(v))
		case "scrape":
			s.cfg.Scrape = v
		case "routing":
			s.cfg.Routing.Policy = v
		case "scorers":
			s.cfg.Routing.Policy = Weighted
			s.cfg.Routing.Scorers = v
		case "update":
			s.cfg.Routing.IndexUpdate = v
		case "delay":
			s.cfg.Routing.EventDelayUs = int64(s.number(v))
		case "scheduler":
			s.cfg.Scheduler = v
		case "age":
			s.cfg.AgeWeight = s.number(v)
		case "tries":
			s.cfg.Retry = retrySpec{Kind: "backoff", Tries: int(s.number(v)), BaseMs: 10, Factor: 2}
		case "shadow":
			s.cfg.ShadowShare = s.number(v)
		default:
			s.t.Fatalf("cluster %s", k)
		}
	}
}

func (s *script) request(id string, p map[string]string) {
	r := sim.Request{ID: id, PromptTokens: 16, OutputTokens: 1}
	times, every := 1, int64(0)
	for k, v := range p {
		switch x := int64(0); k {
		case "class":
			r.SLOClass = v
		default:
			x = int64(s.number(v))
			switch k {
			case "at":
				r.ArrivalUs = x
			case "prompt":
				r.PromptTokens = x
			case "out":
				r.OutputTokens = x
			case "target":
				r.SLOTTFTUs = x
			case "group":
				r.Group = uint64(x)
			case "shared":
				r.GroupTokens = x
			case "times":
				times = int(x)
			case "every":
				every = x
			default:
				s.t.Fatalf("request %s", k)
			}
		}
	}
	for i := range times {
		one := r
		one.ArrivalUs += int64(i) * every
		if times > 1 {
			one.ID += strconv.Itoa(i + 1)
		}
		s.reqs = append(s.reqs, one)
	}
}

func (s *script) run() string {
	d := testkit.Small(s.blocks, func(e *vllm.Engine) { e.MaxNumSeqs, e.PrefixCaching = s.seats, true })
	d.Model.NumLayers = 10
	d.Model.NumKVHeads = 8
	d.Model.HeadDim = 128
	d.Model.BytesPerKV = 2 // 163,840 B a block
	step := &sim.Blackbox{Beta: []float64{s.step[0], s.step[1], s.step[2]}}
	s.cfg.Engines = several(s.n, sim.DefaultConfig(d, step))
	if s.gate != nil {
		s.cfg.Policy = s.policy(forecast.NewWith(step, d))
	}
	res, err := Run(s.cfg, s.reqs)
	if err != nil {
		s.t.Fatal(err)
	}
	var out strings.Builder
	for i := range res.Records {
		writeRecord(&out, &res.Records[i])
	}
	return out.String()
}

func (s *script) policy(e *forecast.Engine) Policy {
	num := func(key string, or float64) float64 {
		if s.gate[key] == "" {
			return or
		}
		return s.number(s.gate[key])
	}
	switch s.gate["policy"] {
	case "slo-gated":
		return &sloGated{Signal: maxQueueDepth, Thresholds: map[string]float64{"sheddable": num("sheddable", 0)}}
	case "predictive":
		rollout := &Rollout{ByPriority: s.cfg.Scheduler == priorityFCFS}
		for range s.n {
			rollout.Engines = append(rollout.Engines, e)
		}
		p := &predictive{Estimate: rollout}
		if f := num("floor", 0); f > 0 {
			p.Floor = &Floor{Share: f, BudgetShare: 1}
		}
		return p
	}
	s.t.Fatalf("gate %v", s.gate)
	return nil
}

// writeRecord writes what became of a request in one line.
func writeRecord(out *strings.Builder, r *record) {
	fmt.Fprintf(out, "%s came at %d", r.ID, r.ArrivalUs)
	if r.Tries > 1 {
		fmt.Fprintf(out, ", tried %d times", r.Tries)
	}
	if x := r.Decision.PredictedUs; x == x {
		fmt.Fprintf(out, ", predicted %.0f", x)
	}
	switch {
	case !r.Admitted():
		fmt.Fprintf(out, ", rejected: %s", r.Reason)
		if r.Shadow.OK {
			fmt.Fprintf(out, "; its shadow took %d", r.Shadow.V)
		}
	default:
		if r.Decision.Reason != "" {
			fmt.Fprintf(out, ", let in by %s", r.Decision.Reason)
		}
		fmt.Fprintf(out, ", to instance %d", r.Instance)
		if r.Prefill.OK {
			fmt.Fprintf(out, " by way of %d", r.Prefill.V)
		}
		if r.Expected > 0 || r.CachedTokens > 0 {
			fmt.Fprintf(out, " expecting %d cached tokens, found %d", r.Expected, r.CachedTokens)
		}
		fmt.Fprintf(out, ", first token after %d", r.FirstTokenUs.V-r.ArrivalUs)
	}
	fmt.Fprintln(out)
}
