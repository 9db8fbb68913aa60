package deploy

import "testing"

func TestGraphTokens(t *testing.T) {
	for _, c := range []struct {
		seqs           int64
		tokens, padded float64
		captured       bool
	}{{256, 1, 1, true}, {256, 2, 2, true}, {256, 3, 4, true}, {256, 5, 8, true}, {256, 17, 24, true}, {256, 250, 256, true},
		{256, 257, 272, true},
		{256, 512, 512, true}, {256, 513, 513, false}, {1024, 600, 600, false}, {3, 5, 6, true}, {3, 7, 7, false}} {
		e := &Engine{MaxNumSeqs: c.seqs}
		if padded, captured := e.GraphTokens(c.tokens); padded != c.padded || captured != c.captured {
			t.Errorf("%g tokens at %d sequences: got %g, %v, want %g, %v", c.tokens, c.seqs, padded, captured, c.padded, c.captured)
		}
	}
}

func TestAllReduceCurves(t *testing.T) {
	graph, eager := AllReduceOf("H100", 8)
	if graph == nil || eager == nil || graph.Us(1) != graph.TimeUs[0] || graph.Us(2*512*mib) != 2*graph.Us(512*mib) ||
		eager.Us(4*mib) <= graph.Us(4*mib) {
		t.Errorf("H100: got %v and %v", graph, eager)
	}
	if mid := graph.Us(96 * kib); mid != (graph.Us(64*kib)+graph.Us(128*kib))/2 {
		t.Errorf("between two sizes: got %g", mid)
	}
	if graph, _ := AllReduceOf("H100", 3); graph != nil {
		t.Errorf("3 GPUs: got %v", graph)
	}
	if graph, _ := AllReduceOf("RTX 4090", 2); graph != nil {
		t.Errorf("a device without a table: got %v", graph)
	}
	d := &Deployment{Hardware: Hardware{Name: "B200-SXM-180GB"}, TP: 8,
		Engine: Engine{Extra: map[string]any{
			"compilation_config": map[string]any{"pass_config": map[string]any{"enable_fi_allreduce_fusion": true}}}}}
	if c, most := d.FusedAllReduce(); c == nil || most != 8*mib {
		t.Errorf("fused: got %v, %g", c, most)
	}
	d.Hardware.Name = "H100-SXM-80GB"
	if c, _ := d.FusedAllReduce(); c != nil {
		t.Errorf("fused on H100: got %v", c)
	}
}
