package report

import (
	"fmt"
	"slices"
	"strings"

	"github.com/blis-train/blis-train/result"
)

var causeWords = map[string]string{
	result.CauseMachineDrift: "The machine drifted",
	result.CauseUnseenRegime: "A regime was unseen in training",
	result.CauseModelError:   "The model is wrong",
	result.CauseSaturated:    "The run is saturated",
	result.CauseLag:          "Steps are joined to the wrong batches",
	result.CauseHardware:     "The hardware is not what run.yaml says",
	result.CauseScheduler:    "The simulator forms other batches",
	result.CauseUnknown:      "Unknown",
}

// maxCauses is how many diagnoses the page spells out.
const maxCauses = 8

func causes(in Input, figs []*Figure) []Block {
	ds := in.Validation.Diagnoses
	if len(ds) == 0 {
		return nil
	}
	ds = joined(ds)
	anchors := anchorsOf(figs)
	var out []cause
	for _, d := range ds[:min(len(ds), maxCauses)] {
		label := causeWords[d.Cause]
		if label == "" {
			label = d.Cause
		}
		if d.Term != "" {
			label += ": term " + d.Term
		}
		if d.Regime != "" {
			label += ", regime " + d.Regime
		}
		c := cause{Label: label, Scope: d.Scope, Sentence: sentence(strings.TrimPrefix(d.Sentence, d.Scope+": ")),
			Gates: strings.Join(d.Gates, ", ")}
		if id := figureOf(d.Figure, anchors); id != "" {
			c.Anchor, c.FigureTitle = "fig-"+id, anchors[id]
		} else if d.Figure == "saturation" && in.Inspect != nil {
			c.Anchor, c.FigureTitle = "saturation", "the saturation checks"
		}
		out = append(out, c)
	}
	blocks := []Block{{Heading: "Why gates failed"}, {Causes: out}}
	if more := len(ds) - maxCauses; more > 0 {
		blocks = append(blocks, Block{Text: fmt.Sprintf("And %d more in validation.json, diagnoses.", more)})
	}
	return blocks
}

// joined gives diagnoses that say the same one entry: with a single
// configuration, "all" is that configuration again.
func joined(ds []result.Diagnosis) []result.Diagnosis {
	var out []result.Diagnosis
	for _, d := range ds {
		i := slices.IndexFunc(out, func(o result.Diagnosis) bool { return o.Sentence == d.Sentence && o.Cause == d.Cause })
		if i < 0 {
			out = append(out, d)
			continue
		}
		out[i].Scope += ", " + d.Scope
		out[i].Gates = slices.Clone(out[i].Gates)
		for _, g := range d.Gates {
			out[i].Gates = AppendNew(out[i].Gates, g)
		}
	}
	return out
}

// figureOf is the id of the figure a diagnosis points at, the validation's own
// before that of the fit; empty when the page has none.
func figureOf(kind string, anchors map[string]string) string {
	id := strings.ReplaceAll(kind, "_", "-")
	for _, id := range []string{"test-" + id, id} {
		if anchors[id] != "" {
			return id
		}
	}
	return ""
}

// anchorsOf maps figure ids to titles.
func anchorsOf(figs []*Figure) map[string]string {
	out := map[string]string{}
	for _, f := range figs {
		out[f.ID] = f.Title
	}
	return out
}
