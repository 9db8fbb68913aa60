package vllm

// This file reads Python literals, in which vLLM logs its arguments.

import (
	"regexp"
	"strconv"
	"strings"
)

// ParsePython returns the value of a printed Python literal: dict, list, tuple, string, number,
// True, False, None. ok is false if the text is anything else.
func ParsePython(text string) (value any, ok bool) {
	return (&pythonReader{text: text}).value()
}

// pythonReader parses a literal at pos. Its methods return false for text that is none.
type pythonReader struct {
	text  string
	pos   int // of the next byte
	depth int // of nesting
}

// maxPythonDepth bounds nesting, so that a hostile log cannot exhaust the stack.
const maxPythonDepth = 100

// skip skips blanks.
func (p *pythonReader) skip() {
	for p.pos < len(p.text) && strings.IndexByte(" \t\r\n", p.text[p.pos]) >= 0 {
		p.pos++
	}
}

// peek returns the next byte that is not blank, 0 at the end.
func (p *pythonReader) peek() byte {
	p.skip()
	if p.pos < len(p.text) {
		return p.text[p.pos]
	}
	return 0
}

// value returns a value of any type.
func (p *pythonReader) value() (any, bool) {
	p.depth++
	defer func() { p.depth-- }()
	if p.depth > maxPythonDepth {
		return nil, false
	}
	switch c := p.peek(); c {
	case '{':
		return p.dict('}', ':')
	case '[':
		return p.list(']')
	case '(':
		return p.list(')')
	case '\'', '"':
		return p.str(c)
	}
	if name := printedObject.FindStringSubmatch(p.text[p.pos:]); name != nil {
		own := *p
		own.pos += len(name[1])
		if v, ok := own.dict(')', '='); ok {
			p.pos = own.pos
			return v, true
		}
	}
	return p.word()
}

// printedObject matches the beginning of a dataclass as Python prints it,
// EPLBConfig(window_size=1000, ...).
var printedObject = regexp.MustCompile(`^([A-Za-z_][\w.]*)\(\w+=`)

// items calls one for each of the items between a bracket and its end, which commas separate. It
// returns false if the text is no such list.
func (p *pythonReader) items(end byte, one func() bool) bool {
	p.pos++
	for p.peek() != end {
		if !one() {
			return false
		}
		if p.peek() == ',' {
			p.pos++
		} else if p.peek() != end {
			return false
		}
	}
	p.pos++
	return true
}

// dict returns the keys and values up to the bracket end. The byte between a key and its value is
// the argument is: ':' in a dict, '=' in a printed object.
func (p *pythonReader) dict(end, is byte) (any, bool) {
	values := map[string]any{}
	return values, p.items(end, func() bool {
		key, ok := p.value()
		name, isText := key.(string)
		if !ok || !isText || p.peek() != is {
			return false
		}
		p.pos++
		values[name], ok = p.value()
		return ok
	})
}

// list returns the values up to the bracket end.
func (p *pythonReader) list(end byte) (any, bool) {
	values := []any{}
	ok := p.items(end, func() bool {
		v, ok := p.value()
		values = append(values, v)
		return ok
	})
	return values, ok
}

// str returns a string up to the closing quote.
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

// word returns a number, a constant, or any other printed object, such as an enum, as its text.
func (p *pythonReader) word() (any, bool) {
	start := p.pos
	open := 0 // parentheses and angle brackets of the object, within which nothing ends it
	for ; p.pos < len(p.text); p.pos++ {
		c := p.text[p.pos]
		if c == '(' || c == '<' {
			open++
		}
		if open == 0 && strings.IndexByte(",:=]})", c) >= 0 {
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
	case "None", "null": // vLLM prints some of its configurations as JSON
		return nil, true
	case "True", "true":
		return true, true
	case "False", "false":
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
