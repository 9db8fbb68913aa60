package workload

import (
	"strings"
	"testing"

	"github.com/blis-train/blis-train/deploy"
	"github.com/blis-train/blis-train/trace"
)

// TestRequestsOfAWindow: arrivals from one time on and before another are kept, those of other phases and without a time not.
func TestRequestsOfAWindow(t *testing.T) {
	at := func(ns int64, phase string) trace.Request {
		return trace.Request{APIID: trace.Some(phase), ArrivedNs: trace.Some(ns), PromptTokens: some(5), OutputTokens: some(1), Phase: trace.Some(phase)}
	}
	run := &trace.Run{ID: "r", Requests: []trace.Request{
		at(-2000, "a"), at(1000, "a"), at(2000, "b"), at(3000, "a"), {APIID: trace.Some("x"), PromptTokens: some(5), OutputTokens: some(1)},
	}}
	for _, c := range []struct {
		o    RunOptions
		want string // phases of those that are kept, in order of arrival
	}{
		{RunOptions{}, "aaba"},
		{RunOptions{FromNs: 1000}, "aba"}, {RunOptions{FromNs: 1001}, "ba"}, {RunOptions{FromNs: -1}, "aba"}, {RunOptions{FromNs: -2000}, "aaba"},
		{RunOptions{ToNs: 3000}, "aab"}, {RunOptions{ToNs: 3001}, "aaba"}, {RunOptions{ToNs: 2000}, "aa"}, {RunOptions{ToNs: 1}, "a"},
		{RunOptions{FromNs: 1000, ToNs: 3000}, "ab"}, {RunOptions{FromNs: 1000, Phase: "a"}, "aa"}, {RunOptions{Phase: "b"}, "b"},
		{RunOptions{Phase: "c"}, ""}, {RunOptions{FromNs: 3001}, ""}, {RunOptions{FromNs: 2000, ToNs: 2000}, ""},
	} {
		w, err := FromRun(run, &deploy.Deployment{}, c.o)
		if c.want == "" {
			if err == nil || !strings.Contains(err.Error(), "got no request with arrival and prompt length") {
				t.Errorf("%+v: got %+v, %v, want no request", c.o, w, err)
			}
			continue
		}
		if err != nil {
			t.Errorf("%+v: %v", c.o, err)
			continue
		}
		got := ""
		for _, row := range w.Rows {
			got += run.Requests[row].Phase.V
		}
		if got != c.want {
			t.Errorf("%+v: got %s, want %s", c.o, got, c.want)
		}
	}
}
