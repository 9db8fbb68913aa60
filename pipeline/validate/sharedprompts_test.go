package validate

import (
	"strings"
	"testing"

	"github.com/blis-train/blis-train/deploy"
	"github.com/blis-train/blis-train/result"
	"github.com/blis-train/blis-train/sim"
	"github.com/blis-train/blis-train/trace"
)

// TestSharedPrompts: the best source of a prompt's shared tokens counts, 0 is a statement, and sources that
// contradict each other are named with both figures.
func TestSharedPrompts(t *testing.T) {
	none, zero, some := (*int64)(nil), int64(0), int64(48)
	nothing := func(r *trace.ObservedRequest) { r.PrefixTokens = trace.Some(int64(0)) }
	group := func(r *trace.ObservedRequest) {
		r.PrefixGroup = trace.Some("a")
		r.PrefixTokens = trace.Some(int64(64))
	}
	counted := func(r *trace.ObservedRequest) {
		r.CachedTokens = trace.Some(int64(80))
		r.CachedSource = trace.Some(trace.CachedUsage)
	}
	sum := func(r *trace.ObservedRequest) { // a share of a counter's increase
		r.CachedTokens = trace.Some(int64(64))
		r.CachedSource = trace.Some(trace.CachedCounter)
		r.CachedMin = trace.Some(int64(0))
		r.CachedMax = trace.Some(int64(192))
	}
	small := &result.CachedShare{Share: 0, Low: 0, High: 0.02, Requests: 100}
	wide := &result.CachedShare{Share: 0.2, Low: 0.1, High: 0.34, Requests: 100}
	for name, c := range map[string]struct {
		row            func(*trace.ObservedRequest)
		option         *int64
		inRun, inPhase trace.Opt[int64]
		estimate       *result.CachedShare
		group          int64            // tokens of the simulated request's group
		cached         trace.Opt[int64] // its cached tokens
		undecided      string           // in the reason, where there is one
		contradicted   string           // in the finding, where there is one
	}{
		"nothing known":                {undecided: "100 of 100 prompts"},
		"what to state":                {undecided: "shared_prefix_tokens under client or one of phases in run.yaml, or --shared-prefix-tokens TOKENS (0: nothing"},
		"estimated to be few":          {estimate: small},
		"estimated, but not to be few": {estimate: wide, cached: trace.Some(int64(40)), undecided: "(cached share 10 to 34 %, estimated from TTFT)"},
		"option of 0":                  {option: &zero},
		"option":                       {option: &some, group: 48},
		"run.yaml of 0":                {inRun: trace.Some(zero)},
		"run.yaml":                     {inRun: trace.Some(some), group: 48},
		"phase before client":          {inRun: trace.Some(some), inPhase: trace.Some(zero)},
		"option before run.yaml": {option: &zero, inRun: trace.Some(some),
			contradicted: "--shared-prefix-tokens states 0 % of the prompt tokens as cached, run.yaml or profile.yaml states 24 %: the former"},
		"client states nothing shared": {row: nothing},
		"client before option": {row: nothing, option: &some,
			contradicted: "the client's file states 0 % of the prompt tokens as cached, --shared-prefix-tokens states 24 %: the former"},
		"client's group":         {row: group, group: 64},
		"option like the client": {row: nothing, option: &zero},
		"server's count":         {row: counted, cached: trace.Some(int64(80))},
		"server before client": {row: func(r *trace.ObservedRequest) { counted(r); nothing(r) }, cached: trace.Some(int64(80)),
			contradicted: "the server counted 40 % of the prompt tokens as cached, the client's file states 0 %: the former"},
		"server before run.yaml": {row: counted, inRun: trace.Some(zero), cached: trace.Some(int64(80)),
			contradicted: "the server counted 40 % of the prompt tokens as cached, run.yaml or profile.yaml states 0 %: the former"},
		"server's sum":                       {row: sum, cached: trace.Some(int64(64)), undecided: "100 of 100 prompts"},
		"server's sum, divided by run.yaml":  {row: sum, inRun: trace.Some(int64(73)), group: 73}, // 4.5 % of 200 tokens more
		"server's sum, not that of run.yaml": {row: sum, inRun: trace.Some(int64(75)), cached: trace.Some(int64(64)), undecided: "100 of 100 prompts"},
		"server's sum, divided by the option": {row: sum, option: &some, inRun: trace.Some(int64(64)), cached: trace.Some(int64(64)), undecided: "100 of 100 prompts",
			contradicted: "the server counted 32 % of the prompt tokens as cached, --shared-prefix-tokens states 24 %: the former"},
		"estimate after all": {row: nothing, option: none, estimate: wide},
	} {
		t.Run(name, func(t *testing.T) {
			dep := plantedDeployment(t)
			dep.Engine.PrefixCaching = true
			dep.Engine.BlockSize = 16
			dep.Client.SharedPrefixTokens = c.inRun
			phase := deploy.Phase{Name: "p", EndNs: 1000, SharedPrefixTokens: c.inPhase}
			dep.Phases = []deploy.Phase{phase}
			run := &trace.Run{ID: "r"}
			for i := range int64(100) {
				r := trace.ObservedRequest{SendNs: trace.Some(i), PromptTokens: trace.Some(int64(200)), OutputTokens: trace.Some(int64(5))}
				if c.row != nil {
					c.row(&r)
				}
				run.Observed = append(run.Observed, r)
			}
			requests, _ := Requests(run)
			s := ContentOf(run, dep, requests, Sharing{PrefixTokens: c.option, Estimate: c.estimate})
			r := sim.Request{PromptTokens: 200}
			s.Content(&requests[50], &r)
			if r.GroupTokens != c.group || r.CachedTokens != c.cached {
				t.Errorf("got a group of %d tokens and %+v cached, want %d and %+v", r.GroupTokens, r.CachedTokens, c.group, c.cached)
			}
			why := s.whyUndecided(requests, &phase)
			if (why == "") != (c.undecided == "") || !strings.Contains(why, c.undecided) {
				t.Errorf("undecided: got %q, want %q", why, c.undecided)
			}
			named := ""
			for _, f := range s.Findings {
				if f.Code == SharingContradicted {
					named += f.Message
				}
			}
			if (named == "") != (c.contradicted == "") || !strings.Contains(named, c.contradicted) {
				t.Errorf("contradicted: got %q, want %q", named, c.contradicted)
			}
		})
	}
}

