package cluster

// This file lists the presets of the isolation experiment.

import "github.com/blis-train/blis-train/trace"

// preset is a named experiment: a load, its rate and its duration.
type preset struct {
	Name      string    // value of --preset
	Load      string    // key of loads
	Rate      float64   // requests per second; 0: Rho decides
	Rho       float64   // share of the measured capacity; 0 with Rate 0: the rate of the recorded requests
	Seconds   float64   // duration of the arrivals
	WarmupS   float64   // seconds at the start that are not counted
	Transient bool      // labelled transient, even if the backlog does not grow
	Loads     []float64 // further offered loads, as shares of the capacity, at which the gates are compared
}

// publishedPreset is the name of the preset and of the workload of the publication. It is unrelated to the
// seeds of random numbers.
const publishedPreset = "seed"

// presets are the experiments that a user can choose by name.
var presets = []preset{
	{Name: publishedPreset, Load: publishedPreset, Rate: 2000, Seconds: 1, Transient: true},
	{Name: "sustained", Load: publishedPreset, Rate: 2000, Seconds: 40, WarmupS: 10},
	{Name: "sweep", Load: publishedPreset, Rho: 1.1, Seconds: 40, WarmupS: 10, Loads: []float64{0.9, 1.1, 1.5, 2.1}},
	{Name: "groups", Load: "groups", Rho: 1.5, Seconds: 40, WarmupS: 10},
	{Name: "newcomer", Load: "newcomer", Rho: 1.5, Seconds: 40, WarmupS: 10},
	{Name: "bursty", Load: "bursty", Rho: 1.1, Seconds: 40, WarmupS: 10},
	{Name: mooncakePreset, Load: mooncakePreset, Rho: 1.5, Seconds: 40, WarmupS: 10},
	{Name: filePreset, Load: filePreset, Seconds: 40, WarmupS: 10},
}

// loads are the workloads of the presets, by name. The publication gives the means of workload seed
// (a prefix of 512 tokens, about 256 tokens after it, 128 output tokens); the ranges around them
// are assumptions.
var loads = map[string]load{
	publishedPreset: {
		Name:   publishedPreset,
		Groups: 1,
		Prefix: [2]int64{512, 512},
		Own:    [2]int64{128, 384},
		Output: [2]int64{64, 192},
		CV:     1,
	},
	"groups":       groupedLoad("groups", 1, false),
	"newcomer":     groupedLoad("newcomer", 1, true),
	"bursty":       groupedLoad("bursty", 2, false),
	mooncakePreset: {Name: mooncakePreset},
	filePreset:     {Name: filePreset},
}

// groupedLoad returns a load of 32 prefix groups (requests with a common prompt prefix), in which a
// quarter of the prompts share no prefix. cv is the coefficient of variation of the gaps between
// arrivals; with newcomer a new group appears at half-time.
func groupedLoad(name string, cv float64, newcomer bool) load {
	return load{
		Name:      name,
		Groups:    32,
		Prefix:    [2]int64{256, 4096},
		Own:       [2]int64{64, 448},
		Unique:    0.25,
		UniqueLen: [2]int64{512, 4096},
		Output:    [2]int64{64, 192},
		CV:        cv,
		Newcomer:  newcomer,
	}
}

// presetNames lists the presets for an error message or a help text.
func presetNames() string {
	var names []string
	for _, p := range presets {
		names = append(names, p.Name)
	}
	return trace.OneOf(names)
}

// presetOf returns the preset with a name; false if there is none.
func presetOf(name string) (preset, bool) {
	for _, p := range presets {
		if p.Name == name {
			return p, true
		}
	}
	return preset{}, false
}
