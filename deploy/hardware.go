package deploy

import (
	"bytes"
	"embed"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"slices"
	"strconv"
	"strings"
	"sync"

	"github.com/blis-train/blis-train/internal/stat"
	"github.com/blis-train/blis-train/trace"
)

// What a datasheet that leaves it out has (spec#hardware).
const (
	DefaultPCIeEfficiency = 0.75
	DefaultLatencyUs      = 10.0 // collective latency over NVLink
	PCIeLatencyUs         = 20.0 // collective latency of cards without NVLink
)

//go:embed hardware/*.json
var sheetFiles embed.FS

// datasheet is a built-in device with where its figures are from and what its
// driver calls it.
type datasheet struct {
	Hardware
	Source string   `json:"source"` // where the figures are from, and when
	Names  []string `json:"names"`
}

// builtin parses the embedded datasheets once.
var builtin = sync.OnceValue(func() []datasheet {
	entries, err := sheetFiles.ReadDir("hardware")
	if err != nil {
		panic("deploy: embedded datasheets: " + err.Error())
	}
	var sheets []datasheet
	for _, e := range entries {
		f, err := sheetFiles.Open("hardware/" + e.Name())
		if err != nil {
			panic("deploy: embedded datasheet " + e.Name() + ": " + err.Error())
		}
		list, err := readSheets(f, e.Name())
		if err != nil {
			panic("deploy: embedded datasheet " + e.Name() + ": " + err.Error())
		}
		sheets = append(sheets, list...)
	}
	slices.SortStableFunc(sheets, func(a, b datasheet) int { return strings.Compare(a.Name, b.Name) })
	return sheets
})

// Datasheets returns the built-in devices, sorted by name (spec#datasheets).
func Datasheets() []Hardware {
	return stat.Map(builtin(), func(h datasheet) Hardware { return h.Hardware })
}

// Datasheet finds a built-in device by full name, by its driver's name or by alias,
// ignoring case: "H100-SXM-80GB", "NVIDIA H100 80GB HBM3", "H100", "RTX 4090". An
// alias of two devices is that of the one with more memory.
func Datasheet(name string) (Hardware, bool) {
	want := aliasKey(name)
	if want == "" {
		return Hardware{}, false
	}
	var found Hardware
	for _, h := range builtin() {
		own := spellings[h.Name]
		if slices.ContainsFunc(slices.Concat(h.Names, []string{h.Name}, own[:Cluster]), func(n string) bool { return aliasKey(n) == want }) {
			return h.Hardware, true
		}
		if slices.Contains(aliases(h.Name), want) && h.MemoryGB > found.MemoryGB {
			found = h.Hardware
		}
	}
	return found, found.Name != ""
}

// aliases are the short forms of a datasheet's name: without the memory size,
// without the form factor.
func aliases(name string) []string {
	parts := strings.Split(name, "-")
	noMemory := strings.Join(parts[:len(parts)-1], "")
	short := strings.ReplaceAll(noMemory, "SXM", "")
	return []string{aliasKey(noMemory), aliasKey(short), "nvidia" + aliasKey(short), aliasKey(short) + aliasKey(parts[len(parts)-1])}
}

// aliasKey drops case, dashes, spaces and underscores.
func aliasKey(name string) string {
	return strings.NewReplacer("-", "", " ", "", "_", "").Replace(strings.ToLower(name))
}

func datasheetNames() string {
	names := stat.Map(builtin(), func(h datasheet) string { return h.Name })
	return strings.Join(names, ", ")
}

// readDatasheets reads {"name": {TFlopsPeak, ...}}, sorted by name;
// unknown keys are errors.
func readDatasheets(r io.Reader, file string) ([]Hardware, error) {
	sheets, err := readSheets(r, file)
	list := stat.Map(sheets, func(d datasheet) Hardware { return d.Hardware })
	return list, err
}

func readSheets(r io.Reader, file string) ([]datasheet, error) {
	dec := json.NewDecoder(r)
	var sheets map[string]json.RawMessage
	err := dec.Decode(&sheets)
	if err == nil && dec.Decode(&json.RawMessage{}) != io.EOF {
		err = errors.New("got text behind the JSON object, want nothing")
	}
	list := make([]datasheet, 0, len(sheets))
	for _, name := range slices.Sorted(maps.Keys(sheets)) {
		h := datasheet{Hardware: Hardware{PCIeEfficiency: DefaultPCIeEfficiency, InterconnectLatencyUs: DefaultLatencyUs}}
		dec := json.NewDecoder(bytes.NewReader(sheets[name]))
		dec.DisallowUnknownFields()
		if err == nil {
			err = dec.Decode(&h)
		}
		h.Name = name
		list = append(list, h)
	}
	if err != nil {
		return nil, &trace.SyntaxError{File: file, Code: BadHardware, Msg: err.Error()}
	}
	return list, nil
}

// Consumer is a vocabulary of device names.
type Consumer int

// The vocabularies there are (spec#device-names).
const (
	BLISRegistry   Consumer = iota // parts of the BLIS registry's catalog: h100
	AIConfigurator                 // systems of AIConfigurator: h100_sxm
	Cluster                        // labels of autoscalers and of clusters: H100
	consumers
)

// spellings are the names of datasheets by consumer, "" where it has none. Names that begin like the datasheet's are known anyway.
var spellings = map[string][consumers]string{
	"A100-SXM-40GB":     {"", "", "A100"},
	"A100-SXM-80GB":     {"a100-sxm", "a100_sxm", "A100"},
	"A10G-24GB":         {"", "", "A10G"},
	"B200-SXM-180GB":    {"b200", "b200_sxm", "B200"},
	"B300-SXM-288GB":    {"b300", "b300_sxm", "B300"},
	"GB200-186GB":       {"gb200-nvl72", "gb200", "GB200"},
	"GH200-96GB":        {"", "", "GH200"},
	"H100-NVL-94GB":     {"", "", "H100"},
	"H100-PCIe-80GB":    {"", "", "H100"},
	"H100-SXM-80GB":     {"h100", "h100_sxm", "H100"},
	"H20-96GB":          {"", "", "H20"},
	"H200-SXM-141GB":    {"h200", "h200_sxm", "H200"},
	"L4-24GB":           {"", "", "L4"},
	"L40S-48GB":         {"l40s", "l40s", "L40S"},
	"MI300X-192GB":      {"", "", "MI300X"},
	"RTX-4090-24GB":     {"", "", "RTX"},
	"RTX-6000-Ada-48GB": {"", "", "RTX"},
	"RTX-PRO-6000-96GB": {"", "", "RTX"},
}

// SpelledBy is a consumer's name of a device; false where the consumer has none.
func SpelledBy(c Consumer, device string) (string, bool) {
	if h, ok := Datasheet(device); ok {
		device = h.Name
	}
	name := spellings[device][c]
	return name, name != ""
}

// Spelled are a consumer's names, sorted.
func Spelled(c Consumer) []string {
	var out []string
	for _, names := range spellings {
		if n := names[c]; n != "" {
			out = append(out, n)
		}
	}
	slices.Sort(out)
	return slices.Compact(out)
}

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
