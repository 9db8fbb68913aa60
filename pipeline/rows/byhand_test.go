package rows

import (
	"math"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/blis-train/blis-train/coeff"
	"github.com/blis-train/blis-train/deploy"
	"github.com/blis-train/blis-train/pipeline/features"
	"github.com/blis-train/blis-train/reconstruct"
	"github.com/blis-train/blis-train/result"
	"github.com/blis-train/blis-train/trace"
)

// near reports whether a figure of a document has the value worked out by hand.
func near(got *float64, want float64) bool { return got != nil && math.Abs(*got-want) < 1e-9 }

// judgedSteps returns two training rows of 1000 us and six judged ones: five of decodes, 1100 us a step, whose
// predictions are off by -10 %, 0, 10, 20 and 30 % (the last row has two steps), and one mixed row that is off by 50 us.
func judgedSteps() *Sample {
	t := &Table{
		Run: "r", Config: "c", P: 3, Kept: 8, Read: 8,
		Y:       []float64{1000, 1000, 1100, 1100, 1100, 1100, 2200, 500},
		Steps:   []float64{1, 1, 1, 1, 1, 1, 2, 1},
		HoldOut: []bool{false, false, true, true, true, true, true, true},
		Regime:  []Regime{Decode, Decode, Decode, Decode, Decode, Decode, Decode, Mixed},
		Batch:   []float64{9, 9, 1, 2, 3, 4, 5, 6},
		Context: []float64{9, 9, 100, 200, 300, 400, 500, 600},
		Sets:    []StressSet{0, 0, Preempting, 0, fewTokens | fullCache, 0, Outlier, fullCache},
		FloorUs: make([]float64, 8),
		Factor:  slices.Repeat([]float64{1}, 8),
	}
	for k := range int64(8) {
		t.TimeNs = append(t.TimeNs, 7e9+k*2e9)
		t.X = append(t.X, t.Steps[k], t.Batch[k], 1)
	}
	return &Sample{Table: t, Pred: []float64{0, 0, 990, 1100, 1210, 1320, 2860, 550}, Beta: []float64{100, 7, 0}, Part: HoldOut}
}

func TestStepFiguresByHand(t *testing.T) {
	s := judgedSteps()
	f := JudgeSteps([][]*Sample{{s}}, false, 1).Figures([]string{"base", "batch", "none"})
	// A bin is a twelfth of a decade: log10(1100)*12 = 36.5, of 990 35.9, of 1210 36.99, of 1320 37.4, of 1430 37.9.
	centre := func(bin float64) float64 { return math.Pow(10, (bin+0.5)/12) }
	wantBins := []result.Bin2D{
		{Regime: "decode", X: centre(36), Y: centre(35), N: 1},
		{Regime: "decode", X: centre(36), Y: centre(36), N: 2},
		{Regime: "decode", X: centre(36), Y: centre(37), N: 2},
		{Regime: "mixed", X: centre(32), Y: centre(32), N: 1}, // 500 and 550 us
	}
	if !reflect.DeepEqual(f.PredVsMeasured, wantBins) {
		t.Errorf("bins: got %+v, want %+v", f.PredVsMeasured, wantBins)
	}
	// Quantiles of -0.1, 0, 0.1, 0.2, 0.3; the one mixed row is no band. Times count from the first row of all.
	wantBands := []result.ResidualBand{
		{Against: "batch", Regime: "decode", X: 3, P10: -0.06, P50: 0.1, P90: 0.26, N: 5},
		{Against: "context", Regime: "decode", X: 300, P10: -0.06, P50: 0.1, P90: 0.26, N: 5},
		{Against: "time", Regime: "decode", X: 8, P10: -0.06, P50: 0.1, P90: 0.26, N: 5},
	}
	if !reflect.DeepEqual(f.Residuals, wantBands) {
		t.Errorf("residuals: got %+v, want %+v", f.Residuals, wantBands)
	}
	wantTerms := []result.Contribution{
		{Regime: "decode", Name: "base", MeanUs: 100},
		{Regime: "decode", Name: "batch", MeanUs: 7.0 * (1 + 2 + 3 + 4 + 5) / 6},
		{Regime: "mixed", Name: "base", MeanUs: 100},
		{Regime: "mixed", Name: "batch", MeanUs: 42},
	}
	if !reflect.DeepEqual(f.Contributions, wantTerms) {
		t.Errorf("contributions: got %+v, want %+v", f.Contributions, wantTerms)
	}
}

// TestNumberOfBands: a band has at least five rows, and there are at most twenty.
func TestNumberOfBands(t *testing.T) {
	for n, want := range map[int]int{4: 0, 5: 1, 9: 1, 10: 2, 100: 20, 105: 20} {
		table := yTable("c", Decode, slices.Repeat([]float64{100}, n)...)
		f := JudgeSteps([][]*Sample{{{Table: table, Pred: slices.Repeat([]float64{110}, n), Part: Whole}}}, false, 1)
		if got := f.residualBands("batch", Decode, func(_ *Table, i int32) float64 { return float64(i) }); len(got) != want {
			t.Errorf("%d rows: got %d bands, want %d", n, len(got), want)
		}
	}
}

