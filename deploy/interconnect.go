package deploy

import (
	"embed"
	"encoding/json"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"sync"
)

//go:embed interconnect/*.json
var interconnectFiles embed.FS

// AllReduce is what one all-reduce takes among the GPUs of one group, by size,
// as vLLM performs it. It is immutable and safe to share.
type AllReduce struct{ Bytes, TimeUs []float64 }

// Us is the time of one tensor: linear between published sizes, proportional
// beyond the largest.
func (a *AllReduce) Us(bytes float64) float64 {
	n := len(a.Bytes)
	switch {
	case bytes <= a.Bytes[0]:
		return a.TimeUs[0]
	case bytes >= a.Bytes[n-1]:
		return a.TimeUs[n-1] * bytes / a.Bytes[n-1]
	}
	i, _ := slices.BinarySearch(a.Bytes, bytes)
	t := (bytes - a.Bytes[i-1]) / (a.Bytes[i] - a.Bytes[i-1])
	return a.TimeUs[i-1] + float64(t*(a.TimeUs[i]-a.TimeUs[i-1]))
}

// AllReduceOf are the published curves of a built-in device and number of GPUs,
// inside CUDA graphs and outside; nil without one.
func AllReduceOf(hardware string, gpus int64) (graph, eager *AllReduce) {
	h, ok := Datasheet(hardware)
	if !ok {
		return nil, nil
	}
	c := interconnects()[h.Name][gpus]
	return c.graph, c.eager
}

// interconnect is a device's curves for one number of GPUs.
type interconnect struct{ graph, eager *AllReduce }

// interconnects parses the embedded curves once, by device and number of GPUs.
var interconnects = sync.OnceValue(func() map[string]map[int64]interconnect {
	entries, err := interconnectFiles.ReadDir("interconnect")
	if err != nil {
		panic("deploy: embedded interconnects: " + err.Error())
	}
	all := map[string]map[int64]interconnect{}
	for _, e := range entries {
		data, err := interconnectFiles.ReadFile("interconnect/" + e.Name())
		var file struct {
			Name  string           `json:"name"`
			Graph map[string]knots `json:"all_reduce_graph_us"`
			Eager map[string]knots `json:"all_reduce_eager_us"`
		}
		if err == nil {
			err = json.Unmarshal(data, &file)
		}
		if err != nil {
			panic("deploy: embedded interconnect " + e.Name() + ": " + err.Error())
		}
		all[file.Name] = map[int64]interconnect{}
		for text, k := range file.Graph {
			gpus, _ := strconv.ParseInt(text, 10, 64)
			all[file.Name][gpus] = interconnect{k.curve(), file.Eager[text].curve()}
		}
	}
	return all
})

// knots are [bytes, us] in ascending order.
type knots [][2]float64

func (ks knots) curve() *AllReduce {
	a := &AllReduce{}
	for _, k := range ks {
		a.Bytes, a.TimeUs = append(a.Bytes, k[0]), append(a.TimeUs, k[1])
	}
	return a
}

const (
	kib = 1 << 10
	mib = 1 << 20
)

// FusedAllReduce is FlashInfer's all-reduce with residual addition and RMSNorm
// in one kernel (compute capability 10), as published with the kernels:
// flashinfer-ai/flashinfer pull request 5178, hidden size 5120, fused columns of
// 4 and 8 GPUs. Two GPUs are taken as four. maxBytes is the largest tensor vLLM
// reduces that way; nil when the engine does not, or the GPU cannot.
func (d *Deployment) FusedAllReduce() (curve *AllReduce, maxBytes float64) {
	text := fmt.Sprint(d.Engine.Extra["compilation_config"])
	fuses := strings.Contains(text, "enable_fi_allreduce_fusion") || strings.Contains(text, "fuse_allreduce_rms")
	if !fuses || !strings.HasPrefix(d.Hardware.Name, "B200") {
		return nil, 0
	}
	switch d.TP {
	case 2, 4:
		return fusedOver4, 32 * mib
	case 8:
		return fusedOver8, 8 * mib
	}
	return nil, 0
}

var (
	fusedBytes = []float64{10 * kib, 20 * kib, 80 * kib, 160 * kib, 320 * kib, 640 * kib, 1280 * kib, 2560 * kib, 5 * mib, 10 * mib, 20 * mib,
		40 * mib, 80 * mib}
	fusedOver4 = &AllReduce{fusedBytes, []float64{4.09, 4.30, 4.30, 4.81, 5.83, 7.66, 9.31, 13.00, 20.32, 42.03, 72.10, 128.35, 240.37}}
	fusedOver8 = &AllReduce{fusedBytes, []float64{4.81, 4.90, 5.22, 6.04, 7.57, 8.29, 9.93, 13.72, 21.50, 41.52, 83.86, 147.66, 304.85}}
)
