package vllm

import "testing"

func TestFusedAllReduceByRelease(t *testing.T) {
	stated := func(key string, on bool) Values {
		return Values{"compilation_config": map[string]any{"pass_config": map[string]any{key: on}}}
	}
	for _, c := range []struct {
		version                string
		tp, pp, dp, capability int64
		extra                  Values
		want                   bool
	}{
		{"0.16.0", 4, 1, 1, 100, nil, false},
		{"0.17.0", 4, 1, 1, 100, nil, true},
		{"0.17.0", 4, 1, 1, 90, nil, true},
		{"0.17.0", 4, 1, 1, 80, nil, false},
		{"0.17.0", 4, 1, 1, 103, nil, false},
		{"0.19.0", 4, 1, 1, 103, nil, true},
		{"0.24.0", 1, 1, 1, 100, nil, false},
		{"0.24.0", 4, 2, 1, 100, nil, false},
		{"0.17.0", 4, 1, 2, 100, nil, false},
		{"0.24.0", 4, 1, 2, 100, nil, true},
		{"0.24.0", 4, 1, 1, 100, stated("fuse_allreduce_rms", false), false},
		{"0.11.0", 4, 1, 1, 100, stated("enable_fi_allreduce_fusion", true), true},
		{"0.24.0", 4, 1, 1, 100, Values{"compilation_config": `{"pass_config": {"fuse_allreduce_rms": false}}`}, false},
		{"0.11.0", 4, 1, 1, 100, Values{"compilation_config": `{"pass_config": {"fuse_allreduce_rms": true}}`}, true},
		{"0.24.0", 4, 1, 1, 100, Values{"optimization_level": 1}, false},
		{"0.24.0", 4, 1, 1, 100, Values{"enforce_eager": true}, false},
	} {
		e := Engine{VLLMVersion: c.version, Extra: c.extra}
		if got := e.FusesAllReduce(c.tp, c.pp, c.dp, c.capability); got != c.want {
			t.Errorf("%+v: got %v", c, got)
		}
	}
}

func TestExpertsArePadded(t *testing.T) {
	for _, c := range []struct {
		backend           string
		capability, width int64
		wantHidden, want  int64
	}{
		{"marlin", 90, 1440, 3072, 1536},
		{"marlin", 90, 720, 3072, 768},
		{"marlin", 90, 360, 3072, 384},
		{"", 100, 360, 3072, 512},
		{"", 90, 360, 2880, 384},
		{"flashinfer_cutlass", 90, 360, 2944, 384},
	} {
		if h, w := PaddedExperts(c.backend, c.capability, 2880, c.width); h != c.wantHidden || w != c.want {
			t.Errorf("%+v: got %d, %d", c, h, w)
		}
	}
}