func TestStepErrorsByHand(t *testing.T) {
	s := judgedSteps()
	whole := &Sample{Table: yTable("other", Prefill, 100, 100), Pred: []float64{80, 130}, Part: Whole}
	whole.Table.Sets = []StressSet{purePrefill, purePrefill}
	whole.Table.Batch = []float64{256, 257}
	j := JudgeSteps([][]*Sample{{s}, {whole}}, false, 1)
	e := j.Errors(s)
	want := map[string][2]any{
		"rows":     {e.Rows, 6},
		"outliers": {e.Outliers, 1},
		"excluded": {e.Excluded, 0},
	}
	for name, v := range want {
		if v[0] != v[1] {
			t.Errorf("%s: got %v, want %v", name, v[0], v[1])
		}
	}
	for name, v := range map[string]struct {
		got  *float64
		want float64
	}{
		"mape":            {e.MAPE, (0.1 + 0 + 0.1 + 0.2 + 0.3 + 0.1) / 6},
		"mape_const":      {e.MAPEConst, (5*(100.0/1100) + 500.0/500) / 6}, // the training rows take 1000 us a step
		"bias":            {e.Bias, (-110.0 + 0 + 110 + 220 + 660 + 50) / 7100},
		"wape":            {e.WAPE, (110.0 + 0 + 110 + 220 + 660 + 50) / 7100},
		"rmse":            {e.RMSEUs, math.Sqrt((110*110 + 110*110 + 220*220 + 660*660 + 50*50) / 6.0)},
		"median ape":      {e.MedianAPE, 0.1},
		"largest error":   {e.MaxErrorRatio, 660.0 / 1100}, // one outlier of six rows is not few
		"largest outlier": {e.LargestOutlier, 660.0 / 1100},
	} {
		if !near(v.got, v.want) {
			t.Errorf("%s: got %v, want %g", name, v.got, v.want)
		}
	}
	if e.MAPEFloor != nil || e.MAPEInterval != nil {
		t.Errorf("a noise floor or an interval of six rows: %+v", e)
	}
	if all := j.Errors(); all.Rows != 8 || !near(j.Errors(whole).MAPE, 0.25) {
		t.Errorf("got %d rows and %+v, want 8 and a MAPE of 0.25", all.Rows, j.Errors(whole))
	}
	cells := func(cells []result.Cell) (out []string, mape []float64) {
		for _, c := range cells {
			out = append(out, strings.TrimSpace(strings.Join([]string{c.Run, c.Config, c.Regime, c.Bucket, c.Set}, " ")))
			mape = append(mape, math.Round(*c.MAPE*1e4)/1e4)
		}
		return out, mape
	}
	for _, c := range []struct {
		what  string
		cells []result.Cell
		names []string
		mape  []float64
	}{
		{"by regime", j.Cells(s, false), []string{"r c decode", "r c mixed"}, []float64{0.14, 0.1}},
		{"by batch", j.Cells(s, true),
			[]string{"r c decode", "r c decode 1", "r c decode 2", "r c decode 3-4", "r c decode 5-8", "r c mixed", "r c mixed 5-8"},
			[]float64{0.14, 0.1, 0, 0.15, 0.3, 0.1, 0.1}},
		{"largest batches", j.Cells(whole, true), []string{"other prefill", "other prefill 129-256", "other prefill > 256"}, []float64{0.25, 0.2, 0.3}},
		{"stress sets of one", j.StressCells(s), []string{"r c   preempting", "r c   usage>0.9", "r c   1-4 tokens"}, []float64{0.1, 0.1, 0.1}},
		{"of all", j.StressCells(), []string{"preempting", "usage>0.9", "pure prefill", "1-4 tokens"}, []float64{0.1, 0.1, 0.25, 0.1}},
	} {
		names, mape := cells(c.cells)
		if !slices.Equal(names, c.names) || !slices.Equal(mape, c.mape) {
			t.Errorf("%s: got %q %v, want %q %v", c.what, names, mape, c.names, c.mape)
		}
	}
}

// TestStepErrorsHaveIntervals: of 20 rows, and the relative ones without targets below 1 us.
func TestStepErrorsHaveIntervals(t *testing.T) {
	of := func(n int, y float64) *result.Errors {
		table := yTable("c", Decode, slices.Repeat([]float64{1000}, n)...)
		pred := make([]float64, n)
		for i := range pred {
			pred[i] = 1100
		}
		table.Y[n-1] = y
		pred[n-1] = y * 1.1
		return JudgeSteps([][]*Sample{{{Table: table, Pred: pred, Part: Whole}}}, false, 1).Errors()
	}
	tenth := func(i *[2]float64) bool {
		return i != nil && math.Abs(i[0]-0.1) < 1e-9 && math.Abs(i[1]-0.1) < 1e-9
	}
	if e := of(20, 1); !tenth(e.MAPEInterval) || !tenth(e.BiasInterval) {
		t.Errorf("20 rows that are all off by a tenth: got %v and %v", e.MAPEInterval, e.BiasInterval)
	}
	if e := of(20, 0.5); e.MAPEInterval != nil || !tenth(e.BiasInterval) {
		t.Errorf("19 of 20 rows have a relative error: got %v and %v", e.MAPEInterval, e.BiasInterval)
	}
	if e := of(19, 1); e.MAPEInterval != nil || e.BiasInterval != nil {
		t.Errorf("19 rows: got %v and %v, want no interval", e.MAPEInterval, e.BiasInterval)
	}
}

