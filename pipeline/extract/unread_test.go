package extract

import (
	"strings"
	"testing"

	"github.com/blis-train/blis-train/internal/repo"
)

// TestUnreadFilesAreNamed: a file of a run folder that looks like a recording and is none, is
// empty or is cut is named once, beside a recording that is read; documents about the recording
// are not. What cannot be read is a dropped record.
func TestUnreadFilesAreNamed(t *testing.T) {
	bench := `{"date":"20261123","completed":2,"total_input_tokens":20,"input_lens":[10,10],"output_lens":[3,3],` +
		`"ttfts":[0.1,0.1],"itls":[[0.01,0.01],[0.01,0.01]]}`
	jaeger := `{"data":[{"traceID":"ab","spans":[{"traceID":"ab","operationName":"llm_request"}]}]}`
	for name, c := range map[string]struct {
		text, says string
		lost       string
	}{
		"result.json":             {"", "result.json: not read; it is empty", ""},
		"blank.jsonl":             {" \n\r\n\t", "blank.jsonl: not read; it is empty", ""},
		"blanks.jsonl":            {strings.Repeat("\n", 1<<16), "blanks.jsonl: not read; it begins with blanks alone", ""},
		"levels.csv":              {"", "levels.csv: not read; it is empty", ""},
		"server.log":              {"", "server.log: not read; it is empty", ""},
		"server.log.1":            {"", "server.log.1: not read; it is empty", ""},
		"after.prom":              {"", "after.prom: not read; it is empty", ""},
		"packed.json.gz":          {string(gzipped(nil)), "packed.json.gz: not read; it is empty", ""},
		"torn.json.gz":            {string(cut(gzipped([]byte(bench)), 40)), "torn.json.gz", "file_cut"},
		"no.json.zst":             {"no zstd", "no.json.zst", ""},
		"bench_early.json":        {bench[:40], "bench_early.json: not read; its JSON ends within a value", "unreadable"},
		"bench_middle.json":       {bench[:130], "bench_middle.json: unexpected EOF: the file is cut off", "file_cut"},
		"bench_list.json":         {`[{"x":1},{"x":`, "bench_list.json: not read; its JSON ends within a value", "unreadable"},
		"lines.jsonl":             {"{\"a\":1}\n{\"a\":", "lines.jsonl: not read; its JSON ends within a value that begins", "unreadable"},
		"other.json":              {`{"b": 1, "a": 2}`, "other.json: not read; got the keys a, b, want a form of docs/formats.md", ""},
		"other.csv":               {"x,y\n1,2\n", `other.csv: not read; got the first line "x,y"`, ""},
		"client.log":              {"all went well\n", `client.log: not read; got the first line "all went`, ""},
		"jaeger.json":             {jaeger, "jaeger.json: not read; this is a Jaeger export", ""},
		"spans-of-b.json":         {goodLines(1)[0], "spans-of-b.json: not read; its spans are read where `files.traces`", ""},
		"data.jsonl":              {"a\x00b", "data.jsonl: not read; it is binary", ""},
		"README.md":               {"", "", ""},
		"notes.txt":               {"cold start", "", ""},
		"notes.json":              {`{"a": 1}`, "", ""},
		"about.json":              {"", "about.json: not read; it is empty", ""},
		"host.json":               {`{"a": 1,`, "host.json: not read; its JSON ends within a value", "unreadable"},
		"machine.json":            {`{"cores": 2}`, "", ""},
		"generation_config.json":  {`{"a": 1}`, "", ""},
		"tokenizer_config.json":   {`{"a": 1}`, "", ""},
		"model.safetensors":       {"\x00\x01", "", ""},
		"exp-config.yaml":         {"a: 1", "", ""},
		".hidden.json":            {"", "", ""},
		"model.index.json":        {`{"weight_map": {}}`, "", ""},
		"special_tokens_map.json": {`{}`, "", ""},
	} {
		t.Run(name, func(t *testing.T) {
			dir := smallRun(t, t.TempDir(), "a", goodLines(4))
			out := t.TempDir()
			before, err := extractArgs(t, out, nil, dir)
			if err != nil {
				t.Fatal(err)
			}
			repo.Write(t, c.text, dir, name)
			doc, err := extractArgs(t, out, nil, dir)
			if err != nil {
				t.Fatal(err)
			}
			r, said := doc.Runs[0], 0
			for _, w := range r.Warnings {
				if w.Code == codeNoInput {
					said++
					if !strings.Contains(w.Message, c.says) || c.says == "" {
						t.Errorf("got %q, want %q", w.Message, c.says)
					}
				}
			}
			if want := min(1, len(c.says)); said != want {
				t.Errorf("got %d warnings, want %d: %v", said, want, r.Warnings)
			}
			was := before.Runs[0].Records
			if got := r.Records.Dropped[c.lost] - was.Dropped[c.lost]; got != int64(min(1, len(c.lost))) || !r.Records.Balanced() ||
				r.Records.Kept != was.Kept {
				t.Errorf("got %d more %q of %+v", got, c.lost, r.Records)
			}
		})
	}
}
