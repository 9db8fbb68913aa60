package main

import (
	"fmt"
	"slices"
	"sort"
	"strings"

	"github.com/blis-train/blis-train/autoscale"
	"github.com/blis-train/blis-train/cluster"
	"github.com/blis-train/blis-train/coeff"
	"github.com/blis-train/blis-train/deploy"
	"github.com/blis-train/blis-train/internal/files"
	"github.com/blis-train/blis-train/library"
	"github.com/blis-train/blis-train/pipeline/export"
	"github.com/blis-train/blis-train/pipeline/extract"
	"github.com/blis-train/blis-train/pipeline/extract/forms"
	"github.com/blis-train/blis-train/pipeline/extract/source"
	"github.com/blis-train/blis-train/pipeline/features"
	"github.com/blis-train/blis-train/pipeline/fit"
	"github.com/blis-train/blis-train/pipeline/folder"
	"github.com/blis-train/blis-train/pipeline/learn"
	"github.com/blis-train/blis-train/pipeline/report"
	"github.com/blis-train/blis-train/pipeline/rows"
	"github.com/blis-train/blis-train/pipeline/shard"
	"github.com/blis-train/blis-train/pipeline/validate"
	"github.com/blis-train/blis-train/predictor"
	"github.com/blis-train/blis-train/sim"
	"github.com/blis-train/blis-train/sim/workload"
	"github.com/blis-train/blis-train/trace"
	"github.com/blis-train/blis-train/trace/table"
	"github.com/blis-train/blis-train/trace/tracev2"
)

// codeRoom is one package's codes. A code means the same wherever it appears,
// but a room may say more about its own case.
type codeRoom struct {
	room  string
	codes []trace.CodeEntry
}

// codeRooms lists every package that declares codes.
func codeRooms() []codeRoom {
	return []codeRoom{
		{"autoscale", autoscale.Codes},
		{"cluster", cluster.Codes},
		{"coeff", coeff.Codes},
		{"deploy", deploy.Codes},
		{"internal/files", files.Codes},
		{"library", library.Codes},
		{"pipeline/export", export.Codes},
		{"pipeline/extract", extract.Codes},
		{"pipeline/extract/forms", forms.Codes},
		{"pipeline/extract/source", source.Codes},
		{"pipeline/features", features.Codes},
		{"pipeline/fit", fit.Codes},
		{"pipeline/folder", folder.Codes},
		{"pipeline/learn", learn.Codes},
		{"pipeline/rows", rows.Codes},
		{"pipeline/shard", shard.Codes},
		{"pipeline/validate", validate.Codes},
		{"predictor", predictor.Codes},
		{"sim", sim.Codes},
		{"sim/workload", workload.Codes},
		{"trace/table", table.Codes},
		{"trace/tracev2", tracev2.Codes},
	}
}

// explained is one code as explain prints it.
type explained struct {
	Code    trace.Code `json:"code"`
	Room    string     `json:"room"`
	Kind    string     `json:"kind"`
	Meaning string     `json:"meaning"`
	Action  string     `json:"action"`
}

// isUsage reports whether a code says that a command was called wrongly.
func isUsage(code trace.Code) bool {
	return slices.ContainsFunc(catalogue(), func(e explained) bool { return e.Code == code && e.Kind == trace.KindUsage })
}

// catalogue is every code of every room, sorted by code and room.
func catalogue() []explained {
	var all []explained
	for _, r := range codeRooms() {
		for _, e := range r.codes {
			all = append(all, explained{e.Code, r.room, e.Kind, sentence(e.Meaning), sentence(e.Action)})
		}
	}
	sort.Slice(all, func(i, j int) bool {
		if all[i].Code != all[j].Code {
			return all[i].Code < all[j].Code
		}
		return all[i].Room < all[j].Room
	})
	return all
}

// sentence makes s start with a capital and end with a stop.
func sentence(s string) string {
	s = strings.TrimSpace(s)
	if s == "" {
		return s
	}
	s = strings.ToUpper(s[:1]) + s[1:]
	if !strings.HasSuffix(s, ".") {
		s += "."
	}
	return s
}

// codesMarkdown is docs/codes.md.
func codesMarkdown(all []explained) []byte {
	var b strings.Builder
	b.WriteString("# Codes\n\nEvery drop, warning, finding and rejection has a code. `blis-train explain CODE` prints the same.\n")
	b.WriteString("This page is generated: `go test ./cmd/blis-train -run TestCodesPage -update-codes`.\n\n")
	t := report.NewTable("", "code", "kind", "where", "what it means", "what to do")
	for _, e := range all {
		t.Add(fmt.Sprintf("`%s`", e.Code), e.Kind, e.Room, e.Meaning, e.Action)
	}
	return []byte(b.String() + t.Markdown(cell))
}

func cell(s string) string { return strings.ReplaceAll(s, "|", "\\|") }
