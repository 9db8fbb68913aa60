package rows

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/blis-train/blis-train/model"
	"github.com/blis-train/blis-train/pipeline/features"
	"github.com/blis-train/blis-train/reconstruct"
	"github.com/blis-train/blis-train/trace"
)

// play runs a random workload on the toy engine.
func play(seed uint64, async, chunking bool) (*toy, []*job) {
	r := rand.New(rand.NewPCG(seed, 7))
	y := &toy{budget: 64 + r.Int64N(200), async: async, chunking: chunking}
	js := jobs(r, 60, y.budget, chunking)
	y.play(js)
	return y, js
}

// firstOnly keeps each request's first snapshot, which tells its cached tokens,
// and marks it as lost from its step so that no step is rich.
func firstOnly(snaps []trace.Snapshot) []trace.Snapshot {
	seen := map[string]bool{}
	var out []trace.Snapshot
	for _, s := range snaps {
		if !seen[s.CoreID] && s.ScheduledTokens > 0 {
			seen[s.CoreID] = true
			out = append(out, s)
		}
	}
	return out
}

func thin(y *toy, snaps []trace.Snapshot) *trace.Run {
	run := *y.run
	run.Steps = slices.Clone(y.run.Steps)
	run.Snapshots = snaps
	for i := range run.Steps {
		run.Steps[i].RunningDepth++ // no snapshot set is complete
	}
	return withCachedTokens(&run)
}

// compare checks every known step against the truth and returns how many of
// the recorded ones are known.
func compare(t *testing.T, what string, s *Steps, y *toy) (known int) {
	t.Helper()
	s.Each(func(st *Step, members []trace.Member) {
		if !st.Known() {
			return
		}
		if st.Recorded >= 0 {
			known++
		}
		got := slices.Clone(members)
		want := slices.Clone(y.truth[st.ID])
		if !sameMembers(got, want) {
			t.Errorf("%s: step %d (%s): got %v, want %v", what, st.ID, st.Tag, got, want)
		}
		if sum11(want, nil) != withoutDepth(st.In) {
			t.Errorf("%s: step %d: sums %+v differ from the sums over the members", what, st.ID, st.In)
		}
	})
	return known
}

func withoutDepth(in features.StepInput) features.StepInput {
	in.RunningDepth = 0
	return in
}

// TestRebuildsEveryStep: journeys and first snapshots tell every batch of the
// toy engine, asynchronous or not, with EOS waste, aborts and shared budgets.
func TestRebuildsEveryStep(t *testing.T) {
	for seed := range uint64(40) {
		for _, async := range []bool{false, true} {
			for _, chunking := range []bool{true, false} {
				what := fmt.Sprintf("seed %d async %t chunking %t", seed, async, chunking)
				y, _ := play(seed, async, chunking)
				run := thin(y, firstOnly(y.run.Snapshots))
				s := mustRebuild(t, run, toyDeployment(y), features.V11)
				if known := compare(t, what, s, y); known != len(run.Steps) {
					t.Errorf("%s: %d of %d steps known, reasons %v", what, known, len(run.Steps), s.Quality)
				}
			}
		}
	}
}

// TestSampledSteps: steps without a summary are rebuilt too.
func TestSampledSteps(t *testing.T) {
	for seed := range uint64(20) {
		y, _ := play(seed, seed%2 == 0, true)
		run := thin(y, firstOnly(y.run.Snapshots))
		r := rand.New(rand.NewPCG(seed, 1))
		run.Steps = slices.DeleteFunc(run.Steps, func(trace.Step) bool { return r.IntN(10) > 0 })
		s := mustRebuild(t, run, toyDeployment(y), features.V11)
		compare(t, fmt.Sprintf("seed %d", seed), s, y)
		if s.Quality.Rebuilt != s.Quality.Unrecorded || s.Quality.Unknown > 0 {
			t.Errorf("seed %d: %+v", seed, s.Quality)
		}
	}
}

