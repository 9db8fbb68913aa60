package clients

// This file reads the aggregates of InferenceX (earlier InferenceMAX) as load levels.

import (
	"fmt"
	"strings"

	"github.com/blis-train/blis-train/trace"
)

// sniffInferenceX reports whether a file has aggregates of InferenceX (earlier InferenceMAX), one
// or a list.
func sniffInferenceX(head []byte) bool {
	return (isObject(head) || isList(head)) && containsAll(head, `"tput_per_gpu"`, `"conc"`)
}

// inferenceXPaths are the figures of one aggregate: nominal lengths, times in seconds.
var inferenceXPaths = levelPaths{
	prompt:     "isl",
	output:     "osl",
	ttft:       "mean_ttft",
	ttftMedian: "median_ttft",
	itl:        "mean_tpot",
	e2e:        "mean_e2el",
	clients:    "conc",
	timeMs:     1000,
	e2eMs:      1000,
}

// readInferenceX reads the aggregates of InferenceX: the figures of vLLM's client, whose keys
// that end in _ms are here without it and in seconds, with nominal lengths and how the server
// was started; there is no count of requests. What several engines served in a row
// (disaggregated), or with drafts, is no level of one engine and is dropped.
//
// Source: SemiAnalysisAI/InferenceX@843c625 and @00e51cc, utils/process_result.py.
func readInferenceX(f *LevelFile, data []byte, name string) error {
	if isList(trimHead(data)) {
		return f.readRows(data, name, func(row map[string]any, where string) { f.addInferenceXLevel(row, name, where) })
	}
	doc, err := decodeObject(data, name)
	if err != nil {
		return err
	}
	f.addInferenceXLevel(doc, name, name)
	return nil
}

// addInferenceXLevel adds one aggregate of the file name as a load level, or drops it. where is its place
// in errors.
func (f *LevelFile) addInferenceXLevel(doc map[string]any, name, where string) {
	text := func(key string) string { return strings.ToLower(strings.TrimSpace(fmt.Sprint(doc[key]))) }
	isOn := func(key string) bool {
		switch text(key) {
		case "<nil>", "", "false", "none", "off", "no", "0":
			return false
		}
		return true
	}
	for _, key := range []string{"disagg", "spec_decoding", "mtp"} {
		if isOn(key) {
			f.dropLevel("%s: %s: got %.20s, want a level that one engine served without drafts", where, key, text(key))
			return
		}
	}
	l := inferenceXPaths.level(doc, name)
	sizes := []struct {
		key string
		to  *int
	}{{"tp", &l.TP}, {"ep", &l.EP}}
	for _, size := range sizes {
		v := numberAt(doc, size.key)
		if doc[size.key] != nil && !(v >= 1 && v <= mostCounts) && text(size.key) != "0" {
			f.dropLevel("%s: %s: got %.20s, want a number of GPUs", where, size.key, text(size.key))
			return
		}
		*size.to = int(v)
	}
	if isOn("dp_attention") { // its tp devices are as many data-parallel ranks
		l.DP = l.TP
		l.TP = 1
	}
	f.Findings = append(f.Findings, trace.Findingf(CodeClientFile,
		"%s: names model %.60s, hardware %.20s, framework %.20s, precision %.20s: run.yaml's are used, which must "+
			"be the same; its lengths are nominal", where, text("model"), text("hw"), text("framework"),
		text("precision")))
	l.nameStrategy()
	f.addLevel(l, where)
}
