package forms

import (
	"bytes"
	"math"

	"github.com/blis-train/blis-train/trace"
)

// isStages recognises a lifecycle report of inference-perf.
func isStages(head []byte) bool {
	return bytes.Contains(head, []byte(`"load_summary"`)) && bytes.Contains(head, []byte(`"successes"`))
}

// tpotTol is by how much the file's own TPOT may miss what latency, TTFT and output
// tokens say.
const tpotTol = 0.1

// stage reads the report of one stage, or of a whole run, which names no load. Times
// are seconds. Its TPOT divides by the stamps it took of the stream, which in some
// versions are two a token: what latency, TTFT and tokens say goes before it.
func (f *File) stage(doc any, name string) {
	p := forms().Stage.point(doc, name)
	if gap := (p.E2EMs - p.TTFTMeanMs) / (p.OutputTokens - 1); gap > 0 && !math.IsInf(gap, 0) {
		if math.Abs(p.ITLMs/gap-1) > tpotTol {
			f.Findings = append(f.Findings, trace.Findingf(CodeClientFile, "%s: time_per_output_token: got %.3g ms, but latency, TTFT and "+
				"%.4g output tokens say %.3g ms; the latter is used", name, p.ITLMs, p.OutputTokens, gap))
		}
		p.ITLMs = gap
	}
	p.offered()
	f.keep(p, name)
}
