package rows

import (
	"cmp"
	"encoding/json"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"slices"
	"testing"

	"github.com/blis-train/blis-train/coeff"
	"github.com/blis-train/blis-train/deploy"
	"github.com/blis-train/blis-train/internal/repo"
	"github.com/blis-train/blis-train/pipeline/features"
	"github.com/blis-train/blis-train/trace"
)

// golden holds the parts of the golden file this package answers for.
type golden struct {
	Relative float64      `json:"tolerance_relative"`
	Zero     float64      `json:"tolerance_absolute_zero"`
	Cases    goldenSource `json:"sourcing_cases"`
}

type goldenSource struct {
	Rich []struct {
		ID        string             `json:"id"`
		Summary   map[string]float64 `json:"summary"`
		Snapshots []map[string]any   `json:"snapshots"`
		V10       map[string]float64 `json:"expected_1_0"`
		V11       map[string]float64 `json:"expected_1_1"`
	} `json:"rich_steps"`
	SummaryOnly []struct {
		ID        string             `json:"id"`
		Summary   map[string]float64 `json:"summary"`
		BlockSize int64              `json:"block_size"`
		Chunked   bool               `json:"chunked_prefill_enabled"`
		CV2       float64            `json:"cv2"`
		V11       map[string]float64 `json:"expected_1_1"`
		Reason    string             `json:"reason"`
	} `json:"summary_only_steps"`
	Journeys []goldenJourney `json:"journey_reconstruction"`
	Hits     []struct {
		ID       string         `json:"id"`
		Snapshot map[string]any `json:"snapshot"`
		Expected float64        `json:"expected"`
	} `json:"prefix_hit_1_1"`
	Transfers []struct {
		ID       string  `json:"id"`
		Events   [][]any `json:"events"`
		Expected []struct {
			Step int64 `json:"step"`
			Out  int64 `json:"transfer_blocks"`
			In   int64 `json:"cpu_resident_read_blocks"`
		} `json:"expected"`
	} `json:"transfers"`
	Joins []struct {
		Starts   []int64 `json:"step_ts_start_ns"`
		QueuedNs int64   `json:"queued_ns"`
		Expected *int    `json:"expected_index"`
	} `json:"alpha_join"`
	Targets []goldenTarget  `json:"alpha_target"`
	Cadence []goldenCadence `json:"cadence_rows"`
	Frozen  struct {
		FreeBytes []struct {
			Blocks     float64 `json:"total_blocks"`
			BlockBytes float64 `json:"block_size_bytes"`
			Usage      float64 `json:"usage"`
			Expected   float64 `json:"expected"`
		} `json:"kv_free_bytes"`
		Work []struct {
			Requests [][2]int64 `json:"requests"`
			Expected float64    `json:"expected"`
		} `json:"prefill_attn_work"`
		NonRich []struct {
			Tokens   int64     `json:"prefill_tokens"`
			Reqs     int64     `json:"num_prefill_reqs"`
			Lengths  []float64 `json:"prompt_lengths"`
			CV2      float64   `json:"cv2"`
			Expected float64   `json:"expected"`
		} `json:"nonrich_prefill_attn_work"`
		Context []struct {
			Usage    float64 `json:"usage"`
			Blocks   int64   `json:"total_blocks"`
			Block    int64   `json:"block_tokens"`
			Decode   int64   `json:"num_decode"`
			Running  int64   `json:"running"`
			Expected float64 `json:"expected"`
		} `json:"nonrich_decode_context"`
		Hits []struct {
			Cached    int64   `json:"cached"`
			Allocated int64   `json:"allocated"`
			Expected  float64 `json:"expected"`
		} `json:"prefix_hit_ratio_training_frozen"`
		Targets []struct {
			QueuedNs    int64   `json:"queued_ns"`
			ScheduledNs int64   `json:"scheduled_ns"`
			Expected    float64 `json:"expected"`
		} `json:"alpha_target_us"`
	} `json:"frozen"`
}

