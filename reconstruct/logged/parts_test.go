package logged

import (
	"math"
	"reflect"
	"testing"

	"github.com/blis-train/blis-train/pipeline/ridge"
	"github.com/blis-train/blis-train/trace"
)

// TestTimeVerdict: a sentence for each source of step times, with the errors of three lags where they are known.
func TestTimeVerdict(t *testing.T) {
	for _, c := range []struct {
		audit trace.TimeAudit
		want  string
	}{
		{trace.TimeAudit{Time: timeCadence}, "the stamps of neighbouring lines are the step time"},
		{trace.TimeAudit{Time: timeElapsed, ConstantUs: trace.Some(1250.0)}, "the logged elapsed time and 1.25 ms a pass are the step time"},
		{trace.TimeAudit{Time: timeTicks, LagErrors: []float64{0.02, 0.11, 0.3}}, "the time between whole seconds is that of the passes between them; predicted from the counts of its own line, " +
			"elapsed has an error of 2 %, from those of one and two lines before 11 and 30 %"},
		{trace.TimeAudit{Time: timeTicks, LagErrors: []float64{math.NaN(), 0.11, 0.3}}, "the time between whole seconds is that of the passes between them"},
		{trace.TimeAudit{Time: timeTicks, LagErrors: []float64{0.1}}, "the time between whole seconds is that of the passes between them"},
		{trace.TimeAudit{}, "nothing in the log is the step time"},
	} {
		if got := TimeVerdict(&c.audit); got != c.want {
			t.Errorf("got %q, want %q", got, c.want)
		}
	}
}

// stamped returns a filler of passes with elapsed times, each stamped at its end in ms.
func stamped(elapsedUs float64, endsMs ...int64) *filler {
	f := &filler{}
	for _, ms := range endsMs {
		f.passes = append(f.passes, pass{it: &trace.Iteration{ElapsedUs: elapsedUs, StampNs: trace.Some(ms * 1e6)}, endNs: ms * 1e6, hasEnd: true, next: true})
	}
	return f
}

// TestOverStamps: four passes of 0.5 s within 3 s of stamps, to which a second of rounding is added.
func TestOverStamps(t *testing.T) {
	f := stamped(500_000, 1000, 2000, 3000, 4000)
	if got := f.overStamps(); got != 0.5 {
		t.Errorf("got %g, want 2 s of 4 s", got)
	}
	f.passes[3].it.StampNs.OK = false
	if got := f.overStamps(); got != 0.5 {
		t.Errorf("one without a stamp: got %g, want 1.5 s of 3 s", got)
	}
}

// TestSetStarts: the second pass follows the first at once, the third begins 9.9 ms after the second ended, where 2 x 2.5 ms
// of the constant and 5 ms are not idle; the fourth begins 10.1 ms later, which is idle time.
func TestSetStarts(t *testing.T) {
	f := stamped(10_000, 100, 120, 142, 164)
	for i := range f.passes {
		f.passes[i].constantUs = 2500
	}
	f.passes[1].follows = true
	f.passes[2].it.ElapsedUs = 22_000 - 2500 - 9900
	f.passes[3].it.ElapsedUs = 22_000 - 2500 - 10_100
	f.setStarts(&timeAudit{sync: true})
	want := []struct {
		startUs  int64
		idle, ok bool
	}{{100_000 - 12_500, true, true}, {100_000, false, true}, {120_000, false, true}, {142_000 + 10_100, true, true}}
	for i, w := range want {
		if p := f.passes[i]; p.startNs != w.startUs*1000 || p.idle != w.idle || p.hasStart != w.ok {
			t.Errorf("pass %d: got %d us, idle %t, known %t, want %+v", i, p.startNs/1000, p.idle, p.hasStart, w)
		}
	}
	f.setStarts(&timeAudit{})
	if f.passes[3].hasStart || !f.passes[2].idle || f.passes[2].hasStart || !f.passes[1].hasStart {
		t.Errorf("elapsed of another pass: got %+v", f.passes[2:])
	}
	f.out, f.run = &trace.Aggregate{}, &trace.Run{}
	a := timeAudit{time: timeElapsed, sync: true, constantUs: 2500, figures: trace.TimeAudit{ConstantUs: trace.Some(2500.0)}}
	f.setEnds(&a)
	if len(f.out.Findings) != 1 || f.out.Findings[0].Message != ": elapsed plus 2.50 ms a pass is the step time" {
		t.Errorf("got %+v", f.out.Findings)
	}
}

