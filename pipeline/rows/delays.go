package rows

import (
	"cmp"
	"slices"
)

// delays are what clients' requests tell of the way to the engine and back: of one
// that met an idle engine exactly, of any other that its own pass is the first to
// begin after it arrived.
type delays struct {
	idle   []float64 // us
	bounds []bound
}

// bound is an end of an interval of delays, us.
type bound struct {
	at    float64
	opens bool
}

// idleRequests are enough to do without the others.
const idleRequests = 5

// see takes the requests whose whole prompts a pass ran.
func (d *delays) see(before, p *pass, ended []*occupant) {
	if !p.hasStart || !before.hasEnd {
		return
	}
	for _, o := range ended {
		if !(o.ttftUs > 0) {
			continue
		}
		sent := float64(o.firstNs)/1000 - o.ttftUs
		switch {
		case p.idle && len(ended) == 1 && p.decodes == 0 && sent >= float64(before.endNs)/1000:
			d.idle = append(d.idle, o.ttftUs-float64(p.endNs-p.startNs)/1000)
		case !p.idle && before.hasStart:
			if hi := float64(p.startNs)/1000 - sent; hi > 0 {
				d.bounds = append(d.bounds, bound{max(0, float64(before.startNs)/1000-sent), true}, bound{hi, false})
			}
		}
	}
}

// values are the delays of requests at an idle engine, or, of fewer than
// idleRequests, the one delay that most intervals hold; none without any.
func (d *delays) values() []float64 {
	if len(d.idle) >= idleRequests || len(d.bounds) == 0 {
		return d.idle
	}
	slices.SortStableFunc(d.bounds, func(a, b bound) int { return cmp.Compare(a.at, b.at) })
	open, most, from, to := 0, 0, 0.0, 0.0
	for i, b := range d.bounds {
		if !b.opens {
			open--
			continue
		}
		if open++; open > most && i+1 < len(d.bounds) {
			most, from, to = open, b.at, d.bounds[i+1].at
		}
	}
	return []float64{(from + to) / 2}
}