// judgedDelays returns five requests in four windows of ten seconds from the first of them at 5 s: the means are 2000
// us against 2500, 5000 against 4000, and each of the two long ones alone.
func judgedDelays(target string) *Sample {
	t := &Table{
		Target: target, Kept: 5, Read: 5, P: 1, X: []float64{1, 2, 3, 4, 5},
		Y:      []float64{1000, 3000, 5000, 1e6, 999_999},
		Steps:  []float64{1, 1, 1, 1, 1},
		Regime: []Regime{Idle, Idle, Waiting, Waiting, Waiting},
		TimeNs: []int64{5e9, 14_999_999_999, 15e9, 39e9, 45e9},
		Factor: []float64{1, 1, 1, 1, 1},
		Sets:   make([]StressSet, 5),
	}
	return &Sample{Table: t, Pred: []float64{1500, 3500, 4000, 5e5, 999_999}, Part: Whole}
}

func TestDelayErrorsByHand(t *testing.T) {
	d := JudgeDelays([][]*Sample{{judgedDelays(coeff.Admission)}})
	e := d.Errors(nil)
	if e.Rows != 5 || e.Windows != 4 {
		t.Errorf("got %d rows in %d windows, want 5 in 4", e.Rows, e.Windows)
	}
	// The constant that predicts best is the median weighted by 1/y: weights 1/1000, 1/3000 and little, so 1000.
	single := []float64{0.5, 1.0 / 6, 0.2, 0.5, 0}
	for name, v := range map[string]struct {
		got  *float64
		want float64
	}{
		"mape":       {e.MAPE, (single[0] + single[1] + single[2] + single[3] + single[4]) / 5},
		"bias":       {e.Bias, (500.0 + 500 - 1000 - 5e5) / 2_008_999},
		"wape":       {e.WAPE, (500.0 + 500 + 1000 + 5e5) / 2_008_999},
		"mae":        {e.MAEUs, (500.0 + 500 + 1000 + 5e5) / 5},
		"constant":   {e.MAPEConst, (0 + 2.0/3 + 0.8 + 0.999 + (1 - 1000.0/999_999)) / 5},
		"windows":    {e.MAPEWindow10s, (0.25 + 0.2 + 0.5 + 0) / 4},
		"largest":    {e.MaxErrorRatio, 5e5 / ((5000 + 999_999) / 2.0)}, // of windows: 2000, 5000, 999999, 1e6
		"prediction": {e.MedianPredUs, 4000},
		"idle":       {e.Regimes[0].MAPE, (single[0] + single[1]) / 2},
		"waiting":    {e.Regimes[1].MAPE, (single[2] + single[3] + single[4]) / 3},
		"long":       {e.Long.MAPE, 0.5},
		"long bias":  {e.Long.Bias, -0.5},
	} {
		if !near(v.got, v.want) {
			t.Errorf("%s: got %v, want %g", name, v.got, v.want)
		}
	}
	if e.Regimes[0].Regime != "idle" || e.Regimes[0].Rows != 2 || e.Regimes[1].Regime != "waiting" || e.Regimes[1].Rows != 3 {
		t.Errorf("regimes: %+v", e.Regimes)
	}
	if e.Long.Regime != "long" || e.Long.Rows != 1 {
		t.Errorf("from a second on a request is long: %+v", e.Long)
	}
	if e.MAPEFloor != nil {
		t.Errorf("a noise floor of five rows: %g", *e.MAPEFloor)
	}
	if d.Errors(func(*Sample) bool { return false }) != nil {
		t.Error("errors of no samples")
	}
	// The largest error of other targets is that of single requests; egress has no regimes.
	e = JudgeDelays([][]*Sample{{judgedDelays(coeff.Queue)}}).Errors(nil)
	if !near(e.MaxErrorRatio, 5e5/5000) {
		t.Errorf("queue: got a largest error of %v, want 500000 us of 5000", e.MaxErrorRatio)
	}
	e = JudgeDelays([][]*Sample{{judgedDelays(coeff.Egress)}}).Errors(nil)
	if e.Regimes != nil || e.Long != nil {
		t.Errorf("egress: got regimes %+v and %+v", e.Regimes, e.Long)
	}
}