type goldenJourney struct {
	ID       string `json:"id"`
	Requests []struct {
		ID         string `json:"id"`
		Prompt     int64  `json:"prompt"`
		Cached     *int64 `json:"cached"`
		Scheduled  int64  `json:"scheduled"`
		FirstToken int64  `json:"first_token"`
		Finished   int64  `json:"finished"`
		Outputs    int64  `json:"outputs"`
		Preempted  bool   `json:"preempted"`
	} `json:"requests"`
	Budget int64 `json:"max_batched_tokens"`
	Steps  []struct {
		Step     int64 `json:"step"`
		Requests []struct {
			ID       string `json:"id"`
			Computed int64  `json:"computed"`
			Prompt   int64  `json:"prompt"`
			N        int64  `json:"n"`
		} `json:"requests"`
		Inputs map[string]float64 `json:"inputs"`
	} `json:"expected_steps"`
	Unknown []int64 `json:"expected_unknown_steps"`
}

type goldenTarget struct {
	Target      string      `json:"target"`
	ArrivedS    *float64    `json:"arrived_s"`
	DepartedS   *float64    `json:"departed_s"`
	QueuedNs    *int64      `json:"queued_ns"`
	ScheduledNs *int64      `json:"scheduled_ns"`
	FinishedNs  *int64      `json:"finished_ns"`
	PriorNs     *int64      `json:"prior_step_ts_start_ns"`
	Exact       bool        `json:"exact"`
	Us          *float64    `json:"expected_us"`
	Interval    *[2]float64 `json:"expected_interval_us"`
	Reason      string      `json:"reason"`
}

type goldenCadence struct {
	ID    string `json:"id"`
	Lag   int    `json:"lag"`
	Steps []struct {
		ID   int64 `json:"id"`
		Ts   int64 `json:"ts"`
		Busy bool  `json:"busy"`
	} `json:"steps"`
	Expected []struct {
		Step    int64   `json:"step"`
		Feature int64   `json:"feature_step"`
		Y       float64 `json:"y_us"`
	} `json:"expected"`
}

// TestGolden runs the golden vectors of sourcing, joins and targets (01
// sections 8 and 9) and of cleaning (section 10). BLIS_TRAIN_GOLDEN and
// BLIS_TRAIN_GOLDEN_RIDGE move the files.
func TestGolden(t *testing.T) {
	g := loadGolden(t)
	n := g.Cases.Frozen
	for _, kind := range []struct {
		name string
		n    int
		run  func(*testing.T, *golden)
	}{
		{"rich_steps", len(g.Cases.Rich), goldenRich},
		{"summary_only_steps", len(g.Cases.SummaryOnly), goldenSummaryOnly},
		{"journey_reconstruction", len(g.Cases.Journeys), goldenJourneys},
		{"prefix_hit_1_1", len(g.Cases.Hits), goldenHits},
		{"transfers", len(g.Cases.Transfers), goldenTransfers},
		{"alpha_join", len(g.Cases.Joins), goldenJoins},
		{"alpha_target", len(g.Cases.Targets), goldenTargets},
		{"cadence_rows", len(g.Cases.Cadence), goldenCadenceRows},
		{"frozen", len(n.FreeBytes) + len(n.Work) + len(n.NonRich) + len(n.Context) + len(n.Hits) + len(n.Targets), goldenFrozen},
	} {
		t.Run(kind.name, func(t *testing.T) {
			if kind.n == 0 {
				t.Fatal("no cases")
			}
			kind.run(t, g)
		})
		fmt.Printf("golden: %d cases %s\n", kind.n, kind.name)
	}
	t.Run("cleaning", goldenCleaning)
}

func loadGolden(t *testing.T) *golden {
	t.Helper()
	path := os.Getenv("BLIS_TRAIN_GOLDEN")
	if path == "" {
		path = "testdata/sourcing_golden.json"
	}
	b := repo.Read(t, path)
	g := new(golden)
	if err := json.Unmarshal(b, g); err != nil {
		t.Fatalf("%s: %v", path, err)
	}
	return g
}

func (g *golden) near(t *testing.T, what string, got, want float64) {
	t.Helper()
	if want == 0 {
		if math.Abs(got) > g.Zero {
			t.Errorf("%s: got %g, want 0", what, got)
		}
	} else if math.Abs(got-want) > g.Relative*math.Abs(want) {
		t.Errorf("%s: got %.17g, want %.17g", what, got, want)
	}
}

