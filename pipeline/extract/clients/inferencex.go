package clients

import (
	"bytes"
	"fmt"
	"strings"

	"github.com/blis-train/blis-train/trace"
)

// isInferenceX recognises the aggregates of InferenceX (earlier InferenceMAX), one or a list.
func isInferenceX(head []byte) bool {
	return bytes.Contains(head, []byte(`"tput_per_gpu"`)) && bytes.Contains(head, []byte(`"conc"`))
}

// inferenceX reads one level: the figures of vLLM's client, whose keys ending in ms stand without
// _ms and in seconds, with nominal lengths and how the server was started; no count of requests.
// With attention in data parallel its tp devices are as many ranks. What was served by several
// engines in a row, or with drafts, is no level of one. Read in SemiAnalysisAI/InferenceX@843c625
// and @00e51cc, utils/process_result.py.
func (f *LevelFile) inferenceX(doc map[string]any, name, at string) {
	said := func(key string) string { return strings.ToLower(strings.TrimSpace(fmt.Sprint(doc[key]))) }
	is := func(key string) bool {
		switch said(key) {
		case "<nil>", "", "false", "none", "off", "no", "0":
			return false
		}
		return true
	}
	for _, key := range []string{"disagg", "spec_decoding", "mtp"} {
		if is(key) {
			f.dropLevel("%s: %s: got %.20s, want a level that one engine served without drafts", at, key, said(key))
			return
		}
	}
	p := forms().InferenceX.point(doc, name)
	for i, to := range []*int{&p.TP, &p.EP} {
		key := [...]string{"tp", "ep"}[i]
		v := numberAt(doc, key)
		if doc[key] != nil && !(v >= 1 && v <= mostCount) && said(key) != "0" {
			f.dropLevel("%s: %s: got %.20s, want a number of GPUs", at, key, said(key))
			return
		}
		*to = int(v)
	}
	if is("dp_attention") {
		p.TP, p.DP = 1, p.TP
	}
	f.Findings = append(f.Findings, trace.Findingf(CodeClientFile, "%s: says model %.60s, hardware %.20s, framework %.20s, precision %.20s: "+
		"run.yaml's are taken, which must be those; its lengths are nominal", at, said("model"), said("hw"), said("framework"),
		said("precision")))
	p.offered()
	f.addLevel(p, at)
}
