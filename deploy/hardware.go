package deploy

import (
	"bytes"
	"embed"
	"encoding/json"
	"errors"
	"io"
	"maps"
	"slices"
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
