package extract

import (
	"path/filepath"
	"slices"

	"github.com/blis-train/blis-train/deploy"
	"github.com/blis-train/blis-train/internal/stat"
	"github.com/blis-train/blis-train/trace"
)

// Planned is a run folder as a plan keeps it: where it is and what it holds.
type Planned struct {
	ID         string   `json:"id"`
	Dir        string   `json:"dir"` // absolute
	Folder     string   `json:"folder"`
	Files      []string `json:"files,omitempty"` // explicit dumps, absolute
	Deployment string   `json:"deployment"`      // SHA-256 of all that is said of it
	Inputs     []Sized  `json:"inputs"`
	Pieces     []Piece  `json:"pieces,omitempty"` // of inputs that are read in parts
}

// Sized is an input of a run folder before anything of it is read.
type Sized struct {
	Kind  string `json:"kind"` // as in extract.json
	Name  string `json:"name"` // relative, as in extract.json
	Bytes int64  `json:"bytes"`
}

// Bytes is the size of all inputs.
func (p *Planned) Bytes() int64 {
	return stat.Sum(p.Inputs, func(in Sized) int64 { return in.Bytes })
}

// Plan is the run folder as a plan keeps it, with inputs of more than every bytes cut where
// they can be; 0 cuts none. Standard input cannot be read again and is refused.
func (d *RunDir) Plan(every int64) (*Planned, error) {
	p := &Planned{ID: d.ID, Folder: d.Folder, Deployment: deploymentHash(d.Deployment)}
	err := d.Bad
	if err != nil {
		return nil, err
	}
	if p.Dir, err = filepath.Abs(d.Dir); err != nil {
		return nil, err
	}
	for _, f := range d.Files {
		if f == "-" {
			return nil, trace.Errorf(CodeNoRuns, "run %s: got standard input, want files: several processes read them", d.ID)
		}
		if f, err = filepath.Abs(f); err != nil {
			return nil, err
		}
		p.Files = append(p.Files, f)
	}
	set, err := d.open()
	if err != nil {
		return nil, err
	}
	p.Inputs = set.sizes()
	p.Pieces, err = set.cut(every)
	return p, err
}

// planAgain is the hint when inputs changed.
const planAgain = "plan again into another folder"

// Open finds the run folder of a plan again; set is what overrides its run.yaml. That it
// is not what was planned is an error.
func (p *Planned) Open(set []string) (*RunDir, error) {
	dep, err := deploy.LoadRun(p.Dir, set...)
	if err != nil {
		return nil, err
	}
	d := &RunDir{ID: p.ID, Dir: p.Dir, Folder: p.Folder, Files: p.Files, Deployment: dep}
	opened, err := d.open()
	if err != nil {
		return nil, err
	}
	sizes := opened.sizes()
	if deploymentHash(dep) != p.Deployment {
		return nil, trace.Errorf(codeInputsChanged, "run %s: run.yaml or what it names is not what was planned (%s)", p.ID,
			p.Dir).WithHint(planAgain)
	}
	for i, s := range sizes {
		if i >= len(p.Inputs) || s != p.Inputs[i] {
			return nil, trace.Errorf(codeInputsChanged, "run %s: %s of %d bytes is not what was planned", p.ID, s.Name, s.Bytes).WithHint(planAgain)
		}
	}
	if len(sizes) < len(p.Inputs) {
		return nil, trace.Errorf(codeInputsChanged, "run %s: got %d inputs, want the %d that were planned", p.ID, len(sizes),
			len(p.Inputs)).WithHint(planAgain)
	}
	return d, nil
}

// Longest is the name and size of the largest input, or of its largest part, which one worker
// has to read.
func (p *Planned) Longest() Sized {
	list := slices.Clone(p.Inputs)
	for i := range list {
		longest := int64(0)
		for _, c := range p.Pieces {
			if c.Part != nil && c.Kind == list[i].Kind && c.Name == list[i].Name {
				longest = max(longest, c.Part.To-c.Part.From)
			}
		}
		if longest > 0 {
			list[i].Bytes = longest
		}
	}
	return slices.MaxFunc(list, func(a, b Sized) int { return int(min(max(a.Bytes-b.Bytes, -1), 1)) })
}
