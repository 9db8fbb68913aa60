package cluster

import (
	"fmt"
	"hash/fnv"
	"math"
	"math/rand/v2"
	"strconv"
	"testing"

	"github.com/blis-train/blis-train/sim"
)

// shortOfSeats are some seconds of the classes' requests at a rate in all: 1,024 of 1,224
// prompt tokens in common, answers of exponential length around 90. All go where the prefix is: one engine
// with 64 seats, of which 60/s leave few free.
func shortOfSeats(classes []string, perSecond, seconds float64, draw uint64) []sim.Request {
	rng := rand.New(rand.NewPCG(draw, 3))
	var reqs []sim.Request
	for at := 0.0; at < seconds*1e6; at += rng.ExpFloat64() / perSecond * 1e6 {
		r := sim.Request{ID: strconv.Itoa(len(reqs)), ArrivalUs: int64(at), PromptTokens: 1224, Group: 1, GroupTokens: 1024,
			OutputTokens: 1 + int64(rng.ExpFloat64()*90), SLOClass: classes[rng.IntN(len(classes))]}
		r.SLOTTFTUs = int64(targets[r.SLOClass].TTFTUs)
		reqs = append(reqs, r)
	}
	return reqs
}

// seated is a policy before two engines of 64 seats, routed by pa:4,qd:3.
func seated(t *testing.T, policy, scheduler string, reqs []sim.Request) (*Goodput, *Result) {
	t.Helper()
	spec := specOf(policy, scorersToday, scheduler)
	spec.Targets = targetsOf(targets)
	p := plant{Deployment: defaultDeployment()}
	p.Deployment.Engine.MaxNumSeqs = 64
	own := gate{Kind: kindSame, Scale: 1}
	parts, err := own.Parts(&p, 2, 1)
	if err != nil {
		t.Fatal(err)
	}
	cfg := spec.Build(parts)
	for i := range cfg.Engines {
		cfg.Engines[i].Noise = nil
	}
	res, err := Run(cfg, reqs)
	if err != nil {
		t.Fatal(err)
	}
	return reduce(res.Records, targets, window{ToUs: math.MaxInt64}), res
}

// Where seats are short and engines go by priority, a gate that expects better classes in
// whole requests, of their own size and at the rate of this instance, turns few away that
// would have been served; first come first served it decides as it always did.
func TestSeatsUnderPriority(t *testing.T) {
	two, three := []string{"critical", "standard"}, []string{"critical", "standard", "sheddable"}
	for _, c := range []struct {
		classes                 []string
		perSecond               float64
		policy                  string
		always, total, standard float64 // of always-admit at most; of the gate at least
	}{
		{two, 60, "predictive", 1, 0.99, 0.99}, {two, 60, "clairvoyant", 1, 0.99, 0.99},
		{three, 80, "predictive", 0.73, 0.84, 0.99}, {three, 80, "clairvoyant", 0.73, 0.84, 0.95},
	} {
		reqs := shortOfSeats(c.classes, c.perSecond, 40, 1)
		all, _ := seated(t, "always-admit", "priority-fcfs", reqs)
		g, _ := seated(t, c.policy, "priority-fcfs", reqs)
		standard := 0.0
		for i := range g.Classes {
			if g.Classes[i].Name == "standard" {
				standard = g.Classes[i].Goodput()
			}
		}
		t.Logf("%s, %d classes: goodput %.4f, standard %.4f, %d rejected; always-admit %.4f", c.policy, len(c.classes), g.All.Goodput(), standard,
			g.Shed, all.All.Goodput())
		if all.All.Goodput() > c.always || g.All.Goodput() < c.total || standard < c.standard {
			t.Errorf("%s, %d classes: got goodput %.4f, standard %.4f, always-admit %.4f, want >= %g, >= %g, <= %g", c.policy,
				len(c.classes), g.All.Goodput(), standard, all.All.Goodput(), c.total, c.standard, c.always)
		}
	}
	_, res := seated(t, "predictive", "fcfs", shortOfSeats(three, 80, 20, 1))
	h := fnv.New64a()
	for i := range res.Records {
		d := &res.Records[i].Decision
		fmt.Fprintln(h, d.Admit, d.Reason, d.PredictedUs, d.BoundUs)
	}
	if got, want := h.Sum64(), uint64(0x7466adf64a0a0d60); got != want {
		t.Errorf("fcfs: got decisions %#x, want those of before, %#x", got, want)
	}
}
