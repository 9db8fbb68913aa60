package autoscale

import (
	"math"
	"strings"
	"testing"

	"github.com/blis-train/blis-train/coeff"
	"github.com/blis-train/blis-train/result"
)

// overlapping returns windows of 20 s, each of which begins hopS after the one before, with the latencies of planted
// parameters and a noise that differs from one stretch of 5 s to the next.
func overlapping(t *testing.T, hopS float64, seconds int) *Server {
	t.Helper()
	s := plantedServer(t, inferno3P, []float64{8, 0.05, 1e-4}, 1, 4, 8, 2, 6, 3, 7, 5)
	base := s.Windows
	s.Windows = nil
	for at := 0.0; at+20 <= float64(seconds); at += hopS {
		w := base[int(at/20)%len(base)]
		w.StartNs, w.EndNs = int64(at*1e9), int64((at+20)*1e9)
		off := 1 + 0.03*math.Sin(at/5)
		w.TTFTMs *= off
		w.ITLMs *= 2 - off
		w.TTFTSeMs, w.ITLSeMs = 0.03*w.TTFTMs, 0.03*w.ITLMs
		s.Windows = append(s.Windows, w)
	}
	return s
}

// TestOverlappingWindows: windows that overlap do not tell more than the time that they cover: an interval is as wide as
// without overlap, ten of them that cover four are too few for a hold-out, and no held-out window shares time with one
// of the training.
func TestOverlappingWindows(t *testing.T) {
	width := func(hopS float64) (beta float64) {
		s := overlapping(t, hopS, 400)
		f, err := Fit(s.Windows, defaultFit(inferno3P))
		if err != nil {
			t.Fatal(err)
		}
		return math.Log(f.Hi[1] / f.Lo[1])
	}
	apart := width(20)
	for _, hop := range []float64{10, 2} {
		if got := width(hop); got < 0.8*apart || got > 1.25*apart {
			t.Errorf("windows every %g s: got an interval of %g, want about the %g of windows that do not overlap", hop, got, apart)
		}
	}
	o := DefaultOptions()
	o.Flavour = inferno3P
	for _, c := range []struct {
		hopS        float64
		seconds     int
		independent float64
		hasHoldOut  bool
	}{
		{20, 200, 10, true}, {20, 180, 9, false}, {5, 180, 9, false}, {5, 200, 10, true}, {1, 100, 5, false}, {1, 400, 20, true},
	} {
		s := overlapping(t, c.hopS, c.seconds)
		if got := independentWindows(s.Windows); math.Abs(got-c.independent) > 1e-9 {
			t.Errorf("windows every %g s in %d s: got %g without overlap, want %g", c.hopS, c.seconds, got, c.independent)
		}
		f, err := calibrate(s, &o)
		if err != nil {
			t.Fatal(err)
		}
		held := f.heldOut()
		if (len(held) > 0) != c.hasHoldOut || len(f.Windows[:f.Split])+f.Gap+len(held) != len(f.Windows) {
			t.Errorf("windows every %g s in %d s: got %d held out of %d", c.hopS, c.seconds, len(held), len(f.Windows))
		}
		if !c.hasHoldOut {
			if f.Doc.Verdict.Verdict == coeff.VerdictPass {
				t.Errorf("windows every %g s in %d s: got a pass without a hold-out", c.hopS, c.seconds)
			}
			continue
		}
		if last, first := f.Windows[f.Split-1].EndNs, held[0].StartNs; last > first {
			t.Errorf("windows every %g s: the training ends at %d ns, the hold-out begins at %d ns", c.hopS, last, first)
		}
		rows := f.Rows(o.Flavour)
		for i := range f.Windows {
			if rows[i].HoldOut != (i >= f.Split+f.Gap) {
				t.Errorf("window %d: got hold-out %v", i, rows[i].HoldOut)
			}
		}
	}
}

// guideCSV returns a CSV of GuideLLM: its header, in which each metric has blocks of the outcomes, and rows of the figures
// of these, four columns a block.
func guideCSV(outcomes []string, rows ...[]string) string {
	columns := [][2]string{{"Request Latency", "Sec"}, {"Time to First Token", "ms"}, {"Time per Output Token", "ms"}, {"Inter Token Latency", "ms"},
		{"Server Throughput", "Requests/Sec"}, {"Server Throughput", "Concurrency"}, {"Token Metrics", "Input Tokens"},
		{"Token Metrics", "Output Tokens"}, {"Token Metrics", "Total Tokens"}}
	lines := []string{"Benchmark,Timings,Request Counts,Request Counts,Request Counts,Request Counts", "Strategy,Duration,Successful,Incomplete,Errored,Total", ",Sec,,,,"}
	for _, c := range columns {
		for _, outcome := range outcomes {
			for _, statistic := range []string{"Mean", "Median", "Std Dev", "Percentiles"} {
				for k, cell := range []string{c[0], outcome + " " + c[1], statistic} {
					lines[k] += "," + cell
				}
			}
		}
	}
	for _, row := range rows {
		line := strings.Join(row[:6], ",")
		for _, mean := range row[6:] {
			line += "," + mean + "," + mean + ",1,\"[0, 1]\""
		}
		lines = append(lines, line)
	}
	return strings.Join(lines, "\n") + "\n"
}

