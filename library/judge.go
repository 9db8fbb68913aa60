package library

import (
	"context"
	"math"
	"slices"

	"github.com/blis-train/blis-train/internal/stat"
	"github.com/blis-train/blis-train/pipeline/ridge"
)

// judged is one measured point beside what was predicted for it.
type judged struct {
	Group, Name    string
	TP             int64
	TPOTMs, TTFTMs float64 // predicted
	TPOTErr        float64 // predicted/measured - 1
	TTFTErr        float64
	E2EErr         float64 // of TTFT + (output tokens - 1)*TPOT, the means a point has
	TPOTSD         float64 // of log TPOT by the library's own account, 0 when not asked for
}

// judge predicts loads with a correction.
func (b *builder) judge(ctx context.Context, c *correction, ls []*load) ([]judged, error) {
	es, err := b.evidence(ctx, c, ls, nil)
	if err != nil {
		return nil, err
	}
	out := make([]judged, len(ls))
	for i, l := range ls {
		tpot, ttft := es[2*i], es[2*i+1]
		out[i] = l.judged(l.ttftMs*stat.Exp(ttft.log), l.tpotMs*stat.Exp(tpot.log))
		out[i].TPOTSD = math.Sqrt(tpot.modelVariance + c.variance(tpot.by))
	}
	return out, nil
}

// judged is the load beside a prediction of its means.
func (l *load) judged(ttftMs, tpotMs float64) judged {
	gaps := 0.0
	for i := range l.reqs {
		gaps += float64(l.reqs[i].OutputTokens-1) / float64(len(l.reqs))
	}
	return judged{Group: l.group, Name: l.name, TP: l.dep.TP, TPOTMs: tpotMs, TTFTMs: ttftMs, TPOTErr: tpotMs/l.tpotMs - 1,
		TTFTErr: ttftMs/l.ttftMs - 1, E2EErr: (float64(ttftMs)+float64(gaps*tpotMs))/(l.ttftMs+float64(gaps*l.tpotMs)) - 1}
}

// variance is that of a prediction whose log changes so with the parameters.
func (c *correction) variance(by []float64) float64 {
	n := len(c.Theta)
	if c.Covariance == nil {
		sum := 0.0
		for k, u := range by {
			sum += square(u * c.prior(k).sd)
		}
		return sum
	}
	sum := 0.0
	for k, u := range by {
		sum += float64(u * ridge.Dot(by, c.Covariance[k*n:(k+1)*n]))
	}
	return sum
}

// groupsOf are the groups of loads, sorted.
func groupsOf(ls []*load) []string {
	var out []string
	for _, l := range ls {
		out = append(out, l.group)
	}
	return distinct(out)
}

// leaveGroupsOut judges every group of points by a correction that has not seen
// it. always are loads that every correction sees.
func (b *builder) leaveGroupsOut(ctx context.Context, points, always []*load, ys []*cycles) ([]judged, error) {
	var out []judged
	for _, g := range groupsOf(points) {
		in, left := slices.Clone(always), []*load(nil)
		for _, l := range points {
			if l.group == g {
				left = append(left, l)
			} else {
				in = append(in, l)
			}
		}
		c, err := b.learn(ctx, in, ys)
		if err != nil {
			return nil, err
		}
		js, err := b.judge(ctx, c, left)
		if err != nil {
			return nil, err
		}
		out = append(out, js...)
	}
	return out, nil
}
