package sim

import (
	"errors"
	"strconv"
)

func decimal(n int64) string { return strconv.FormatInt(n, 10) }

// span is one ended span in its three parts: the events of a step span are large
// and never copied.
type span struct{ head, events, tail buffer }

func spanHead(b *buffer, traceID, spanID, parent string, flags int64, name string, kind, start, end int64) {
	b.raw(`{"traceId":"` + traceID + `","spanId":"` + spanID + `"`)
	if parent != "" {
		b.raw(`,"parentSpanId":"` + parent + `"`)
	}
	b.raw(`,"flags":` + decimal(flags) + `,"name":"` + name + `","kind":` + decimal(kind))
	b.raw(`,"startTimeUnixNano":"` + decimal(start) + `","endTimeUnixNano":"` + decimal(max(start, end)) + `"`)
}

func spanTail(b *buffer, dropped int64) {
	if dropped > 0 {
		b.raw(`,"droppedEventsCount":` + decimal(dropped))
	}
	b.raw(`,"status":{}}`)
}

// The producer's exporter: a line every five seconds, or when it holds many spans.
const (
	lineNs    = 5_000_000_000
	lineSpans = 512
)

// line writes the ended spans as one line when it is time, or when forced. The
// engine and the API server are two processes: two resources.
func (p *Dump) line(wall int64, force bool) {
	n := len(p.core) + len(p.api) + len(p.steps)
	if n == 0 || !force && n < lineSpans && wall-p.lastLine < lineNs {
		return
	}
	p.lastLine = wall
	p.write(`{"resourceSpans":[`)
	if len(p.core)+len(p.steps) > 0 {
		p.resource()
		p.scope("vllm.scheduler", p.core)
		if len(p.core) > 0 && len(p.steps) > 0 {
			p.write(",")
		}
		p.scope("vllm.scheduler.step", p.steps)
		p.write(`]}`)
		if len(p.api) > 0 {
			p.write(",")
		}
	}
	if len(p.api) > 0 {
		p.resource()
		p.scope("vllm.api", p.api)
		p.write(`]}`)
	}
	p.write("]}\n")
	for _, s := range p.steps {
		p.spare = append(p.spare, s.events[:0])
	}
	clear(p.steps)
	p.core, p.api, p.steps = p.core[:0], p.api[:0], p.steps[:0]
}

func (p *Dump) write(s string) {
	p.out.WriteString(s) // the writer keeps its first error until Close
}

func (p *Dump) resource() {
	var b buffer
	b.raw(`{"resource":{"attributes":[`)
	b.text("telemetry.sdk.language", "python")
	b.text("telemetry.sdk.name", "opentelemetry")
	b.text("telemetry.sdk.version", "1.26.0")
	b.text("service.name", p.opt.ServiceName)
	b.raw(`]},"scopeSpans":[`)
	p.write(string(b))
}

func (p *Dump) scope(name string, spans []span) {
	if len(spans) == 0 {
		return
	}
	p.write(`{"scope":{"name":"` + name + `"},"spans":[`)
	for i := range spans {
		if i > 0 {
			p.write(",")
		}
		for _, part := range []buffer{spans[i].head, spans[i].events, spans[i].tail} {
			p.out.Write(part)
		}
	}
	p.write(`]}`)
}

// Close ends the open step span, as the producer's shutdown does, and writes
// what is left. Requests still inside are lost, as they are there.
func (p *Dump) Close(lastStep int64) error {
	if len(p.step.starts) > 0 {
		p.closeStepSpan(lastStep, p.lastWall())
	}
	p.line(0, true)
	err := p.out.Flush()
	if p.kv != nil {
		err = errors.Join(err, p.kv.out.Flush())
	}
	return err
}