func (g *golden) inputs(t *testing.T, what string, got features.StepInput, want map[string]float64) {
	t.Helper()
	if len(want) == 0 {
		t.Fatalf("%s: no expected inputs", what)
	}
	seen := 0
	for _, v := range got.Values() {
		if w, ok := want[v.Name]; ok {
			g.near(t, what+": "+v.Name, v.Value, w)
			seen++
		}
	}
	if seen != len(want) {
		t.Errorf("%s: compared %d of %d expected inputs", what, seen, len(want))
	}
}

func stepOf(m map[string]float64) trace.Step {
	at := func(key string) int64 { return int64(m[key]) }
	return trace.Step{ID: at("step.id"), TsStartNs: at("step.ts_start_ns"), TsEndNs: at("step.ts_end_ns"), DurationUs: at("step.duration_us"),
		RunningDepth: at("queue.running_depth"), WaitingDepth: at("queue.waiting_depth"),
		NumPrefillReqs: at("batch.num_prefill_reqs"), NumDecodeReqs: at("batch.num_decode_reqs"), ScheduledTokens: at("batch.scheduled_tokens"),
		PrefillTokens: at("batch.prefill_tokens"), DecodeTokens: at("batch.decode_tokens"),
		NumFinished: at("batch.num_finished"), NumPreempted: at("batch.num_preempted"),
		KVUsage: m["kv.usage_gpu_ratio"], BlocksTotal: at("kv.blocks_total_gpu"), BlocksFree: at("kv.blocks_free_gpu")}
}

func snapshotOf(m map[string]any) trace.Snapshot {
	at := func(key string) int64 { v, _ := m[key].(float64); return int64(v) }
	phase, _ := m["request.phase"].(string)
	id, _ := m["request.id"].(string)
	s := trace.Snapshot{StepID: at("step.id"), CoreID: id, Phase: phase, PromptTokens: at("request.num_prompt_tokens"),
		ComputedTokens: at("request.num_computed_tokens"), OutputTokens: at("request.num_output_tokens"),
		Preemptions: at("request.num_preemptions"), ScheduledTokens: at("request.scheduled_tokens_this_step"),
		BlocksAllocated: at("kv.blocks_allocated_gpu"), BlocksCached: at("kv.blocks_cached_gpu")}
	if _, ok := m["request.effective_prompt_len"]; ok {
		s.EffectivePromptLen = trace.Some(at("request.effective_prompt_len"))
	}
	return s
}

func goldenRich(t *testing.T, g *golden) {
	for _, c := range g.Cases.Rich {
		run := &trace.Run{ID: c.ID, Steps: []trace.Step{stepOf(c.Summary)}}
		for _, m := range c.Snapshots {
			run.Snapshots = append(run.Snapshots, snapshotOf(m))
		}
		for v, want := range map[features.Version]map[string]float64{features.V10: c.V10, features.V11: c.V11} {
			s := mustRebuild(t, run, testDeployment(), v)
			st := s.At(run.Steps[0].ID)
			if st.Tag != TagRich {
				t.Errorf("%s %s: tag: got %s, want rich", c.ID, v, st.Tag)
			}
			g.inputs(t, c.ID+" "+string(v), st.In, want)
		}
	}
}

func goldenSummaryOnly(t *testing.T, g *golden) {
	for _, c := range g.Cases.SummaryOnly {
		d := testDeployment()
		d.Engine.BlockSize, d.Engine.ChunkedPrefill = c.BlockSize, c.Chunked
		step := stepOf(c.Summary)
		in, why := summary11(&step, d, c.CV2, false)
		if (why != "") != (c.Reason != "") || why != "" && why != chunkedTotals {
			t.Errorf("%s: reason: got %q, want %q", c.ID, why, c.Reason)
		}
		if c.Reason == "" {
			g.inputs(t, c.ID, in, c.V11)
		}
	}
}

