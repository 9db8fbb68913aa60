package report

import (
	_ "embed"
	"fmt"
	"slices"
	"strings"
	"sync"

	"gopkg.in/yaml.v3"
)

//go:embed words.yaml
var wordsYAML []byte

// wording is what the page says beside numbers: words.yaml.
type wording struct {
	Columns  map[string]columns `yaml:"columns"` // that several tables share
	Tables   map[string]Table   `yaml:"tables"`
	Figures  map[string]Figure  `yaml:"figures"`
	Gates    map[string]Meaning `yaml:"gates"`
	Causes   map[string]Meaning `yaml:"causes"` // of a failed gate
	Purposes map[string]string  `yaml:"purposes"`
	Glossary []struct{ Word, Meaning string }
}

// Meaning says in plain words what a gate compares or a cause is and, for somebody who
// simulates with the coefficients, what it means and what to do.
type Meaning struct{ What, Means, Do string }

// Failing is the sentence under a gate that failed.
func (m Meaning) Failing() string { return m.Means + "; " + m.Do }

// Gates are those of every gate, by name.
func Gates() map[string]Meaning { return words().Gates }

// Causes are those of the causes of a diagnosis, by name.
func Causes() map[string]Meaning { return words().Causes }

var words = sync.OnceValue(func() *wording {
	w := &wording{}
	if err := yaml.Unmarshal(wordsYAML, w); err != nil {
		panic("report: words.yaml: " + err.Error())
	}
	return w
})

// tableOf is the table of that name without rows. One that is made for each of several things says of which.
func tableOf(name string, of ...string) *Table {
	t, known := words().Tables[name]
	if !known {
		panic("report: words.yaml has no table " + name)
	}
	t.ID, t.Cols = name, slices.Clone(t.Cols)
	if len(of) > 0 {
		t.ID, t.Caption = name+"-"+slug(of[0]), fmt.Sprintf(t.Caption, of[0])
	}
	return &t
}

// figureOf is the figure of that name without panels.
func figureOf(name string) *Figure {
	f, known := words().Figures[name]
	if !known {
		panic("report: words.yaml has no figure " + name)
	}
	f.ID, f.Legend = name, slices.Clone(f.Legend)
	return &f
}

// columns are written as one line each, "# Spread [ms] ? P95 - P5 of the offset": # for numbers, the unit in brackets,
// help behind the question mark. A list in the list is taken apart.
type columns []Column

// UnmarshalYAML reads them.
func (l *columns) UnmarshalYAML(n *yaml.Node) error {
	if n.Kind == yaml.AliasNode {
		n = n.Alias
	}
	for _, item := range n.Content {
		if item.Kind != yaml.ScalarNode {
			if err := l.UnmarshalYAML(item); err != nil {
				return err
			}
			continue
		}
		*l = append(*l, columnOf(item.Value))
	}
	return nil
}

func columnOf(text string) (c Column) {
	text, c.Help, _ = strings.Cut(text, " ? ")
	text, c.Unit, _ = strings.Cut(strings.TrimSuffix(text, "]"), " [")
	c.Head, c.Num = strings.CutPrefix(text, "# ")
	return c
}

// UnmarshalText reads a key of a legend, "prefill dashed waiting": paint, shape (area, line or dashed), text.
func (k *Key) UnmarshalText(text []byte) error {
	paint, rest, _ := strings.Cut(string(text), " ")
	shape, words, _ := strings.Cut(rest, " ")
	i := slices.IndexFunc(paints, func(p paintValue) bool { return p.name == paint })
	if i < 0 {
		return fmt.Errorf("legend: got paint %q", paint)
	}
	*k = Key{P: Paint(i), Area: shape == "area", Text: words}
	if shape == "dashed" {
		k.Dash = Dashed
	}
	return nil
}