func TestDelayIntervalsByHand(t *testing.T) {
	s := &Sample{Part: Whole, Pred: []float64{15, 26, 27, 5000}, Table: &Table{
		Kept: 4, Read: 4, P: 1, X: []float64{1, 1, 1, 1},
		Y:      []float64{20, 20, 30, 4000},
		Lo:     []float64{10, 10, 30, 0},
		Hi:     []float64{20, 20, 30, 4000},
		Factor: []float64{1, 1, 1, 1},
		Regime: []Regime{Idle, Idle, Idle, Idle},
		TimeNs: make([]int64, 4),
	}}
	e := JudgeDelays([][]*Sample{{s}}).Intervals(nil)
	if e.Rows != 4 || e.ExactRows != 1 {
		t.Errorf("got %d rows, %d exact, want 4 and 1", e.Rows, e.ExactRows)
	}
	for name, v := range map[string]struct {
		got  *float64
		want float64
	}{
		"inside":     {e.InsideShare, 1.0 / 3}, // of the intervals
		"width":      {e.MedianWidthUs, 10},    // of 10, 10 and 4000
		"mae":        {e.MAEUs, (0 + 6.0 + 3 + 1000) / 4},
		"exact":      {e.ExactWAPE, 3.0 / 30},
		"prediction": {e.MedianPredUs, (26 + 27) / 2.0},
	} {
		if !near(v.got, v.want) {
			t.Errorf("%s: got %v, want %g", name, v.got, v.want)
		}
	}
	if JudgeDelays([][]*Sample{{s}}).Intervals(func(*Sample) bool { return false }) != nil {
		t.Error("intervals of no samples")
	}
}

// TestNoiseOfLinearRows: of 60 rows whose ratio to the prediction is 1 but for one, that one alone is noise.
func TestNoiseOfLinearRows(t *testing.T) {
	table := &Table{P: 2}
	var pred []float64
	var all []int
	for i := range 60 {
		steps := float64(1 + i%2)
		table.X = append(table.X, steps, steps*float64(i))
		table.Y = append(table.Y, steps*float64(100+i))
		table.Steps = append(table.Steps, steps)
		table.Factor = append(table.Factor, 1)
		table.Regime = append(table.Regime, Decode)
		pred = append(pred, steps*float64(100+i))
		all = append(all, i)
	}
	table.Kept = 60
	table.Y[30] *= 1.25
	for i, v := range NoiseOf(table, pred, all) {
		want := 1.0
		if i == 30 {
			want = 1.25
		}
		if math.Abs(v-want) > 1e-9 {
			t.Errorf("row %d: got %g, want %g", i, v, want)
		}
	}
}

func TestParts(t *testing.T) {
	const whole = -1
	phases := func(of ...deploy.Phase) *deploy.Deployment { return &deploy.Deployment{Phases: of} }
	steps := []trace.Step{{TsStartNs: 1000}, {TsStartNs: 1500}, {TsStartNs: 1999}}
	requests := []trace.Request{
		{}, {ArrivedNs: trace.Some(int64(50))}, {ArrivedNs: trace.Some(int64(9))}, {ArrivedNs: trace.Some(int64(59))}, {ArrivedNs: trace.Some(int64(30))},
	}
	for _, c := range []struct {
		name string
		run  *trace.Run
		dep  *deploy.Deployment
		want []Part
	}{
		{"no phases", &trace.Run{Steps: steps}, phases(), []Part{{Phase: whole, StartNs: 1000, CutNs: 1800, EndNs: 2000}}},
		{"arrivals alone", &trace.Run{Requests: requests}, phases(), []Part{{Phase: whole, StartNs: 9, CutNs: 9 + 40, EndNs: 60}}},
		{"nothing", &trace.Run{Requests: requests[:1]}, phases(), nil},
		{"a phase from before the recording to beyond it", &trace.Run{Steps: steps}, phases(deploy.Phase{Name: "a", StartNs: 0, EndNs: 9000}),
			[]Part{{Name: "a", StartNs: 0, CutNs: 1800, EndNs: 9000}}},
		{"warm-up has no hold-out", &trace.Run{Steps: steps},
			phases(deploy.Phase{Name: deploy.WarmupPhase, StartNs: 1000, EndNs: 1200}, deploy.Phase{Name: "a", StartNs: 1200, EndNs: 1700}),
			[]Part{{Name: deploy.WarmupPhase, StartNs: 1000, CutNs: 1200, EndNs: 1200},
				{Phase: 1, Name: "a", StartNs: 1200, CutNs: 1600, EndNs: 1700}}},
		{"a phase that begins with the last step", &trace.Run{Steps: steps}, phases(deploy.Phase{Name: "a", StartNs: 1999, EndNs: 5000}),
			[]Part{{Name: "a", StartNs: 1999, CutNs: 1999, EndNs: 5000}}},
		{"one after it is on another clock", &trace.Run{Steps: steps}, phases(deploy.Phase{Name: "a", StartNs: 2000, EndNs: 5000}),
			[]Part{{Phase: whole, StartNs: 1000, CutNs: 1800, EndNs: 2000}}},
		{"one that ends with the first step", &trace.Run{Steps: steps}, phases(deploy.Phase{Name: "a", StartNs: 10, EndNs: 1000}),
			[]Part{{Phase: whole, StartNs: 1000, CutNs: 1800, EndNs: 2000}}},
	} {
		if got := Parts(c.run, c.dep, 0.8); !reflect.DeepEqual(got, c.want) {
			t.Errorf("%s: got %+v, want %+v", c.name, got, c.want)
		}
	}
	slice := &Steps{Run: &trace.Run{Steps: steps, Slice: &trace.Slice{FirstNs: 0, LastNs: 9999}}, Dep: phases()}
	if got, want := slice.parts(0.8), []Part{{Phase: whole, CutNs: 8000, EndNs: 10_000}}; !reflect.DeepEqual(got, want) {
		t.Errorf("a slice has the parts of its run: got %+v, want %+v", got, want)
	}
	parts := []Part{{Phase: 3, StartNs: 10, CutNs: 18, EndNs: 20}}
	for ns, want := range map[int64]string{9: "-1 false", 10: "3 false", 17: "3 false", 18: "3 true", 19: "3 true", 20: "-1 false"} {
		phase, holdOut := partOf(parts, ns)
		if got := strings.Join([]string{map[int32]string{-1: "-1", 3: "3"}[phase], map[bool]string{true: "true", false: "false"}[holdOut]}, " "); got != want {
			t.Errorf("%d ns: got %s, want %s", ns, got, want)
		}
		if IsInside([]Span{{StartNs: 10, EndNs: 20}}, ns) != strings.HasPrefix(want, "3") {
			t.Errorf("%d ns: inside [10, 20) is wrong", ns)
		}
	}
}

