package fit

import (
	"fmt"

	"github.com/blis-train/blis-train/pipeline/ridge"
	"github.com/blis-train/blis-train/result"
	"github.com/blis-train/blis-train/trace"
)

// v2Trigger is the within-configuration MAPE above which a residual model may
// be fitted (03 section 5).
const v2Trigger = 0.15

// residualTrees tries additive trees on the residuals when the hold-out MAPE
// exceeds the trigger, and keeps them only when they improve the hold-out.
func (f *fitter) residualTrees(s *solved) {
	h := f.out.Beta.Holdout
	if !f.o.Trees || h == nil || h.MAPE == nil || *h.MAPE <= v2Trigger {
		return
	}
	r := ridge.Boost(s.data, spread64(s), s.pred, s.pool.train, s.pool.hold, ridge.DefaultTreeOptions())
	t := &result.Trees{Kept: r.Kept, Count: len(r.Trees.Trees), HoldoutRMSEUs: r.RMSEBefore, WithTreesRMSEUs: r.RMSEAfter}
	t.Reason = fmt.Sprintf("hold-out MAPE %.1f %% exceeds %.0f %%; RMSE %.0f us without and %.0f us with trees", 100**h.MAPE, 100*v2Trigger, r.RMSEBefore, r.RMSEAfter)
	if r.Kept {
		t.Model = r.Trees
	}
	f.out.Trees = t
	f.warn(trace.Finding{Code: V2Trigger, Message: t.Reason})
}

// spread64 are the training weights at their rows of data; 0 elsewhere.
func spread64(s *solved) []float64 {
	w := make([]float64, s.data.Len())
	for k, i := range s.pool.train {
		w[i] = s.weights[k]
	}
	return w
}
