package report

import (
	"testing"

	"github.com/blis-train/blis-train/result"
)

// The bias figure names the runs that leave +-10 %, worst first, each once.
func TestFarthestBlocks(t *testing.T) {
	got := farthestBlocks([]result.DriftBlock{{Run: "a", Block: 1, Bias: 0.05}, {Run: "b", Block: 1, Bias: -0.2},
		{Run: "b", Block: 2, Bias: -0.3}, {Run: "c", Block: 2, Bias: -0.29}, {Run: "d", Block: 3, Bias: 0.11}})
	if len(got) != 2 || got[0].Run != "b" || got[0].Block != 2 || got[1].Run != "d" {
		t.Errorf("got %+v", got)
	}
}