// journeyRun makes the run of a reconstruction case, without summaries: one
// lone summary far behind gives the run an extent.
func journeyRun(c *goldenJourney) (*trace.Run, *deploy.Deployment) {
	d := testDeployment()
	d.Engine.MaxNumBatchedTokens, d.Engine.PrefixCaching = c.Budget, true
	d.Engine.AsyncScheduling = trace.Some(false)
	run := &trace.Run{ID: c.ID}
	last := int64(0)
	for _, r := range c.Requests {
		q := trace.Request{Source: trace.SourceFork, CoreID: trace.Some(r.ID), APIID: trace.Some(r.ID), PromptTokens: trace.Some(r.Prompt),
			OutputTokens: trace.Some(r.Outputs), ScheduledStep: trace.Some(r.Scheduled), FirstTokenStep: trace.Some(r.FirstToken),
			FinishedStep: trace.Some(r.Finished), FinishStatus: trace.Some(trace.FinishLength)}
		if r.Preempted {
			q.Preemptions = trace.Some(int64(1))
		}
		if r.Cached != nil {
			// the golden cases state the cached tokens; a snapshot does in a run
			run.Snapshots = append(run.Snapshots, trace.Snapshot{StepID: r.Scheduled, CoreID: r.ID, PromptTokens: r.Prompt,
				ComputedTokens: *r.Cached, ScheduledTokens: 1, Orphan: true})
		}
		run.Requests = append(run.Requests, q)
		last = max(last, r.Finished)
	}
	run.Steps = []trace.Step{{ID: last + 100}}
	return run, d
}

func goldenJourneys(t *testing.T, g *golden) {
	for i := range g.Cases.Journeys {
		c := &g.Cases.Journeys[i]
		run, d := journeyRun(c)
		s := mustRebuild(t, run, d, features.V11)
		for _, want := range c.Steps {
			st := s.At(want.Step)
			if st == nil || st.Tag != TagJourney {
				t.Errorf("%s: step %d is not known", c.ID, want.Step)
				continue
			}
			var members []trace.Member
			for _, r := range want.Requests {
				members = append(members, trace.Member{CoreID: r.ID, Chunk: trace.Chunk{Computed: r.Computed, Prompt: r.Prompt, New: r.N}})
			}
			got, err := s.Members(want.Step)
			if err != nil || !sameMembers(got, members) {
				t.Errorf("%s: step %d: got %v, want %v", c.ID, want.Step, got, members)
			}
			g.inputs(t, fmt.Sprintf("%s: step %d", c.ID, want.Step), st.In, want.Inputs)
		}
		for _, id := range c.Unknown {
			if st := s.At(id); st.Known() {
				t.Errorf("%s: step %d is known, want unknown", c.ID, id)
			}
		}
	}
}

func goldenHits(t *testing.T, g *golden) {
	for _, c := range g.Cases.Hits {
		s := snapshotOf(c.Snapshot)
		g.near(t, c.ID, prefixHit11(&s), c.Expected)
	}
}

func goldenTransfers(t *testing.T, g *golden) {
	for _, c := range g.Cases.Transfers {
		var events []trace.KVEvent
		for _, e := range c.Events {
			k := trace.KVEvent{Kind: e[0].(string), TransferID: trace.Some(int64(e[1].(float64))), RequestID: trace.Some(e[2].(string)),
				SrcMedium: trace.Some(e[3].(string)), DstMedium: trace.Some(e[4].(string)), BlockCount: trace.Some(int64(e[5].(float64)))}
			if k.Kind == "TransferCompleted" {
				k.Success = trace.Some(e[6].(bool))
			}
			k.Step = trace.Some(int64(e[len(e)-1].(float64)))
			events = append(events, k)
		}
		got := sumTransfers(events)
		if len(got) != len(c.Expected) {
			t.Fatalf("%s: got %v, want %v", c.ID, got, c.Expected)
		}
		for i, w := range c.Expected {
			if got[i] != (transfers{step: w.Step, out: w.Out, in: w.In}) {
				t.Errorf("%s: got %v, want %v", c.ID, got[i], w)
			}
		}
	}
}

func goldenJoins(t *testing.T, g *golden) {
	for _, c := range g.Cases.Joins {
		want := -1
		if c.Expected != nil {
			want = *c.Expected
		}
		var steps []trace.Step
		for _, ns := range c.Starts {
			steps = append(steps, trace.Step{TsStartNs: ns})
		}
		if got := lastStart(steps, c.QueuedNs); got != want {
			t.Errorf("queued %d: got step %d, want %d", c.QueuedNs, got, want)
		}
	}
}

