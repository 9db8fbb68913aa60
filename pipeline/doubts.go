package pipeline

import "github.com/blis-train/blis-train/trace"

// doubts are findings about the files a stage reads: told at once, and put into
// the documents that are made of them.
type doubts struct {
	tell  func([]trace.Finding) // nil: nobody hears them at once
	found []trace.Finding
}

func (d *doubts) add(found []trace.Finding) {
	if d.tell != nil {
		d.tell(found)
	}
	d.found = append(d.found, found...)
}

// before puts them in front of a document's warnings.
func (d *doubts) before(warnings []trace.Finding) []trace.Finding {
	if len(d.found) == 0 {
		return warnings
	}
	return append(d.found[:len(d.found):len(d.found)], warnings...)
}
