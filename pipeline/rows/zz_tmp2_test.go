package rows

import (
	"fmt"
	"path/filepath"
	"testing"

	"github.com/blis-train/blis-train/pipeline/features"
)

func TestTmpOver(t *testing.T) {
	dirs, _ := filepath.Glob("/work/shared/data/real_vllm_cpu/[a-z]*")
	for _, dir := range dirs {
		run, d := tmpLoad(t, dir)
		s, err := Rebuild(run, d, features.V11)
		if err != nil {
			t.Fatal(err)
		}
		sp, _ := features.New(features.V11, d)
		a, _ := s.Alpha(sp, AlphaOptions{Target: Overhead})
		fmt.Printf("%-14s", run.ID)
		for _, mode := range []string{"all", "open", "closed", "hold"} {
			best, bc, n := 0, 0.0, 0
			for c := 100.0; c < 8000; c += 25 {
				in, m := 0, 0
				for i := range a.Lo {
					ph := ""
					if a.Phase[i] >= 0 {
						ph = d.Phases[a.Phase[i]].Name
					}
					if a.Exact[i] || mode == "open" && ph != "open-loop" || mode == "closed" && ph != "closed-loop" || mode == "hold" && !a.HoldOut[i] {
						continue
					}
					m++
					if a.Lo[i] <= c && c <= a.Hi[i] {
						in++
					}
				}
				if in > best {
					best, bc = in, c
				}
				n = m
			}
			fmt.Printf(" | %s n %d const %g %.3f", mode, n, bc, float64(best)/float64(max(1, n)))
		}
		fmt.Println()
	}
}
