package deploy

import (
	"strconv"
	"strings"
)

// parsePython reads a printed Python literal: dict, list, tuple, string,
// number, True, False, None. ok is false when the text is anything else.
func parsePython(text string) (value any, ok bool) {
	p := &pythonReader{text: text}
	value, ok = p.value()
	return value, ok
}

type pythonReader struct {
	text  string
	pos   int
	depth int
}

// maxPythonDepth bounds nesting, so that a hostile log cannot exhaust the stack.
const maxPythonDepth = 100

func (p *pythonReader) skip() {
	for p.pos < len(p.text) && strings.IndexByte(" \t\r\n", p.text[p.pos]) >= 0 {
		p.pos++
	}
}

func (p *pythonReader) peek() byte {
	p.skip()
	if p.pos < len(p.text) {
		return p.text[p.pos]
	}
	return 0
}

func (p *pythonReader) value() (any, bool) {
	p.depth++
	defer func() { p.depth-- }()
	if p.depth > maxPythonDepth {
		return nil, false
	}
	switch c := p.peek(); c {
	case '{':
		return p.dict()
	case '[':
		return p.list(']')
	case '(':
		return p.list(')')
	case '\'', '"':
		return p.str(c)
	}
	return p.word()
}

func (p *pythonReader) dict() (any, bool) {
	values := map[string]any{}
	for p.pos++; ; {
		if p.peek() == '}' {
			p.pos++
			return values, true
		}
		key, ok := p.value()
		name, isText := key.(string)
		if !ok || !isText || p.peek() != ':' {
			return nil, false
		}
		p.pos++
		v, ok := p.value()
		if !ok {
			return nil, false
		}
		values[name] = v
		if p.peek() == ',' {
			p.pos++
		} else if p.peek() != '}' {
			return nil, false
		}
	}
}

func (p *pythonReader) list(end byte) (any, bool) {
	values := []any{}
	for p.pos++; ; {
		if p.peek() == end {
			p.pos++
			return values, true
		}
		v, ok := p.value()
		if !ok {
			return nil, false
		}
		values = append(values, v)
		if p.peek() == ',' {
			p.pos++
		} else if p.peek() != end {
			return nil, false
		}
	}
}

func (p *pythonReader) str(quote byte) (any, bool) {
	var b strings.Builder
	for p.pos++; p.pos < len(p.text); p.pos++ {
		switch c := p.text[p.pos]; {
		case c == quote:
			p.pos++
			return b.String(), true
		case c == '\\' && p.pos+1 < len(p.text):
			p.pos++
			b.WriteByte(p.text[p.pos])
		default:
			b.WriteByte(c)
		}
	}
	return nil, false
}

// word is a number or a name; an object's repr, such as an enum, is its text.
func (p *pythonReader) word() (any, bool) {
	start := p.pos
	open := 0
	for ; p.pos < len(p.text); p.pos++ {
		c := p.text[p.pos]
		if c == '(' || c == '<' {
			open++
		}
		if open == 0 && strings.IndexByte(",:]})", c) >= 0 {
			break
		}
		if (c == ')' || c == '>') && open > 0 {
			open--
		}
	}
	text := strings.TrimSpace(p.text[start:p.pos])
	switch text {
	case "":
		return nil, false
	case "None":
		return nil, true
	case "True":
		return true, true
	case "False":
		return false, true
	}
	if n, err := strconv.ParseInt(text, 10, 64); err == nil {
		return n, true
	}
	if f, err := strconv.ParseFloat(text, 64); err == nil {
		return f, true
	}
	return text, true
}
