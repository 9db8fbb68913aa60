package validate

import (
	"errors"
	"math"
	"slices"
	"strings"
	"testing"

	"github.com/blis-train/blis-train/deploy"
	"github.com/blis-train/blis-train/pipeline/features"
	"github.com/blis-train/blis-train/pipeline/rows"
	"github.com/blis-train/blis-train/pipeline/validate/gate"
	"github.com/blis-train/blis-train/result"
	"github.com/blis-train/blis-train/sim"
	"github.com/blis-train/blis-train/trace"
)

// noiseTable has n rows a millisecond apart, of one feature, whose measured times are alternately a tenth above and below
// a prediction of 100 us.
func noiseTable(n int) (t *rows.Table, predUs []float64) {
	t = &rows.Table{P: 1, Read: n, Kept: n}
	for i := range n {
		y := 110.0
		if i%2 == 1 {
			y = 90
		}
		t.X = append(t.X, 1)
		t.Y = append(t.Y, y)
		t.Steps = append(t.Steps, 1)
		t.Factor = append(t.Factor, 1)
		t.Regime = append(t.Regime, rows.Decode)
		t.TimeNs = append(t.TimeNs, int64(i)*1e6)
		t.Tag = append(t.Tag, rows.TagRich)
		predUs = append(predUs, 100)
	}
	return t, predUs
}

// TestRowsOfStepNoise: which rows give noise, and that it leaves the sum of each regime's times as it is.
func TestRowsOfStepNoise(t *testing.T) {
	for name, c := range map[string]struct {
		n        int
		from, to int64
		change   func(t *rows.Table, predUs []float64)
		want     int // rows; 0: no noise
	}{
		"all":             {20, 0, 20e6, nil, 20},
		"a part":          {20, 5e6, 19e6, nil, 14},
		"ten":             {20, 0, 10e6, nil, 10},
		"nine":            {20, 0, 9e6, nil, 0},
		"no prediction":   {20, 0, 20e6, func(_ *rows.Table, p []float64) { p[3] = 0 }, 19},
		"no time":         {20, 0, 20e6, func(t *rows.Table, _ []float64) { t.Y[3] = 0 }, 19},
		"single steps":    {30, 0, 30e6, func(t *rows.Table, _ []float64) { setSteps(t, 20, 3) }, 10},
		"few single ones": {30, 0, 30e6, func(t *rows.Table, _ []float64) { setSteps(t, 21, 3) }, 30},
	} {
		table, pred := noiseTable(c.n)
		if c.change != nil {
			c.change(table, pred)
		}
		noise := stepNoiseOf(table, pred, c.from, c.to)
		if (noise == nil) != (c.want == 0) || noise != nil && len(noise.ratio) != c.want {
			t.Errorf("%s: got %+v, want %d rows", name, noise, c.want)
		}
	}
	table, pred := noiseTable(40)
	for i := range 10 {
		table.Regime[3*i] = rows.Mixed
		table.Y[3*i] *= 2
		pred[3*i] *= 2
	}
	noise := stepNoiseOf(table, pred, 0, 40e6)
	if len(noise.byRegime[rows.Mixed]) != 10 || len(noise.byRegime[rows.Decode]) != 30 {
		t.Fatalf("got %d mixed and %d decode rows", len(noise.byRegime[rows.Mixed]), len(noise.byRegime[rows.Decode]))
	}
	var measured, withoutNoise [rows.Mixed + 1]float64
	for row, ratio := range noise.ratio {
		regime := table.Regime[row]
		measured[regime] += table.Y[row]
		withoutNoise[regime] += table.Y[row] / ratio
		if before := noise.before[rows.Mixed][row]; int(before) != (row+2)/3 && row < 30 {
			t.Errorf("row %d: got %d mixed rows before it", row, before)
		}
	}
	for _, regime := range []rows.Regime{rows.Decode, rows.Mixed} {
		if !near(measured[regime], withoutNoise[regime]) {
			t.Errorf("%s: got %g us without noise, want the measured %g", regime, withoutNoise[regime], measured[regime])
		}
	}
	// Steps of rows of three count three times.
	table, pred = noiseTable(30)
	setSteps(table, 30, 3)
	if noise := stepNoiseOf(table, pred, 0, 30e6); noise.block != 3*noise.blockRows() || noise.byRegime[rows.Decode][7].steps != 3 {
		t.Errorf("rows of three steps: got blocks of %d and %+v", noise.block, noise.byRegime[rows.Decode][7])
	}
	slow := &stepNoise{}
	for i := range 400 {
		slow.ratio = append(slow.ratio, math.Sin(float64(i)/20))
	}
	if got := slow.blockRows(); got < 50 {
		t.Errorf("neighbours that are alike: got blocks of %d rows", got)
	}
}

