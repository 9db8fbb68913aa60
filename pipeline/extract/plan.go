package extract

import (
	"cmp"
	"path/filepath"
	"slices"

	"github.com/blis-train/blis-train/deploy"
	"github.com/blis-train/blis-train/trace"
)

// This file plans the extraction of run folders by several processes, and checks in these processes
// that the folders are still those of the plan.

// Planned is a run folder in the plan of an extraction by several processes.
type Planned struct {
	ID         string   `json:"id"`
	Dir        string   `json:"dir"`             // absolute
	Folder     string   `json:"folder"`          // as in RunDir, relative to an argument of the command line
	Files      []string `json:"files,omitempty"` // explicit dumps, absolute
	Deployment string   `json:"deployment"`      // SHA-256 of the deployment as loaded
	Inputs     []Sized  `json:"inputs"`
	Pieces     []Piece  `json:"pieces,omitempty"` // of the inputs that are read in parts
}

// Sized is an input of a run folder with its size.
type Sized struct {
	Kind  string `json:"kind"` // as in extract.json
	Name  string `json:"name"` // relative, as in extract.json
	Bytes int64  `json:"bytes"`
}

// Bytes returns the size of all inputs.
func (p *Planned) Bytes() int64 {
	n := int64(0)
	for _, in := range p.Inputs {
		n += in.Bytes
	}
	return n
}

// Plan returns the run folder's part of a plan for several processes. Inputs of more than pieceBytes
// are cut into pieces of about that size if their form allows it; 0 cuts none. Standard input is
// refused, because only one process can read it.
func (d *RunDir) Plan(pieceBytes int64) (*Planned, error) {
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
			return nil, trace.Errorf(CodeNoRuns,
				"run %s: got standard input, want files: several processes read them", d.ID)
		}
		if f, err = filepath.Abs(f); err != nil {
			return nil, err
		}
		p.Files = append(p.Files, f)
	}
	set, err := d.findInputs()
	if err != nil {
		return nil, err
	}
	p.Inputs = set.sizes()
	p.Pieces, err = set.cutPieces(pieceBytes)
	return p, err
}

// planAgain is the hint for inputs that have changed.
const planAgain = "plan again into another folder"

// Open returns the run folder of a plan. set overrides its run.yaml, as in Find. It is an error if
// the run folder changed since the plan was made.
func (p *Planned) Open(set []string) (*RunDir, error) {
	dep, err := deploy.LoadRun(p.Dir, set...)
	if err != nil {
		return nil, err
	}
	d := &RunDir{ID: p.ID, Dir: p.Dir, Folder: p.Folder, Files: p.Files, Deployment: dep}
	opened, err := d.findInputs()
	if err != nil {
		return nil, err
	}
	sizes := opened.sizes()
	if deploymentHash(dep) != p.Deployment {
		return nil, trace.Errorf(codeInputsChanged,
			"run %s: run.yaml or what it names is not what was planned (%s)", p.ID,
			p.Dir).WithHint(planAgain)
	}
	for i, s := range sizes {
		if i >= len(p.Inputs) || s != p.Inputs[i] {
			return nil, trace.Errorf(codeInputsChanged,
				"run %s: %s of %d bytes is not what was planned", p.ID, s.Name, s.Bytes).WithHint(planAgain)
		}
	}
	if len(sizes) < len(p.Inputs) {
		return nil, trace.Errorf(codeInputsChanged,
			"run %s: got %d inputs, want the %d that were planned", p.ID, len(sizes),
			len(p.Inputs)).WithHint(planAgain)
	}
	return d, nil
}

// Longest returns the name and size of the largest task for one worker: an input, or the largest
// part of one that is cut.
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
	return slices.MaxFunc(list, func(a, b Sized) int { return cmp.Compare(a.Bytes, b.Bytes) })
}