func optNs(p *int64) trace.Opt[int64] {
	if p == nil {
		return trace.Opt[int64]{}
	}
	return trace.Some(*p)
}

func secondsNs(p *float64) trace.Opt[int64] {
	if p == nil {
		return trace.Opt[int64]{}
	}
	return trace.Some(int64(math.RoundToEven(*p * 1e9)))
}

// goldenTargets forms each target from a whole run: the request, one step
// before it where the case has one, and for exact cases an idle server.
func goldenTargets(t *testing.T, g *golden) {
	for i, c := range g.Cases.Targets {
		what := fmt.Sprintf("target %d %s", i, c.Target)
		r := trace.Request{Source: trace.SourceFork, CoreID: trace.Some("r"), APIID: trace.Some("r"), APISpanID: trace.Some("a"),
			PromptTokens: trace.Some(int64(10)), ArrivedNs: secondsNs(c.ArrivedS), DepartedNs: secondsNs(c.DepartedS),
			QueuedNs: optNs(c.QueuedNs), ScheduledNs: optNs(c.ScheduledNs), FinishedNs: optNs(c.FinishedNs)}
		if !r.QueuedNs.OK {
			r.QueuedNs = trace.Some(min(r.ScheduledNs.Or(math.MaxInt64), r.FinishedNs.Or(math.MaxInt64)))
		}
		b := &alphaBuilder{s: &Steps{Run: &trace.Run{Requests: []trace.Request{r}}}, o: Options{Target: c.Target}}
		if c.Target == coeff.Overhead {
			if c.PriorNs != nil {
				step := trace.Step{ID: 1, TsStartNs: *c.PriorNs, RunningDepth: 1}
				if c.Exact {
					step.RunningDepth = 0
				}
				b.s.Run.Steps = []trace.Step{step}
			}
			b.bound = overheads(b.s.Run, c.Exact || c.PriorNs != nil)
			if b.bound[0].Exact != c.Exact {
				t.Errorf("%s: exact: got %t, want %t", what, b.bound[0].Exact, c.Exact)
			}
		}
		v, why := b.target(0)
		if (why != "") != (c.Reason != "") || why != "" && why != codeNoTarget {
			t.Errorf("%s: reason: got %q, want %q", what, why, c.Reason)
		}
		if c.Us != nil {
			g.near(t, what, v.y, *c.Us)
		}
		if c.Interval != nil {
			g.near(t, what+" lower", v.lo, c.Interval[0])
			g.near(t, what+" upper", v.hi, c.Interval[1])
		}
	}
}

// goldenCadenceRows makes cadence rows of steps whose batches come from complete
// snapshots: one prompt chunk each when busy, so that no row is approximated.
func goldenCadenceRows(t *testing.T, g *golden) {
	for _, c := range g.Cases.Cadence {
		run := &trace.Run{ID: c.ID}
		for _, st := range c.Steps {
			step := trace.Step{ID: st.ID, TsStartNs: st.Ts}
			if st.Busy {
				step.RunningDepth, step.NumPrefillReqs, step.PrefillTokens, step.ScheduledTokens = 1, 1, 9, 9
				run.Snapshots = append(run.Snapshots, trace.Snapshot{StepID: st.ID, CoreID: "r", Phase: "PREFILL", PromptTokens: 100,
					ScheduledTokens: 9})
			}
			run.Steps = append(run.Steps, step)
		}
		d := testDeployment()
		d.Phases = []deploy.Phase{{Name: deploy.WarmupPhase, StartNs: 0, EndNs: 1}} // no step is warm-up
		s := mustRebuild(t, run, d, features.V11)
		table, err := s.Beta(testSpace(t, d, features.V11), Options{Lag: c.Lag})
		if err != nil {
			t.Fatal(err)
		}
		if table.Kept != len(c.Expected) {
			t.Fatalf("%s: got %d rows from steps %v, want %d", c.ID, table.Kept, table.FirstStep, len(c.Expected))
		}
		for i, w := range c.Expected {
			start := c.Steps[slices.IndexFunc(c.Steps, func(st struct {
				ID   int64 `json:"id"`
				Ts   int64 `json:"ts"`
				Busy bool  `json:"busy"`
			}) bool {
				return st.ID == w.Step
			})].Ts
			if table.FirstStep[i] != w.Feature || table.TimeNs[i] != start || table.Steps[i] != 1 {
				t.Errorf("%s row %d: got feature step %d at %d, want %d at %d", c.ID, i, table.FirstStep[i], table.TimeNs[i], w.Feature, start)
			}
			g.near(t, c.ID, table.Y[i], w.Y)
		}
	}
}

