package stat

import (
	"math"
	"slices"
	"testing"
)

// TestConcurrency: two clients, each of which sends its next call 5, 2, 3 and 4 after an answer. The first two
// calls follow no answer. The 90 % quantile of 2, 3, 4, 5 is 3 + 0.7 of the way, 4.7; the five gaps between 0
// and 214 are 42.8 on average.
func TestConcurrency(t *testing.T) {
	sent := []int64{0, 10, 105, 112, 203, 214}
	end := []int64{100, 110, 200, 210, 300, 310}
	c := ConcurrencyOf(sent, end)
	if c.Clients != 2 || math.Abs(c.PlateauShare-1) > 1e-12 || math.Abs(c.ThinkP90-4.7) > 1e-9 || c.MeanGap != 42.8 || !c.IsClosed() {
		t.Errorf("two clients: got %+v", c)
	}
	// Calls that followed no answer get the median of the four, the upper of the middle two.
	for i, want := range []int64{4, 4, 5, 2, 3, 4} {
		if got := ThinkTimes(sent, end)[i]; got != want {
			t.Errorf("call %d: got %d, want %d", i, got, want)
		}
	}
	// An answer at the very time of a send is one that it can follow, and is no longer in flight.
	if c := ConcurrencyOf([]int64{0, 10, 20}, []int64{10, 20, 30}); c.Clients != 1 || c.ThinkP90 != 0 || c.MeanGap != 10 || c.IsClosed() {
		t.Errorf("one client: got %+v", c)
	}
	if c := ConcurrencyOf([]int64{0, 1, 2}, []int64{10, 11, 12}); c != (Concurrency{Clients: 3}) {
		t.Errorf("three calls at once: got %+v", c)
	}
	if got := ThinkTimes([]int64{0, 1}, []int64{5, 6}); got[0] != 0 || got[1] != 0 {
		t.Errorf("no answer was followed: got %v", got)
	}
	// Of ten sends after the first two, nine find another call in flight: that is nine tenths, and not a rounding error less.
	sent, end = []int64{0, 1}, []int64{95, 5}
	for at := int64(10); at <= 100; at += 10 {
		sent = append(sent, at)
		end = append(end, at+4)
	}
	if got := ConcurrencyOf(sent, end); got.Clients != 2 || got.PlateauShare != 0.9 {
		t.Errorf("got %+v, want 2 clients and a plateau of 0.9", got)
	}
	// Ten clients, of which one stops: 9 of 10 in flight are a plateau, 8 are none.
	for clients, want := range map[int]float64{9: 1, 8: 0} {
		var sent, end []int64
		for i := range int64(10) {
			sent = append(sent, i)
			end = append(end, 1000+10*i)
		}
		for n := int64(10 - clients); n < 10; n++ { // each answer from the second or third on is followed by one send
			sent = append(sent, 1001+10*n)
			end = append(end, 5000)
		}
		got := ConcurrencyOf(sent, end)
		if got.Clients != 10 || math.Abs(got.PlateauShare-want) > 1e-12 {
			t.Errorf("%d of 10 clients: got %+v", clients, got)
		}
	}
	for _, c := range []struct {
		c    Concurrency
		want bool
	}{
		{Concurrency{2, 0.9, 4.9, 10}, true}, {Concurrency{1, 0.9, 4.9, 10}, false}, {Concurrency{2, 0.89, 4.9, 10}, false}, {Concurrency{2, 0.9, 5, 10}, false},
	} {
		if got := c.c.IsClosed(); got != c.want {
			t.Errorf("%+v: got closed %t", c.c, got)
		}
	}
}