// TestLostJourneysAreNeverWrong: without some core spans steps become
// unknown, never wrong, as long as every step has its summary.
func TestLostJourneysAreNeverWrong(t *testing.T) {
	for seed := range uint64(40) {
		y, _ := play(seed, seed%2 == 0, true)
		run := thin(y, firstOnly(y.run.Snapshots))
		r := rand.New(rand.NewPCG(seed, 2))
		lost := map[string]bool{}
		run.Requests = slices.DeleteFunc(slices.Clone(run.Requests), func(q trace.Request) bool {
			lost[q.CoreID.V] = r.IntN(10) == 0
			return lost[q.CoreID.V]
		})
		for _, withSnapshots := range []bool{true, false} {
			if !withSnapshots {
				run.Snapshots = slices.DeleteFunc(slices.Clone(run.Snapshots), func(q trace.Snapshot) bool { return lost[q.CoreID] })
			}
			s := mustRebuild(t, run, toyDeployment(y), features.V11)
			known := compare(t, fmt.Sprintf("seed %d", seed), s, y)
			for id, members := range y.truth {
				if slices.ContainsFunc(members, func(m trace.Member) bool { return lost[m.CoreID] }) && s.At(id).Known() {
					t.Errorf("seed %d: step %d is known although a request is missing", seed, id)
				}
			}
			if known == 0 {
				t.Errorf("seed %d: nothing known", seed)
			}
		}
	}
}

// A preempted request makes its steps unknown, unless snapshots show them.
func TestPreemptedRequestsMakeTheirStepsUnknown(t *testing.T) {
	for seed := range uint64(20) {
		y, js := play(seed, seed%2 == 0, true)
		bad := js[len(js)/2]
		run := thin(y, firstOnly(y.run.Snapshots))
		run.Requests = slices.Clone(run.Requests)
		for i := range run.Requests {
			if run.Requests[i].CoreID.V == bad.id {
				run.Requests[i].Preemptions = trace.Some(int64(1))
			}
		}
		s := mustRebuild(t, run, toyDeployment(y), features.V11)
		compare(t, fmt.Sprintf("seed %d", seed), s, y)
		for u := bad.s; u <= bad.e; u++ {
			if st := s.At(u); st.Known() || st.Reason != reconstruct.PreemptedRequest {
				t.Errorf("seed %d: step %d of a preempted request: %s %q", seed, u, st.Tag, st.Reason)
			}
		}
		full := *y.run
		full.Requests = run.Requests
		rich := mustRebuild(t, &full, toyDeployment(y), features.V11)
		for u := bad.s; u <= bad.e; u++ {
			if rich.At(u).Tag != TagRich {
				t.Errorf("seed %d: step %d with snapshots is %s, want rich", seed, u, rich.At(u).Tag)
			}
		}
	}
}

// TestContradictionsAreUnknown: a summary that contradicts is unknown and
// counted, and the unrecorded steps beside it are unknown too.
func TestContradictionsAreUnknown(t *testing.T) {
	y, _ := play(3, false, true)
	run := thin(y, firstOnly(y.run.Snapshots))
	mid := len(run.Steps) / 2
	for run.Steps[mid].NumPrefillReqs > 0 || run.Steps[mid].ScheduledTokens == 0 {
		mid++
	}
	run.Steps[mid].ScheduledTokens++
	run.Steps[mid].DecodeTokens++
	id := run.Steps[mid].ID
	run.Steps = slices.Delete(run.Steps, mid+1, mid+2)
	s := mustRebuild(t, run, toyDeployment(y), features.V11)
	if st := s.At(id); st.Known() || st.Reason != reconstruct.Contradicted {
		t.Errorf("reconstruct.Contradicted step: %s %q", st.Tag, st.Reason)
	}
	if st := s.At(id + 1); st.Known() {
		t.Errorf("unrecorded step beside a contradiction is %s", st.Tag)
	}
	if s.Quality.Contradictions != 1 || s.Quality.Unknown != 1 {
		t.Errorf("quality %+v", s.Quality)
	}
	compare(t, "rest", s, y)
}

