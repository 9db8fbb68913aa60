package autoscale

import (
	"fmt"
	"math"

	"github.com/blis-train/blis-train/coeff"
	"github.com/blis-train/blis-train/internal/stat"
)

// Limits of the gates that a calibration passes before an autoscaler gets it (spec#queue-verdict).
const (
	maxHeldTTFTWape = 0.25
	maxHeldITLWape  = 0.10
)

// verdict judges the parameters by the windows they were not fitted to: the fitted ones by those of a fit to the
// training windows, the physical ones, of a server without fitted ones, as they are. Null without parameters.
func (f *Calibrated) verdict() *coeff.Judgement {
	q := &f.Doc
	params, by := q.Effective, estEffective
	if len(params) == 0 {
		params, by = q.Physical, estPhysical
	}
	if len(params) == 0 {
		return nil
	}
	v := &coeff.Judgement{Verdict: coeff.VerdictPass}
	var ttft, itl *float64
	for i := range q.Scores {
		if s := &q.Scores[i]; s.Set == holdOut && s.Estimator == by && s.Unpredicted == 0 {
			ttft, itl = s.TTFTWape, s.ITLWape
		}
	}
	none := fmt.Sprintf("%d windows, none predicted of a hold-out; %d and more have one", len(f.Windows), leastHoldOut)
	v.AtMost("hold_out_ttft_wape", q.ID, ttft, maxHeldTTFTWape, none)
	v.AtMost("hold_out_itl_wape", q.ID, itl, maxHeldITLWape, none)
	unknown := 0.0
	for _, p := range params {
		if p.Identified != measured && p.Identified != held {
			unknown++
		}
	}
	v.AtMost("parameters_neither_measured_nor_held", q.ID, &unknown, 0, "")
	v.AtMost("hold_out_load_outside_fitted", q.ID, f.outside(), 0, none)
	return v
}

// outside is by what share of the fitted loads' nearer end the median load of the hold-out is beyond them, requests/s;
// nil without a hold-out.
func (f *Calibrated) outside() *float64 {
	if f.Split >= len(f.Windows) || f.Split == 0 {
		return nil
	}
	rates := stat.Map(f.Windows, func(w window) float64 { return w.RateRPS })
	lo, hi := math.Inf(1), 0.0
	for _, r := range rates[:f.Split] {
		lo, hi = math.Min(lo, r), math.Max(hi, r)
	}
	mid := stat.Median(rates[f.Split:])
	by := math.Max(0, math.Max(mid/hi-1, 1-mid/lo))
	return &by
}

// VerdictOf is the worst verdict of the servers that an export takes (id; "": all), with what failed or is missing. Servers of
// an older file without one were not validated.
func (q *Queue) VerdictOf(id string) (verdict string, why []string) {
	for i := range q.Servers {
		s := &q.Servers[i]
		if s.Verdict == nil || id != "" && id != s.ID {
			continue
		}
		verdict = coeff.WorseVerdict(verdict, s.Verdict.Verdict)
		why = append(why, s.Verdict.Failed()...)
	}
	return verdict, why
}
