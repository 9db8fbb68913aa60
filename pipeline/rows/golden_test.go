package rows

import (
	"cmp"
	"encoding/json"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"testing"

	"github.com/blis-train/blis-train/coeff"
	"github.com/blis-train/blis-train/deploy"
	"github.com/blis-train/blis-train/internal/repo"
	"github.com/blis-train/blis-train/model"
	"github.com/blis-train/blis-train/pipeline/features"
	"github.com/blis-train/blis-train/reconstruct"
	"github.com/blis-train/blis-train/trace"
	"github.com/blis-train/blis-train/trace/table"
	"github.com/blis-train/blis-train/vllm"
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
		RunningDepth: int32(at("queue.running_depth")), WaitingDepth: int32(at("queue.waiting_depth")),
		NumPrefillReqs: int32(at("batch.num_prefill_reqs")), NumDecodeReqs: int32(at("batch.num_decode_reqs")), ScheduledTokens: int32(at("batch.scheduled_tokens")),
		PrefillTokens: int32(at("batch.prefill_tokens")), DecodeTokens: int32(at("batch.decode_tokens")),
		NumFinished: int32(at("batch.num_finished")), NumPreempted: int32(at("batch.num_preempted")),
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
		d.Engine.BlockSize = c.BlockSize
		d.Engine.ChunkedPrefill = c.Chunked
		step := stepOf(c.Summary)
		in, why := summary11(&step, d, c.CV2, false)
		if (why != reconstruct.Known) != (c.Reason != "") || why != reconstruct.Known && why != reconstruct.ChunkedTotals {
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
	d.Engine.MaxNumBatchedTokens = c.Budget
	d.Engine.PrefixCaching = true
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
			if got[i] != (stepTransfers{step: w.Step, out: w.Out, in: w.In}) {
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
			b.burst = followBurst(b.s.Run.Requests)
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
				step.RunningDepth = 1
				step.NumPrefillReqs = 1
				step.PrefillTokens = 9
				step.ScheduledTokens = 9
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
		if warm.isWarmUp(0, r.Step) {
			t.countDrop(codeWarmUp, 1)
			continue
		}
		t.Kept++
		t.Y = append(t.Y, r.Target)
		t.Steps = append(t.Steps, 1)
		t.Regime = append(t.Regime, regimes[r.Regime])
		t.Factor = append(t.Factor, preemptionFactor(r.Preempted, r.Running))
		t.FirstStep = append(t.FirstStep, int64(i))
	}
	return t
}

func mustRebuild(t *testing.T, run *trace.Run, d *deploy.Deployment, v features.Version) *Steps {
	t.Helper()
	s, err := Rebuild(withCachedTokens(run), d, v)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// withCachedTokens sets the cached tokens of each request to those of its first snapshot, as
// extraction does.
func withCachedTokens(run *trace.Run) *trace.Run {
	out := *run
	out.Requests = slices.Clone(run.Requests)
	first := map[string]*trace.Snapshot{}
	for i := range run.Snapshots {
		q := &run.Snapshots[i]
		if before := first[q.CoreID]; q.ScheduledTokens > 0 && (before == nil || q.StepID < before.StepID) {
			first[q.CoreID] = q
		}
	}
	for i := range out.Requests {
		r := &out.Requests[i]
		switch q := first[r.CoreID.V]; {
		case q == nil:
		case q.StepID == r.ScheduledStep.V:
			r.CachedTokens = trace.Some(q.ComputedTokens)
		case q.EffectivePromptLen.OK:
			r.CachedTokens = trace.Some(q.PromptTokens - q.EffectivePromptLen.V)
		}
	}
	return &out
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
		Model: model.Model{ID: "llama-3-8b", ModelType: "llama", NumLayers: 32, HiddenSize: 4096, NumHeads: 32, NumKVHeads: 8, HeadDim: 128,
			IntermediateSize: 14336, VocabSize: 128256, NumMLPProj: 3, BytesPerParam: 2, BytesPerWeight: 2, BytesPerKV: 2,
			BytesPerActivation: 2, BytesPerLMHead: 2, LinearCompute: "native"},
		Hardware: deploy.Hardware{Name: "H100", TFlopsPeak: 989.5, BwPeakTBs: 3.35, MemoryGB: 80, PCIeBandwidthGBs: 64, PCIeEfficiency: 0.75,
			InterconnectBandwidthGBs: 900, InterconnectLatencyUs: 10},
		Engine: vllm.Engine{VLLMVersion: "0.15.1", MaxNumSeqs: 256, MaxNumBatchedTokens: 8192, ChunkedPrefill: true, BlockSize: 16,
			GPUMemoryUtilization: 0.9, KVBlocksGPU: trace.Some(int64(4000)), SchedulingPolicy: "fcfs"},
	}
}

func yTable(config string, regime Regime, ys ...float64) *Table {
	t := &Table{Config: config, Target: coeff.Cadence, Read: len(ys), Kept: len(ys), Y: ys}
	for i := range ys {
		t.Steps = append(t.Steps, 1)
		t.Regime = append(t.Regime, regime)
		t.FirstStep = append(t.FirstStep, int64(i))
	}
	return t
}

// TestOutliers: strict, per step, per cell in the relative recipe and per
// configuration in the frozen one, pooled over runs.
func TestOutliers(t *testing.T) {
	for _, c := range []struct {
		recipe Recipe
		want   [3]int
	}{{Relative, [3]int{4, 2, 3}}, {Frozen, [3]int{5, 0, 3}}} {
		a := yTable("A", Decode, 10, 10, 10, 50, 51)
		b := yTable("A", Prefill, 1000, 1100)
		other := yTable("B", Decode, 1000, 1000, 1000)
		findings := Clean([]*Table{a, b, other}, c.recipe)
		if got := [3]int{a.Kept, b.Kept, other.Kept}; got != c.want {
			t.Errorf("%s: kept %v, want %v", c.recipe, got, c.want)
		}
		if a.DroppedFor(codeOutlier) != 5-c.want[0] || b.DroppedFor(codeOutlier) != 2-c.want[1] {
			t.Errorf("%s: %v", c.recipe, a.Dropped)
		}
		if many := slices.ContainsFunc(findings, func(f trace.Finding) bool { return f.Code == codeManyOutliers }); many != (c.recipe == Frozen) {
			t.Errorf("%s: findings %v", c.recipe, findings)
		}
	}
}

// Limits of other tables hold, and say nothing of cells that those did not have.
func TestLimitsOfOthers(t *testing.T) {
	limits := LimitsOf([]*Table{yTable("A", Decode, 10, 10, 10)}, Relative)
	a := yTable("A", Decode, 50, 51)
	other := yTable("B", Decode, 51)
	if CleanTo([]*Table{a, other}, limits, Relative, false); a.Kept != 1 || other.Kept != 1 {
		t.Errorf("kept %d and %d, want 1 and 1", a.Kept, other.Kept)
	}
}

// What judges stays, marked: the hold-out of a training run, every row of another.
func TestOutliersOfTheHoldOutStay(t *testing.T) {
	a := yTable("A", Decode, 10, 10, 10, 60, 61)
	test := yTable("A", Decode, 10, 62)
	a.HoldOut = []bool{4: true}
	limits := LimitsOf([]*Table{a}, Relative)
	CleanTo([]*Table{a}, limits, Relative, false)
	CleanTo([]*Table{test}, limits, Relative, true)
	if want := []StressSet{0, 0, 0, Outlier}; a.DroppedFor(codeOutlier) != 1 || !slices.Equal(a.Sets, want) {
		t.Errorf("training run: dropped %d, sets %v, want 1 and %v", a.DroppedFor(codeOutlier), a.Sets, want)
	}
	if want := []StressSet{0, Outlier}; !slices.Equal(test.Sets, want) {
		t.Errorf("test run: sets %v, want %v", test.Sets, want)
	}
}

// A delay behind waiting requests has no limit, which is left out: limits are written as JSON. Limits
// that were written and read clean as those that were not.
func TestLongWaitsStay(t *testing.T) {
	tables := func() []*Table {
		idle := yTable("A", Idle, 10, 10, 10, 60)
		waiting := yTable("A", Waiting, 10, 10, 10, 6000)
		idle.Target = coeff.Queue
		waiting.Target = coeff.Queue
		return []*Table{idle, waiting}
	}
	for _, c := range []struct {
		recipe        Recipe
		limits        int
		idle, waiting int // rows kept
	}{{Relative, 1, 3, 4}, {Frozen, 1, 3, 3}} {
		limits := LimitsOf(tables(), c.recipe)
		text, err := json.Marshal(limits)
		if err != nil {
			t.Fatal(err)
		}
		var again []Limit
		if err := json.Unmarshal(text, &again); err != nil || len(again) != c.limits || !slices.Equal(again, limits) {
			t.Errorf("%s: got limits %v, %v, want %d as written: %v", c.recipe, again, err, c.limits, limits)
		}
		for _, l := range [][]Limit{limits, again} {
			cleaned := tables()
			CleanTo(cleaned, l, c.recipe, false)
			if cleaned[0].Kept != c.idle || cleaned[1].Kept != c.waiting {
				t.Errorf("%s: kept %d idle and %d waiting, want %d and %d",
					c.recipe, cleaned[0].Kept, cleaned[1].Kept, c.idle, c.waiting)
			}
		}
	}
}

// TestComparesTimePerStep: a row of several steps is not an outlier for it.
func TestComparesTimePerStep(t *testing.T) {
	a := yTable("A", Decode, 10, 11, 12, 110)
	a.Steps[3] = 10
	Clean([]*Table{a}, Relative)
	if a.Kept != 4 {
		t.Errorf("kept %d", a.Kept)
	}
}

// TestOverheadIsNotCleaned.
func TestOverheadIsNotCleaned(t *testing.T) {
	a := yTable("A", Idle, 1, 1, 1, 1000)
	a.Target = coeff.Overhead
	if Clean([]*Table{a}, Relative); a.Kept != 4 {
		t.Errorf("kept %d", a.Kept)
	}
}

// TestFilterMovesEveryColumn: each column of a kept row stays with it.
func TestFilterMovesEveryColumn(t *testing.T) {
	y, _ := play(1, false, true)
	d := toyDeployment(y)
	whole := alphaOf(t, y.run, d, Options{})
	odd := func(i int) bool { return i%2 == 1 }
	half := whole.Select(odd)
	if half.Kept != whole.Kept/2 || half.Kept < 5 {
		t.Fatalf("%d of %d", half.Kept, whole.Kept)
	}
	for i := range half.Kept {
		if half.dumpRow(i, nil, nil, nil).Request != whole.dumpRow(2*i+1, nil, nil, nil).Request ||
			!slices.Equal(half.Row(i), whole.Row(2*i+1)) || half.Lo[i] != whole.Lo[2*i+1] ||
			half.Exact[i] != whole.Exact[2*i+1] || half.Sets[i] != whole.Sets[2*i+1] ||
			half.Phase[i] != whole.Phase[2*i+1] {
			t.Errorf("row %d", i)
		}
	}
}

// TestDumpRows: what `fit --dump-rows` writes reads back, every row of every
// table.
func TestDumpRows(t *testing.T) {
	y, _ := play(1, false, true)
	d := toyDeployment(y)
	d.Phases = []deploy.Phase{{Name: "open", StartNs: 0, EndNs: 1 << 40}}
	beta := betaOf(t, y.run, d, Options{})
	alpha := alphaOf(t, y.run, d, Options{})
	dir := t.TempDir()
	names := func(t *Table) []string {
		if t.ID == nil {
			return features.Names(features.BetaFeatures(features.V11))
		}
		return features.Names(features.AlphaFeatures(features.V11))
	}
	if err := WriteParquet(dir, []*Table{beta, alpha}, names, func(string) []deploy.Phase { return d.Phases }); err != nil {
		t.Fatal(err)
	}
	c, err := table.Open[DumpRow](dir, tableName)
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	var rows []DumpRow
	for c.Next() {
		rows = append(rows, *c.Row())
	}
	if c.Err() != nil {
		t.Fatal(c.Err())
	}
	if len(rows) != beta.Kept+alpha.Kept {
		t.Fatalf("%d rows, want %d + %d", len(rows), beta.Kept, alpha.Kept)
	}
	for i, r := range rows {
		from, k := beta, i
		if i >= beta.Kept {
			from, k = alpha, i-beta.Kept
		}
		if r.YUs != from.Y[k] || !slices.Equal(r.X, from.Row(k)) || len(r.Names) != len(r.X) || r.Phase.V != "open" || r.Target != from.Target ||
			r.Exact.OK != (from == alpha) {
			t.Errorf("row %d: %+v", i, r)
		}
	}
}

// TestCoverage counts every busy step once per histogram and names what is
// missing.
func TestCoverage(t *testing.T) {
	s := mustRebuild(t, decodeRun(100), testDeployment(), features.V11)
	c := s.Coverage()
	if c.DecodeBatch.Rows != 100 || c.Context.Rows != 100 || c.KVUsage.Rows != 100 || c.PrefillTokens.Rows != 0 {
		t.Errorf("%+v", c)
	}
	if c.KVUsage.Counts[5] != 100 || c.DecodeBatch.Counts[1] != 100 {
		t.Errorf("%+v", c)
	}
	if len(c.Findings) != 3 || c.Findings[0].Code != codeRegimeAbsent {
		t.Errorf("findings %v", c.Findings)
	}
}

// TestAudit: cadence and duration medians and the pick-up quantiles.
func TestAudit(t *testing.T) {
	run, d := decodeRun(40), testDeployment()
	run.Requests = []trace.Request{request("a", 150*ms, 200*ms), request("b", 241*ms, 300*ms)}
	s := mustRebuild(t, run, d, features.V11)
	a := s.Audit(testSpace(t, d, features.V11))
	if *a.CadenceUsP50 != 10000 || *a.DurationUsP50 != 120 || a.BelowFloor() || *a.QueuedToScheduledUs.P50 != 200 ||
		*a.ArrivedToQueuedUs.P90 != 2000 {
		t.Errorf("%+v", a)
	}
	slow := *d
	slow.Hardware.BwPeakTBs = 0.1
	if a := s.Audit(testSpace(t, &slow, features.V11)); !a.BelowFloor() {
		t.Errorf("%+v", a)
	}
}

// TestThinningIsEven: whatever the steps between rows, the share that stays is that of the stride to within five
// standard deviations, and so it is in every tenth of the run and among every second, third and seventh row.
func TestThinningIsEven(t *testing.T) {
	const n = 100_000
	for _, step := range []int64{1, 1000, 1 << 20, 25_000_000, 1e9} {
		for _, stride := range []int{2, 3, 10, 64} {
			share := func(what string, of int, in func(i int64) bool) {
				got := 0
				for i := range int64(n) {
					if in(i) && survivesThinning(1_700_000_000e9+i*step, stride) {
						got++
					}
				}
				p := 1 / float64(stride)
				if want, sd := float64(of)*p, math.Sqrt(float64(of)*p*(1-p)); math.Abs(float64(got)-want) > 5*sd {
					t.Errorf("step %d ns, stride %d, %s: got %d rows, want %.0f +- %.0f", step, stride, what, got, want, sd)
				}
			}
			share("all", n, func(int64) bool { return true })
			for k := range int64(10) {
				share("a tenth", n/10, func(i int64) bool { return i*10/n == k })
			}
			for _, every := range []int64{2, 3, 7} {
				share("every so many", n/int(every), func(i int64) bool { return i%every == 0 })
			}
		}
	}
}

// TestThinnedTables: of tables that are thinned while they are built, the rows are those of the whole table that stay,
// with its range and its counts; those of a longer stride are among them, and stride 1 changes nothing.
func TestThinnedTables(t *testing.T) {
	y, _ := play(3, true, true)
	d := toyDeployment(y)
	s := mustRebuild(t, y.run, d, features.V11)
	sp := testSpace(t, d, features.V11)
	for _, make := range []func(o Options) (*Table, error){
		func(o Options) (*Table, error) { return s.Beta(sp, o) },
		func(o Options) (*Table, error) { o.Target = coeff.Queue; return s.Alpha(sp, o) },
	} {
		table := func(stride int) *Table {
			out, err := make(Options{Stride: stride, Gammas: features.Gammas()})
			if err != nil {
				t.Fatal(err)
			}
			return out
		}
		whole := table(0)
		for _, stride := range []int{1, 3, 11} {
			got := table(stride)
			want := whole.Select(func(i int) bool { return survivesThinning(whole.TimeNs[i], stride) })
			if !slices.Equal(got.X, want.X) || !slices.Equal(got.TimeNs, want.TimeNs) || !slices.Equal(got.HoldOut, want.HoldOut) ||
				!slices.Equal(got.Min, whole.Min) || !slices.Equal(got.Max, whole.Max) || got.Read != whole.Read ||
				got.DroppedFor(codeRowsThinned) != whole.Kept-got.Kept || got.IsThinned() != (stride > 1) {
				t.Errorf("%s, stride %d: got %d rows of %d, want %d", got.Target, stride, got.Kept, got.Read, want.Kept)
			}
			for i, ns := range got.TimeNs {
				if stride == 11 && !survivesThinning(ns, 5) {
					t.Errorf("row %d: stride 11 keeps what stride 5 drops", i)
				}
			}
		}
	}
}

// TestStrides: what the configurations with few rows leave is shared by the others, and the sum is kept.
func TestStrides(t *testing.T) {
	most := []int64{10_000, 8000, 500, 4600}
	configs := []string{"a", "a", "b", "c"}
	for _, c := range []struct {
		max  int
		want []int
	}{{0, []int{1, 1, 1, 1}}, {23_100, []int{1, 1, 1, 1}}, {10_000, []int{4, 4, 1, 1}}, {5000, []int{8, 8, 1, 3}},
		{1000, []int{54, 54, 2, 14}}} {
		got, found := Strides(most, configs, c.max)
		if !slices.Equal(got, c.want) || len(found) == 0 != (got[0] == 1) {
			t.Errorf("at most %d: got %v, %v, want %v", c.max, got, found, c.want)
		}
	}
	if got, _ := Strides([]int64{1e10, 0}, []string{"a", "a"}, DefaultMaxRows); got[0] != 20_000 || got[1] != 20_000 {
		t.Errorf("1e10 rows: got %v, want 20000", got)
	}
	for n, fine := range map[int]bool{0: true, 1000: true, 999: false, -1: false} {
		if err := CheckMaxRows(n); (err == nil) != fine {
			t.Errorf("--max-rows %d: got %v", n, err)
		}
	}
}

// TestVariantsAreTheTablesOfTheirFactors: one table with other smoothing factors
// beside its own holds what a table of each of them holds, before and after rows
// are dropped.
func TestVariantsAreTheTablesOfTheirFactors(t *testing.T) {
	differ := 0
	for seed := range uint64(12) {
		y, _ := play(seed, seed%2 == 1, true)
		for i := range y.run.Steps {
			if s := &y.run.Steps[i]; i%7 == int(seed%7) && s.RunningDepth > 0 && seed > 1 {
				s.NumPreempted = int32(1 + int64(i%2))
			}
		}
		d := toyDeployment(y)
		s := mustRebuild(t, y.run, d, features.V11)
		sp := testSpace(t, d, features.V11)
		for _, thin := range []bool{false, true} {
			beta := func(o Options) *Table {
				table, err := s.Beta(sp, o)
				if err != nil {
					t.Fatal(err)
				}
				if thin {
					table.Filter("thin", func(i int) bool { return i%3 != 1 })
				}
				return table
			}
			alpha := func(o Options) *Table {
				o.Target = coeff.Queue
				table, err := s.Alpha(sp, o)
				if err != nil {
					t.Fatal(err)
				}
				return table.Select(func(i int) bool { return !thin || i%3 != 1 })
			}
			all := beta(Options{Gammas: features.Gammas()})
			queue := alpha(Options{Gammas: features.Gammas()})
			for _, g := range features.Gammas() {
				for _, pair := range [][2]*Table{{all.At(g), beta(Options{Gamma: g})}, {queue.At(g), alpha(Options{Gamma: g})}} {
					got, want := pair[0], pair[1]
					if !slices.Equal(got.X, want.X) || !reflect.DeepEqual(got.Y, want.Y) || got.Gamma != g {
						t.Errorf("seed %d, %s, factor %g: other rows", seed, got.Target, g)
					}
					for j := range got.P {
						if !slices.Equal(all.Column(g, j), all.At(g).copyColumn(j, all.Kept)) {
							t.Errorf("seed %d, factor %g: column %d differs", seed, g, j)
						}
					}
				}
			}
			for _, v := range append(all.Variants, queue.Variants...) {
				differ += len(v.Cols)
			}
		}
	}
	if differ == 0 {
		t.Error("no column differs: the test shows nothing")
	}
}