// TestCachedTokensFromTotals: without a snapshot the cached tokens follow
// from the summaries when no other prompt runs; otherwise only the prefill
// steps are unknown and the decodes stay known.
func TestCachedTokensFromTotals(t *testing.T) {
	y := &toy{budget: 100, chunking: true}
	js := []*job{
		{id: "alone", arrive: 1, prompt: 250, cached: 48, computed: 48, outputs: 4},
		{id: "x", arrive: 10, prompt: 30, cached: 16, computed: 16, outputs: 3},
		{id: "y", arrive: 10, prompt: 40, cached: 32, computed: 32, outputs: 3},
	}
	y.play(js)
	s := mustRebuild(t, thin(y, nil), toyDeployment(y), features.V11)
	compare(t, "totals", s, y)
	for u := int64(1); u <= js[0].e; u++ {
		if !s.At(u).Known() {
			t.Errorf("step %d of the only prompt is unknown: %s", u, s.At(u).Reason)
		}
	}
	if st := s.At(js[1].s); st.Known() || st.Reason != reconstruct.CachedUnknown {
		t.Errorf("step with two prompts of unknown cache hits: %s %q", st.Tag, st.Reason)
	}
	for u := js[1].t + 1; u <= js[1].e; u++ {
		if !s.At(u).Known() {
			t.Errorf("decode step %d is unknown: %s", u, s.At(u).Reason)
		}
	}
}

// TestSampledJourneysNeedSummaries: at a journey rate below 1 a step is known
// only where a summary confirms it; the others fall back to totals.
func TestSampledJourneysNeedSummaries(t *testing.T) {
	y, _ := play(5, false, true)
	d := toyDeployment(y)
	d.Tracing.JourneySampleRate = trace.Some(0.5)
	run := thin(y, firstOnly(y.run.Snapshots))
	gone := run.Steps[len(run.Steps)/2].ID
	run.Steps = slices.DeleteFunc(run.Steps, func(s trace.Step) bool { return s.ID == gone })
	run.Requests = run.Requests[:len(run.Requests)/2]
	s := mustRebuild(t, run, d, features.V11)
	if s.At(gone).Known() {
		t.Error("an unrecorded step is known although journeys are sampled")
	}
	exact := 0
	approximate := 0
	prefills := 0
	for _, st := range s.copies() {
		switch st.Tag {
		case TagJourney:
			exact++
			got, err := s.Members(st.ID)
			if err != nil || !sameMembers(got, slices.Clone(y.truth[st.ID])) {
				t.Errorf("step %d: got %v, want %v", st.ID, got, y.truth[st.ID])
			}
		case TagSummary:
			approximate++
			in, want := st.In, sum11(y.truth[st.ID], nil)
			if in.PrefillTokens > 0 {
				prefills++
			}
			if in.PrefillTokens != want.PrefillTokens || in.NumPrefillReqs != want.NumPrefillReqs || in.NumDecodeReqs != want.NumDecodeReqs ||
				in.DecodeTokens != want.DecodeTokens {
				t.Errorf("step %d: got %v of %v prompts and %v decodes from totals, want %v of %v and %v", st.ID, in.PrefillTokens,
					in.NumPrefillReqs, in.NumDecodeReqs, want.PrefillTokens, want.NumPrefillReqs, want.NumDecodeReqs)
			}
		}
	}
	if exact == 0 || approximate == 0 || prefills == 0 {
		t.Errorf("%d exact and %d approximate steps, %d of those with prompts, want some of each", exact, approximate, prefills)
	}
	if !slices.ContainsFunc(s.Findings, func(f trace.Finding) bool { return f.Code == codeNotRecorded }) {
		t.Error("no finding of partial journeys")
	}
	for _, windows := range []bool{false, true} { // 1.3 approximates what windows read of totals, and says so
		if windows {
			var err error
			d.Model, err = model.Load(strings.NewReader(`{"model_type":"gemma3_text","num_hidden_layers":7,"hidden_size":64,
				"num_attention_heads":4,"num_key_value_heads":2,"head_dim":16,"intermediate_size":128,"sliding_window":8,
				"vocab_size":256,"torch_dtype":"bfloat16"}`),
				"config.json", model.Options{})
			if err != nil {
				t.Fatal(err)
			}
		}
		s := mustRebuild(t, run, d, features.V13)
		if is := func(f trace.Finding) bool { return f.Code == codeWindowSums }; slices.ContainsFunc(s.Findings, is) != windows {
			t.Errorf("windows %t: got %v", windows, s.Findings)
		}
	}
}

