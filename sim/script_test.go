package sim

import (
	"bufio"
	"flag"
	"fmt"
	"strconv"
	"strings"
	"testing"

	"github.com/blis-train/blis-train/deploy"
	"github.com/blis-train/blis-train/internal/testkit"
	"github.com/blis-train/blis-train/trace"
)

var update = flag.Bool("update", false, "rewrite the logs of testdata/*.txt")

// TestScripts runs the scenarios of testdata: prose, an engine and requests in,
// the event log out. -update rewrites the logs; read the difference.
func TestScripts(t *testing.T) { testkit.Scripts(t, *update, runScript) }

// runScript understands `engine k=v ...`, `step k=v ...` and `request id k=v ...`; # starts prose.
func runScript(t *testing.T, text string) string {
	t.Helper()
	d := testkit.Small(100)
	cfg := DefaultConfig(d, nil)
	var reqs []Request
	for n, line := range strings.Split(text, "\n") {
		words := strings.Fields(line)
		if len(words) == 0 || words[0] == "#" {
			continue
		}
		switch words[0] {
		case "engine":
			for k, v := range testkit.Pairs(t, n, words[1:]) {
				setEngine(t, &cfg, d, k, v)
			}
		case "step":
			p := testkit.Pairs(t, n, words[1:])
			beta := []float64{float64(whole(t, p["base"])), float64(whole(t, p["prefill"])), float64(whole(t, p["decode"]))}
			cfg.Latency = &Blackbox{Beta: beta}
		case "request":
			reqs = append(reqs, requestOfScript(t, words[1], testkit.Pairs(t, n, words[2:])))
		default:
			t.Fatalf("line %d: %q", n+1, line)
		}
	}
	var out strings.Builder
	log := &Log{W: bufio.NewWriter(&out), Requests: reqs}
	if _, err := Run(cfg, reqs, log); err != nil {
		t.Fatal(err)
	}
	if err := log.Flush(); err != nil {
		t.Fatal(err)
	}
	return out.String()
}

func whole(t *testing.T, s string) int64 {
	t.Helper()
	if s == "" {
		return 0
	}
	v, err := strconv.ParseInt(s, 10, 64)
	if err != nil {
		t.Fatal(err)
	}
	return v
}

func setEngine(t *testing.T, cfg *Config, d *deploy.Deployment, k, v string) {
	t.Helper()
	e := &d.Engine
	switch k {
	case "seqs":
		e.MaxNumSeqs = whole(t, v)
	case "budget":
		e.MaxNumBatchedTokens = whole(t, v)
	case "block":
		e.BlockSize = whole(t, v)
	case "blocks":
		e.KVBlocksGPU = trace.Some(whole(t, v))
	case "chunked":
		e.ChunkedPrefill = v == "on"
	case "caching":
		e.PrefixCaching = v == "on"
	case "policy":
		e.SchedulingPolicy = v
	case "long_prefill":
		e.LongPrefillThreshold = whole(t, v)
	case "cpu_blocks":
		e.CPUOffloading, e.KVBlocksCPU = true, whole(t, v)
	case "tier": // setting:value,... of the offloading connector
		extra := map[string]any{}
		for _, s := range strings.Split(v, ",") {
			name, value, _ := strings.Cut(s, ":")
			if extra[name] = any(value); value != "arc" {
				extra[name] = whole(t, value)
			}
		}
		extra["offload_prompt_only"] = extra["offload_prompt_only"] != int64(0)
		setExtra(e, "kv_transfer_config", map[string]any{"kv_connector": "OffloadingConnector", "kv_connector_extra_config": extra})
	case "async":
		cfg.Async = v == "on"
	case "overhead":
		cfg.Overhead = Const(whole(t, v))
	case "egress":
		cfg.Egress = Const(whole(t, v))
	case "version":
		e.VLLMVersion = v
	case "pp":
		d.PP = whole(t, v)
	case "dp": // ranks of a model with experts, behind one API server
		d.DP, cfg.Ranks = whole(t, v), true
		d.Model.NumExperts, d.Model.TopK = 8, 2
		setExtra(e, "api_server_count", 1)
	case "graphs":
		setExtra(e, "enforce_eager", v == "off")
	case "maxlen":
		e.MaxModelLen = trace.Some(whole(t, v))
	case "spec": // method:k
		words := strings.Split(v, ":")
		setExtra(e, "speculative_config", map[string]any{"method": words[0], "num_speculative_tokens": whole(t, words[1]),
			"disable_eagle_block_drop": len(words) > 2})
	case "full_prompt", "adaptive":
		flags := map[string]string{"full_prompt": "scheduler_reserve_full_isl", "adaptive": "long_prefill_token_threshold_adaptive"}
		setExtra(e, flags[k], v == "on")
	case "watermark":
		w, err := strconv.ParseFloat(v, 64)
		if err != nil {
			t.Fatal(err)
		}
		setExtra(e, "watermark", w)
	case "active":
		setExtra(e, "max_num_active_seqs", int(whole(t, v)))
	case "connector":
		setExtra(e, "kv_transfer_config", map[string]any{"kv_connector": v})
	case "interval":
		setExtra(e, "prefill_schedule_interval", int(whole(t, v)))
	default:
		t.Fatalf("engine %s=%s", k, v)
	}
}

func setExtra(e *deploy.Engine, flag string, v any) {
	if e.Extra == nil {
		e.Extra = deploy.Values{}
	}
	e.Extra[flag] = v
}

func requestOfScript(t *testing.T, id string, p map[string]string) Request {
	t.Helper()
	r := Request{
		ID: id, ArrivalUs: whole(t, p["at"]), PromptTokens: whole(t, p["prompt"]), OutputTokens: whole(t, p["output"]),
		MaxTokens: whole(t, p["max"]), Priority: whole(t, p["priority"]),
	}
	if g := p["shares"]; g != "" { // shares=<group>:<tokens>
		if _, err := fmt.Sscanf(g, "%d:%d", &r.Group, &r.GroupTokens); err != nil {
			t.Fatal(err)
		}
	}
	if a := p["abort"]; a != "" {
		r.AbortAtUs, r.AbortKind = trace.Some(whole(t, a)), OutcomeAborted
	}
	r.After, r.With, r.Loop, r.ThinkUs = int(whole(t, p["after"])), int(whole(t, p["with"])), int(whole(t, p["loop"])), whole(t, p["think"])
	r.Queued = p["queued"] != ""
	r.RemotePrefill, r.LoadUs = p["load"] != "", whole(t, p["load"])
	r.RemoteDecode, r.SendUs = p["send"] != "", whole(t, p["send"])
	for _, n := range strings.FieldsFunc(p["accept"], func(c rune) bool { return c == ',' }) {
		r.Accepted = append(r.Accepted, uint8(whole(t, n)))
	}
	return r
}