// TestQualityByHand: steps 5 to 12, of which 6, 7, 8, 9 and 11 have summaries.
func TestQualityByHand(t *testing.T) {
	of := func(change func(s *Steps, b *batchSources)) *Steps {
		s := &Steps{
			Run:   &trace.Run{ID: "r", Steps: []trace.Step{{ID: 6}, {ID: 7}, {ID: 8}, {ID: 9}, {ID: 11}}},
			Dep:   &deploy.Deployment{},
			First: 5,
			all: listOf([]Step{
				{ID: 5, Recorded: -1, Tag: TagJourney}, // before the first summary: counts nowhere
				{ID: 6, Recorded: 0, Tag: TagRich},
				{ID: 7, Recorded: 1, Tag: TagJourney},
				{ID: 8, Recorded: 2, Tag: TagJourney},
				{ID: 9, Recorded: 3, Tag: TagSummary, In: features.StepInput{DecodeTokens: 1}},
				{ID: 10, Recorded: -1, Tag: TagJourney},
				{ID: 11, Recorded: 4},
				{ID: 12, Recorded: -1, Tag: TagJourney}, // after the last
			}...),
		}
		b := &batchSources{s: s, journeys: true, checked: 4, wrong: []int64{6},
			reasons: []reconstruct.Reason{4: reconstruct.ChunkedTotals, 6: reconstruct.Contradicted, 7: reconstruct.Known}}
		if change != nil {
			change(s, b)
		}
		s.countQuality(b)
		return s
	}
	findings := func(s *Steps) (out []string) {
		for _, f := range s.Findings {
			out = append(out, f.Message)
		}
		return out
	}
	s := of(nil)
	q := s.Quality
	if !near(q.KnownShare, 4.0/5) {
		t.Errorf("known share: got %v, want 4 of 5", q.KnownShare)
	}
	q.KnownShare = nil
	want := Quality{
		StepQuality: result.StepQuality{Recorded: 5, Known: 4, FromSnapshots: 1, Reconstructed: 2, Approximate: 1, Contradictions: 1},
		Unknown:     1, Unrecorded: 1, Rebuilt: 1, FromJourneys: 3,
	}
	if q != want || s.crossChecked != 4 || !slices.Equal(s.crossWrong, []int64{6}) {
		t.Errorf("got %+v, wrong %v of %d, want %+v", q, s.crossWrong, s.crossChecked, want)
	}
	texts := []string{
		"r: 5 of 6 steps are recorded; the preemption average sees only those",
		"r: 1 of 5 steps and idle times are approximated from batch totals",
	}
	if got := findings(s); !slices.Equal(got, texts) {
		t.Errorf("got %q, want %q", got, texts)
	}
	s = of(func(s *Steps, b *batchSources) { s.all.change(4, func(st *Step) { st.In.PrefillTokens = 1 }) })
	if got, want := findings(s), append(slices.Clone(texts), "r: no prompt lengths in snapshots; equal prompts are assumed"); !slices.Equal(got, want) {
		t.Errorf("prompts approximated: got %q, want %q", got, want)
	}
	s = of(func(s *Steps, b *batchSources) {
		s.all.change(4, func(st *Step) { st.In.PrefillTokens = 1 })
		b.hasCV2 = true
	})
	if got := findings(s); !slices.Equal(got, texts) {
		t.Errorf("prompt lengths known: got %q, want %q", got, texts)
	}
	s = of(func(s *Steps, b *batchSources) { s.all.change(5, func(st *Step) { st.Tag = tagUnknown }) })
	if s.Quality.Unrecorded != 1 || s.Quality.Rebuilt != 0 {
		t.Errorf("the unrecorded step is unknown: got %+v", s.Quality)
	}
	s = of(func(s *Steps, b *batchSources) { b.journeys = false })
	if s.Quality.FromJourneys != 0 || s.Quality.Contradictions != 0 {
		t.Errorf("without journeys: got %+v", s.Quality)
	}
	offloading := func(events ...trace.KVEvent) string {
		s := of(func(s *Steps, b *batchSources) {
			s.Dep.Engine.CPUOffloading = true
			s.Run.KVEvents = events
		})
		return s.Findings[0].Message
	}
	if got, want := offloading(), "r: CPU offloading is on and no KV events were recorded"; got != want {
		t.Errorf("got %q, want %q", got, want)
	}
	if got := offloading(trace.KVEvent{}); got != texts[0] {
		t.Errorf("with events: got %q, want %q", got, texts[0])
	}
}

