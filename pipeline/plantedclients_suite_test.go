package pipeline

import (
	"context"
	"slices"
	"testing"

	"github.com/blis-train/blis-train/internal/repo"
	"github.com/blis-train/blis-train/pipeline/extract/source"
	"github.com/blis-train/blis-train/trace"
	"github.com/blis-train/blis-train/trace/table"
)

// TestClientsArePaired: whatever a client left out of a small planted recording, the log pairs every request that the client
// recorded with the server's prompt length, a first chunk that is none is told and not used, and E2E is. What the
// coefficients make of it is TestEvalSixClients.
func TestClientsArePaired(t *testing.T) {
	load := stockLoad
	load.n = 40
	load.output = 60
	load.outputSpread = 0.4
	_, dep := plantedDir(t)
	recording := recordPlanted(t, dep, load)
	for _, v := range []struct {
		name     string
		as       recordedAs
		requests int
	}{
		{"no usage, chat template", recordedAs{template: 13}, 40},
		{"usage, hidden", recordedAs{usage: true, hidden: 0.6}, 40},
		{"no usage, one missing", recordedAs{missing: 17}, 39},
		{"no usage, every tenth missing", recordedAs{missing: 7, every: 10}, 36},
	} {
		for _, c := range plantedClients {
			name := v.name + ", " + c.name
			dir, _ := plantedDir(t)
			repo.Write(t, recording.log, dir, "server.log")
			repo.Write(t, c.write(recording.view(v.as), v.as), dir, c.file)
			o := DefaultExtractOptions()
			o.Out = t.TempDir()
			ext, err := Extract(context.Background(), []string{dir}, o)
			if err != nil {
				t.Errorf("%s: %v", name, err)
				continue
			}
			run, err := table.Read(table.RunDir(o.Out, ext.Runs[0].ID), table.ObservedRequests)
			if err != nil {
				t.Fatal(err)
			}
			paired := 0
			firstTokens := 0
			longer := 0
			ends := 0
			for i := range run.Observed {
				r := &run.Observed[i]
				if r.Iteration.OK {
					paired++
				}
				if r.TTFTUs.OK {
					firstTokens++
				}
				if r.E2EUs.OK {
					ends++
				}
				longer += int(r.PromptTokens.V)
			}
			for i, r := range recording.requests {
				if !v.as.isMissing(i) {
					longer -= int(r.prompt)
				}
			}
			// One more in a busy period leaves the prompts around it open where several alignments are as good.
			if paired < v.requests-3 || v.as.missing == 0 && paired < v.requests || ends != v.requests || longer != 0 {
				t.Errorf("%s: %d of %d paired, %d with E2E, prompts longer than the server's by %d", name, paired, v.requests, ends, longer)
			}
			isTold := slices.ContainsFunc(ext.Runs[0].Warnings, func(w trace.Finding) bool { return w.Code == source.CodeFirstToken })
			if isHidden := v.as.hidden > 0; isTold != isHidden || isHidden != (firstTokens == 0) {
				t.Errorf("%s: hidden first tokens told: %v, %d TTFT used", name, isTold, firstTokens)
			}
		}
	}
}
