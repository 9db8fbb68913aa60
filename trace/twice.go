package trace

import "fmt"

// mostListed is how many keys of an object are compared one by one.
const mostListed = 24

// TwiceKey says which key stands twice in an object of a valid JSON text, and behind which byte
// the second stands; "" for none. JSON leaves open which of them counts.
func TwiceKey(text []byte) (why string, offset int64) {
	type object struct {
		list []string
		all  map[string]bool
	}
	var open []*object // nil for a list
	isKey := false
	for i := 0; i < len(text); i++ {
		switch text[i] {
		case '{':
			open, isKey = append(open, &object{}), true
		case '[':
			open, isKey = append(open, nil), false
		case '}', ']':
			open, isKey = open[:max(0, len(open)-1)], false
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
			o, key := open[len(open)-1], string(text[from:min(i, len(text))])
			isTwice := o.all[key]
			for _, k := range o.list {
				isTwice = isTwice || k == key
			}
			if isTwice {
				return fmt.Sprintf("got the key %.40q twice in one object", key), int64(i)
			}
			if o.list = append(o.list, key); len(o.list) > mostListed && o.all == nil {
				o.all = map[string]bool{}
			}
			if o.all != nil {
				for _, k := range o.list {
					o.all[k] = true
				}
				o.list = o.list[:0]
			}
		}
	}
	return "", 0
}
