package main

import (
	"hash/fnv"
	"math/rand"
	randv2 "math/rand/v2"
	"os/exec"
	"regexp"
	"slices"
	"strconv"
	"testing"

	"github.com/blis-train/blis-train/cluster"
	"github.com/blis-train/blis-train/deploy"
	"github.com/blis-train/blis-train/internal/repo"
	"github.com/blis-train/blis-train/sim"
)

// routedTo is a line of BLIS's debug log.
var routedTo = regexp.MustCompile(`req request_(\d+) . instance instance_(\d+)`)

// TestBLISTargets compares where requests go with a `blis` binary on PATH: eight
// instances, live snapshots, the same workload with shared prefixes.
//
// Under weighted scores one other target changes all that follow, so our cluster
// repeats BLIS's targets, and each decision is compared given the same past: BLIS's
// target is one of those that our scores put first. Then ours runs free, drawing among
// equals with BLIS's generator and seed. One difference by construction is undone: BLIS takes the
// requests of a step out, blocks and all, when the step begins (see TestBLISReplay);
// the test prints how many targets are equal without that too.
func TestBLISTargets(t *testing.T) {
	blis := repo.BLIS(t)
	for _, c := range []struct {
		name, policy, scorers string
		rate                  float64
	}{
		{"round-robin", cluster.RoundRobin, "", 200},
		{"weighted", cluster.Weighted, "prefix-affinity:3,queue-depth:2,kv-utilization:2", 200},
		{"weighted, overloaded", cluster.Weighted, "prefix-affinity:3,queue-depth:2,kv-utilization:2", 700},
	} {
		t.Run(c.name, func(t *testing.T) {
			d := blisDeployment()
			d.Engine.PrefixCaching = true
			reqs := prefixedWorkload(2000, c.rate)
			theirs := blisTargets(t, blis, d, reqs, c.policy, c.scorers)
			cfg := blisCluster(t, d)
			if c.scorers == "" {
				cfg.Routing.Policy = c.policy
				res, err := cluster.Run(cfg, reqs)
				must(t, err)
				for i := range reqs {
					if res.Records[i].Instance != theirs[i] {
						t.Fatalf("request %d: got instance %d, BLIS %d", i, res.Records[i].Instance, theirs[i])
					}
				}
				return
			}
			list, err := cluster.ParseScorers(c.scorers)
			must(t, err)
			w := &watcher{Policy: cluster.Always{}, list: list, reqs: reqs, theirs: theirs, steps: make([][]sim.Member, 8)}
			cfg.Router, cfg.Policy = w, w
			cfg.Observe = func(i int) sim.Observer { return &stepKeeper{to: &w.steps[i]} }
			_, err = cluster.Run(cfg, reqs)
			must(t, err)
			share := float64(w.early) / float64(len(reqs))
			free := freeRunning(t, d, w)
			t.Logf("%d of %d targets equal (%.2f %%) with requests leaving when their last step begins, as in BLIS; %d when it ends",
				w.early, len(reqs), 100*share, w.plain)
			t.Logf("running free: %d targets equal, the first that is not: %d", free.equal, free.first)
			if share < 0.99 || free.equal < len(reqs)*99/100 {
				t.Errorf("got %.2f %% equal targets given BLIS's past and %d running free, want at least 99 %%", 100*share, free.equal)
			}
		})
	}
}

// prefixedWorkload has one of twelve shared prefixes of 256 tokens in every second
// request.
func prefixedWorkload(n int, rate float64) []sim.Request {
	reqs := blisWorkload(n, rate)
	rng := randv2.New(randv2.NewPCG(8, 9))
	for i := range reqs {
		if rng.IntN(2) == 0 {
			reqs[i].Group, reqs[i].GroupTokens, reqs[i].PromptTokens = 1+rng.Uint64N(12), 256, reqs[i].PromptTokens+256
		}
	}
	return reqs
}

var (
	clusterAlpha = []float64{1500, 700, 40}
	clusterBeta  = []float64{0.15, 0, 1.36, 0.75, 32, 4.4, 126, 0, 0, 1.947}
)

func blisTargets(t *testing.T, blis string, d *deploy.Deployment, reqs []sim.Request, policy, scorers string) []int {
	t.Helper()
	args := append(blisArgs(t, t.TempDir(), d, reqs, clusterAlpha, clusterBeta), "--num-instances", "8", "--routing-policy", policy,
		"--snapshot-refresh-interval", "0", "--cache-signal-delay", "0", "--log", "debug")
	if scorers != "" {
		args = append(args, "--routing-scorers", scorers)
	}
	text, err := exec.Command(blis, args...).CombinedOutput()
	if err != nil {
		t.Fatalf("blis: %v\n%s", err, text[max(0, len(text)-2000):])
	}
	theirs := slices.Repeat([]int{-1}, len(reqs))
	for _, m := range routedTo.FindAllSubmatch(text, -1) {
		i, _ := strconv.Atoi(string(m[1]))
		theirs[i], _ = strconv.Atoi(string(m[2]))
	}
	if slices.Contains(theirs, -1) {
		t.Fatalf("BLIS names no target for request %d", slices.Index(theirs, -1))
	}
	return theirs
}

