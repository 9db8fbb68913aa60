package clients

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"

	"github.com/blis-train/blis-train/pipeline/extract/source"
	"github.com/blis-train/blis-train/trace"
)

// guideLLM reads a GuideLLM result file: one document, requests below
// benchmarks[].requests.{successful,errored,incomplete}. It streams: one request
// at a time is in memory, and nothing of what is not read.
func (c *Reader) guideLLM(src *source.Source) error {
	c.Acc.Lines++
	w := walker{json.NewDecoder(&tally{src.R, &c.Acc.Bytes})}
	return w.object(func(key string) error {
		if key != "benchmarks" {
			return w.skip()
		}
		return w.array(func() error { return c.benchmark(src, w) })
	})
}

// outcomes are what became of requests, in the order they are kept.
var outcomes = []string{"successful", "errored", "incomplete"}

func (c *Reader) benchmark(src *source.Source, w walker) error {
	var config struct {
		Strategy struct {
			Type string `json:"type_"`
		} `json:"strategy"`
	}
	found := make([][]trace.ObservedRequest, len(outcomes))
	err := w.object(func(key string) error {
		switch key {
		case "config":
			return w.dec.Decode(&config)
		case "requests":
			return w.object(func(outcome string) error {
				at := slices.Index(outcomes, outcome)
				if at < 0 {
					return w.skip()
				}
				return w.array(func() error {
					var g guideRequest
					if err := w.decode(&g); err != nil {
						return err
					}
					if at == 0 && !g.Start.OK {
						c.bad(src, 1, 1, fmt.Errorf("request %s: got no request_start_time", g.RequestID))
						return nil
					}
					found[at] = append(found[at], g.row(outcome))
					return nil
				})
			})
		}
		return w.skip()
	})
	for _, list := range found {
		for _, r := range list {
			if config.Strategy.Type != "" {
				r.Phase = trace.Some(config.Strategy.Type)
			}
			c.row(src, r)
		}
	}
	return err
}

// guideRequest is one request of a GuideLLM result file.
type guideRequest struct {
	RequestID  string             `json:"request_id"`
	ResponseID trace.Opt[string]  `json:"response_id"`
	Type       trace.Opt[string]  `json:"request_type"`
	Start      trace.Opt[float64] `json:"request_start_time"`
	End        trace.Opt[float64] `json:"request_end_time"`
	Latency    trace.Opt[float64] `json:"request_latency"`
	Prompt     trace.Opt[float64] `json:"prompt_tokens"`
	Output     trace.Opt[float64] `json:"output_tokens"`
	TTFTMs     trace.Opt[float64] `json:"time_to_first_token_ms"`
	Args       json.RawMessage    `json:"request_args"`
	Info       struct {
		Error any `json:"error"`
	} `json:"info"`
}

func (g *guideRequest) row(outcome string) trace.ObservedRequest {
	r := trace.ObservedRequest{
		ID: g.ResponseID.Or(g.RequestID), Source: sourceGuideLLM, SendWallNs: optNs(g.Start, 1e9),
		PromptTokens: optCount(g.Prompt), OutputTokens: optCount(g.Output), Success: trace.Some(outcome == "successful"),
		Aborted: trace.Some(outcome == "incomplete"), Error: optText(g.Info.Error), Line: 1,
	}
	if strings.HasPrefix(g.Type.V, "chat") {
		r.Route = trace.Some("chat")
	} else if g.Type.OK {
		r.Route = trace.Some("completions")
	}
	timed(&r, r.SendWallNs, nanOr(g.TTFTMs)*1e3, nanOr(g.Latency)*1e6)
	var args struct {
		Stream trace.Opt[bool] `json:"stream"`
		Body   struct {
			MaxTokens trace.Opt[int64] `json:"max_tokens"`
		} `json:"body"`
	}
	if json.Unmarshal(g.Args, &args) == nil {
		r.Streaming = args.Stream
		r.AskedTokens = args.Body.MaxTokens
	}
	return r
}

// report reads GuideLLM's JSON report; of its requests nothing is kept.
func (f *LevelFile) report(data []byte, name string) error {
	var doc struct {
		Benchmarks []struct {
			Args    any `json:"args"`   // v0.2, v0.3
			Config  any `json:"config"` // v0.4 and later
			Totals  any `json:"request_totals"`
			Metrics any `json:"metrics"`
		} `json:"benchmarks"`
	}
	if err := trace.UnmarshalJSON(data, &doc); err != nil {
		return syntax(name, data, err)
	}
	for i, b := range doc.Benchmarks {
		by := look(b.Config, "strategy")
		if look(by, "type_") == nil {
			by = look(b.Args, "strategy")
		}
		p := forms().GuideLLM.point(map[string]any{"strategy": by, "request_totals": b.Totals, "metrics": b.Metrics}, name)
		p.Strategy, _ = look(by, "type_").(string)
		switch {
		case p.OfferedRPS > 0:
			p.Strategy = fmt.Sprintf("%s@%.4g", p.Strategy, p.OfferedRPS)
		case p.Clients > 0:
			p.Strategy = fmt.Sprintf("%s@%d", p.Strategy, p.Clients)
		}
		f.addLevel(p, fmt.Sprintf("%s: benchmark %d", name, i+1))
	}
	return nil
}