// TestCoverageByHand: 19 steps of a kind are too few, 20 are enough; more than 64 prompt tokens make a step heavy.
func TestCoverageByHand(t *testing.T) {
	step := func(prefill, decodes, context float64) Step {
		return Step{Tag: TagJourney, Recorded: -1, In: features.StepInput{
			PrefillTokens: prefill, DecodeTokens: decodes, NumDecodeReqs: decodes, DecodeContextTokens: decodes * context,
			ScheduledTokens: prefill + decodes,
		}}
	}
	s := &Steps{Run: &trace.Run{ID: "r", Steps: []trace.Step{
		{ScheduledTokens: 1, RunningDepth: 1, KVUsage: 0.3},
		{ScheduledTokens: 1, RunningDepth: 1, KVUsage: 0.95},
		{ScheduledTokens: 0, RunningDepth: 1, KVUsage: 0.5}, // ran nothing
	}}}
	var all []Step
	for range 19 {
		all = append(all, step(64, 3, 1000))
	}
	for range 20 {
		all = append(all, step(65, 0, 0), step(0, 1, 4095))
	}
	all = append(all, step(0, 2000, 200_000))
	for k := range s.Run.Steps {
		all = append(all, Step{Recorded: int32(k)}) // of unknown batches
	}
	s.all = listOf(all...)
	c := s.Coverage()
	if len(c.Findings) != 1 || c.Findings[0].Message != "r: 19 steps that mix prefill and decode, want at least 20" {
		t.Errorf("got %v", c.Findings)
	}
	if c.Heavy != 20 {
		t.Errorf("got %d heavy steps, want those with 65 tokens", c.Heavy)
	}
	counts := func(h result.Histogram) map[float64]int {
		out := map[float64]int{}
		for k, n := range h.Counts {
			if n > 0 {
				out[h.Edges[k]] = n
			}
		}
		return out
	}
	for _, h := range []struct {
		of   result.Histogram
		last float64
		want map[float64]int
	}{
		{c.PrefillTokens, 16384, map[float64]int{64: 39}},
		{c.DecodeBatch, 512, map[float64]int{1: 20, 2: 19, 512: 1}},
		{c.Context, 65536, map[float64]int{512: 19, 2048: 20, 65536: 1}},
		{c.KVUsage, 0.9, map[float64]int{0.3: 1, 0.9: 1}},
	} {
		if got := counts(h.of); !reflect.DeepEqual(got, h.want) || h.of.Edges[len(h.of.Edges)-1] != h.last {
			t.Errorf("%s: got %v up to %g, want %v up to %g", h.of.Name, got, h.of.Edges[len(h.of.Edges)-1], h.want, h.last)
		}
	}
}