// setSteps makes the first n rows of a table means of several steps.
func setSteps(t *rows.Table, n int, steps float64) {
	for i := range n {
		t.Steps[i] = steps
	}
}

// TestRequestNoise: what recorded times scatter beyond replayed ones is noise, of mean 1.
func TestRequestNoise(t *testing.T) {
	sampleOf := func(n int, real, simulated float64) (*sample, map[int][]float64) {
		s := &sample{}
		alike := map[int][]float64{}
		for i := range n {
			up, other := 1.0, 1.0
			if i%2 == 1 {
				up = -1
			}
			if i%4 > 1 {
				other = -1
			}
			s.real[kindTTFT] = append(s.real[kindTTFT], 50*math.Exp(real*up))
			s.sim[kindTTFT] = append(s.sim[kindTTFT], 40*math.Exp(simulated*other))
			s.request[kindTTFT] = append(s.request[kindTTFT], i)
			alike[i] = []float64{float64(i % 7)}
		}
		return s, alike
	}
	spread := func(ratio []float64) float64 { return math.Log(slices.Max(ratio) / slices.Min(ratio)) }
	full, alike := sampleOf(80, 0.1, 0)
	whole := requestNoise(full, kindTTFT, alike)
	mean := 0.0
	for _, r := range whole {
		mean += r / float64(len(whole))
	}
	if len(whole) != 80 || !near(mean, 1) || !(spread(whole) > 0.1) {
		t.Errorf("got %d ratios of mean %g, spread over %g", len(whole), mean, spread(whole))
	}
	same, alike := sampleOf(80, 0.1, 0.1)
	if got := requestNoise(same, kindTTFT, alike); !(spread(got) < 0.5*spread(whole)) {
		t.Errorf("replays that scatter as much: got a spread of %g", spread(got))
	}
	calmer, alike := sampleOf(80, 0, 0.1)
	for _, r := range requestNoise(calmer, kindTTFT, alike) {
		if !near(r, 1) {
			t.Fatalf("replays that scatter more: got %g", r)
		}
	}
	few, alike := sampleOf(10, 0.1, 0)
	if got := requestNoise(few, kindTTFT, alike); len(got) != 10 {
		t.Errorf("ten requests: got %v", got)
	}
	few.real[kindTTFT][4] = 0
	if got := requestNoise(few, kindTTFT, alike); got != nil {
		t.Errorf("nine requests: got %v", got)
	}
	if got := scatterOfLogs([]float64{1, -2, 3}); !near(got, 14.0/3) {
		t.Errorf("got a mean square of %g", got)
	}
	long := append(slices.Repeat([]float64{2}, 19), 100)
	if got := scatterOfLogs(long); !near(got, 4) {
		t.Errorf("got a mean square of %g, want it without the largest of twenty", got)
	}
}

// TestPairsAndPoints: the error of a single pair, and curves of one and two points.
func TestPairsAndPoints(t *testing.T) {
	if got := medianPairedError([]float64{10}, []float64{15}); !near(got, 0.5) {
		t.Errorf("one pair: got %g", got)
	}
	if got := ecdf([]float64{7}); !slices.Equal(got, [][2]float64{{7, 1}}) {
		t.Errorf("one value: got %v", got)
	}
	if got := ecdf([]float64{9, 3}); !slices.Equal(got, [][2]float64{{3, 0.5}, {9, 1}}) {
		t.Errorf("two values: got %v", got)
	}
	if got := quantilePairs([]float64{1, 3}, []float64{10, 30, 50}); !slices.Equal(got, [][2]float64{{1.5, 20}, {2.5, 40}}) {
		t.Errorf("got %v", got)
	}
	for n, want := range map[int]bool{3: false, 4: true, 5: true} {
		if got := distanceOfHalves(make([]float64, n)); (got != nil) != want {
			t.Errorf("%d requests: got %v", n, got)
		}
	}
	if got := distanceOfHalves([]float64{1, 1, 2, 1, 2, 2}); !near(*got, 1.0/3) {
		t.Errorf("got a distance of %g, want that of 1 1 2 and 1 2 2", *got)
	}
	s := sampleStats([]float64{5, 1, 3}, []float64{1, 3, 5})
	if s.P50 != 3 || !near(s.P90, 4.6) || !near(s.P99, 4.96) || s.Mean != 3 {
		t.Errorf("got %+v", s)
	}
}