// TestRealignedLevelsThatRepeat: GuideLLM before v0.7.0 wrote rows with failures under the header of a benchmark without;
// such a row is the benchmark that another file has under a header of its own.
func TestRealignedLevelsThatRepeat(t *testing.T) {
	// A latency of 0.52 s is a TTFT of 30 ms and 49 gaps of 10 ms; 120 requests in 60 s.
	whole := []string{"constant", "60", "120", "0", "0", "120", "0.52", "30", "9.8", "10", "2", "1.04", "80", "50", "130"}
	failures := []string{"constant", "60", "180", "3", "0", "183", "0.52", "50", "30", "29", "9.8", "12", "10", "15", "3", "0.05", "1.56", "0.03", "80", "81",
		"50", "20", "130", "101"}
	contents := map[string]string{
		"crooked.csv": guideCSV([]string{"Successful"}, whole, failures),
		"own.csv":     guideCSV([]string{"Successful", "Incomplete"}, failures),
	}
	read := func(name string) ([]byte, result.Input, error) {
		return []byte(contents[name]), result.Input{Name: name, SHA256: name}, nil
	}
	for names, want := range map[string][2]int{"crooked.csv": {2, 0}, "own.csv": {1, 0}, "crooked.csv own.csv": {2, 1}, "own.csv crooked.csv": {2, 1}} {
		o := DefaultOptions()
		o.Sweep.MaxBatch = 64
		s, _, err := SweepServer(strings.Fields(names), read, &o)
		if err != nil {
			t.Fatal(err)
		}
		if got := [2]int{s.Account.Kept, s.Account.Dropped["duplicate"]}; got != want {
			t.Errorf("%s: got %v kept and duplicates, want %v (%v)", names, got, want, s.Account.Dropped)
		}
	}
}

// TestInputsThatRepeat: a file with the content of another one, or with its figures, adds no windows, whatever its name;
// recordings and what they were judged on are known by their content.
func TestInputsThatRepeat(t *testing.T) {
	const table = "input_tokens,output_tokens,rate_rps,ttft_ms,tpot_ms\n100,20,1,30,9\n100,20,2,40,10\n100,20,3,50,11\n"
	contents := map[string]string{"a.csv": table, "copy.csv": table, "spaced.csv": table + "\n", "more.csv": table + "100,20,4,80,12\n"}
	read := func(name string) ([]byte, result.Input, error) {
		return []byte(contents[name]), result.Input{Name: name, SHA256: contents[name]}, nil
	}
	for names, want := range map[string][3]int{ // kept, duplicates, inputs
		"a.csv": {3, 0, 1}, "a.csv a.csv": {3, 1, 1}, "a.csv copy.csv": {3, 1, 1}, "a.csv spaced.csv": {3, 3, 2}, "a.csv more.csv": {4, 3, 2},
	} {
		o := DefaultOptions()
		o.Sweep.MaxBatch = 64
		s, inputs, err := SweepServer(strings.Fields(names), read, &o)
		if err != nil {
			t.Fatal(err)
		}
		a := s.Account
		if got := [3]int{a.Kept, a.Dropped["duplicate"], len(inputs)}; got != want || a.Read != a.Kept+a.Dropped["duplicate"] {
			t.Errorf("%s: got %+v and %d inputs, want %v", names, a, len(inputs), want)
		}
		said := 0
		for _, f := range s.Findings {
			if f.Code == "duplicate" {
				said++
			}
		}
		if (said > 0) != (want[1] > 0) {
			t.Errorf("%s: got %v", names, s.Findings)
		}
	}
	monday := []result.Input{{Name: "a/run.yaml", SHA256: "1"}, {Name: "a/config.json", SHA256: "2"}, {Name: "a/traces.jsonl", SHA256: "3"}}
	tuesday := []result.Input{{Name: "b/run.yaml", SHA256: "1"}, {Name: "b/config.json", SHA256: "2"}, {Name: "b/traces.jsonl", SHA256: "4"}}
	copied := []result.Input{{Name: "c/run.yaml", SHA256: "9"}, {Name: "c/other.jsonl", SHA256: "3"}}
	fitted := &Queue{Header: result.Header{Inputs: monday}}
	if got := SeenBefore(fitted, tuesday); got != nil || ReadTwice(monday, tuesday) != nil {
		t.Errorf("another day: got %v", got)
	}
	if got := SeenBefore(fitted, copied); len(got) != 1 || got[0].Code != judgedOnTraining || !strings.HasPrefix(got[0].Message, "c/other.jsonl: ") {
		t.Errorf("the same recording: got %v", got)
	}
	if err := ReadTwice(monday, copied); err == nil || err.Error() != "c/other.jsonl: got the content of a/traces.jsonl again, want each recording once" {
		t.Errorf("the same recording: got %v", err)
	}
}