// TestStepsThatMayMissARequest: steps 10 to 14 start at 0, 10 ... 40 ms; 8 and 20 are the first and last of the range.
func TestStepsThatMayMissARequest(t *testing.T) {
	all := []reconstruct.StepRange{{From: 8, To: 21}}
	some := func(v int64) trace.Opt[int64] { return trace.Some(v) }
	api := trace.Request{Source: trace.SourceFork, APIID: trace.Some("a")}
	core := trace.Request{Source: trace.SourceFork, CoreID: trace.Some("c")}
	with := func(r trace.Request, change func(r *trace.Request)) []trace.Request {
		change(&r)
		return []trace.Request{r}
	}
	for _, c := range []struct {
		name     string
		rate     trace.Opt[float64]
		unknown  int
		requests []trace.Request
		want     []reconstruct.StepRange
		finding  string
	}{
		{"all paired", trace.Some(1.0), 0, with(core, func(r *trace.Request) { r.APIID = api.APIID }), nil, ""},
		{"sampled", trace.Some(0.5), 0, nil, all, "r: journeys are sampled at 0.5"},
		{"in snapshots alone", trace.Opt[float64]{}, 3, nil, all, "r: 3 requests in the snapshots have no core span"},
		{"stock spans have no core", trace.Opt[float64]{}, 0, with(api, func(r *trace.Request) { r.Source = trace.SourceStock }), nil, ""},
		{"a core span", trace.Opt[float64]{}, 0, with(core, func(r *trace.Request) { r.QueuedStep, r.FinishedStep = some(11), some(13) }),
			[]reconstruct.StepRange{{From: 11, To: 15}}, "r: 1 spans lack their API or core partner"},
		{"one without steps", trace.Opt[float64]{}, 0, with(core, func(*trace.Request) {}), []reconstruct.StepRange{{From: 8, To: 22}}, "r: 1 spans lack their API or core partner"},
		{"an API span without stamps", trace.Opt[float64]{}, 0, with(api, func(*trace.Request) {}), all, "r: 1 spans lack their API or core partner"},
		{"before the first step", trace.Opt[float64]{}, 0, with(api, func(r *trace.Request) { r.ArrivedNs = some(-1) }),
			[]reconstruct.StepRange{{From: 10, To: 21}}, "r: 1 spans lack their API or core partner"},
		{"from the step that runs to the one after its end", trace.Opt[float64]{}, 0,
			with(api, func(r *trace.Request) { r.ArrivedNs, r.DepartedNs = some(15*ms), some(25*ms) }),
			[]reconstruct.StepRange{{From: 11, To: 14}}, "r: 1 spans lack their API or core partner"},
		{"aborted", trace.Opt[float64]{}, 0, with(api, func(r *trace.Request) { r.ArrivedNs, r.AbortedNs = some(20*ms), some(29*ms) }),
			[]reconstruct.StepRange{{From: 12, To: 14}}, "r: 1 spans lack their API or core partner"},
		{"until after the last step", trace.Opt[float64]{}, 0, with(api, func(r *trace.Request) { r.ArrivedNs, r.DepartedNs = some(19*ms), some(40*ms) }),
			[]reconstruct.StepRange{{From: 11, To: 21}}, "r: 1 spans lack their API or core partner"},
	} {
		s := &Steps{First: 8, Dep: &deploy.Deployment{}, seen: &snapshotSurvey{unknown: c.unknown}, Run: &trace.Run{ID: "r", Requests: c.requests}}
		s.Dep.Tracing.JourneySampleRate = c.rate
		for k := range int64(5) {
			s.Run.Steps = append(s.Run.Steps, trace.Step{ID: 10 + k, TsStartNs: k * 10 * ms})
		}
		got := s.lostSteps(8, 20)
		finding := ""
		for _, f := range s.Findings {
			finding += f.Message
		}
		if !reflect.DeepEqual(got, c.want) || finding != c.finding {
			t.Errorf("%s: got %v %q, want %v %q", c.name, got, finding, c.want, c.finding)
		}
	}
}

// TestSlicesAskForTheirSteps: rows of a slice are made of the summaries that start in it, and of the steps between.
func TestSlicesAskForTheirSteps(t *testing.T) {
	s := &Steps{First: 8, all: newStepList(10, false), Run: &trace.Run{Steps: []trace.Step{
		{ID: 10, TsStartNs: 100}, {ID: 12, TsStartNs: 200}, {ID: 13, TsStartNs: 300}, {ID: 15, TsStartNs: 400}}}}
	for _, c := range []struct {
		slice    *trace.Slice
		from, to int64
	}{
		{nil, 8, 18},
		{&trace.Slice{FromNs: 100, ToNs: 401}, 8, 18},
		{&trace.Slice{FromNs: 101, ToNs: 400}, 12, 15},
		{&trace.Slice{FromNs: 200, ToNs: 301}, 12, 15},
		{&trace.Slice{FromNs: 300, ToNs: 300}, 13, 13},
	} {
		s.Run.Slice = c.slice
		if from, to := s.askedSteps(); from != c.from || to != c.to {
			t.Errorf("%+v: got steps %d to %d, want %d to %d", c.slice, from, to, c.from, c.to)
		}
	}
}