// TestRequestOfAReplay: a request as the simulator gets it, with at least one token, and one that was given up.
func TestRequestOfAReplay(t *testing.T) {
	p := &replayedPhase{originNs: 1_000_000}
	for name, c := range map[string]struct {
		of   Request
		want sim.Request
	}{
		"a request":    {Request{ID: "a", ArrivalNs: 1_002_499, Prompt: 7, Output: 5, MaxTokens: 9}, sim.Request{ID: "a", ArrivalUs: 2, PromptTokens: 7, OutputTokens: 5, MaxTokens: 9}},
		"rounded up":   {Request{ArrivalNs: 1_002_500, Output: 5, MaxTokens: 3}, sim.Request{ArrivalUs: 3, OutputTokens: 5, MaxTokens: 5}},
		"no tokens":    {Request{ArrivalNs: 1_000_000}, sim.Request{OutputTokens: 1, MaxTokens: 1}},
		"given up":     {Request{ArrivalNs: 1_000_000, Output: 2, MaxTokens: 50, Excluded: "x", EndNs: some(int64(1_009_000))}, sim.Request{OutputTokens: 50, MaxTokens: 50, AbortAtUs: some(int64(9)), AbortKind: sim.OutcomeAborted}},
		"without end":  {Request{ArrivalNs: 1_000_000, Output: 2, MaxTokens: 50, Excluded: "x"}, sim.Request{OutputTokens: 2, MaxTokens: 50}},
		"not given up": {Request{ArrivalNs: 1_000_000, Output: 2, MaxTokens: 50, EndNs: some(int64(1_009_000))}, sim.Request{OutputTokens: 2, MaxTokens: 50}},
	} {
		got := p.simRequest(c.of, nil)
		if got.ID != c.want.ID || got.ArrivalUs != c.want.ArrivalUs || got.PromptTokens != c.want.PromptTokens || got.OutputTokens != c.want.OutputTokens || got.MaxTokens != c.want.MaxTokens ||
			got.AbortAtUs != c.want.AbortAtUs || got.AbortKind != c.want.AbortKind {
			t.Errorf("%s: got %+v, want %+v", name, got, c.want)
		}
	}
	got := p.simRequest(Request{ArrivalNs: 1_000_000}, func(o *Request, r *sim.Request) { r.Group = 8 })
	if got.Group != 8 {
		t.Errorf("got %+v without its content", got)
	}
	if requests, recorded, found := Workload([]Request{{ArrivalNs: 100, Prompt: 4}, {ArrivalNs: 200}}, &deploy.Phase{StartNs: 100, EndNs: 200}, nil); len(requests) != 1 || len(recorded) != 1 || len(found) != 0 || requests[0].PromptTokens != 4 {
		t.Errorf("got %v, %v, %v", requests, recorded, found)
	}
}

// TestTablesCleanedTogether: those of training or of test runs, of one target, without saturated runs.
func TestTablesCleanedTogether(t *testing.T) {
	run := func(training, saturated bool, targets ...string) *judgedRun {
		r := &judgedRun{training: training, beta: &rows.Table{Target: targets[0]}}
		r.Saturation = &rows.LoadVerdicts{}
		r.Saturation.Run.Saturated = saturated
		for _, target := range targets[1:] {
			r.alpha = append(r.alpha, &rows.Table{Target: target})
		}
		return r
	}
	j := &job{runs: []*judgedRun{run(true, false, "cadence", "queue"), run(true, false, "cadence", "egress", "queue"), run(false, false, "cadence", "queue"), run(true, true, "cadence", "queue")}}
	bare := &judgedRun{training: true}
	bare.Saturation = &rows.LoadVerdicts{}
	j.runs = append(j.runs, bare)
	for _, c := range []struct {
		training bool
		target   string
		want     []*rows.Table
	}{
		{true, "cadence", []*rows.Table{j.runs[0].beta, j.runs[1].beta}}, {true, "queue", []*rows.Table{j.runs[0].alpha[0], j.runs[1].alpha[1]}}, {true, "egress", []*rows.Table{j.runs[1].alpha[0]}},
		{false, "cadence", []*rows.Table{j.runs[2].beta}}, {false, "egress", nil},
	} {
		if got := j.tablesOf(c.training, c.target); !slices.Equal(got, c.want) {
			t.Errorf("%v %s: got %d tables, want %d", c.training, c.target, len(got), len(c.want))
		}
	}
	for _, c := range []struct {
		named, version string
		want           rows.Recipe
	}{{"", "1.0", rows.Frozen}, {"", "1.1", rows.Relative}, {"relative", "1.0", rows.Relative}, {"frozen", "1.1", rows.Frozen}} {
		if got := cleaningRecipe(c.named, features.Version(c.version)); got != c.want {
			t.Errorf("%+v: got %v", c, got)
		}
	}
	v := &result.Validation{Runs: make([]result.ValidationRun, 3)}
	v.Runs[0].ID, v.Runs[1].ID, v.Runs[2].ID = "a", "b", "c"
	for i := range v.Runs {
		if got := replayNamed(v, gate.ReplayScope(&v.Runs[i])); got != &v.Runs[i] {
			t.Errorf("%s: got %+v", v.Runs[i].ID, got)
		}
	}
	if got := replayNamed(v, "d"); got != nil {
		t.Errorf("another: got %+v", got)
	}
}

