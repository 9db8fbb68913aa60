package pipeline

import (
	"context"
	"fmt"
	"math"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/blis-train/blis-train/deploy"
	"github.com/blis-train/blis-train/internal/repo"
	"github.com/blis-train/blis-train/pipeline/extract/clients"
	"github.com/blis-train/blis-train/trace"
	"github.com/blis-train/blis-train/trace/table"
)

// extractedTotals are totals of the requests that were extracted from a planted recording.
type extractedTotals struct {
	Requests, Sent, Paired, TTFTs, Gaps, E2Es, LoadOnly int
	LongerPrompts                                       int64 // sum of prompt tokens less the server's
}

// withEncoder returns the log with the figures of an encoder in every nth pass with a prompt.
func withEncoder(log, figures string, nth int) string {
	lines := strings.SplitAfter(log, "\n")
	prompts := 0
	for i, line := range lines {
		if !strings.Contains(line, "Iteration(") || strings.Contains(line, " 0 context requests") {
			continue
		}
		prompts++
		if prompts%nth == 0 {
			lines[i] = strings.TrimSuffix(line, "\n") + figures + "\n"
		}
	}
	return strings.Join(lines, "")
}

// TestWrongRecordings: what a client of a planted server left out or states in its own way is named, is not
// used, and takes nothing else with it.
func TestWrongRecordings(t *testing.T) {
	load := stockLoad
	load.n = 40
	load.output = 60
	load.outputSpread = 0.4
	_, dep := plantedDir(t)
	recording := recordPlanted(t, dep, load)
	whole := func(v *clientView) { v.chunksUs = v.chunksUs[len(v.chunksUs)-1:] }
	early := func(v *clientView) { v.chunksUs = append([]int64{v.sentUs + 100}, v.chunksUs[1:]...) }
	all := extractedTotals{Requests: 40, Sent: 40, Paired: 40, TTFTs: 40, Gaps: 40, E2Es: 40}
	ownGaps := all
	ownGaps.Gaps = 0 // TraceV2 and SGLang's rows have no time of each chunk
	ended := extractedTotals{Requests: 40, Sent: 40, Paired: 40, E2Es: 40}
	unsent := all // paired with the log by their order, and not replayed
	unsent.Sent = 0
	for _, c := range []struct {
		name    string
		client  string
		as      recordedAs
		change  func(*clientView)
		rewrite func(file string) string
		log     func(string) string
		finding string // regular expression; empty: none of first tokens
		want    extractedTotals
	}{
		{name: "begin of sequence", client: "vllm bench", as: recordedAs{template: 1},
			finding: `40 of 40 prompts of the log are 1 token`, want: all},
		{name: "text tokenised again", client: "AIPerf 0.13",
			change:  func(v *clientView) { v.plantedRequest.prompt = v.plantedRequest.prompt * 10 / 13 },
			finding: `log computed \d+ tokens of 40 prompts .* by another factor in each .*: the server's count is used`, want: all},
		{name: "three tokens in the first chunk", client: "vllm bench", as: recordedAs{usage: true},
			change:  func(v *clientView) { v.chunksUs = v.chunksUs[2:] },
			finding: `first chunk lies about 2 steps behind the prefill`, want: ended},
		{name: "a stretch in the middle", client: "inference-perf", as: recordedAs{usage: true},
			change: func(v *clientView) {
				v.chunksUs = slices.Delete(slices.Clone(v.chunksUs), 4, min(20, len(v.chunksUs)-2))
			},
			finding: `a stretch was not shown; TTFT is used`, want: all},
		{name: "reasoning, another share", client: "GuideLLM 0.8", as: recordedAs{usage: true, hidden: 0.35},
			finding: `first chunk lies about \d+ steps behind the prefill`, want: ended},
		{name: "no start times, the file's key is absent", client: "vllm bench",
			rewrite: func(s string) string { return strings.Replace(s, `"start_times"`, `"other"`, 1) },
			finding: `40 of 40 requests have no start time`, want: unsent},
		{name: "no start times, another client", client: "SGLang's client",
			finding: `40 of 40 requests have no start time`, want: unsent},
		{name: "one chunk", client: "inference-perf", as: recordedAs{usage: true}, change: whole,
			finding: `40 of 40 answers of several tokens came in one chunk`, want: ended},
		{name: "one chunk of most", client: "TraceV2", as: recordedAs{usage: true},
			change: func(v *clientView) {
				if v.id >= 10 {
					whole(v)
				}
			},
			finding: `30 of 40 answers of several tokens came in one chunk`,
			want:    extractedTotals{Requests: 40, Sent: 40, Paired: 40, TTFTs: 10, E2Es: 40}},
		{name: "one chunk, not counted", client: "AIPerf 0.13", as: recordedAs{usage: true}, change: whole,
			finding: `40 of 40 answers of several tokens came in one chunk`, want: ended},
		{name: "first chunks of the role alone", client: "vllm bench", as: recordedAs{usage: true}, change: early,
			finding: `40 of 40 answers have a TTFT, and 0 an ITL, below`, want: ended},
		{name: "first chunks of the role alone, another client", client: "GuideLLM 0.8", as: recordedAs{usage: true}, change: early,
			finding: `40 of 40 answers have a TTFT, and 0 an ITL, below`, want: ended},
		{name: "encoder in every fourth prompt", client: "AIPerf 0.13", as: recordedAs{usage: true},
			log:     func(s string) string { return withEncoder(s, ", encoder inputs: 1, encoder output embeddings: 256", 4) },
			finding: `of 40 requests ran while 9 passes ran a multimodal encoder`, want: all},
		{name: "encoder in one prompt", client: "TraceV2", as: recordedAs{usage: true},
			log: func(s string) string {
				return withEncoder(s, ", encoder inputs: 6, encoder output embeddings: 8192", 30)
			},
			finding: `of 40 requests ran while 1 passes ran a multimodal encoder`, want: ownGaps},
	} {
		t.Run(c.name, func(t *testing.T) {
			views := recording.view(c.as)
			for i := range views {
				if c.change != nil {
					c.change(&views[i])
				}
			}
			client := plantedClients[slices.IndexFunc(plantedClients, func(p plantedClient) bool { return p.name == c.client })]
			file := client.write(views, c.as)
			if c.rewrite != nil {
				file = c.rewrite(file)
			}
			log := recording.log
			if c.log != nil {
				log = c.log(log)
			}
			dir, _ := plantedDir(t)
			repo.Write(t, log, dir, "server.log")
			repo.Write(t, file, dir, client.file)
			run, warnings := extractPlanted(t, dir)
			var got extractedTotals
			for i := range run.Observed {
				r := &run.Observed[i]
				got.Requests++
				got.LongerPrompts += r.PromptTokens.V
				for _, k := range []struct {
					isTrue bool
					count  *int
				}{{r.SendNs.OK, &got.Sent}, {r.Iteration.OK, &got.Paired}, {r.TTFTUs.OK, &got.TTFTs}, {r.ChunkGapsUs != nil, &got.Gaps},
					{r.E2EUs.OK, &got.E2Es}, {r.LoadOnly.V, &got.LoadOnly}} {
					if k.isTrue {
						*k.count++
					}
				}
			}
			for _, r := range recording.requests {
				got.LongerPrompts -= r.prompt
			}
			if c.log != nil {
				if got.LoadOnly == 0 || got.LoadOnly == 40 {
					t.Errorf("%d of 40 requests are load only", got.LoadOnly)
				}
				got.LoadOnly = 0
			}
			if got != c.want {
				t.Errorf("got %+v, want %+v", got, c.want)
			}
			if !regexp.MustCompile(c.finding).MatchString(warnings) {
				t.Errorf("no finding %q in:\n%s", c.finding, warnings)
			}
		})
	}
}