// TestTotalsTellWholePrompts: in seeded loads of an engine that chunks prompts, the steps
// whose prompts totals take to be whole hold exactly those prompts and decodes, whether
// the engine is asynchronous and calls first decodes prefills or not.
func TestTotalsTellWholePrompts(t *testing.T) {
	known, prompts := 0, 0
	for seed := range uint64(40) {
		y, _ := play(seed+100, seed%2 == 1, true)
		d := toyDeployment(y)
		for i, n := range promptStarts(y.run.Steps, d) {
			s := &y.run.Steps[i]
			if s.NumPrefillReqs == 0 {
				continue
			}
			prompts++
			if n == unknownStarts {
				continue
			}
			got := relabelled(*s, n)
			want := sum11(y.truth[s.ID], nil)
			known++
			if float64(got.PrefillTokens) != want.PrefillTokens || float64(got.NumPrefillReqs) != want.NumPrefillReqs ||
				float64(got.NumDecodeReqs) != want.NumDecodeReqs {
				t.Errorf("seed %d, step %d: got %d of %d prompts, %d decodes, want %v of %v, %v", seed, s.ID, int64(got.PrefillTokens),
					int64(got.NumPrefillReqs), int64(got.NumDecodeReqs), want.PrefillTokens, want.NumPrefillReqs, want.NumDecodeReqs)
			}
		}
	}
	if known < 400 {
		t.Errorf("%d of %d steps with prompts are told, want 400 or more", known, prompts)
	}
}

// TestUnlinkedSpansNeedSummaries: around an API span without a core span only
// confirmed steps count.
func TestUnlinkedSpansNeedSummaries(t *testing.T) {
	y, _ := play(6, false, true)
	run := thin(y, firstOnly(y.run.Snapshots))
	mid := len(run.Steps) / 2
	for run.Steps[mid].NumPrefillReqs+run.Steps[mid+1].NumPrefillReqs > 0 {
		mid++ // not inside a prompt of several chunks
	}
	at := run.Steps[mid]
	run.Requests = append(slices.Clone(run.Requests), trace.Request{Source: trace.SourceFork, APIID: trace.Some("lost"),
		ArrivedNs: trace.Some(at.TsStartNs + 1), DepartedNs: trace.Some(at.TsStartNs + 50e6)})
	run.Steps = slices.DeleteFunc(run.Steps, func(s trace.Step) bool { return s.ID == at.ID+1 || s.ID == at.ID+30 })
	s := mustRebuild(t, run, toyDeployment(y), features.V11)
	if s.At(at.ID + 1).Known() {
		t.Error("unrecorded step beside an unlinked span is known")
	}
	if !s.At(at.ID).Known() || !s.At(at.ID+30).Known() {
		t.Errorf("a confirmed step, or one far from the unlinked span, is unknown: %q %q", s.At(at.ID).Reason, s.At(at.ID+30).Reason)
	}
}