func blisCluster(t *testing.T, d *deploy.Deployment) *cluster.Config {
	t.Helper()
	m, err := sim.NewTrainedPhysics(clusterAlpha, clusterBeta, d)
	must(t, err)
	one := sim.DefaultConfig(d, nil)
	one.Apply(m.Parts())
	one.EmptyStepUs = 1
	cfg := &cluster.Config{Policy: cluster.Always{}}
	cfg.Routing = cluster.Routing{IndexUpdate: cluster.OnRoute, IndexBlocks: 10_000}
	cfg.Engines = slices.Repeat([]sim.Config{one}, 8)
	return cfg
}

// watcher is a gateway that compares each decision with BLIS's.
type watcher struct {
	cluster.Policy
	list         []cluster.Scorer
	reqs         []sim.Request
	theirs       []int
	steps        [][]sim.Member
	plain, early int
}

func (w *watcher) Decide(r *cluster.Request, v *cluster.View, target int) (cluster.Decision, error) {
	if w.isFirst(r, v) {
		w.plain++
	}
	if w.isFirst(r, w.earlier(v)) {
		w.early++
	}
	return w.Policy.Decide(r, v, target)
}

// Route goes where BLIS went.
func (w *watcher) Route(r *cluster.Request, _ *cluster.View) int { return w.theirs[r.Index] }

func (w *watcher) Routed(*cluster.Request, int) {}

// earlier is the view with requests gone whose last step has begun.
func (w *watcher) earlier(v *cluster.View) *cluster.View {
	own := *v
	own.Snapshots = slices.Clone(v.Snapshots)
	for i, members := range w.steps {
		own.Snapshots[i].FreeBlocks += w.leaving(members)
	}
	return &own
}

// free is a gateway that goes its own way, with BLIS's draws between equal instances.
type free struct {
	*watcher
	rng          *rand.Rand
	last, target int
	equal, first int
}

// freeRunning repeats the run without BLIS's past.
func freeRunning(t *testing.T, d *deploy.Deployment, of *watcher) *free {
	t.Helper()
	h := fnv.New64a()
	h.Write([]byte("router"))
	f := &free{watcher: &watcher{list: of.list, reqs: of.reqs, theirs: of.theirs, steps: make([][]sim.Member, 8)},
		rng: rand.New(rand.NewSource(42 ^ int64(h.Sum64()))), last: -1, first: -1}
	cfg := blisCluster(t, d)
	cfg.Router, cfg.Observe = f, func(i int) sim.Observer { return &stepKeeper{to: &f.steps[i]} }
	_, err := cluster.Run(cfg, of.reqs)
	must(t, err)
	return f
}

// Route draws once for a request, however often it is asked.
func (f *free) Route(r *cluster.Request, v *cluster.View) int {
	if r.Index == f.last {
		return f.target
	}
	scores := cluster.Weigh(f.list, r, f.earlier(v))
	var best []int
	for i, s := range scores {
		if s == slices.Max(scores) {
			best = append(best, i)
		}
	}
	if f.last, f.target = r.Index, best[0]; len(best) > 1 {
		f.target = best[f.rng.Intn(len(best))]
	}
	if f.target == f.theirs[r.Index] {
		f.equal++
	} else if f.first < 0 {
		f.first = r.Index
	}
	return f.target
}

func (w *watcher) isFirst(r *cluster.Request, v *cluster.View) bool {
	scores := cluster.Weigh(w.list, r, v)
	return scores[w.theirs[r.Index]] > slices.Max(scores)-1e-12
}

// leaving is the blocks that come free with the requests whose last step this is:
// a shared prefix only with the last that holds it.
func (w *watcher) leaving(members []sim.Member) (blocks int64) {
	stays := map[uint64]bool{}
	last := func(m *sim.Member) bool {
		return m.Computed+m.New >= m.Prompt+w.reqs[m.Request].OutputTokens-1 && m.New > 0
	}
	for i := range members {
		if m := &members[i]; !last(m) {
			stays[w.reqs[m.Request].Group] = true
		}
	}
	for i := range members {
		m := &members[i]
		if !last(m) || m.OutputTokens >= w.reqs[m.Request].OutputTokens {
			continue
		}
		blocks += m.Blocks
		if g := w.reqs[m.Request].Group; g != 0 {
			if stays[g] {
				blocks -= 16
			}
			stays[g] = true
		}
	}
	return blocks
}

// stepKeeper keeps the members of the step that runs.
type stepKeeper struct{ to *[]sim.Member }

func (k *stepKeeper) Step(v *sim.StepView) { *k.to = append((*k.to)[:0], v.Members...) }

func (k *stepKeeper) Event(*sim.Event) {}