func goldenFrozen(t *testing.T, g *golden) {
	f := &g.Cases.Frozen
	for _, c := range f.FreeBytes {
		d := testDeployment()
		sp := testSpace(t, d, features.V10)
		// the case states a block's bytes; the space derives its own
		perBlock := sp.KVFreeBytes(1, 0)
		g.near(t, "kv_free_bytes", sp.KVFreeBytes(c.Blocks, c.Usage)*(c.BlockBytes/perBlock), c.Expected)
	}
	for _, c := range f.Work {
		var chunks []trace.Chunk
		for _, r := range c.Requests {
			chunks = append(chunks, trace.Chunk{Computed: r[0], Prompt: 1 << 40, New: r[1]})
		}
		g.near(t, "prefill_attn_work", features.Sum(features.V10, chunks).SumPrefillAttnWork, c.Expected)
	}
	for _, c := range f.NonRich {
		g.near(t, "cv2", squaredVariation(c.Lengths), c.CV2)
		g.near(t, "nonrich_prefill_attn_work", nonRichPrefillWork10(c.Tokens, c.Reqs, c.CV2), c.Expected)
	}
	for _, c := range f.Context {
		g.near(t, "nonrich_decode_context", nonRichDecodeContext10(c.Usage, c.Blocks, c.Block, c.Decode, c.Running), c.Expected)
	}
	for _, c := range f.Hits {
		g.near(t, "prefix_hit_ratio_training_frozen", prefixHit10(c.Cached, c.Allocated), c.Expected)
	}
	for _, c := range f.Targets {
		g.near(t, "alpha_target_us", SpanUs(c.QueuedNs, c.ScheduledNs), c.Expected)
	}
}

type cleaningCase struct {
	Rows []struct {
		Trace     string  `json:"trace"`
		Config    string  `json:"config"`
		Step      int64   `json:"step"`
		Regime    string  `json:"regime"`
		Target    float64 `json:"target"`
		Preempted int64   `json:"num_preempted"`
		Running   int64   `json:"running_depth"`
	} `json:"rows"`
	Frozen struct {
		Kept    []int     `json:"kept"`
		Weights []float64 `json:"weights"`
	} `json:"frozen"`
	Relative struct {
		Kept []int `json:"kept"`
	} `json:"relative"`
}

// goldenCleaning runs the cleaning on shuffled rows of several engine runs.
func goldenCleaning(t *testing.T) {
	dir := os.Getenv("BLIS_TRAIN_GOLDEN_RIDGE")
	if dir == "" {
		dir = "testdata"
	}
	files, err := filepath.Glob(filepath.Join(dir, "cleaning_*.json"))
	if err != nil || len(files) == 0 {
		t.Fatalf("%s: no cleaning_*.json (%v)", dir, err)
	}
	for _, file := range files {
		b := repo.Read(t, file)
		var c cleaningCase
		if err := json.Unmarshal(b, &c); err != nil {
			t.Fatalf("%s: %v", file, err)
		}
		for _, r := range []struct {
			recipe Recipe
			want   []int
		}{{Frozen, c.Frozen.Kept}, {Relative, c.Relative.Kept}} {
			kept, weights := c.clean(r.recipe)
			if !slices.Equal(kept, r.want) {
				t.Errorf("%s %s: kept %v, want %v", filepath.Base(file), r.recipe, kept, r.want)
			}
			if r.recipe == Frozen && !slices.Equal(weights, c.Frozen.Weights) {
				t.Errorf("%s: weights %v, want %v", filepath.Base(file), weights, c.Frozen.Weights)
			}
		}
	}
	fmt.Printf("golden: %d cases cleaning\n", 2*len(files))
}