// extractPlanted extracts a folder, and returns its client requests and the text of its warnings.
func extractPlanted(t *testing.T, dir string) (*trace.Run, string) {
	t.Helper()
	o := DefaultExtractOptions()
	o.Out = t.TempDir()
	ext, err := Extract(context.Background(), []string{dir}, o)
	if err != nil {
		t.Fatal(err)
	}
	run, err := table.Read(table.RunDir(o.Out, ext.Runs[0].ID), table.ObservedRequests)
	if err != nil {
		t.Fatal(err)
	}
	var text strings.Builder
	for _, w := range ext.Runs[0].Warnings {
		fmt.Fprintln(&text, w)
	}
	return run, text.String()
}

// TestSkewedPhases: whatever a client's clock is ahead of or behind the stated phases, its requests get the
// phases that they get with the same clock.
func TestSkewedPhases(t *testing.T) {
	load := stockLoad
	load.n = 60
	load.output = 30
	_, dep := plantedDir(t)
	views := recordPlanted(t, dep, load).view(recordedAs{usage: true})
	for _, c := range []struct {
		name   string
		client string
		sizes  []int // requests of each load; a load starts 5 s after its phase
		skewS  float64
	}{
		{"an hour ahead, three loads", "vllm bench", []int{12, 28, 20}, 3600},
		{"a day ahead, one load", "vllm bench", []int{60}, 86_400},
		{"two minutes behind, two loads", "inference-perf", []int{25, 35}, -120},
	} {
		t.Run(c.name, func(t *testing.T) {
			phases := [2]map[string]string{}
			for k, skewS := range []float64{0, c.skewS} {
				dir, _ := plantedDir(t)
				client := plantedClients[slices.IndexFunc(plantedClients, func(p plantedClient) bool { return p.name == c.client })]
				var stated []string
				beginUs := int64(0)
				next := 0
				for n, size := range c.sizes {
					part := slices.Clone(views[next : next+size])
					next += size
					moveUs := beginUs + 5e6 - part[0].sentUs
					lastUs := int64(0)
					for i := range part {
						part[i].sentUs += moveUs + int64(skewS*1e6)
						part[i].chunksUs = slices.Clone(part[i].chunksUs)
						for j := range part[i].chunksUs {
							part[i].chunksUs[j] += moveUs + int64(skewS*1e6)
						}
						lastUs = max(lastUs, part[i].chunksUs[len(part[i].chunksUs)-1]-int64(skewS*1e6))
					}
					repo.Write(t, client.write(part, recordedAs{usage: true}), dir, fmt.Sprintf("p%d-%s", n, client.file))
					endUs := lastUs + 400_000
					stated = append(stated, fmt.Sprintf("- {name: p%d, start_ns: %d, end_ns: %d}\n", n, int64(1000*monotonicS(beginUs))*1e6,
						int64(math.Ceil(1000*monotonicS(endUs)))*1e6))
					beginUs = endUs + 20_000
				}
				repo.Write(t, plantedRun+"phases:\n"+strings.Join(stated, ""), dir, "run.yaml")
				if _, err := deploy.LoadRun(dir); err != nil {
					t.Fatal(err)
				}
				run, warnings := extractPlanted(t, dir)
				phases[k] = map[string]string{}
				counts := map[string]int{}
				for i := range run.Observed {
					r := &run.Observed[i]
					phases[k][r.ID] = r.Phase.V
					counts[r.Phase.V]++
				}
				for n, size := range c.sizes {
					if counts[fmt.Sprintf("p%d", n)] != size {
						t.Errorf("skew of %g s: got %v, want %v; warnings:\n%s", skewS, counts, c.sizes, warnings)
					}
				}
				if isTold := strings.Contains(warnings, string(clients.CodeClientFile)) && strings.Contains(warnings, "phases of run.yaml"); isTold != (skewS != 0) {
					t.Errorf("skew of %g s: told %v:\n%s", skewS, isTold, warnings)
				}
			}
			if a, b := asJSON(phases[0]), asJSON(phases[1]); a != b {
				t.Errorf("phases with the same clock:\n%s\nwith another:\n%s", a, b)
			}
		})
	}
}

