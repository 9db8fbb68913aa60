package clients

import (
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// TestChunkFile: the times of chunks are in a file of their own, in any order; those
// of requests that are not there are counted.
func TestChunkFile(t *testing.T) {
	rows := strings.Join(traceRows(2, 3e6, 3, 3), "\n") + "\n"
	const chunks = "request_id,chunk_index,timestamp_us\n1,1,4500000\n1,0,4100000\n1,2,5000000\n" +
		"0,0,1100000\n0,1,1600000\n0,2,2000000\n7,0,1\nx\n"
	c := readFiles(t, map[string]string{"t.csv": rows, "t.itl.csv": chunks, "t.yaml": fmt.Sprintf(traceHeader, 0)})
	if len(c.Requests) != 2 || c.Acc.Dropped[CodeClientFile] != 1 || c.Acc.Dropped["unreadable"] != 1 {
		t.Fatalf("got %d rows, %v", len(c.Requests), c.Acc.Dropped)
	}
	if d := cmp.Diff([][]float64{{500_000, 400_000}, {400_000, 500_000}}, [][]float64{c.Requests[0].ChunkGapsUs, c.Requests[1].ChunkGapsUs}); d != "" {
		t.Errorf("(-want +got):\n%s", d)
	}
}
