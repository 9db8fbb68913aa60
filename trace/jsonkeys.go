package trace

// This file refuses JSON objects in which a key is written twice.

import (
	"encoding/json"
	"fmt"
)

// UnmarshalJSON does what json.Unmarshal does, and returns an error for a text in which an object
// has a key twice, and before decoding for one that would take too much memory.
func UnmarshalJSON(text []byte, v any) error {
	if err := CheckMemory(text, v); err != nil {
		return err
	}
	if err := json.Unmarshal(text, v); err != nil {
		return err
	}
	if e := TwiceKey(text); e != nil {
		return e
	}
	return nil
}

// mostListed is the number of keys of an object up to which TwiceKey compares them one by one, which
// is faster than a map for so few; beyond, it uses a map.
const mostListed = 24

// TwiceKey returns an error with the place of the key if the text, which must be valid JSON, has an
// object with a key twice; nil otherwise. JSON does not define which of the two values counts.
func TwiceKey(text []byte) *SyntaxError {
	type object struct {
		few  []string        // the keys so far, up to mostListed
		many map[string]bool // the keys of an object with more; nil before
	}
	var open []*object // the brackets around the current byte, outermost first; nil for a list
	isKey := false     // the next text is a key: the one after { or after a comma in an object
	for i := 0; i < len(text); i++ {
		switch text[i] {
		case '{':
			open = append(open, &object{})
			isKey = true
		case '[':
			open = append(open, nil)
		case '}', ']':
			open = open[:max(0, len(open)-1)]
		case ',':
			isKey = len(open) > 0 && open[len(open)-1] != nil
		case '"':
			from := i + 1
			for i++; i < len(text) && text[i] != '"'; i++ {
				if text[i] == '\\' {
					i++
				}
			}
			if !isKey {
				continue
			}
			isKey = false
			o := open[len(open)-1]
			key := string(text[from:min(i, len(text))])
			isTwice := o.many[key]
			for _, k := range o.few {
				isTwice = isTwice || k == key
			}
			if isTwice {
				line, col := Position(text, int64(i))
				return &SyntaxError{Line: line, Col: col,
					Msg: fmt.Sprintf("got the key %.40q twice in one object", key)}
			}
			if o.many != nil {
				o.many[key] = true
				continue
			}
			o.few = append(o.few, key)
			if len(o.few) > mostListed {
				o.many = map[string]bool{}
				for _, k := range o.few {
					o.many[k] = true
				}
				o.few = nil
			}
		}
	}
	return nil
}