// TestPhasesInAnotherUnit: phases that no request lies in, because they are stated in us, are not used and named; no
// request is lost.
func TestPhasesInAnotherUnit(t *testing.T) {
	load := stockLoad
	load.n = 60
	load.output = 30
	dir, dep := plantedDir(t)
	views := recordPlanted(t, dep, load).view(recordedAs{usage: true})
	repo.Write(t, writeVLLMBench(views, recordedAs{usage: true}), dir, "openai-4.0qps-m.json")
	us := func(at int64) int64 { return int64(monotonicS(at) * 1e6) }
	last := views[len(views)-1]
	repo.Write(t, fmt.Sprintf("%sphases:\n- {name: p0, start_ns: %d, end_ns: %d}\n", plantedRun, us(0), us(last.chunksUs[len(last.chunksUs)-1]+400_000)), dir, "run.yaml")
	run, warnings := extractPlanted(t, dir)
	if len(run.Observed) != 60 || !strings.Contains(warnings, "none of 60 requests lies in a phase of run.yaml") {
		t.Errorf("got %d requests, want 60 and the reason:\n%s", len(run.Observed), warnings)
	}
	for i := range run.Observed {
		if r := &run.Observed[i]; r.Phase.V == "p0" || !r.TTFTUs.OK {
			t.Errorf("request %s: got the phase %q", r.ID, r.Phase.V)
		}
	}
}