// TestIncompleteSnapshotsAreNotRich: a set that lost a snapshot is not used.
func TestIncompleteSnapshotsAreNotRich(t *testing.T) {
	y, _ := play(8, false, true)
	run := *y.run
	last := run.Snapshots[len(run.Snapshots)-1].StepID
	k, _ := slices.BinarySearchFunc(run.Snapshots, last/2, func(s trace.Snapshot, id int64) int { return int(s.StepID - id) })
	id := run.Snapshots[k].StepID
	run.Snapshots = slices.Delete(slices.Clone(run.Snapshots), k, k+1)
	s := mustRebuild(t, &run, toyDeployment(y), features.V11)
	if s.At(id).Tag != TagJourney || len(s.crossWrong) != 0 {
		t.Errorf("step %d is %s, want journey; %+v", id, s.At(id).Tag, s.Quality)
	}
	if q := s.Quality; q.FromSnapshots == 0 || q.Recorded != q.FromSnapshots+q.Reconstructed+q.Approximate+q.Unknown {
		t.Errorf("quality %+v", q)
	}
}

// TestChunkedWithoutSnapshotsIsAnError: 1.0 names the flag to record with.
func TestChunkedWithoutSnapshotsIsAnError(t *testing.T) {
	y, _ := play(9, false, true)
	run := *y.run
	run.Snapshots = nil
	_, err := Rebuild(&run, toyDeployment(y), features.V10)
	if trace.CodeOf(err) != codeChunkedNoSnapshots {
		t.Fatalf("got %v, want %s", err, codeChunkedNoSnapshots)
	}
	run.Snapshots = y.run.Snapshots[:len(y.run.Snapshots)/2]
	s := mustRebuild(t, &run, toyDeployment(y), features.V10)
	for _, st := range s.copies() {
		if st.Tag != TagRich && st.Tag != tagUnknown && st.In.ScheduledTokens > 0 {
			t.Errorf("step %d of a chunked 1.0 run is %s", st.ID, st.Tag)
		}
	}
	d := toyDeployment(y)
	d.Engine.ChunkedPrefill = false
	run.Snapshots = nil
	if s := mustRebuild(t, &run, d, features.V10); s.Quality.Approximate != len(run.Steps) {
		t.Errorf("unchunked 1.0 run: %+v", s.Quality)
	}
}

// TestTransfersJoinTheirStep and are missed only when offloading is on.
func TestTransfersJoinTheirStep(t *testing.T) {
	y, _ := play(10, false, true)
	d := toyDeployment(y)
	d.Engine.CPUOffloading = true
	s := mustRebuild(t, y.run, d, features.V11)
	if !slices.ContainsFunc(s.Findings, func(f trace.Finding) bool { return f.Code == codeNotRecorded }) {
		t.Error("no finding of missing KV events")
	}
	run := *y.run
	run.KVEvents = []trace.KVEvent{{Kind: "TransferCompleted", Step: trace.Some(int64(7)), TransferID: trace.Some(int64(1)),
		RequestID: trace.Some("r000"),
		SrcMedium: trace.Some("CPU"), DstMedium: trace.Some("GPU"), BlockCount: trace.Some(int64(9)), Success: trace.Some(true)}}
	s = mustRebuild(t, &run, d, features.V11)
	if in := s.At(7).In; in.CPUResidentReadBlocks != 9 || in.TransferBlocks != 0 {
		t.Errorf("step 7: %+v", in)
	}
}

// TestUnsortedTablesGiveTheSameSteps: the order of the input does not matter.
func TestUnsortedTablesGiveTheSameSteps(t *testing.T) {
	y, _ := play(11, true, true)
	a := mustRebuild(t, y.run, toyDeployment(y), features.V11)
	run := *y.run
	run.Steps, run.Snapshots, run.Requests = slices.Clone(run.Steps), slices.Clone(run.Snapshots), slices.Clone(run.Requests)
	slices.Reverse(run.Steps)
	slices.Reverse(run.Snapshots)
	slices.Reverse(run.Requests)
	b := mustRebuild(t, &run, toyDeployment(y), features.V11)
	if !reflect.DeepEqual(a.all, b.all) {
		t.Error("steps differ")
	}
}

