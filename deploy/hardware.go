package deploy

// This file has the built-in devices and reads a user's own datasheets.

import (
	"bytes"
	"cmp"
	"embed"
	"encoding/json"
	"errors"
	"io"
	"maps"
	"regexp"
	"slices"
	"strings"
	"sync"

	"github.com/blis-train/blis-train/internal/stat"
	"github.com/blis-train/blis-train/trace"
	"github.com/blis-train/blis-train/vllm"
)

// Values of keys that a datasheet does not state (spec#hardware).
const (
	DefaultPCIeEfficiency = 0.75
	DefaultLatencyUs      = 10.0 // collective latency over NVLink
)

//go:embed hardware/*.json
var sheetFiles embed.FS

// datasheet is a built-in device with the source of its figures and its other names.
type datasheet struct {
	Hardware
	Source string   `json:"source"` // publication of the figures, with the date
	Names  []string `json:"names"`  // as the driver reports the device
	// Spelled is the device's name by [Consumer], "" where that has none. Short forms of the datasheet's
	// own name need no entry (aliases).
	Spelled [consumers]string `json:"spelled"`
	// All-reduce times by number of GPUs as [bytes, us] ascending: inside CUDA graphs, outside, and
	// fused with the residual addition and RMSNorm.
	AllReduceSource string               `json:"all_reduce_source"`
	Graph           map[int64]*AllReduce `json:"all_reduce_graph_us"`
	Eager           map[int64]*AllReduce `json:"all_reduce_eager_us"`
	Fused           map[int64]*AllReduce `json:"all_reduce_fused_us"`
}

// builtin parses the embedded datasheets once.
var builtin = sync.OnceValue(func() (sheets []datasheet) {
	entries, err := sheetFiles.ReadDir("hardware")
	for _, e := range entries {
		text, _ := sheetFiles.ReadFile("hardware/" + e.Name())
		list, bad := readSheets(bytes.NewReader(text), e.Name())
		sheets = append(sheets, list...)
		err = cmp.Or(err, bad)
	}
	if err != nil {
		panic("deploy: embedded datasheets: " + err.Error())
	}
	stat.SortStable(sheets, func(a, b datasheet) int { return strings.Compare(a.Name, b.Name) })
	return sheets
})

// Datasheets returns the built-in devices, sorted by name (spec#datasheets).
func Datasheets() []Hardware {
	var devices []Hardware
	for _, sheet := range builtin() {
		devices = append(devices, sheet.Hardware)
	}
	return devices
}

// Datasheet returns a built-in device by full name, by its driver's name or by alias, ignoring
// case: "H100-SXM-80GB", "NVIDIA H100 80GB HBM3", "H100", "RTX 4090". An alias of two devices is
// that of the one with more memory.
func Datasheet(name string) (Hardware, bool) {
	if h := sheetOf(name); h != nil {
		return h.Hardware, true
	}
	return Hardware{}, false
}

// sheetOf returns the datasheet of a device name; nil if there is none.
func sheetOf(name string) (found *datasheet) {
	want := aliasKey(name)
	if want == "" {
		return nil
	}
	for i := range builtin() {
		h := &builtin()[i]
		keys := &sheetKeys()[i]
		if slices.Contains(keys.own, want) {
			return h
		}
		if slices.Contains(keys.short, want) && (found == nil || h.MemoryGB > found.MemoryGB) {
			found = h
		}
	}
	return found
}

// deviceKeys are the alias keys by which a device is found: those of its own names, and its short forms.
type deviceKeys struct{ own, short []string }

// sheetKeys has the keys of the built-in devices, in the order of builtin.
var sheetKeys = sync.OnceValue(func() []deviceKeys {
	var all []deviceKeys
	for i := range builtin() {
		h := &builtin()[i]
		keys := deviceKeys{short: aliases(h.Name)}
		for _, name := range slices.Concat(h.Names, []string{h.Name}, h.Spelled[:Cluster]) {
			keys.own = append(keys.own, aliasKey(name))
		}
		all = append(all, keys)
	}
	return all
})

