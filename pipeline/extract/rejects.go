package extract

import (
	"encoding/json"
	"os"
	"path/filepath"

	"github.com/blis-train/blis-train/internal/files"
	"github.com/blis-train/blis-train/result"
)

// This file writes rejected.jsonl, the list of dropped records that --why-rejected asks for.

// rejects writes rejected.jsonl. A nil *rejects writes nothing.
type rejects struct {
	file *files.Pending
	enc  *json.Encoder
}

// openRejects creates rejected.jsonl and returns its writer; nil if it was not asked for.
func openRejects(o *Options) (*rejects, error) {
	if !o.WhyRejected {
		return nil, nil
	}
	if err := os.MkdirAll(o.Out, 0o777); err != nil {
		return nil, err
	}
	f, err := files.Begin(filepath.Join(o.Out, rejectedName))
	if err != nil {
		return nil, err
	}
	return &rejects{file: f, enc: json.NewEncoder(f)}, nil
}

// sum returns the name, size and hash of the file before it gets its final name.
func (r *rejects) sum() (*result.Input, error) {
	if r == nil {
		return nil, nil
	}
	in, err := inputOf(r.file.Name(), rejectedName)
	return &in, err
}

// close gives the file its name.
func (r *rejects) close() error {
	if r == nil {
		return nil
	}
	return r.file.Commit()
}

// abort removes the file. After close it does nothing.
func (r *rejects) abort() {
	if r != nil {
		r.file.Abort()
	}
}
