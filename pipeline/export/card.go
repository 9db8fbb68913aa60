package export

// This file writes a page about a coefficient file, for people.

import (
	"bytes"
	"fmt"
	"strings"

	"github.com/blis-train/blis-train/coeff"
	"github.com/blis-train/blis-train/internal/files"
	"github.com/blis-train/blis-train/trace"
)

// FormatCard is a page of Markdown about a coefficient file, for people: a team commits it beside the
// file.
const FormatCard Format = "card"

// card returns the page of the coefficients: what they are of, the data, the verdicts, the measured
// domain, the errors, the digest and how to check them.
func card(src Source, _ Options) (*Output, error) {
	set, err := src.Set()
	if err != nil {
		return nil, err
	}
	if set == nil {
		return nil, trace.Errorf(unlearnedValue, "the fit has no coefficients")
	}
	var saved, page bytes.Buffer
	if err := set.Save(&saved); err != nil {
		return nil, err
	}
	body, _ := coeff.Body(saved.Bytes())
	digest := strings.Trim(strings.TrimPrefix(saved.String()[len(body):], coeff.DigestKey+":"), " \"\n")
	title := make([]string, 0, len(set.Configs))
	for i := range set.Configs {
		title = append(title, set.Configs[i].Deployment.Label())
	}
	fmt.Fprintf(&page, "# Coefficients: %s\n\n", markdownText(strings.Join(title, "; ")))
	fmt.Fprintf(&page, "Step time: `%s`, features of spec %s. Made by `blis-train %s`, version %s, from recordings up to %s.\n\n",
		set.BetaTarget, set.SpecVersion, markdownText(set.Command), markdownText(set.ToolVersion),
		markdownText(set.TrainedOn.Date))

	page.WriteString("## Deployments\n\n| configuration | runs | steps | vLLM | max_num_seqs | max_num_batched_tokens | block_size |\n|---|---|---|---|---|---|---|\n")
	for i := range set.Configs {
		c := &set.Configs[i]
		e := &c.Deployment.Engine
		fmt.Fprintf(&page, "| %s | %s | %d | %s | %d | %d | %d |\n", markdownText(c.Deployment.Label()), markdownText(strings.Join(c.Runs, ", ")),
			c.Samples, markdownText(e.VLLMVersion), e.MaxNumSeqs, e.MaxNumBatchedTokens, e.BlockSize)
	}

	page.WriteString("\n## Data\n\n| run | used | why not |\n|---|---|---|\n")
	for i := range src.Fit.Runs {
		r := &src.Fit.Runs[i]
		used := "no"
		if r.Used {
			used = "yes"
		}
		fmt.Fprintf(&page, "| %s | %s | %s |\n", markdownText(r.ID), used, markdownText(r.Reason))
	}

	page.WriteString("\n## Verdicts\n\n| purpose | of | verdict |\n|---|---|---|\n")
	for _, p := range set.Purposes {
		fmt.Fprintf(&page, "| %s | %s | %s |\n", p.Purpose, markdownText(p.Scope), p.Verdict)
	}
	if len(set.Purposes) == 0 {
		page.WriteString("| all | all | not validated |\n")
	}

	page.WriteString("\n## Errors on data that the fit has not seen\n\n| figure | of | value | limit | met |\n|---|---|---|---|---|\n")
	for _, g := range set.Gates {
		value, met := "unknown", "not decided"
		if g.Value != nil {
			value = fmt.Sprintf("%.4g", *g.Value)
		}
		if g.Pass != nil {
			met = "no"
			if *g.Pass {
				met = "yes"
			}
		}
		fmt.Fprintf(&page, "| %s | %s | %s | %s %g | %s |\n", markdownText(g.Name), markdownText(g.Scope), value, g.Op, g.Threshold, met)
	}

	page.WriteString("\n## Measured domain\n\nPredictions outside of these ranges are extrapolated, and every answer names them.\n\n| term | unit | least | largest |\n|---|---|---|---|\n")
	for i := range set.Beta {
		if c := &set.Beta[i]; c.Range != nil {
			unit := "1"
			if c.Unit == "us/s" { // of the coefficient: the term is a time
				unit = "s"
			}
			fmt.Fprintf(&page, "| `%s` | %s | %.4g | %.4g |\n", c.Name, unit, c.Range[0], c.Range[1])
		}
	}

	page.WriteString("\n## Inputs\n\n| file | bytes | sha256 |\n|---|---|---|\n")
	for _, in := range set.Inputs {
		fmt.Fprintf(&page, "| %s | %d | `%s` |\n", markdownText(in.Name), in.Bytes, markdownText(in.SHA256))
	}
	fmt.Fprintf(&page, "\n## How to check\n\nThe digest of the coefficient file is `%s`; it detects accidents, not attackers.\n\n"+
		"```sh\nblis-train check coefficients.yaml\nblis-train check coefficients.yaml --against run.yaml\n"+
		"blis-train check coefficients.yaml --data RECORDINGS --refit\n```\n", digest)
	return &Output{Files: []File{{Data: page.Bytes()}}}, nil
}

// markdownText returns a text of a recording as one line that is no markup in a table's cell.
func markdownText(s string) string {
	return cardEscapes.Replace(files.Line(s))
}

var cardEscapes = strings.NewReplacer(`\`, `\\`, "|", `\|`, "&", "&amp;", "<", "&lt;", ">", "&gt;", "`", "'", "[", `\[`, "]", `\]`,
	"*", `\*`, "_", `\_`, "#", `\#`, "@", "&#64;")
