package export

import (
	"fmt"
	"math"
	"math/rand"
	"os"
	"path/filepath"
	"testing"

	"github.com/blis-train/blis-train/deploy"
	"github.com/blis-train/blis-train/internal/repo"
	"github.com/blis-train/blis-train/result"
	"github.com/blis-train/blis-train/sim"
)

// evalTraffic is Poisson traffic of one shape at a share of the capacity.
type evalTraffic struct {
	name           string
	prompt, output float64 // mean tokens, exponential
	load           float64
}

func workloads() []evalTraffic {
	var out []evalTraffic
	for _, shape := range []evalTraffic{{"chat", 300, 100, 0}, {"long prompts", 2000, 40, 0}, {"long outputs", 150, 400, 0}} {
		for _, load := range []float64{0.2, 0.5, 0.8, 0.95, 1.3} {
			shape.load = load
			out = append(out, shape)
		}
	}
	return out
}

func (w *evalTraffic) requests(n int, rate float64, longest int64) []tracedRequest {
	rng := rand.New(rand.NewSource(11))
	reqs := make([]tracedRequest, n)
	at := 0.0
	for i := range reqs {
		at += rng.ExpFloat64() * 1e6 / rate
		prompt := min(1+int64(rng.ExpFloat64()*w.prompt), longest*3/4)
		reqs[i] = tracedRequest{int64(at), prompt, min(1+int64(rng.ExpFloat64()*w.output), longest-prompt)}
	}
	return reqs
}

// simulateBLIS runs the requests in our engine with BLIS's terms.
func simulateBLIS(t *testing.T, d *deploy.Deployment, alpha, beta []float64, reqs []tracedRequest) (*sim.Result, *stepLog) {
	t.Helper()
	model, err := sim.NewTrainedPhysics(alpha, beta, d)
	if err != nil {
		t.Fatal(err)
	}
	cfg := sim.DefaultConfig(d, model)
	cfg.Async = false
	cfg.EmptyStepUs = 1
	cfg.IdleSleepUs = 0
	cfg.Apply(model.Parts())
	load := make([]sim.Request, len(reqs))
	for i, r := range reqs {
		load[i] = sim.Request{ID: fmt.Sprint(i), ArrivalUs: r.arrivalUs, PromptTokens: r.prompt, OutputTokens: r.output}
	}
	log := &stepLog{}
	res, err := sim.Run(cfg, load, log)
	if err != nil {
		t.Fatal(err)
	}
	return res, log
}

// TestEvalBLISWorkloads runs 15 workloads on three deployments through a blis binary and our
// simulator with the exported coefficients: all are answered, every difference has a reason, and
// with enough KV cache means are the same.
func TestEvalBLISWorkloads(t *testing.T) {
	repo.NeedEval(t)
	blis := repo.BLIS(t)
	for _, dep := range []struct {
		name   string
		config int
		blocks int64
	}{{"tp 1", 0, 20_000}, {"tp 2", 1, 20_000}, {"tp 1, small KV cache", 0, 1200}} {
		src := exampleSource()
		src.Fit.Configs = src.Fit.Configs[dep.config : dep.config+1]
		d := &src.Fit.Configs[0].Deployment
		d.Engine.KVBlocksGPU.V = dep.blocks
		d.Engine.PrefixCaching = true // BLIS always finds freed blocks again: those of a preempted prompt
		src.Fit.Configs[0].MeanOutputTokens = new(float64)
		src.Fit.Configs[0].MeanPromptTokens = new(float64)
		out := mustExport(t, src, FormatBLIS, forced())
		var side Sidecar
		if err := result.Read(fileOf(t, out, SidecarSuffix), &side); err != nil {
			t.Fatal(err)
		}
		entries, _, err := blisEntries(src, forced(), src.Fit.Configs)
		if err != nil {
			t.Fatal(err)
		}
		alpha, err := blisAlphas(src.Fit, nil)
		if err != nil {
			t.Fatal(err)
		}
		dir := blisFolder(t, out, d)
		for _, w := range workloads() {
			const n = 400
			longest := d.LongestSequence().V - 1
			all, _ := simulateBLIS(t, d, numbers(alpha), entries[0].beta, w.requests(n, 1e6, longest))
			last := int64(0)
			for i := range all.Requests {
				last = max(last, all.Requests[i].FinishedUs.V)
			}
			reqs := w.requests(n, w.load*n/float64(last)*1e6, longest)
			writeTraceV2(t, dir, reqs)
			theirs, _ := blisReplay(t, blis, dir, side.Configs[0].DefaultsCommandLine)
			res, log := simulateBLIS(t, d, numbers(alpha), entries[0].beta, reqs)
			text, unexplained, off := classes(res, log, theirs)
			t.Logf("%-20s %-12s load %.2f: %s", dep.name, w.name, w.load, text)
			if len(theirs) != n || unexplained > 0 || dep.blocks == 20_000 && off > 0.001 {
				t.Errorf("%s, %s at %.2f: %d of %d answered, %d differ for no reason known, means by %.2f %%", dep.name, w.name, w.load,
					len(theirs), n, unexplained, 100*off)
			}
		}
	}
}

// blisFolder holds an export and a model as the command line names them.
func blisFolder(t *testing.T, out *Output, d *deploy.Deployment) string {
	t.Helper()
	dir := t.TempDir()
	for _, f := range out.Files {
		repo.Write(t, f.Data, dir, "FILE"+f.Suffix)
	}
	if err := os.Mkdir(filepath.Join(dir, "MODELDIR"), 0o755); err != nil {
		t.Fatal(err)
	}
	repo.Write(t, hfConfig(t, *d), dir, "MODELDIR", "config.json")
	return dir
}

// classes counts the requests by why they differ. After the first preemption of ours all that is in
// the engine differs. unexplained have none; off is the larger relative difference of the means of TTFT and E2E.
func classes(res *sim.Result, log *stepLog, theirs []blisResult) (text string, unexplained int, off float64) {
	early := overlaps(log, res)
	firstPreemption := int64(math.MaxInt64)
	preempted := 0
	for i := range res.Requests {
		if r := &res.Requests[i]; r.Preemptions > 0 {
			preempted++
			firstPreemption = min(firstPreemption, r.EnqueuedUs.V)
		}
	}
	equal := 0
	overlap := 0
	preemption := 0
	other := 0
	var ttft, e2e [2]float64
	for _, w := range theirs {
		q := &res.Requests[w.ID]
		a, _ := q.TTFTUs()
		b, _ := q.E2EUs()
		ttft[0], ttft[1], e2e[0], e2e[1] = ttft[0]+a, ttft[1]+w.TTFTUs, e2e[0]+b, e2e[1]+w.E2EUs
		switch {
		case a == w.TTFTUs && b == w.E2EUs:
			equal++
		case affected(early, w.ID, a-w.TTFTUs, q.EnqueuedUs.V):
			overlap++
		case preempted > 0 && q.FinishedUs.V >= firstPreemption:
			preemption++
		default:
			other++
		}
	}
	off = max(math.Abs(ttft[1]/ttft[0]-1), math.Abs(e2e[1]/e2e[0]-1))
	return fmt.Sprintf("%d of %d answered; %d equal, %d in %d early starts, %d after a preemption (%d preempted), %d else; "+
		"blis/ours mean TTFT %.3f, E2E %.3f", len(theirs), len(res.Requests), equal, overlap, len(early), preemption, preempted, other,
		ttft[1]/ttft[0], e2e[1]/e2e[0]), other, off
}