// clean brings the rows into one table per engine run, in step order, and
// returns the positions and factors that survive.
func (c *cleaningCase) clean(recipe Recipe) (kept []int, weights []float64) {
	var order []int
	for i := range c.Rows {
		order = append(order, i)
	}
	slices.SortFunc(order, func(a, b int) int {
		return cmp.Or(cmp.Compare(c.Rows[a].Trace, c.Rows[b].Trace), cmp.Compare(c.Rows[a].Step, c.Rows[b].Step))
	})
	var tables []*Table
	for len(order) > 0 {
		n := 0
		for n < len(order) && c.Rows[order[n]].Trace == c.Rows[order[0]].Trace {
			n++
		}
		tables = append(tables, c.table(order[:n]))
		order = order[n:]
	}
	Clean(tables, recipe)
	factor := make(map[int]float64)
	for _, t := range tables {
		for i := range t.Kept {
			kept = append(kept, int(t.FirstStep[i]))
			factor[int(t.FirstStep[i])] = t.Factor[i]
		}
	}
	slices.Sort(kept)
	for _, k := range kept {
		weights = append(weights, factor[k])
	}
	return kept, weights
}

// table applies warm-up and factors to one engine run; FirstStep carries the position.
func (c *cleaningCase) table(order []int) *Table {
	var steps []trace.Step
	for _, i := range order {
		steps = append(steps, trace.Step{ID: c.Rows[i].Step})
	}
	warm := (&Steps{Run: &trace.Run{Steps: steps}, Dep: new(deploy.Deployment)}).newWarmUp()
	regimes := map[string]Regime{"decode": Decode, "prefill": Prefill, "mixed": Mixed}
	t := &Table{Config: c.Rows[order[0]].Config, Target: coeff.Cadence}
	for _, i := range order {
		r := &c.Rows[i]
		t.Read++
		if warm.holds(0, r.Step) {
			t.drop(codeWarmUp, 1)
			continue
		}
		t.Kept++
		t.Y, t.Steps, t.Regime = append(t.Y, r.Target), append(t.Steps, 1), append(t.Regime, regimes[r.Regime])
		t.Factor, t.FirstStep = append(t.Factor, preemptionFactor(r.Preempted, r.Running)), append(t.FirstStep, int64(i))
	}
	return t
}

func mustRebuild(t *testing.T, run *trace.Run, d *deploy.Deployment, v features.Version) *Steps {
	t.Helper()
	s, err := Rebuild(run, d, v)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

func testSpace(t *testing.T, d *deploy.Deployment, v features.Version) *features.Space {
	t.Helper()
	sp, err := features.New(v, d)
	if err != nil {
		t.Fatal(err)
	}
	return sp
}

// testDeployment is LLaMA-3-8B on one H100 (spec#worked-example).
func testDeployment() *deploy.Deployment {
	return &deploy.Deployment{
		Name: "test", TP: 1, PP: 1, DP: 1,
		Model: deploy.Model{ID: "llama-3-8b", ModelType: "llama", NumLayers: 32, HiddenSize: 4096, NumHeads: 32, NumKVHeads: 8, HeadDim: 128,
			IntermediateSize: 14336, VocabSize: 128256, NumMLPProj: 3, BytesPerParam: 2, BytesPerWeight: 2, BytesPerKV: 2,
			BytesPerActivation: 2, BytesPerLMHead: 2, LinearCompute: "native"},
		Hardware: deploy.Hardware{Name: "H100", TFlopsPeak: 989.5, BwPeakTBs: 3.35, MemoryGB: 80, PCIeBandwidthGBs: 64, PCIeEfficiency: 0.75,
			InterconnectBandwidthGBs: 900, InterconnectLatencyUs: 10},
		Engine: deploy.Engine{VLLMVersion: "0.15.1", MaxNumSeqs: 256, MaxNumBatchedTokens: 8192, ChunkedPrefill: true, BlockSize: 16,
			GPUMemoryUtilization: 0.9, KVBlocksGPU: trace.Some(int64(4000)), SchedulingPolicy: "fcfs"},
	}
}
