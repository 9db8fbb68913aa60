package deploy

import "slices"

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