// TestStatedOverheadsByHand: steps start every 10 ms but for one of 25 ms. The wait before the engine's queue is at most
// as long as the longest of the steps around it.
func TestStatedOverheadsByHand(t *testing.T) {
	s := &Steps{Run: &trace.Run{Steps: []trace.Step{
		{ID: 1, TsStartNs: 0, RunningDepth: 1}, {ID: 2, TsStartNs: 10 * ms, RunningDepth: 1}, {ID: 3, TsStartNs: 20 * ms, RunningDepth: 1},
		{ID: 4, TsStartNs: 45 * ms, RunningDepth: 1}, {ID: 5, TsStartNs: 55 * ms, RunningDepth: 1}, {ID: 6, TsStartNs: 65 * ms, RunningDepth: 1},
		{ID: 7, TsStartNs: 75 * ms, RunningDepth: 1}}}}
	// A request sent delayMs before it was queued; the server states 5 ms of queue and 7 ms from there to the token.
	observed := func(queuedMs, delayMs int64) trace.ObservedRequest {
		return trace.ObservedRequest{
			SendNs: trace.Some((queuedMs - delayMs) * ms), FirstChunkNs: trace.Some((queuedMs + 12) * ms), LastChunkNs: trace.Some((queuedMs + 90) * ms),
			TTFTUs: trace.Some(float64(12+delayMs) * 1e3), QueueUs: trace.Some(5e3), ServerTTFTUs: trace.Some(7e3),
		}
	}
	s.Run.Observed = []trace.ObservedRequest{observed(12, 30), observed(22, 30), observed(66, 12), observed(67, 4)}
	got := s.boundStatedOverheads()
	for i, want := range []trace.OverheadBound{
		{LoUs: 5_000, HiUs: 30_000, OK: true}, // steps 2 to 4 of 10, 10 and 25 ms follow one another
		{LoUs: 5_000, HiUs: 30_000, OK: true}, // the step of 25 ms runs
		{LoUs: 2_000, HiUs: 12_000, OK: true}, // 10 ms
		{LoUs: 0, HiUs: 4_000, OK: true},
	} {
		if got[i] != want {
			t.Errorf("request %d: got %+v, want %+v", i, got[i], want)
		}
	}
}

func TestSharesOfPrompts(t *testing.T) {
	some := func(v int64) trace.Opt[int64] { return trace.Some(v) }
	for _, c := range []struct {
		s    trace.Snapshot
		want float64
	}{
		{trace.Snapshot{}, 0},
		{trace.Snapshot{PromptTokens: 1, ComputedTokens: 1}, 1},
		{trace.Snapshot{PromptTokens: 200, EffectivePromptLen: some(150)}, 0.25},
		{trace.Snapshot{PromptTokens: 200, ComputedTokens: 80}, 0.4},
		{trace.Snapshot{PromptTokens: 200, ComputedTokens: 300}, 1},
	} {
		if got := prefixHit11(&c.s); math.Abs(got-c.want) > 1e-12 {
			t.Errorf("%+v: got %g, want %g", c.s, got, c.want)
		}
	}
	// Of 10 blocks of 16 tokens 3 sequences leave 3*15/2 empty, and 40 tokens are of prompts.
	step := trace.Step{NumPrefillReqs: 1, NumDecodeReqs: 2, PrefillTokens: 40, BlocksTotal: 100, BlocksFree: 90}
	if got, want := contextFromBlocks(&step, 16), 160-22.5-40; got != want {
		t.Errorf("context: got %g, want %g", got, want)
	}
	step.BlocksFree = 98
	if got := contextFromBlocks(&step, 16); got != 2 {
		t.Errorf("context: got %g, want a token per decode", got)
	}
	step.NumDecodeReqs = 0
	if got := contextFromBlocks(&step, 16); got != 0 {
		t.Errorf("context without decodes: got %g", got)
	}
	// The variance of 1, 2, 3, 6 is (4+1+0+9)/4, the mean 3.
	if got := squaredVariation([]float64{1, 2, 3, 6}); math.Abs(got-3.5/9) > 1e-12 {
		t.Errorf("variation: got %g, want 3.5/9", got)
	}
	if squaredVariation(nil) != 0 || squaredVariation([]float64{1, -1}) != 0 {
		t.Error("no values, or a mean of 0, vary")
	}
}

func TestLongestRequestInABlock(t *testing.T) {
	some := func(v int64) trace.Opt[int64] { return trace.Some(v) }
	run := &trace.Run{
		Requests: []trace.Request{
			{ArrivedNs: some(99), DepartedNs: some(999)}, // before
			{ArrivedNs: some(100), DepartedNs: some(130)},
			{ArrivedNs: some(150)}, // never left
			{ArrivedNs: some(200), DepartedNs: some(999)},
		},
		Observed: []trace.ObservedRequest{
			{SendNs: some(199), LastChunkNs: some(240)}, {SendNs: some(120)}, {LastChunkNs: some(150)}, {SendNs: some(200), LastChunkNs: some(900)}},
	}
	if got := longestNs(run, 100, 200); got != 41 {
		t.Errorf("got %d ns, want those of the client, 41", got)
	}
	run.Observed = nil
	if got := longestNs(run, 100, 200); got != 30 {
		t.Errorf("got %d ns, want those of the span, 30", got)
	}
}

func TestDefaultTargets(t *testing.T) {
	for v, want := range map[features.Version][2]string{features.V10: {"duration", "queue"}, features.V11: {"cadence", "overhead"}} {
		if got := [2]string{DefaultBetaTarget(v), DefaultAlphaTarget(v)}; got != want {
			t.Errorf("%s: got %v, want %v", v, got, want)
		}
	}
}