// TestNoSteps: a run of stock spans rebuilds to nothing and says so.
func TestNoSteps(t *testing.T) {
	run := &trace.Run{ID: "stock", Requests: []trace.Request{{Source: trace.SourceStock, ArrivedNs: trace.Some(int64(5))}}}
	s := mustRebuild(t, run, testDeployment(), features.V11)
	if s.Len() != 0 || len(s.Findings) == 0 || s.Findings[0].Code != codeNotRecorded {
		t.Errorf("%+v", s)
	}
	s.Each(func(*Step, []trace.Member) { t.Error("a step") })
	a, err := s.Alpha(testSpace(t, testDeployment(), features.V11), Options{})
	if err != nil || a.Read != 1 || a.DroppedFor(codeNoTarget) != 1 {
		t.Errorf("%+v %v", a, err)
	}
}

// TestBadStepIDs are errors, not rows without length or a huge array.
func TestBadStepIDs(t *testing.T) {
	for _, c := range []struct {
		second int64
		code   trace.Code
	}{{1, codeBadStepIDs}, {1 << 40, codeBadStepIDs}} {
		run := decodeRun(2)
		run.Steps[1].ID = c.second
		if _, err := Rebuild(run, testDeployment(), features.V11); trace.CodeOf(err) != c.code {
			t.Errorf("second step %d: got %v, want %s", c.second, err, c.code)
		}
	}
}

// TestStoredSnapshotsAreThoseInMemory: batches, members and first snapshots are
// the same when snapshots are read from a cursor and not from the run; what
// breaks the cursor is an error.
func TestStoredSnapshotsAreThoseInMemory(t *testing.T) {
	for seed := range uint64(20) {
		y, _ := play(seed, seed%2 == 1, seed%3 != 0)
		d := toyDeployment(y)
		want, err := Rebuild(y.run, d, features.V11)
		if err != nil {
			t.Fatal(err)
		}
		stored := *y.run
		stored.Snapshots = nil
		stored.Stored = y.run.OpenSnapshots
		got, err := Rebuild(&stored, d, features.V11)
		if err != nil {
			t.Fatal(err)
		}
		if !reflect.DeepEqual(got.all, want.all) || !reflect.DeepEqual(got.seen, want.seen) || got.Quality.FromSnapshots == 0 {
			t.Errorf("seed %d: batches differ, or none is rich", seed)
		}
		compare(t, "stored", got, y)
		old, err := got.As(features.V10)
		if err != nil {
			t.Fatal(err)
		}
		want10 := mustRebuild(t, &stored, d, features.V10)
		if !reflect.DeepEqual(old.all, want10.all) || !reflect.DeepEqual(old.Quality, want10.Quality) {
			t.Errorf("seed %d: batches as 1.0 differ from those rebuilt under 1.0", seed)
		}
		layered, err := got.As(features.V13)
		if want13 := mustRebuild(t, &stored, d, features.V13); err != nil || !reflect.DeepEqual(layered.all, want13.all) ||
			!reflect.DeepEqual(layered.Quality, want13.Quality) || !slices.Equal(layered.Findings, want13.Findings) || layered.Version != features.V13 {
			t.Errorf("seed %d: batches as 1.3 differ from those rebuilt under 1.3: %v", seed, err)
		}
		stored.Stored = func() (trace.SnapshotCursor, error) { return nil, errors.New("gone") }
		if _, err := Rebuild(&stored, d, features.V11); err == nil {
			t.Error("a table that cannot be opened: got no error")
		}
		got.Run.Stored = stored.Stored
		if err := got.Each(func(*Step, []trace.Member) {}); err == nil {
			t.Error("a table that cannot be opened again: got no error")
		}
	}
}