// TestRampOfClients: ten clients, of which each sends its first call 10 after the one before, and each further call 1
// after an answer, which takes 35. At the tenth client's first call the others have sent 2 or 3 each. Nine of ten calls
// in flight are reached by the client at 80.
func TestRampOfClients(t *testing.T) {
	var sent, end []int64
	var isFirst []bool
	for at := range int64(400) {
		for client := range int64(10) {
			if since := at - 10*client; since >= 0 && since%36 == 0 {
				sent = append(sent, at)
				end = append(end, at+35)
				isFirst = append(isFirst, since == 0)
			}
		}
	}
	c := ConcurrencyOf(sent, end)
	if c.Clients != 10 || c.PlateauShare != 1 || c.ThinkP90 != 1 || !c.IsClosed() {
		t.Errorf("got %+v", c)
	}
	if got := FirstCalls(sent, end); !slices.Equal(got, isFirst) {
		t.Errorf("got first calls %v, want %v", got, isFirst)
	}
	for i, got := range ThinkTimes(sent, end) {
		if got != 1 {
			t.Errorf("call %d: got a think time of %d, want 1", i, got)
		}
	}
	// What most of the calls are in is no ramp. Of the 18 calls before 92, the 4 at 80 and later find nine or ten in
	// flight, of the 8 after the first ten.
	short, _ := slices.BinarySearch(sent, 92)
	if c := ConcurrencyOf(sent[:short], end[:short]); c.Clients != 10 || c.PlateauShare != 0.5 {
		t.Errorf("a ramp nearly to the end: got %+v of %d calls", c, short)
	}
}

// TestLogNormal: with mean 2 and a variance of 4, the median is 2/sqrt(2) and sigma the root of ln 2; the other
// values are 2 exp(z sigma - sigma^2/2) one above and two below.
func TestLogNormal(t *testing.T) {
	for u, want := range map[float64]float64{0.5: math.Sqrt2, 0.841344746068543: 3.251538280494, 0.022750131948179: 0.267526772903} {
		if got := LogNormal(2, 1, u); math.Abs(got-want) > 1e-9 {
			t.Errorf("%g: got %.12g, want %.12g", u, got, want)
		}
	}
	if got := LogNormal(3, 0, 0.9); got != 3 {
		t.Errorf("without variance: got %g", got)
	}
}

// TestHistogramMerge: the sum, number, largest and mean of two histograms together.
func TestHistogramMerge(t *testing.T) {
	a, b := NewHistogram(), NewHistogram()
	if a.Mean() != 0 || a.Quantile(0.5) != 0 || a.N() != 0 {
		t.Error("an empty histogram has no values")
	}
	a.Add(10, 2)
	a.Add(40, 1)
	b.Add(1000, 1)
	b.Add(10, 1)
	a.Merge(b)
	if a.N() != 5 || a.Mean() != 214 || a.Quantile(1) != 1000 || a.Quantile(0.6) != 10 || a.Quantile(0.61) != 40 {
		t.Errorf("got %d values, mean %g, largest %g, 60 %% %g, 61 %% %g", a.N(), a.Mean(), a.Quantile(1), a.Quantile(0.6), a.Quantile(0.61))
	}
	a.Add(1000, -1)
	if a.N() != 4 || a.Mean() != 17.5 {
		t.Errorf("one removed: got %d and %g", a.N(), a.Mean())
	}
}

// steady returns n requests, one each unit of time, that leave at once: no check is hit.
func steady(n int) []Arrival {
	requests := make([]Arrival, n)
	for i := range requests {
		at := float64(i)
		requests[i] = Arrival{At: at, Left: at + 0.5, TTFT: 1, E2E: 2, Ended: true, Engine: true}
	}
	return requests
}

// rising returns n requests, of which rise (of n) stay for good, evenly spread.
func rising(n, rise int) []Arrival {
	requests := steady(n)
	for i := range requests {
		if (i+1)*rise/n > i*rise/n {
			requests[i].Left = math.Inf(1)
		}
	}
	return requests
}

