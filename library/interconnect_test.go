package library

import (
	"flag"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/blis-train/blis-train/deploy"
	"github.com/blis-train/blis-train/internal/repo"
)

var update = flag.Bool("update", false, "rewrite deploy/interconnect from ../shared/data/kernels")

// TestInterconnectsAreTheTables compares the curves built into deploy with the
// published tables they are taken from.
func TestInterconnectsAreTheTables(t *testing.T) {
	dir := repo.Shared(t, "data", "kernels")
	gpus, err := gpUs(dir)
	if err != nil {
		t.Fatal(err)
	}
	for _, gpu := range gpus {
		tables, err := Load(dir, gpu)
		if err != nil {
			t.Fatal(err)
		}
		want := interconnectFile(tables)
		path := filepath.Join("..", "deploy", "interconnect", tables.Hardware.Name+".json")
		if *update {
			if err := os.WriteFile(path, []byte(want), 0o644); err != nil {
				t.Fatal(err)
			}
		}
		if got, err := os.ReadFile(path); err != nil || string(got) != want {
			t.Errorf("%s differs from the tables: go test ./library -run Interconnects -update (%v)", path, err)
		}
		if a, _ := deploy.AllReduceOf(gpu, 2); !*update && a == nil {
			t.Errorf("%s: no curve", gpu)
		}
	}
}

// interconnectFile holds the curves of each number of GPUs, inside CUDA graphs
// and outside: vLLM's own all-reduce, and NCCL's at the sizes vLLM hands to it.
// Outside graphs only what is larger than any captured step is kept.
func interconnectFile(t *Tables) string {
	var b strings.Builder
	fmt.Fprintf(&b, "{\n  \"name\": %q,\n  \"source\": \"ai-dynamo/aiconfigurator 095f58a51 (Apache-2.0), data/%s/comm: vLLM's "+
		"all-reduce, NCCL where vLLM uses it\"", t.Hardware.Name, t.GPU)
	for _, how := range []string{graph, eager} {
		fmt.Fprintf(&b, ",\n  \"all_reduce_%s_us\": {", how)
		for i, gpus := range []int64{2, 4, 8} {
			own, nccl := t.allReduce[reduceKey{how, gpus}].envelope(), t.nccl[reduceKey{allReduce, gpus}].envelope()
			fmt.Fprintf(&b, "%s\n    \"%d\": [", strings.Repeat(",", min(i, 1)), gpus)
			comma := ""
			for j, bytes := range own.x {
				ms := own.y[j]
				if way(t.capability, gpus, bytes, true) == wayNCCL {
					ms = nccl.at(bytes, 1)
				}
				if bytes > 512*mib || how == eager && bytes < mib {
					continue
				}
				fmt.Fprintf(&b, "%s[%.0f, %g]", comma, bytes, math.Round(ms*1e5)/1e2)
				comma = ", "
			}
			b.WriteString("]")
		}
		b.WriteString("\n  }")
	}
	b.WriteString("\n}\n")
	return b.String()
}