// aliases returns the short forms of a datasheet's name: without the memory size, without the form
// factor, and without both.
func aliases(name string) []string {
	parts := strings.Split(name, "-")
	noMemory := strings.Join(parts[:len(parts)-1], "")
	short := strings.ReplaceAll(noMemory, "SXM", "")
	return []string{aliasKey(noMemory), aliasKey(short), aliasKey(short) + aliasKey(parts[len(parts)-1])}
}

// aliasKey returns a normalised device name: without case, separators, vendor, memory type and the
// generation of the form factor, which drivers, cluster labels and catalogs write differently:
// h10080gb of "NVIDIA H100 80GB HBM3", a100sxm80gb of "A100-SXM4-80GB".
func aliasKey(name string) string {
	return aliasWords.ReplaceAllString(aliasSXM.ReplaceAllString(strings.ToLower(name), "sxm$1"), "")
}

var (
	aliasSXM   = regexp.MustCompile(`sxm[2-6]([^0-9]|$)`)
	aliasWords = regexp.MustCompile(`[-_ ]|nvidia|geforce|tesla|amd|instinct|oam|hbm[23]e?`)
)

// datasheetNames returns the names of the built-in devices.
func datasheetNames() string {
	var names []string
	for _, h := range builtin() {
		names = append(names, h.Name)
	}
	return strings.Join(names, ", ")
}

// readDatasheets returns the devices in a hardware.json, {"name": {TFlopsPeak, ...}}, sorted by
// name. Unknown keys are errors.
func readDatasheets(r io.Reader, file string) ([]Hardware, error) {
	sheets, err := readSheets(r, file)
	var devices []Hardware
	for _, sheet := range sheets {
		devices = append(devices, sheet.Hardware)
	}
	return devices, err
}