// TestRegressors: thousands of prompt tokens, millions of their squares, prompts and decodes; and the solution of two normal
// equations with a third that never varies: y = 2 a + 3 b.
func TestRegressors(t *testing.T) {
	p := pass{prefillTokens: 3000, prefills: 4, decodes: 5}
	if got := p.regressors(); !reflect.DeepEqual(got, []float64{1, 3, 9, 4, 5}) {
		t.Errorf("got %v", got)
	}
	g := ridge.New(3)
	for _, x := range [][]float64{{1, 0, 0}, {0, 1, 0}, {1, 1, 0}} {
		g.AddRow(1, x, 2*x[0]+3*x[1])
	}
	got := solveNormal(g)
	for i, want := range []float64{2, 3, 0} {
		if math.Abs(got[i]-want) > 2e-8 {
			t.Errorf("coefficient %d: got %g, want %g", i, got[i], want)
		}
	}
}

// TestClientDelays: exact delays behind idle engines, and bounds of the others. A first chunk at 200 us of a request whose
// TTFT is 150 us was sent at 50 us; the pass began at 60 us and its line is at 190 us, so the delay is 150 - 130 = 20 us.
func TestClientDelays(t *testing.T) {
	ran := func(start, end int64, idle bool, decodes int64) pass {
		return pass{startNs: start * 1000, endNs: end * 1000, hasStart: true, hasEnd: true, idle: idle, decodes: decodes}
	}
	request := func(first, ttft int64) []*clientRequest {
		return []*clientRequest{{firstNs: first * 1000, ttftUs: float64(ttft)}}
	}
	for _, c := range []struct {
		name      string
		before, p pass
		ended     []*clientRequest
		idle      []float64
		bounds    []delayBound
	}{
		{"idle", ran(0, 50, false, 0), ran(60, 190, true, 0), request(200, 150), []float64{20}, nil},
		{"sent before the engine was idle", ran(0, 51, false, 0), ran(60, 190, true, 0), request(200, 150), nil, nil},
		{"idle with a decode", ran(0, 50, false, 0), ran(60, 190, true, 1), request(200, 150), nil, nil},
		{"busy", ran(55, 60, false, 0), ran(60, 190, false, 0), request(200, 150), nil, []delayBound{{5, true}, {10, false}}},
		{"busy, sent in the pass before", ran(40, 60, false, 0), ran(60, 190, false, 0), request(200, 150), nil, []delayBound{{0, true}, {10, false}}},
		{"sent after the pass began", ran(40, 60, false, 0), ran(50, 190, false, 0), request(200, 150), nil, nil},
		{"no TTFT", ran(55, 60, false, 0), ran(60, 190, false, 0), request(200, 0), nil, nil},
	} {
		d := clientDelays{}
		d.addRequests([]pass{c.before, c.p}, 1, c.ended)
		if !reflect.DeepEqual(d.idle, c.idle) || !reflect.DeepEqual(d.bounds, c.bounds) {
			t.Errorf("%s: got %v and %v", c.name, d.idle, d.bounds)
		}
	}
	// The pass was scheduled when the one ahead of it began, at 55 us, and the one before that began at 52.
	ahead := clientDelays{ahead: 1}
	ahead.addRequests([]pass{ran(52, 55, false, 0), ran(55, 60, false, 0), ran(60, 190, false, 0)}, 2, request(200, 150))
	if !reflect.DeepEqual(ahead.bounds, []delayBound{{2, true}, {5, false}}) {
		t.Errorf("asynchronous scheduling: got %v", ahead.bounds)
	}
	ahead.addRequests([]pass{ran(55, 60, false, 0), ran(60, 190, false, 0)}, 1, request(200, 150))
	if len(ahead.bounds) != 2 {
		t.Errorf("asynchronous scheduling: got %v of the second pass, want no more", ahead.bounds)
	}
	d := clientDelays{bounds: []delayBound{{0, true}, {10, false}, {4, true}, {8, false}, {20, true}, {30, false}}}
	if got := d.delaysUs(); !reflect.DeepEqual(got, []float64{6}) {
		t.Errorf("got %v, want the middle of 4 and 8", got)
	}
	d.idle = []float64{1, 2, 3, 4, 5}
	if got := d.delaysUs(); len(got) != 5 {
		t.Errorf("five exact delays: got %v", got)
	}
	if got := medianDeviation([]float64{1, 2, 4, 8, 100}); got != 3 {
		t.Errorf("got %g, want the median of 3, 2, 0, 4 and 96", got)
	}
}
