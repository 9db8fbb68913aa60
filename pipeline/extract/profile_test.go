package extract

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/blis-train/blis-train/trace"
)

// TestProfileStatesSharing: the GuideLLM scenario in a run's folder states what prompts share, unless run.yaml does.
func TestProfileStatesSharing(t *testing.T) {
	const run = "model: {id: meta-llama/Llama-3.1-8B-Instruct}\nhardware: {name: H100}\n" +
		"vllm: {version: 0.15.1, max_num_seqs: 256, max_num_batched_tokens: 8192}\n"
	const profile = "data: {prompt_tokens: 2048, prefix_tokens: 1024}\n"
	none := trace.Opt[int64]{}
	for name, c := range map[string]struct {
		run, profile string
		want         trace.Opt[int64]
		isRead       bool
	}{
		"no profile":             {run: run, want: none},
		"a profile":              {run: run, profile: profile, want: trace.Some(int64(1024)), isRead: true},
		"a profile without data": {run: run, profile: "name: x\n", want: none},
		"run.yaml first":         {run: run + "client: {shared_prefix_tokens: 0}\n", profile: profile, want: trace.Some(int64(0))},
	} {
		dir := t.TempDir()
		for file, text := range map[string]string{"run.yaml": c.run, "profile.yaml": c.profile} {
			if text == "" {
				continue
			}
			if err := os.WriteFile(filepath.Join(dir, file), []byte(text), 0o600); err != nil {
				t.Fatal(err)
			}
		}
		runs, err := Find([]string{dir})
		if err != nil || len(runs) != 1 || runs[0].Bad != nil {
			t.Fatalf("%s: got %+v, %v", name, runs, err)
		}
		d := runs[0].Deployment
		isRead := filepath.Base(d.Read[len(d.Read)-1]) == "profile.yaml"
		if d.Client.SharedPrefixTokens != c.want || isRead != c.isRead {
			t.Errorf("%s: got %+v, read %v, want %+v", name, d.Client.SharedPrefixTokens, d.Read, c.want)
		}
	}
}
