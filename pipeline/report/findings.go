package report

import (
	"fmt"
	"slices"

	"github.com/blis-train/blis-train/trace"
)

// Bounds of what findings show.
const maxCodes, maxMessages = 40, 5

// findings groups by code in the order the codes first appear.
func findings(lists ...[]trace.Finding) []findingGroup {
	index := map[trace.Code]int{}
	var out []findingGroup
	for _, fs := range lists {
		for _, f := range fs {
			i, seen := index[f.Code]
			if !seen {
				i = len(out)
				index[f.Code] = i
				out = append(out, findingGroup{Code: string(f.Code)})
			}
			g := &out[i]
			g.Count++
			switch {
			case slices.Contains(g.Messages, f.Message):
			case len(g.Messages) < maxMessages:
				g.Messages = append(g.Messages, f.Message)
			default:
				g.More++
			}
		}
	}
	return out[:min(len(out), maxCodes)]
}

func FindingBlocks(title string, lists ...[]trace.Finding) []Block {
	gs := findings(lists...)
	if len(gs) == 0 {
		return nil
	}
	n := 0
	for _, g := range gs {
		n += g.Count
	}
	return folded(fmt.Sprintf("%s (%d)", title, n), []Block{{Findings: gs}})
}
