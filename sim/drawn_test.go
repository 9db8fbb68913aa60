package sim

import (
	"cmp"
	"reflect"
	"slices"
	"testing"
)

// TestDrawnIsTheList: requests that are drawn while the simulation runs have the results of the same requests in a list,
// also where the simulation stops before the last ones arrive.
func TestDrawnIsTheList(t *testing.T) {
	for seed := range uint64(cases(t)) {
		cfg, reqs := randomCase(seed)
		for i := range reqs {
			reqs[i].After, reqs[i].With, reqs[i].Loop, reqs[i].Queued = 0, 0, 0, false
		}
		slices.SortStableFunc(reqs, func(a, b Request) int { return cmp.Compare(a.ArrivalUs, b.ArrivalUs) })
		if seed%3 == 0 {
			cfg.StopUs = reqs[len(reqs)/2].ArrivalUs + 1
		}
		want, err := Run(cfg, reqs, nil)
		if err != nil {
			t.Fatal(err)
		}
		all := make([]RequestResult, len(reqs))
		got, err := StreamDrawn(cfg, drawnFrom(reqs), func(i int, r *RequestResult) bool {
			all[i] = *r
			return true
		})
		if err != nil {
			t.Fatal(err)
		}
		if got.Requests = all; !reflect.DeepEqual(got, want) {
			t.Fatalf("case %d: got %+v, want %+v", seed, got, want)
		}
	}
}

// drawnFrom draws the requests of a list.
func drawnFrom(reqs []Request) Drawn {
	next := 0
	return Drawn{N: len(reqs), Next: func() Request {
		next++
		return reqs[next-1]
	}}
}

// TestDrawnRequestsAreChecked: an invalid request ends the simulation, and so does a configuration or a caller.
func TestDrawnRequestsAreChecked(t *testing.T) {
	cfg, _ := randomCase(1)
	reqs := []Request{{ID: "a", PromptTokens: 1, OutputTokens: 1}, {ID: "b", PromptTokens: 1, ArrivalUs: 5000}}
	seen := 0
	count := func(int, *RequestResult) bool { seen++; return true }
	if _, err := StreamDrawn(cfg, drawnFrom(reqs), count); err == nil || seen != 1 {
		t.Errorf("a request without output: got %v after %d results", err, seen)
	}
	cfg.StopUs = 4000 // request b would arrive later
	if _, err := StreamDrawn(cfg, drawnFrom(reqs), count); err == nil {
		t.Error("a request without output after the end was reported")
	}
	reqs[1].OutputTokens, cfg.StopUs, seen = 1, 0, 0
	res, err := StreamDrawn(cfg, drawnFrom(reqs), func(int, *RequestResult) bool { seen++; return false })
	if err != nil || !res.Stopped || seen != 1 {
		t.Errorf("stopped: got %v, stopped %t after %d results", err, res.Stopped, seen)
	}
	cfg.Latency = nil
	if _, err := StreamDrawn(cfg, drawnFrom(reqs), count); err == nil {
		t.Error("a configuration without times was simulated")
	}
}
