package queue

import (
	"fmt"
	"strings"

	"github.com/blis-train/blis-train/result"
)

// ComparePage is a comparison as a page: how many cells each flavour hits, every cell, and
// every miss of the corrected flavour with its cause.
func ComparePage(cells []result.QueueComparison, command string) string {
	var b strings.Builder
	fmt.Fprintf(&b, "# Queueing models against the simulator\n\n`blis-train %s` writes this page.\n\n", command)
	fmt.Fprintf(&b,
		"The same three numbers (alpha, beta, gamma) go to the simulator and to every flavour, wva-4p with the same iteration in its own form. ")
	fmt.Fprintf(&b,
		"Arrivals are Poisson; every cell has the same draws. Errors are (model - simulator)/simulator of mean TTFT / mean ITL in percent; ")
	fmt.Fprintf(&b, "± is the simulation's standard error. A hit is within %.0f %% of TTFT and %.0f %% of ITL.\n\n", 100*missTTFT, 100*missITL)
	writeHits(&b, cells)
	b.WriteString("\n| prompt/output | outputs | load | TTFT ms | ITL ms |")
	for _, e := range cells[0].Errors {
		fmt.Fprintf(&b, " %s |", e.Flavour)
	}
	b.WriteString("\n|---|---|---|---|---|" + strings.Repeat("---|", len(cells[0].Errors)) + "\n")
	for i := range cells {
		c := &cells[i]
		fmt.Fprintf(&b, "| %.0f/%.0f | %s | %.2f | %.4g ± %.2g | %.4g ± %.2g |", c.PromptTokens, c.OutputTokens, c.Outputs, c.Load,
			c.TTFTMs, c.Simulated.TTFTSeMs, c.ITLMs, c.Simulated.ITLSeMs)
		for _, e := range c.Errors {
			fmt.Fprintf(&b, " %+.0f / %+.0f |", 100**e.TTFT, 100**e.ITL)
		}
		b.WriteByte('\n')
	}
	b.WriteString("\n## Every miss of `corrected`\n\n| cell | load | TTFT | ITL | why |\n|---|---|---|---|---|\n")
	for i := range cells {
		c := &cells[i]
		for _, e := range c.Errors {
			if e.Flavour == "corrected" && e.Cause != "" {
				fmt.Fprintf(&b, "| %.0f/%.0f %s | %.2f | %+.1f %% | %+.1f %% | %s |\n", c.PromptTokens, c.OutputTokens, c.Outputs, c.Load, 100**e.TTFT,
					100**e.ITL, e.Cause)
			}
		}
	}
	writeCauses(&b, cells)
	return b.String()
}

// writeHits is the share of hits by flavour, at load 0.7 and below and everywhere.
func writeHits(b *strings.Builder, cells []result.QueueComparison) {
	b.WriteString("| flavour | hits at load 0.7 and below | hits at all loads |\n|---|---|---|\n")
	for k, e := range cells[0].Errors {
		var low, lowHits, hits int
		for i := range cells {
			hit := cells[i].Errors[k].Cause == ""
			if cells[i].Load <= 0.7 {
				low++
				lowHits += count(hit)
			}
			hits += count(hit)
		}
		fmt.Fprintf(b, "| %s | %d of %d | %d of %d |\n", e.Flavour, lowHits, low, hits, len(cells))
	}
}

func count(yes bool) int {
	if yes {
		return 1
	}
	return 0
}

// writeCauses says where each of the other flavours breaks: its causes without their figures, by
// number of cells.
func writeCauses(b *strings.Builder, cells []result.QueueComparison) {
	b.WriteString("\n## Where the others break\n\n| flavour | cells | approximation |\n|---|---|---|\n")
	for k, e := range cells[0].Errors {
		if e.Flavour == "corrected" {
			continue
		}
		n := map[string]int{}
		var order []string
		for i := range cells {
			for _, part := range strings.Split(cells[i].Errors[k].Cause, "; ") {
				name := withoutFigures(part)
				if name == "" || !strings.HasPrefix(name, "TTFT: ") && !strings.HasPrefix(name, "ITL: ") {
					continue
				}
				if n[name] == 0 {
					order = append(order, name)
				}
				n[name]++
			}
		}
		for _, name := range order {
			fmt.Fprintf(b, "| %s | %d | %s |\n", e.Flavour, n[name], name)
		}
	}
}

// withoutFigures leaves out what stands in brackets and numbers, so that equal causes are equal.
func withoutFigures(s string) string {
	if open := strings.Index(s, " ("); open >= 0 {
		s = s[:open]
	}
	words := strings.Fields(s)
	for i, w := range words {
		if strings.Trim(w, "0123456789.,") == "" {
			words[i] = "…"
		}
	}
	return strings.Join(words, " ")
}