// TestUnknownPromptsOfAPhase: only the prompts of a phase leave its replay undecided, and only where they are
// more than a twentieth of them: nothing says what they share.
func TestUnknownPromptsOfAPhase(t *testing.T) {
	dep := plantedDeployment(t)
	dep.Engine.PrefixCaching = true
	dep.Engine.BlockSize = 16
	run := &trace.Run{ID: "r"}
	for i := range int64(100) {
		r := trace.ObservedRequest{SendNs: trace.Some(i), PromptTokens: trace.Some(int64(200)), OutputTokens: trace.Some(int64(5))}
		if i < 40 || i >= 50 {
			r.PrefixTokens = trace.Some(int64(0))
		}
		run.Observed = append(run.Observed, r)
	}
	requests, _ := Requests(run)
	s := ContentOf(run, dep, requests, Sharing{})
	for _, c := range []struct {
		from, to int64
		want     string // in the reason; empty: decided
	}{
		{0, 40, ""}, // the end is outside of the phase
		{0, 41, ""}, // 1 of 41 is less than a twentieth
		{39, 51, "10 of 12 prompts"},
		{40, 50, "10 of 10 prompts"},
		{49, 60, "1 of 11 prompts"},
		{49, 69, ""}, // 1 of 20 is a twentieth
		{49, 68, "1 of 19 prompts"},
		{50, 100, ""}, // the start is inside
		{0, 100, "10 of 100 prompts"},
	} {
		why := s.whyUndecided(requests, &deploy.Phase{Name: "p", StartNs: c.from, EndNs: c.to})
		if (why == "") != (c.want == "") || !strings.Contains(why, c.want) {
			t.Errorf("phase from %d to %d: got %q, want %q", c.from, c.to, why, c.want)
		}
	}
}
