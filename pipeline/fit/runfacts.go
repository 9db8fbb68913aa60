package fit

// This file has the facts of a run that are no rows, and describes runs and configurations with them
// in fit.json.

import (
	"slices"
	"time"

	"github.com/blis-train/blis-train/deploy"
	"github.com/blis-train/blis-train/result"
	"github.com/blis-train/blis-train/trace"
)

// runFacts is what fit.json reports of a run apart from its rows. Stored rows and Gram
// files include it, because the recording is not available when they are fitted.
type runFacts struct {
	Config     string               `json:"config"`
	Deployment deploy.Deployment    `json:"deployment"`
	Lag        result.RunLag        `json:"lag"`
	Evidence   []result.LagEvidence `json:"lag_evidence"`
	Audit      result.TargetAudit   `json:"target_audit"`
	Quality    result.StepQuality   `json:"steps"`
	Findings   []trace.Finding      `json:"findings"`
	Reason     string               `json:"reason"` // why the fit excludes the run; empty if it does not
	Saturated  bool                 `json:"saturated"`
	WallNs     int64                `json:"wall_ns"` // latest wall-clock stamp
	Lengths    lengths              `json:"requests"`
}

// describeRuns fills the runs and configurations of the document; ids are those of the runs. A run
// that the fit excludes is listed, and belongs to no configuration.
func describeRuns(out *result.Fit, ids []string, runs []*runFacts) {
	var latest int64
	sums := map[string]*lengths{} // by key of the configuration
	for i, r := range runs {
		latest = max(latest, r.WallNs)
		out.Runs = append(out.Runs, result.FitRun{
			ID:        ids[i],
			Config:    r.Config,
			Used:      r.Reason == "",
			Saturated: r.Saturated,
			Reason:    r.Reason,
			Steps:     r.Quality,
			Findings:  r.Findings,
		})
		if r.Reason != "" {
			continue
		}
		k := slices.IndexFunc(out.Configs, func(c result.FitConfig) bool { return c.Key == r.Config })
		if k < 0 {
			k = len(out.Configs)
			sums[r.Config] = &lengths{}
			out.Configs = append(out.Configs, result.FitConfig{
				Key:        r.Config,
				Label:      r.Deployment.Label(),
				Deployment: r.Deployment,
			})
		}
		out.Configs[k].Runs = append(out.Configs[k].Runs, ids[i])
		sums[r.Config].add(r.Lengths)
	}
	out.TrainingDate = DateOf(latest)
	withLabel := map[string]int{} // configurations by label
	for _, c := range out.Configs {
		withLabel[c.Label]++
	}
	for k := range out.Configs {
		c := &out.Configs[k]
		if withLabel[c.Label] > 1 {
			c.Label = c.Key // two configurations never have one label
		}
		c.MeanPromptTokens, c.MeanOutputTokens = sums[c.Key].means()
	}
}

// lengths are [0] the number of finished requests, [1] the sum of their prompt tokens and [2] of their
// output tokens. Stored rows and Gram files have them as this array.
type lengths [3]int64

// add adds the counts of another part of the run.
func (l *lengths) add(o lengths) {
	for k, v := range o {
		l[k] += v
	}
}

// means returns the mean prompt and output lengths, tokens; nil if there are no requests.
func (l *lengths) means() (prompt, output *float64) {
	n := float64(l[0])
	return result.OrNull(float64(l[1]) / n), result.OrNull(float64(l[2]) / n)
}

// lengthsOf returns the sums of the lengths of a run's successful requests. A run from an engine
// log has no request spans; its clients' records are used there.
func lengthsOf(run *trace.Run) lengths {
	var l lengths
	for i := range run.Requests {
		r := &run.Requests[i]
		if run.AsksFor(r) && r.Success.Or(false) && r.PromptTokens.OK && r.OutputTokens.OK {
			l.add(lengths{1, r.PromptTokens.V, r.OutputTokens.V})
		}
	}
	if run.Aggregate == nil || l[0] > 0 {
		return l
	}
	for i := range run.Observed {
		r := &run.Observed[i]
		if r.Success.Or(false) && r.PromptTokens.OK && r.OutputTokens.OK {
			l.add(lengths{1, r.PromptTokens.V, r.OutputTokens.V})
		}
	}
	return l
}

// DateOf returns the UTC date of a wall-clock stamp; empty without one.
func DateOf(wallNs int64) string {
	if wallNs <= 0 {
		return ""
	}
	return time.Unix(0, wallNs).UTC().Format(time.DateOnly)
}

// LatestWall returns the latest wall-clock stamp of a run; 0 without one.
func LatestWall(run *trace.Run) int64 {
	var latest int64
	for i := range run.Requests {
		latest = max(latest, run.Requests[i].EndWallNs.Or(0))
	}
	for i := range run.Steps {
		latest = max(latest, run.Steps[i].WallNs)
	}
	return latest
}