// TestSaturationChecks: the value of each check just at its limit, where it is not hit, and just above.
func TestSaturationChecks(t *testing.T) {
	nan := math.NaN()
	for _, c := range []struct {
		name      string
		change    func([]Arrival)
		check     string
		want      float64
		hit       bool
		saturated bool
	}{
		{"steady", func([]Arrival) {}, CheckQueueRising, 0, false, false},
		{"1 of 20 failed", func(r []Arrival) { r[3].Failed = true }, CheckFailureShare, 0.05, false, false},
		{"2 of 20 failed", func(r []Arrival) { r[3].Failed, r[4].Failed = true, true }, CheckFailureShare, 0.1, true, false},
		{"1 of 16 ended failed", func(r []Arrival) {
			r[0].Failed = true
			for i := 16; i < 20; i++ {
				r[i].Ended = false
			}
		}, CheckFailureShare, 0.0625, true, false},
		{"3 of 20 preempted", func(r []Arrival) { r[1].Preempted, r[2].Preempted, r[3].Preempted = true, true, true }, CheckPreemptedShare, 0.15, false, false},
		{"3 of 19 in the engine preempted", func(r []Arrival) {
			r[0].Engine = false
			r[1].Preempted, r[2].Preempted, r[3].Preempted = true, true, true
		}, CheckPreemptedShare, 3.0 / 19, true, false},
		{"TTFT of the last third twice that of the first", func(r []Arrival) {
			for i := 14; i < 20; i++ {
				r[i].TTFT = 2
			}
		}, CheckTTFTDrift, 2, false, false},
		{"TTFT 2.1 times", func(r []Arrival) {
			for i := 14; i < 20; i++ {
				r[i].TTFT = 2.1
			}
		}, CheckTTFTDrift, 2.1, true, false},
		{"TTFT of 8 known", func(r []Arrival) {
			for i := 8; i < 20; i++ {
				r[i].TTFT = nan
			}
		}, CheckTTFTDrift, nan, false, false},
		{"TTFT of 9 known", func(r []Arrival) {
			for i := 9; i < 20; i++ {
				r[i].TTFT = nan
			}
			r[6].TTFT, r[7].TTFT = 4, 5
		}, CheckTTFTDrift, 4, true, false},
		{"TTFT of 0", func(r []Arrival) {
			for i := range 7 {
				r[i].TTFT = 0
			}
		}, CheckTTFTDrift, nan, false, false},
		// The 99 % quantile of 20 values lies at 18.81: 0.81 of the way from 2 to the largest.
		{"longest E2E 24.2", func(r []Arrival) { r[5].E2E = 24.2 }, CheckE2ETail, (2 + 0.81*22.2) / 2, false, false},
		{"longest E2E 24.3", func(r []Arrival) { r[5].E2E = 24.3 }, CheckE2ETail, (2 + 0.81*22.3) / 2, true, false},
		{"two checks, but the queue does not rise", func(r []Arrival) {
			r[5].E2E = 100
			r[1].Preempted, r[2].Preempted, r[3].Preempted, r[4].Preempted = true, true, true, true
		}, CheckPreemptedShare, 0.2, true, false},
		{"two checks, one of them failures", func(r []Arrival) {
			r[5].E2E = 100
			r[3].Failed, r[4].Failed = true, true
		}, CheckE2ETail, (2 + 0.81*98) / 2, true, true},
		{"two checks while the load rises", func(r []Arrival) {
			for i := range r {
				r[i].At = math.Sqrt(float64(i))
			}
			r[5].E2E = 100
			r[1].Preempted, r[2].Preempted, r[3].Preempted, r[4].Preempted = true, true, true, true
		}, CheckQueueRising, nan, false, true},
		// Two of ten arrivals with nine known: the queue is 0 before them and 1 and 2 after. Requests that never
		// left do not count here.
	} {
		r := steady(20)
		c.change(r)
		checks, saturated := Saturation(r)
		for _, got := range checks {
			if got.Name != c.check {
				continue
			}
			if got.Hit != c.hit || !(math.Abs(got.Value-c.want) < 1e-9) && !(math.IsNaN(got.Value) && math.IsNaN(c.want)) {
				t.Errorf("%s: got %s %g, hit %t, want %g", c.name, c.check, got.Value, got.Hit, c.want)
			}
		}
		if saturated != c.saturated || len(checks) != 5 {
			t.Errorf("%s: got saturated %t", c.name, saturated)
		}
	}
	for _, check := range func() []Check { c, _ := Saturation(steady(8)); return c }() {
		if want := map[string]float64{CheckFailureShare: 0, CheckPreemptedShare: 0, CheckQueueRising: nan, CheckTTFTDrift: nan, CheckE2ETail: nan}[check.Name]; check.Value != want && !math.IsNaN(want) ||
			math.IsNaN(want) && !math.IsNaN(check.Value) {
			t.Errorf("8 requests: got %s %g, want %g", check.Name, check.Value, want)
		}
		want := map[string]float64{CheckFailureShare: 0.05, CheckPreemptedShare: 0.15, CheckQueueRising: 0.5, CheckTTFTDrift: 2, CheckE2ETail: 10}[check.Name]
		if check.Limit != want {
			t.Errorf("%s: got the limit %g, want %g", check.Name, check.Limit, want)
		}
	}
}