// readSheets returns the datasheets in a file, sorted by name.
func readSheets(r io.Reader, file string) ([]datasheet, error) {
	dec := json.NewDecoder(r)
	var sheets map[string]json.RawMessage
	err := dec.Decode(&sheets)
	if err == nil && dec.Decode(&json.RawMessage{}) != io.EOF {
		err = errors.New("got text behind the JSON object, want nothing")
	}
	list := make([]datasheet, 0, len(sheets))
	for _, name := range slices.Sorted(maps.Keys(sheets)) {
		h := datasheet{Hardware: Hardware{
			PCIeEfficiency:        DefaultPCIeEfficiency,
			InterconnectLatencyUs: DefaultLatencyUs,
		}}
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

// Consumer is a program, or family of programs, that has its own names for devices.
type Consumer int

// The consumers (spec#device-names).
const (
	BLISRegistry   Consumer = iota // parts of the BLIS registry's catalog: h100
	AIConfigurator                 // systems of AIConfigurator: h100_sxm
	Cluster                        // labels of autoscalers and of clusters: H100
	consumers
)

// SpelledBy returns a consumer's name for a device; false where it has none.
func SpelledBy(c Consumer, device string) (string, bool) {
	if h := sheetOf(device); h != nil {
		return h.Spelled[c], h.Spelled[c] != ""
	}
	return "", false
}

// Spelled returns a consumer's device names, sorted.
func (c Consumer) Spelled() []string {
	var names []string
	for _, sheet := range builtin() {
		if name := sheet.Spelled[c]; name != "" {
			names = append(names, name)
		}
	}
	slices.Sort(names)
	return slices.Compact(names)
}

// AllReduce has the times of one all-reduce in a tensor-parallel group by size in bytes, with the
// algorithm that vLLM selects for each size: TimeUs[i] at Bytes[i], ascending. It is immutable and safe to share.
type AllReduce struct{ Bytes, TimeUs []float64 }

// Us returns the time of an all-reduce in us: linear between published sizes, constant below the
// smallest (latency bound), proportional above the largest (bandwidth bound).
func (a *AllReduce) Us(bytes float64) float64 {
	n := len(a.Bytes)
	switch {
	case bytes <= a.Bytes[0]:
		return a.TimeUs[0]
	case bytes >= a.Bytes[n-1]:
		return a.TimeUs[n-1] * bytes / a.Bytes[n-1]
	}
	// Every simulated step of a tensor-parallel server searches here, and slices.BinarySearch takes twice as long.
	below, i := 0, n-1 // Bytes[below] < bytes <= Bytes[i]
	for below+1 < i {
		middle := int(uint(below+i) / 2)
		if a.Bytes[middle] < bytes {
			below = middle
		} else {
			i = middle
		}
	}
	t := (bytes - a.Bytes[below]) / (a.Bytes[i] - a.Bytes[below])
	return a.TimeUs[below] + t*(a.TimeUs[i]-a.TimeUs[below])
}

// UnmarshalJSON reads a list of [bytes, us].
func (a *AllReduce) UnmarshalJSON(text []byte) error {
	var knots [][2]float64
	err := json.Unmarshal(text, &knots)
	for _, k := range knots {
		a.Bytes = append(a.Bytes, k[0])
		a.TimeUs = append(a.TimeUs, k[1])
	}
	return err
}

// AllReduceOf returns the published curves of a built-in device for a number of GPUs, inside CUDA
// graphs and outside; nil where none is published.
func AllReduceOf(hardware string, gpus int64) (graph, eager *AllReduce) {
	h := sheetOf(hardware)
	if h == nil {
		return nil, nil
	}
	return h.Graph[gpus], h.Eager[gpus]
}

// Capability returns the compute capability of the GPU times 10, for the GPUs on which vLLM's
// defaults depend on it; 0 for others.
func (h *Hardware) Capability() int64 {
	name := aliasKey(h.Name)
	switch {
	case strings.Contains(name, "b300"):
		return 103
	case strings.Contains(name, "b200"):
		return 100
	case strings.HasPrefix(name, "h100"), strings.HasPrefix(name, "h200"), strings.HasPrefix(name, "h20"), strings.HasPrefix(name, "gh200"):
		return 90
	}
	return 0
}

// fastestPCIeGBs is the bandwidth of 16 lanes of PCIe 6.0, both directions. What is faster is no PCIe, such as the link
// between the CPU and the GPU of a GH200.
const fastestPCIeGBs = 256

// LinksOverPCIe reports whether the GPUs of a node are connected by PCIe alone, without NVLink: the interconnect has the
// bandwidth of PCIe in both directions, or less.
func (h *Hardware) LinksOverPCIe() bool {
	return h.InterconnectBandwidthGBs <= min(2*h.PCIeBandwidthGBs, fastestPCIeGBs)
}

// FusedAllReduceBytes returns the size in bytes up to which the engine reduces with FlashInfer's
// kernel that has the residual addition and the RMSNorm in it; 0 where it does not fuse.
func (d *Deployment) FusedAllReduceBytes() float64 {
	capability := d.Hardware.Capability()
	if !d.Engine.FusesAllReduce(d.TP, d.PP, d.DP, capability) {
		return 0
	}
	return vllm.FusedReduceMaxBytes(capability, d.TP)
}

// FusedAllReduce returns the times of that kernel, and the largest tensor in bytes that vLLM reduces
// with it. The curve is nil where the engine does not fuse or no time is published.
//
// Source: flashinfer-ai/flashinfer pull request 5178, hidden size 5120, fused columns of 4 and 8
// GPUs; the curve of two GPUs is that of four.
func (d *Deployment) FusedAllReduce() (curve *AllReduce, maxBytes float64) {
	maxBytes = d.FusedAllReduceBytes()
	curve = FusedAllReduceOf(d.Hardware.Name, d.TP)
	if maxBytes == 0 || curve == nil {
		return nil, 0
	}
	return curve, maxBytes
}

// FusedAllReduceOf returns the published times of the fused kernel on a device; nil where none are.
func FusedAllReduceOf(hardware string, gpus int64) *AllReduce {
	h := sheetOf(hardware)
	if h == nil {
		return nil
	}
	return h.Fused[gpus]
}
