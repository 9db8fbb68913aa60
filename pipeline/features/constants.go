package features

import (
	_ "embed"
	"reflect"
	"strings"

	"github.com/blis-train/blis-train/internal/files"
)

// constant is a number of a space, and where it stands there.
type constant struct {
	Name, At, Unit, Formula string
	Layered                 bool // derived in 1.3 as in 1.1
}

//go:embed constants.yaml
var constantsYAML []byte

// listed are the constants of constants.yaml: those of the model, the settings, and what each version adds.
var listed = files.Embedded[map[string][]constant](constantsYAML, "constants.yaml")

// constants lists the space's numbers in the order of the book: dimensions first, then everything
// derived.
func (s *Space) constants() (out []Quantity) {
	list := func(group string, all bool) {
		for _, c := range (*listed())[group] {
			if all || c.Layered {
				out = append(out, Quantity{c.Name, s.number(c.At), c.Unit, c.Formula})
			}
		}
	}
	if Layered(s.version) {
		list("settings", true)
		list(string(V13), true)
		out = append(out, s.attentionConstants()...)
		list("layers", true)
		list(string(V11), false)
		return out
	}
	list("model", true)
	list("settings", true)
	if s.version.Base() == V12 {
		list(string(V11), true)
	}
	list(string(s.version.Base()), true)
	return out
}

// number is a field of the space, by its path.
func (s *Space) number(path string) float64 {
	v := reflect.ValueOf(s)
	for name := range strings.SplitSeq(path, ".") {
		v = reflect.Indirect(v).FieldByName(name)
	}
	if v.CanInt() {
		return float64(v.Int())
	}
	return v.Float()
}

func given(name string, v float64, unit string) Quantity {
	return Quantity{Name: name, Value: v, Unit: unit}
}