// TestQueueRising: the R2 of the queue against time. The queues 0, 1, ..., 9 of requests that all leave at the end
// have R2 1, and the queues 0 0 0 0 0 0 0 0 0 1 of ten arrivals a correlation of
// 4.5/sqrt(82.5*0.9), so 0.2727.
func TestQueueRising(t *testing.T) {
	r := steady(10)
	for i := range r {
		r[i].Left = 100
	}
	if got := queueRising(r, departures(r), 0); math.Abs(got-1) > 1e-12 {
		t.Errorf("all stay: got %g", got)
	}
	r = steady(10)
	r[8].Left = 9.5
	if got := queueRising(r, departures(r), 0); math.Abs(got-4.5*4.5/(82.5*0.9)) > 1e-12 {
		t.Errorf("one stays: got %g", got)
	}
	r = steady(10)
	r[0].Left = 1.5
	if got := queueRising(r, departures(r), 0); got != 0 {
		t.Errorf("a falling queue: got %g", got)
	}
	r[9].Left = math.NaN()
	if got := queueRising(r, departures(r), 0); got != 0 {
		t.Errorf("9 that left: got %g", got)
	}
	r[8].Left = math.NaN()
	if got := queueRising(r, departures(r), 0); !math.IsNaN(got) {
		t.Errorf("8 that left: got %g", got)
	}
	r = steady(10)
	r[3].Left = 4 // leaves just as the next arrives
	if got := queueRising(r, departures(r), 0); got != 0 {
		t.Errorf("leaves with the next arrival: got %g", got)
	}
}

// TestQueueLevelsOff: requests that take long fill a server that can do all of them, until the first ones leave. A line
// through their number explains most of it, but it no longer rises at the end. Where clients give up it proves nothing.
func TestQueueLevelsOff(t *testing.T) {
	for _, c := range []struct {
		name          string
		stay          float64
		givenUp       int // of the last requests
		wantSaturated bool
	}{
		{"the first leave after two fifths", 120, 0, false}, {"three in four stay to the end", 225, 0, true},
		{"5 of the last 100 gave up", 120, 5, false}, {"6 of the last 100 gave up", 120, 6, true},
	} {
		requests := steady(300)
		for i := range requests {
			requests[i].Left = requests[i].At + c.stay
			if i >= 300-c.givenUp {
				requests[i].E2E = math.NaN()
			}
		}
		checks, saturated := Saturation(requests)
		if saturated != c.wantSaturated || checks[1].Name != CheckQueueRising || checks[1].Hit != c.wantSaturated {
			t.Errorf("%s: got saturated %t, %+v", c.name, saturated, checks[1])
		}
	}
}

// TestFillingIsNoOverload: one request a second, each 90 s in the system, fills an idle server up to 90 of them and then
// stays there. In 300 s this shows; in 150 s it does not, unless those are known that were in the system before.
func TestFillingIsNoOverload(t *testing.T) {
	long := func(n int) []Arrival {
		requests := steady(n)
		for i := range requests {
			requests[i].Left = requests[i].At + 90
		}
		return requests
	}
	drifting := long(300)
	for i := range drifting {
		if i >= 200 {
			drifting[i].TTFT *= 2.1
		}
	}
	growing := long(300)
	for i := range growing { // one in three stays
		if i%3 == 0 {
			growing[i].Left = 1000
		}
	}
	growingFast := long(200)
	for i := range growingFast {
		if i%3 > 0 {
			growingFast[i].Left = 1000
		}
	}
	var before []float64
	for i := range 90 {
		before = append(before, float64(i))
	}
	for _, c := range []struct {
		name     string
		requests []Arrival
		earlier  []float64
		want     bool
	}{
		{"300 s", long(300), nil, false},
		{"300 s, later ones wait", drifting, nil, true},
		{"300 s, one in three stays", growing, nil, true},
		{"150 s", long(150), nil, true},
		{"150 s after a warm-up", long(150), before, false},
		{"200 s after a warm-up, two in three stay", growingFast, before, true},
	} {
		if checks, got := Overloaded(c.requests, c.earlier); got != c.want || checks[1].Hit != c.want {
			t.Errorf("%s: got %t, %+v, want %t", c.name, got, checks[1], c.want)
		}
	}
}

