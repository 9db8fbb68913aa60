package clients

import (
	"path"

	"github.com/blis-train/blis-train/trace"
)

// Load is how one file's client offered its requests: the phase it makes where
// run.yaml names none.
type Load struct {
	Name           string // of the file, without its extension
	StartNs, EndNs int64  // first send and end of the last answer, client's clock
	Closed         bool   // a bound of concurrent requests held it
}

// fileLoad begins the load of a file.
func fileLoad(file string) *Load {
	name, _ := stemOf(path.Base(file))
	return &Load{Name: name}
}

// see takes the time of a request in.
func (l *Load) see(r *trace.ObservedRequest) {
	if !r.SendNs.OK {
		return
	}
	if l.EndNs == 0 || r.SendNs.V < l.StartNs {
		l.StartNs = r.SendNs.V
	}
	l.EndNs = max(l.EndNs, r.LastChunkNs.Or(r.SendNs.V)+1)
}

// offered keeps the load of a file whose requests have stamps.
func (c *Reader) offered(l *Load) {
	if l.EndNs > 0 {
		c.Loads = append(c.Loads, *l)
	}
}
