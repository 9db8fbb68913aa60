package logged

// This file sets when each logged pass began and ended.

import (
	"github.com/blis-train/blis-train/trace"
)

// setEnds sets, on one clock, when each pass ended, and when it began if that is known.
func (f *filler) setEnds(a *timeAudit) {
	switch a.time {
	case timeCadence:
		for i := range f.passes {
			p := &f.passes[i]
			p.endNs = p.it.StampNs.V
			p.hasEnd = p.it.StampNs.OK
		}
	case timeElapsed:
		f.layEndToEnd()
		if c := a.constantUs; a.figures.ConstantUs.OK {
			f.addFinding(codeFilledIn, "elapsed plus %.2f ms a pass is the step time", c/1000)
		} else {
			f.addFinding(codeFilledIn, "elapsed is taken as the step time: the time between passes is not known")
		}
	case timeTicks:
		f.placeBetweenTicks()
	}
	f.setStarts(a)
}

// setStarts sets when each pass began: at the end of the pass before or, after idle time, at its
// own end less elapsed and constant. After idle time it stays unknown if elapsed is not the pass's own time.
func (f *filler) setStarts(a *timeAudit) {
	for i := range f.passes {
		p := &f.passes[i]
		ownNs := p.endNs - trace.Ns(p.it.ElapsedUs+p.constantUs) // start by its own time
		isNext := i > 0 && p.next && p.hasEnd && f.passes[i-1].hasEnd
		switch {
		case !isNext: // of what came before nothing is known
			p.idle = true
			p.startNs = ownNs
		default:
			beforeNs := f.passes[i-1].endNs
			// No request links both passes. Then the engine was idle, unless a synchronous engine began the pass
			// soon after the one before: the constant is in ownNs already, so one less of idleFactor is asked for.
			p.idle = !p.follows && (!a.sync || float64(ownNs-beforeNs)/1000 > (idleFactor-1)*p.constantUs+idleUs)
			p.startNs = beforeNs
			if p.idle {
				p.startNs = max(ownNs, beforeNs)
			}
		}
		p.hasStart = p.hasEnd && (a.sync || !p.idle) && !p.afterClockSet
	}
}
