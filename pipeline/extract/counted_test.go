package extract

import (
	"math"
	"testing"
	"time"

	"github.com/blis-train/blis-train/pipeline/extract/enginelog"
	"github.com/blis-train/blis-train/result"
	"github.com/blis-train/blis-train/trace"
)

// countedLoad is 300 requests of 400 s with what a server counts of them every ten seconds, by a log of a zone (hours before UTC) that
// begins and ends with other requests, and goes on after an idle hour.
func countedLoad(zone int64) (requests []trace.ObservedRequest, lines []enginelog.Statistics) {
	start := time.Date(2026, 3, 4, 23, 59, 0, 0, time.UTC).UnixNano()
	newYear := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC).UnixNano()
	const seconds = 600
	var prompts, outputs [seconds]float64 // by the second from 100 s before the first request
	draw := func(i, n int64) int64 { return (i*i*37 + i*11) % n }
	for i := range int64(300) {
		at := 400*i/300 + draw(i, 3)
		o := trace.ObservedRequest{SendWallNs: trace.Some(start + at*1e9), TTFTUs: trace.Some(1e6), E2EUs: trace.Some(21e6), PromptTokens: trace.Some(100 + draw(i, 900)),
			OutputTokens: trace.Some(21 + 20*draw(i, 7))}
		requests = append(requests, o)
		prompts[100+at+1] += float64(o.PromptTokens.V)
		outputs[100+at+1]++
		for s := range int64(20) {
			outputs[100+at+1+s] += float64(o.OutputTokens.V-1) / 20
		}
	}
	for s := range seconds / 10 {
		line := enginelog.Statistics{Engine: "0", StampNs: trace.Some(start - newYear + (86400-3600*zone-100+10*int64(s+1))*1e9), StampStepNs: 1e9}
		for k := range 10 {
			line.PromptRate += prompts[10*s+k] / 10
			line.OutputRate += outputs[10*s+k] / 10
		}
		if s < 5 || s > 55 {
			line.PromptRate = 70 // of others
		}
		lines = append(lines, line)
	}
	later := lines[len(lines)-1]
	later.StampNs.V += 3600e9
	return requests, append(lines, later)
}

// TestServerCounts: the tokens of requests are those that the log counts in the same time, in whatever zone the log is;
// those with other lengths, and fewer requests, are not.
func TestServerCounts(t *testing.T) {
	for _, c := range []struct {
		name             string
		zone             int64
		change           func([]trace.ObservedRequest) []trace.ObservedRequest
		prompts, outputs float64 // of the requests over those of the server
	}{
		{"UTC", 0, nil, 1, 1},
		{"another zone", 8, nil, 1, 1},
		{"outputs", 0, func(r []trace.ObservedRequest) []trace.ObservedRequest {
			for i := range r {
				r[i].OutputTokens.V = r[i].OutputTokens.V * 13 / 10
			}
			return r
		}, 1, 1.295},
		{"prompts", -5, func(r []trace.ObservedRequest) []trace.ObservedRequest {
			for i := range r {
				r[i].PromptTokens.V /= 2
			}
			return r
		}, 0.5, 1},
		{"two thirds of the requests", 0, func(r []trace.ObservedRequest) []trace.ObservedRequest {
			var kept []trace.ObservedRequest
			for i := range r {
				if i%3 != 1 {
					kept = append(kept, r[i])
				}
			}
			return kept
		}, 0.66, 0.66},
	} {
		requests, lines := countedLoad(c.zone)
		if c.change != nil {
			requests = c.change(requests)
		}
		x := &extraction{observed: requests, logs: &enginelog.Lives{Statistics: lines}, spans: &collector{}}
		got := x.countServer()
		if len(got) != 1 || got[0].Of != result.CountClients || got[0].Lines < 38 || got[0].Lines > 43 {
			t.Fatalf("%s: got %+v", c.name, got)
		}
		for _, side := range []struct {
			what string
			got  result.TokensBeside
			want float64
		}{{"prompts", got[0].Prompts, c.prompts}, {"outputs", got[0].Outputs, c.outputs}} {
			least, most := side.got.Least/side.got.Server, side.got.Most/side.got.Server
			if least > side.want+0.03 || most < side.want-0.03 || most-least > 0.06 || math.IsNaN(least) {
				t.Errorf("%s: got %.3g to %.3g of the server's %s, want %.3g", c.name, least, most, side.what, side.want)
			}
		}
	}
}

// TestNoServerCounts: nothing is compared with a log of other requests, of several engines, without stamps or with few lines, nor with clients of
// whom not every request has its times.
func TestNoServerCounts(t *testing.T) {
	for name, change := range map[string]func(x *extraction){
		"no lines":    func(x *extraction) { x.logs.Statistics = nil },
		"few lines":   func(x *extraction) { x.logs.Statistics = x.logs.Statistics[15:22] },
		"no stamps":   func(x *extraction) { x.logs.Statistics[20].StampNs.OK = false },
		"two engines": func(x *extraction) { x.logs.Statistics[20].Engine = "1" },
		"another day": func(x *extraction) { x.logs.Statistics[0].StampWall = true },
		"a lost time": func(x *extraction) { x.observed[7].TTFTUs.OK = false },
		"other counts": func(x *extraction) {
			for i := range x.logs.Statistics {
				x.logs.Statistics[i].PromptRate, x.logs.Statistics[i].OutputRate = float64(i*i*17%97), float64(i*i*17%97)
			}
		},
	} {
		requests, lines := countedLoad(0)
		x := &extraction{observed: requests, logs: &enginelog.Lives{Statistics: lines}, spans: &collector{}}
		change(x)
		if got := x.countServer(); len(got) != 0 {
			t.Errorf("%s: got %+v, want nothing", name, got)
		}
	}
}
