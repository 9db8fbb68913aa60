package forms

import "bytes"

// isBench recognises the result of `vllm bench serve --save-result`.
func isBench(head []byte) bool {
	return bytes.Contains(head, []byte(`"total_input_tokens"`)) && bytes.Contains(head, []byte(`"completed"`))
}

// bench reads the summary of vllm bench serve: means over the requests that
// completed, times in ms.
func (f *File) bench(doc any, name string) {
	p := forms().Bench.point(doc, name)
	n := float64(p.Requests)
	p.PromptTokens, p.OutputTokens = p.PromptTokens/n, p.OutputTokens/n
	if p.Clients == 0 && p.OfferedRPS == 0 {
		p.Clients = p.Requests // all at once
	}
	p.offered()
	f.keep(p, name)
}
