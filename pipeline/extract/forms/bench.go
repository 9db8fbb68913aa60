package forms

import (
	"bufio"
	"bytes"
	"encoding/json"
	"fmt"
	"io"

	"github.com/blis-train/blis-train/trace"
)

// isBench recognises the result of `vllm bench serve --save-result`.
func isBench(head []byte) bool {
	return bytes.Contains(head, []byte(`"total_input_tokens"`)) && bytes.Contains(head, []byte(`"completed"`))
}

// benches reads the summaries that vllm bench serve or SGLang's client appended to one file.
func (f *File) benches(data []byte, name string) error {
	dec := json.NewDecoder(&finite{r: bufio.NewReader(bytes.NewReader(data))})
	for at := name; ; at = fmt.Sprintf("%s:%d", name, f.Read+1) {
		var text json.RawMessage
		err := dec.Decode(&text)
		if err == io.EOF {
			return nil
		}
		var doc map[string]any
		if err == nil {
			err = trace.UnmarshalJSON(text, &doc)
		}
		if err != nil {
			return syntax(at, data, err)
		}
		kept := len(f.Points)
		if f.bench(doc, at); len(f.Points) > kept && f.Read > 1 {
			f.Points[kept].Sweep, f.Points[kept].Line = name, int64(f.Read)
		}
	}
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