// TestStepsOfRequestsThatWereNotRecorded: of a step that counts more running requests than were recorded, the others begin with even
// shares of its prompt tokens, and end as the step counts ends.
func TestStepsOfRequestsThatWereNotRecorded(t *testing.T) {
	of := func(steps ...trace.Step) *rebuild {
		run := &trace.Run{Steps: steps}
		for i := range run.Steps {
			run.Steps[i].TsStartNs = int64(i) * 1e6
		}
		r := newRebuild(run, false)
		for i := range run.Steps {
			r.walkStep(i)
		}
		return r
	}
	prompts := func(r *rebuild) (out []int64) {
		for i := range r.out {
			out = append(out, r.out[i].Prompt)
		}
		return out
	}
	two := of(trace.Step{RunningDepth: 2, PrefillTokens: 7}, trace.Step{RunningDepth: 2, PrefillTokens: 5}, trace.Step{RunningDepth: 1, NumFinished: 1}, trace.Step{NumFinished: 1})
	if got := prompts(two); !slices.Equal(got, []int64{3, 9}) || two.out[0].Output != 2 || two.out[1].Output != 3 || two.out[1].MaxTokens != 3 || two.out[0].ID != "unrecorded-1" || two.out[1].Excluded != excludedUnrecorded {
		t.Errorf("two requests: got %+v", two.out)
	}
	if got := prompts(of(trace.Step{RunningDepth: 2, PrefillTokens: 1})); !slices.Equal(got, []int64{1, 1}) {
		t.Errorf("one token for two: got %v", got)
	}
	if got := prompts(of(trace.Step{RunningDepth: 3, PrefillTokens: 10}, trace.Step{RunningDepth: 4, NumFinished: 1, PrefillTokens: 8})); !slices.Equal(got, []int64{3, 3, 4, 4, 4}) {
		t.Errorf("another step: got %v", got)
	}
	for want, steps := range map[string][]trace.Step{
		"":                              {{ID: 4}, {ID: 5}},
		"no steps are recorded":         nil,
		"1 of 3 steps are not recorded": {{ID: 4}, {ID: 6}},
		"requests waited in 2 of 2":     {{ID: 4, WaitingDepth: 1}, {ID: 5, WaitingDepth: 3}},
		"5 requests were preempted":     {{ID: 4, NumPreempted: 2}, {ID: 5, NumPreempted: 3}},
	} {
		r := &rebuild{run: &trace.Run{Steps: steps}}
		if got := r.whyImpossible(); got == "" != (want == "") || !strings.HasPrefix(got, want) {
			t.Errorf("got %q, want %q", got, want)
		}
	}
}

// TestWhyNoStepTimes: a deployment that no feature covers, or passes without times.
func TestWhyNoStepTimes(t *testing.T) {
	unsupported, refused := trace.Errorf("a", "x"), trace.Errorf("b", "y")
	log := &trace.Run{Aggregate: &trace.Aggregate{Refused: refused}}
	for name, c := range map[string]struct {
		run  *trace.Run
		err  error
		want *trace.Error
	}{
		"steps": {&trace.Run{}, nil, nil}, "unsupported": {&trace.Run{}, unsupported, unsupported}, "unsupported log": {log, unsupported, unsupported}, "another error": {&trace.Run{}, errors.New("z"), nil},
		"log": {log, nil, refused}, "log with times": {&trace.Run{Aggregate: &trace.Aggregate{}}, nil, nil},
	} {
		if got := whyNoStepTimes(c.run, c.err); got != c.want {
			t.Errorf("%s: got %v, want %v", name, got, c.want)
		}
	}
}