// TestQueueRises: a queue that grows evenly to X is 4 standard deviations of a Poisson number of mean X/2 at X = 8, and
// 3 % of 1,000 arrivals at X = 30. An uneven growth with an R2 below a half is none.
func TestQueueRises(t *testing.T) {
	ramp := rising(300, 100)
	for i := range ramp { // the load rises: the arrivals of the last third are far denser than those of the first
		ramp[i].At = 300 * math.Sqrt(float64(i)/300)
	}
	waits := slices.Clone(ramp)
	for i := 200; i <= 250; i++ { // of the last 100 just more than half
		waits[i].Waits = true
	}
	half := slices.Clone(waits)
	half[250].Waits = false
	late := rising(300, 100)
	for i := range late { // the load rises up to the middle
		if i < 150 {
			late[i].At = 10 * (float64(i) - 150)
			late[i].Left = late[i].At + 0.5
		}
		late[i].Waits = true
	}
	burst := steady(1000)
	for i := 940; i < 1000; i++ {
		burst[i].Left = math.Inf(1)
	}
	for _, c := range []struct {
		name           string
		requests       []Arrival
		rises, overrun bool
	}{
		{"steady", steady(100), false, false}, {"grows to 7 of 100", rising(100, 7), false, false}, {"grows to 10 of 100", rising(100, 10), true, true},
		{"grows to 29 of 1,000", rising(1000, 29), false, false}, {"grows to 31 of 1,000", rising(1000, 31), true, true},
		{"9 of 9 stay", rising(9, 9), true, true}, {"8 of 8 stay", rising(8, 8), false, false}, {"a burst at the end", burst, false, false},
		{"a ramp to the end", waits, false, true}, {"a ramp of which few wait", half, false, false}, {"a ramp of which none waits", ramp, false, false},
		{"a ramp to the middle", late, false, true},
	} {
		checks, overrun := Overloaded(c.requests, nil)
		if overrun && !slices.ContainsFunc(checks, func(k Check) bool { return k.Hit && k.Value > k.Limit }) {
			t.Errorf("%s: no check shows the overload: %+v", c.name, checks)
		}
		if _, got := queueRises(c.requests, departures(c.requests), 0, false); got != c.rises || overrun != c.overrun {
			t.Errorf("%s: got rises %t, overloaded %t", c.name, got, overrun)
		}
	}
	// The first gaps are 1.5 times the last, and a little more.
	for gap, want := range map[float64]bool{1.5: false, 1.51: true} {
		var at []float64
		now := 0.0
		for i := range 9 {
			at = append(at, now)
			now++
			if i < 3 {
				now += gap - 1
			}
		}
		if got := isRamp(at); got != want {
			t.Errorf("gaps of %g, then 1: got a ramp %t", gap, got)
		}
	}
	if isRamp([]float64{0, 1, 2, 3, 4, 5, 6, 6, 6, 6}) {
		t.Error("arrivals at once at the end are no ramp that can be measured")
	}
	if got := variance([]float64{1, 2, 6}); math.Abs(got-14.0/3) > 1e-12 {
		t.Errorf("got %g, want 14/3", got)
	}
}

// TestThinAt: of seven values, three: the first, the third and the fifth.
func TestThinAt(t *testing.T) {
	for k, want := range []int{0, 2, 4} {
		if got := ThinAt(k, 7, 3); got != want {
			t.Errorf("%d: got %d, want %d", k, got, want)
		}
	}
	if ThinAt(2, 3, 3) != 2 || ThinAt(1, 2, 3) != 1 {
		t.Error("few values stay where they are")
	}
	if got := StdErr([]float64{1, math.NaN(), 3}); math.Abs(got-1) > 1e-12 || StdErr([]float64{5}) != 0 {
		t.Errorf("got %g: 1 and 3 have the variance 2 and the standard error 1", got)
	}
}
