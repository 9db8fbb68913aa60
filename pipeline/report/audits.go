package report

import "github.com/blis-train/blis-train/result"

// auditsOf are the target audits of the fit, or of the inspection without one.
func auditsOf(in Input) []result.TargetAudit {
	if in.Fit != nil && len(in.Fit.Beta.TargetAudit) > 0 {
		return in.Fit.Beta.TargetAudit
	}
	var out []result.TargetAudit
	if in.Inspect != nil {
		for _, r := range in.Inspect.Runs {
			if r.Audit != nil {
				out = append(out, *r.Audit)
			}
		}
	}
	return out
}

// lagsOf is the lag evidence of the fit, or of the inspection without one.
func lagsOf(in Input) (evidence []result.LagEvidence, used map[string]result.RunLag) {
	if in.Fit != nil && len(in.Fit.Beta.LagEvidence) > 0 {
		return in.Fit.Beta.LagEvidence, in.Fit.Beta.PipelineLag
	}
	used = map[string]result.RunLag{}
	if in.Inspect != nil {
		for _, r := range in.Inspect.Runs {
			evidence = append(evidence, r.LagEvidence...)
			if r.Lag != nil {
				used[r.ID] = *r.Lag
			}
		}
	}
	return evidence, used
}