// TestCountedRequests: requests by outcome, and what was recorded of each, from spans and from clients alone.
func TestCountedRequests(t *testing.T) {
	dep := &deploy.Deployment{}
	yes, no := some(true), some(false)
	run := &trace.Run{Requests: []trace.Request{
		{CoreID: some("1"), APIID: some("1"), Success: yes, Preemptions: some(int64(2)), N: some(int64(1))},
		{CoreID: some("2"), Success: yes, FinishStatus: some(trace.FinishAborted), N: some(int64(3))},
		{APIID: some("3"), Success: no},
		{CoreID: some("4"), APIID: some("4"), Preemptions: some(int64(0))},
		{Source: trace.SourceStock, Success: yes},
	}, Observed: make([]trace.ObservedRequest, 6)}
	got := countRequests(run, dep)
	want := result.InspectRequests{Total: 5, Observed: 6, Engine: 4, CoreMissing: 1, APIUnlinked: 1, Unknown: 1, Finished: 3, Failed: 1, StopStringEnds: 1, Preempted: 1, MultiSample: 1}
	if got != want {
		t.Errorf("got %+v, want %+v", got, want)
	}
	dep.Tracing.JourneySampleRate = some(0.5)
	clients := &trace.Run{Observed: []trace.ObservedRequest{{}, {Success: yes}, {Success: no}, {Success: no, Aborted: yes}, {Success: no, Aborted: no}}}
	got = countRequests(clients, dep)
	if want := (result.InspectRequests{Total: 5, Observed: 5, Finished: 2, Failed: 2, Aborted: 1, JourneysSampled: true}); got != want {
		t.Errorf("clients: got %+v, want %+v", got, want)
	}
	if dep.Tracing.JourneySampleRate = some(1.0); countRequests(clients, dep).JourneysSampled {
		t.Error("a rate of 1 is a sample")
	}
	losses, err := countLosses(&trace.Run{Steps: []trace.Step{{ID: 3}, {ID: 4}, {ID: 7}}, Requests: []trace.Request{{DroppedEvents: 2}, {DroppedEvents: 3}}})
	if err != nil || losses.DroppedSpanEvents != 5 || losses.MissingSteps != 2 || *losses.RecordedStepShare != 0.6 || *losses.AdjacentShare != 0.5 {
		t.Errorf("got %+v, %v", losses, err)
	}
	ext := &result.ExtractRun{}
	ext.Records.Read, ext.Records.Dropped = 40, map[string]int64{"a": 2, "b": 5}
	ext.Losses.DuplicateSpans, ext.Losses.TruncatedMessages, ext.Losses.DroppedSpanEvents = 3, 4, 6
	if addExtractLosses(&losses, ext); *losses.RecordsRead != 40 || *losses.RecordsDropped != 7 || *losses.DuplicateSpans != 3 || *losses.TruncatedMessages != 4 || losses.DroppedSpanEvents != 6 {
		t.Errorf("got %+v", losses)
	}
	ext.Losses.DroppedSpanEvents = 1
	if addExtractLosses(&losses, ext); losses.DroppedSpanEvents != 6 {
		t.Errorf("fewer in the spans: got %+v", losses)
	}
}

// TestSeriesOfARun: the means of steps and the median TTFT in bins of a 200th of the run.
func TestSeriesOfARun(t *testing.T) {
	run := &trace.Run{Steps: []trace.Step{{TsStartNs: 1e9, RunningDepth: 4, WaitingDepth: 1, KVUsage: 0.25}, {TsStartNs: 1e9 + 1, RunningDepth: 6, WaitingDepth: 3, KVUsage: 0.75}, {TsStartNs: 3e9, RunningDepth: 9}}}
	s := loadSeries(run)
	last := len(s.Running) - 1
	if last != 199 || s.BinS != 0.010000001 || *s.Running[0] != 5 || *s.Waiting[0] != 2 || *s.KVUsage[0] != 0.5 || s.Running[1] != nil || *s.Running[last] != 9 || s.TTFTMs[0] != nil {
		t.Errorf("got bins of %g s, %v and %v", s.BinS, *s.Running[0], s.Running[last])
	}
	if loadSeries(&trace.Run{}) != nil || loadSeries(&trace.Run{Steps: run.Steps[:1]}) != nil {
		t.Error("a run without a span has a series")
	}
}
